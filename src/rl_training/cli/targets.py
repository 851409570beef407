"""From what was typed to runs on disk: one run, or every run of a group of seeds or of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError

if TYPE_CHECKING:
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

DEFAULT_DIR = "runs"


def output_dir(arguments: Arguments) -> str:
    """The folder of the runs; UsageError for one that was named and is not there."""
    named = arguments.text("output-dir") or arguments.overrides.get("output_dir")
    if named is not None and not Path(named).expanduser().is_dir():
        raise UsageError(f"no folder '{named}'; --output-dir names the folder of the runs (default {DEFAULT_DIR})")
    return named or DEFAULT_DIR


def find_target(arguments: Arguments, named: str) -> RunDir | SeedGroup | Sweep:
    """The run, the group of seeds or the sweep that was named; UsageError where there is none."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.types import RunError

    try:
        return find_runs(named, output_dir(arguments))
    except RunError as error:
        raise UsageError(str(error)) from error


def runs_of(target: RunDir | SeedGroup | Sweep) -> list[RunDir]:
    """Every run that has begun of what was named; UsageError for a group or a sweep without one."""
    from rl_training.runs.directory import RunDir

    if isinstance(target, RunDir):
        return [target]
    runs = [run for member in target.members if (run := target.find_run(member)) is not None]
    if not runs:
        raise UsageError(f"{target.kind} '{target.path}' has no run yet; start them with 'rl resume {target.path}'")
    return runs
