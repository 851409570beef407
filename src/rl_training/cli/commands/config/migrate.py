"""`rl config migrate`: a file of an older version in today's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.flags import argument, switch
from rl_training.cli.output import note
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class MigrateOptions:
    file: str = argument()
    write: bool = switch("replace the file instead of printing the result")


def run(options: MigrateOptions) -> int:
    from rl_training.config.loading import migrate_file

    path = Path(options.file)
    text = migrate_file(path)
    if not options.write:
        print(text, end="")
    elif text == path.read_text(encoding="utf-8-sig"):
        note(f"{path}: already in today's layout")
    else:
        write(path, text)
        note(f"{path}: rewritten in today's layout")
    return 0


def write(path: Path, text: str) -> None:
    from rl_training.system.atomic_io import atomic_write
    from rl_training.types import ConfigError

    try:
        atomic_write(path.resolve(), text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; print it without --write instead") from error


COMMAND = Command(
    name="config migrate",
    summary="rewrite a file of an older version in today's layout",
    usage="FILE [--write]",
    options=MigrateOptions,
    run=run,
    examples=("rl config migrate old.yaml", "rl config migrate old.yaml --write"),
)
