"""`rl config import-zoo`: hyperparameter files of the SB3 Zoo as configs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli import EXIT_USAGE
from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import note, print_json, printable
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from rl_training.config.zoo.importer import Imported


def import_command(arguments: Arguments) -> int:
    from rl_training.config.zoo.importer import import_zoo

    (path,) = arguments.positional
    found, problems = import_zoo(path, algo=arguments.text("algo"), env_id=arguments.text("env"))
    output = arguments.text("output")
    many = len(found) + len(problems)
    if output is None and many > 1 and not arguments.switch("json"):
        raise UsageError(f"{path} has {many} environments; name one with --env, or a folder with --output")
    files = files_of(found, Path(output), many > 1) if output is not None else {}
    for item in found:
        report(item)
    for file, item in files.items():
        write(file, item.text())
        note(f"wrote {file}")
    if arguments.switch("json"):
        print_json(
            [
                {
                    "env_id": item.env_id,
                    "config": item.tree,
                    "dropped": item.dropped,
                    "notes": item.notes,
                }
                for item in found
            ]
        )
    elif output is None and found:
        print(found[0].text(), end="")
    for problem in problems:
        note(f"error: {printable(problem)}")
    return EXIT_USAGE if problems else 0


def report(item: Imported) -> None:
    """What was dropped and what differs, on stderr."""
    for key, reason in item.dropped.items():
        note(f"{printable(item.env_id)}: dropped {printable(key)}: {printable(reason)}")
    for text in item.notes:
        note(f"{printable(item.env_id)}: {printable(text)}")


def files_of(found: list[Imported], output: Path, many: bool) -> dict[Path, Imported]:
    """Where each config goes: a file of that name for one, `<algo>_<env>.yaml` inside a folder for more."""
    from rl_training.runs.names import name_part

    as_folder = output.is_dir() or many
    if as_folder and output.suffix in (".yaml", ".yml", ".json") and not output.is_dir():
        raise UsageError(f"--output {output}: several configs do not fit into one file; name a folder, or one --env")
    files = {output / f"{item.algo}_{name_part(item.env_id)}.yaml" if as_folder else output: item for item in found}
    if len(files) < len(found):
        raise UsageError("two environments would be written to one file; import them one by one with --env")
    for file in files:
        if file.exists():
            raise UsageError(f"{file} exists and is not overwritten; choose another --output")
    return files


def write(path: Path, text: str) -> None:
    from rl_training.system.atomic_io import atomic_write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path.absolute(), text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; choose another --output") from error
