"""`rl import`: an archived run, put back into a folder of runs. Nothing in the archive is executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import argument, json_flag, output_dir_flag, trust_flag
from rl_training.cli.output import note, print_json, printable, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import DEFAULT_DIR


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    file: str = argument()
    output_dir: str | None = output_dir_flag("folder to put the run into (default runs)")
    trust_plugins: bool = trust_flag()
    json: bool = json_flag()


def run(options: ImportOptions) -> int:
    from rl_training.experiments.keeping.archive import unpack
    from rl_training.trust import seals

    archive = Path(options.file).expanduser()
    if not archive.is_file():
        raise UsageError(f"no file '{archive}'; `rl archive RUN` makes one")
    folder = Path(options.output_dir or DEFAULT_DIR).expanduser()
    imported = unpack(archive, folder, trust_plugins=options.trust_plugins)
    stored = imported.stored_config()
    agreed = stored.is_own or seals.is_remembered(stored.identity)
    untrusted = [] if agreed else stored.foreign_code()
    if options.json:
        print_json({"run": imported.path, "untrusted": untrusted})
        return 0
    show(imported.path)
    if untrusted:
        names = printable(", ".join(untrusted))
        note(
            f"its config asks for code or addresses outside rl_training ({names}), so it cannot be evaluated or resumed"
        )
        note("if you trust that, import it again with --trust-plugins, or give the flag to 'rl eval' or 'rl resume'")
    return 0


COMMAND = Command(
    name="import",
    summary="bring an archived run back",
    usage="FILE [flags]",
    options=ImportOptions,
    run=run,
    examples=("rl import baseline.tar.gz", "rl import theirs.tar.gz --trust-plugins"),
    notes="Nothing in the archive is executed. A run whose config asks for code, commands or addresses that are not "
    "part of the package can be looked at, but not run until you agree with --trust-plugins, here or at 'rl eval'.",
)
