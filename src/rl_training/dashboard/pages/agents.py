"""Who plays in a run of several agents: policies with their returns, and the league of a game with its Elo table."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.dashboard.pages.run import results
from rl_training.dashboard.reading.tables import RunRef
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import read_spaces
from rl_training.system.json_lines import number_of
from rl_training.types import CheckpointError, JointSpec, RunError

KINDS = ("eval", "rollout")


def agents_answer(ref: RunRef) -> dict[str, Any]:
    """Policies and the sum of all returns, and the league; empty and None where a run has one agent and no game."""
    metrics = results(ref.path, ref.row)
    step = CheckpointManager(ref.path).latest_step()
    return {
        "policies": policies(ref.path, metrics),
        "team": {kind: number_of(metrics, f"{kind}/team_return") for kind in KINDS},
        "league": None if step is None else league(ref.path, step),
    }


def policies(run: Path, metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Each policy with the agents that it plays and their newest mean returns."""
    found = None
    with suppress(RunError):
        found = read_spaces(run)
    if found is None or not isinstance(found[0], JointSpec):
        return []
    played = found[0].policies
    # the returns of a single policy are those of the run
    names = {name: f"{name}/" if len(played) > 1 else "" for name in played}
    return [
        {
            "name": name,
            "agents": list(who.agents),
            **{kind: number_of(metrics, f"{kind}/{names[name]}return_mean") for kind in KINDS},
        }
        for name, who in played.items()
    ]


@lru_cache(maxsize=64)
def league(run: Path, step: int) -> dict[str, Any] | None:
    """The Elo table of a checkpoint; None where it has no league, or cannot be read."""
    from rl_training.assembly.multi_agent.matches import table_of

    try:
        saved = CheckpointManager(run, report=lambda line: None).load(step, parts=("league",))
        return table_of(RunDir(run), saved)
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None
