"""`rl trust forget`: withdraw the agreement to run the code of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rl_training.cli.flags import arguments, json_flag, output_dir_flag
from rl_training.cli.output import print_json, printable, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import DEFAULT_DIR

if TYPE_CHECKING:
    from rl_training.trust.seals import Remembered


@dataclass(frozen=True, kw_only=True)
class TrustForgetOptions:
    runs: tuple[str, ...] = arguments(1)
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: TrustForgetOptions) -> int:
    from rl_training.trust import seals

    known = seals.remembered()
    ids = {name: matching(name, known, options.output_dir or DEFAULT_DIR) for name in options.runs}
    for name, found in ids.items():
        if not found:
            raise UsageError(f"'{printable(name)}': no consent of yours is remembered for that; see 'rl trust list'")
    gone = seals.forget([run_id for found in ids.values() for run_id in found])
    if options.json:
        print_json([asdict(entry) for entry in gone])
        return 0
    for entry in gone:
        show(f"forgotten: {printable(entry.id)}")
    return 0


def matching(name: str, known: list[Remembered], output_dir: str) -> list[str]:
    """The ids that match a name: an id, the start of one, or a run directory or folder of runs."""
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
    """The id of the run, group or sweep at this path or of this name; None where there is none."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.runs.directory import RunDir
    from rl_training.types import RLTrainingError

    try:
        found = find_runs(name, output_dir)
        return str(found.info().get("id")) if isinstance(found, RunDir) else found.info.id
    except RLTrainingError:
        return None


COMMAND = Command(
    name="trust forget",
    summary="withdraw your agreement to the code of a run",
    usage="RUN... [flags]",
    options=TrustForgetOptions,
    run=run,
    examples=("rl trust forget ppo__CartPole-v1__seed0__20260101-120000",),
    notes="RUN is an id that 'rl trust list' shows or the start of one, or a run directory.",
)
