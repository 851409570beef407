"""`rl trust list` and `rl trust forget`: what the user has agreed to of runs that were not made here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import note, print_json, printable, show, table

if TYPE_CHECKING:
    from rl_training.trust.seals import Remembered


def list_command(arguments: Arguments) -> int:
    from rl_training.trust import seals

    consents = seals.remembered()
    if arguments.switch("json"):
        print_json([asdict(entry) for entry in consents])
    elif consents:
        rows = [
            [printable(part) for part in (entry.id, entry.given, ", ".join(entry.code) or "-")] for entry in consents
        ]
        show(table(["id", "agreed", "to"], rows))
    else:
        note("you have agreed to no code of other people's runs")
    return 0


def forget_command(arguments: Arguments) -> int:
    from rl_training.trust import seals

    known = seals.remembered()
    ids = {name: matching(name, known, arguments.text("output-dir") or "runs") for name in arguments.positional}
    for name, found in ids.items():
        if not found:
            raise UsageError(f"'{printable(name)}': no consent of yours is remembered for that; see 'rl trust list'")
    gone = seals.forget([run_id for found in ids.values() for run_id in found])
    if arguments.switch("json"):
        print_json([asdict(entry) for entry in gone])
    for entry in gone if not arguments.switch("json") else ():
        show(f"forgotten: {printable(entry.id)}")
    return 0


def matching(name: str, known: list[Remembered], output_dir: str) -> list[str]:
    """The ids that a name stands for: an id, the start of one, or those of a run directory or of a folder of runs."""
    ids = list(dict.fromkeys(entry.id for entry in known))
    wanted = run_id(name, output_dir)
    exact = [one for one in ids if one in (name, wanted) or one.startswith(f"{wanted or name}/")]
    if exact:
        return exact
    begin = [one for one in ids if one.startswith(name)]
    if len({one.partition("/")[0] for one in begin}) > 1:
        raise UsageError(f"'{printable(name)}' fits {', '.join(map(printable, begin))}; type more of it")
    return begin


def run_id(name: str, output_dir: str) -> str | None:
    """The id of the run, the group or the sweep that is at a path or has this name; None where there is none."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.runs.directory import RunDir
    from rl_training.types import RLTrainingError

    try:
        found = find_runs(name, output_dir)
        return str(found.info().get("id")) if isinstance(found, RunDir) else found.info.id
    except RLTrainingError:
        return None
