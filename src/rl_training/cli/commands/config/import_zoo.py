"""`rl config import-zoo`: hyperparameter files of the SB3 Zoo as configs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.exit_codes import EXIT_USAGE
from rl_training.cli.flags import argument, json_flag, text
from rl_training.cli.output import note, print_json, printable
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.config.zoo.importer import Imported


@dataclass(frozen=True, kw_only=True)
class ImportZooOptions:
    file: str = argument()
    env: str | None = text("the one environment to import (default: all that the file names)", "ID")
    algo: str | None = text("ppo, a2c, dqn, sac, td3 or ddpg (default: taken from the file's name)", "NAME")
    output: str | None = text("file for one config, folder for several (default: print it)", "PATH")
    json: bool = json_flag()


def run(options: ImportZooOptions) -> int:
    from rl_training.config.zoo.importer import import_zoo

    found, problems = import_zoo(options.file, algo=options.algo, env_id=options.env)
    output, many = options.output, len(found) + len(problems)
    if output is None and many > 1 and not options.json:
        raise UsageError(f"{options.file} has {many} environments; name one with --env, or a folder with --output")
    files = files_of(found, Path(output), many > 1) if output is not None else {}
    for item in found:
        report(item)
    for file, item in files.items():
        write(file, item.text())
        note(f"wrote {file}")
    if options.json:
        print_json(
            [
                {"env_id": item.env_id, "config": item.tree, "dropped": item.dropped, "notes": item.notes}
                for item in found
            ]
        )
    elif output is None and found:
        print(found[0].text(), end="")
    for problem in problems:
        note(f"error: {printable(problem)}")
    return EXIT_USAGE if problems else 0


def report(item: Imported) -> None:
    """Say on stderr what was dropped and what differs."""
    for key, reason in item.dropped.items():
        note(f"{printable(item.env_id)}: dropped {printable(key)}: {printable(reason)}")
    for line in item.notes:
        note(f"{printable(item.env_id)}: {printable(line)}")


def files_of(found: list[Imported], output: Path, many: bool) -> dict[Path, Imported]:
    """The file of each config: `output` itself for one, `<algo>_<env>.yaml` inside that folder for several."""
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
    from rl_training.types import ConfigError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path.absolute(), text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; choose another --output") from error


COMMAND = Command(
    name="config import-zoo",
    summary="turn hyperparameters of the SB3 Zoo into config files",
    usage="FILE [--env ID] [--algo NAME] [--output FILE|DIR]",
    options=ImportZooOptions,
    run=run,
    examples=(
        "rl config import-zoo ppo.yml --env CartPole-v1 > my.yaml",
        "rl config import-zoo hyperparams/sac.yml --output configs/zoo",
        "rl config import-zoo tuned.yml --algo td3 --env Pendulum-v1 --output td3.yaml",
    ),
    notes="Nothing in the file is evaluated. What has no counterpart is named on stderr and at the top of each config, "
    "with the reason. What the file leaves out is Stable-Baselines3's default. Nothing is overwritten.",
)
