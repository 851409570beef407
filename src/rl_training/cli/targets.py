"""From a name that was typed to what is on disk: a run, or all runs of a group of seeds or of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.parser import UsageError

if TYPE_CHECKING:
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

DEFAULT_DIR = "runs"
RUN_NAMES = "RUN is a run directory, the start of its name or id, its --name (if only one fits), or 'latest'."
GROUP_NAMES = (
    "Groups of seeds and sweeps are named in the same way and stand for all their runs; the newest are "
    "'latest-group' and 'latest-sweep'."
)
"""Sentences of the help pages."""


def existing_dir(named: str | None) -> str:
    """The folder of the runs: the value of --output-dir, which must exist, or the default."""
    if named is not None and not Path(named).expanduser().is_dir():
        raise UsageError(f"no folder '{named}'; --output-dir names the folder of the runs (default {DEFAULT_DIR})")
    return named or DEFAULT_DIR


def find_target(named: str, output_dir: str | None) -> RunDir | SeedGroup | Sweep:
    """The run, the group of seeds or the sweep that was named; UsageError where there is none."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.types import RunError

    try:
        return find_runs(named, existing_dir(output_dir))
    except RunError as error:
        raise UsageError(str(error)) from error


def find_one_run(named: str, output_dir: str | None, command: str) -> RunDir:
    """The run that was named; UsageError where there is none, or where it is a group of seeds or a sweep."""
    from rl_training.runs.directory import RunDir

    target = find_target(named, output_dir)
    if not isinstance(target, RunDir):
        raise UsageError(f"rl {command} takes one run, not a group or a sweep")
    return target


def runs_of(target: RunDir | SeedGroup | Sweep) -> list[RunDir]:
    """Every run of a target that has begun; UsageError for a group or a sweep without one."""
    from rl_training.runs.directory import RunDir

    if isinstance(target, RunDir):
        return [target]
    runs = [run for member in target.members if (run := target.find_run(member)) is not None]
    if not runs:
        raise UsageError(f"{target.kind} '{target.path}' has no run yet; start them with 'rl resume {target.path}'")
    return runs
