"""`rl export-policy`: write the policy of a run as a file that others can run, checked by playing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    allow_changed_config_flag,
    argument,
    checkpoint_flag,
    converted,
    json_flag,
    output_dir_flag,
    text,
    trust_flag,
    whole,
)
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.policy_of_run import answer, loading
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir

KINDS = ("onnx", "numpy", "torch", "bundle")


def read_kind(typed: str) -> str:
    """The name of a format."""
    if typed not in KINDS:
        raise UsageError(f"--format is {', '.join(KINDS[:-1])} or {KINDS[-1]}, not '{typed}'")
    return typed


@dataclass(frozen=True, kw_only=True)
class ExportPolicyOptions:
    run: str = argument(values="runs")
    format: str = converted(
        read_kind, "onnx", "onnx, numpy, torch or bundle, a folder to publish (default onnx)", "KIND"
    )
    checkpoint: int | str = checkpoint_flag()
    output: str | None = text("folder, or file of that name (default: export/ of the run)", "PATH")
    episodes: int | None = whole(
        "episodes of the check (default: as the run's evaluations), or of a bundle's scores (100)", low=1
    )
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: ExportPolicyOptions) -> int:
    return answer("export-policy", options, lambda target: exported(target, options), report_text)


def exported(target: RunDir, options: ExportPolicyOptions) -> dict[str, Any]:
    """Write and check the file; returns the record that `--json` prints."""
    about = {"run": str(target.path), "checkpoint": str(options.checkpoint), "format": options.format}
    if options.format == "bundle":
        from pathlib import Path

        from rl_training.experiments.keeping.bundle import write_bundle

        return about | write_bundle(
            target,
            Path(options.output) if options.output else None,
            episodes=options.episodes or 100,
            **loading(options),
        )
    from rl_training.eval import export

    report = export(target.path, options.format, options.output, episodes=options.episodes, **loading(options))
    return about | report.record()


def report_text(record: dict[str, Any]) -> str:
    """What was written and what the check found, in a few lines."""
    ties = f", {record['near_ties']:,} near-ties" if record["near_ties"] else ""
    return (
        "\n".join(record["files"])
        + f"\nthe file does what the policy does: {record['observations']:,} observations of "
        f"{record['episodes']} episodes, largest difference {record['largest_difference']:.1e}{ties}\n"
        f"return of the policy {number_text(record['policy_return'])}, of the file by itself "
        f"{number_text(record['file_return'])}" + (f"\n{record['note']}" if record.get("note") else "")
    )


COMMAND = Command(
    name="export-policy",
    summary="write the policy of a run as a file that others can run, checked by playing",
    usage="RUN [flags]",
    options=ExportPolicyOptions,
    run=run,
    examples=("rl export-policy latest", "rl export-policy latest --format numpy --checkpoint best --output policy"),
    notes=TARGETS,
)
