"""`rl archive`: runs packed into files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import argument, json_flag, output_dir_flag, switch, text
from rl_training.cli.output import amount, print_json, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target, runs_of


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    target: str = argument(values="runs")
    output: str | None = text("file or s3://... to write (default <output-dir>/archives/<run>.tar.gz)", "FILE")
    remove: bool = switch("then clean the run: its config and final metrics stay")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: ArchiveOptions) -> int:
    from rl_training.experiments.keeping.archive import pack
    from rl_training.experiments.keeping.object_stores import pack_to_store
    from rl_training.runs.directory import RunDir

    output = options.output
    named = find_target(options.target, options.output_dir)
    is_single = isinstance(named, RunDir)
    if output and not is_single:
        raise UsageError("--output names one file; the runs of a group are packed one by one, into archives/")
    if output and "://" in output:
        assert isinstance(named, RunDir)
        size = pack_to_store(named, output, remove=options.remove)
        if options.json:
            print_json({"run": named.path, "archive": output, "bytes": size})
        else:
            show(f"{output}  ({amount(size)})")
        return 0
    files = {}
    for found in runs_of(named):
        files[found.path] = pack(found, Path(output).expanduser() if output else None, remove=options.remove)
        if not options.json:
            show(f"{files[found.path]}  ({amount(files[found.path].stat().st_size)})")
    if options.json:
        records = [
            {"run": path, "archive": file.absolute(), "bytes": file.stat().st_size} for path, file in files.items()
        ]
        print_json(records[0] if is_single else {"path": named.path.absolute(), "runs": records})
    return 0


COMMAND = Command(
    name="archive",
    summary="pack a run into one file, or each run of a group",
    usage="RUN|GROUP|SWEEP [flags]",
    options=ArchiveOptions,
    run=run,
    examples=(
        "rl archive latest",
        "rl archive latest --output baseline.tar.gz --remove",
        "rl archive latest --output s3://bucket/baseline.tar.gz",
    ),
    notes=f"{RUN_NAMES} {GROUP_NAMES}",
)
