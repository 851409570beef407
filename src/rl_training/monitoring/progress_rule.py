"""The alert rule `no_progress`: tells a run that is stuck, or fell back for good, from one that learns or has learnt.

It judges by the mean return of the last 100 episodes, never by a single rollout, and in units of the noise of such a
mean: an agent that acts at random has a new best now and then, too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rl_training.system.formatting import number_text
from rl_training.system.json_lines import steps_of

RETURNS = "rollout/returns"
"""Key of a row: the returns of the episodes that ended in this train step, at most the last `WINDOW` of them."""
WINDOW = 100
MIN_EPISODES = 20
"""Episodes needed before a run is judged."""
START_SHARE = 0.2
"""Share of the patience after which the beginning is known, also where it had fewer than `WINDOW` episodes."""
BEST_NOISE = 1.5
"""A new best is this many standard errors (of the difference) above the last one."""
LEARNT_NOISE = 4.0
"""A run has learnt once its best is this many of them above its beginning."""
FALLEN = 0.25
"""Share of what was learnt that a run must lose to have fallen back; half of that, and it has recovered."""
FALLEN_SHARE = 0.2
"""Share of the patience for which it must stay there, so that a short drop raises no alert."""


def no_progress(
    row: dict[str, Any], memory: dict[str, Any], *, patience: int, solved_at: float | None = None
) -> str | None:
    """A sentence where there was no new best for `patience` env steps, and the run has either learnt nothing so far or
    lost most of it. Silent while the mean return is at least `solved_at`; rows without an episode change nothing."""
    env_steps = steps_of(row) or 0
    score = row.get("eval/return_mean")
    if solved_at is not None and score is not None and math.isfinite(score) and score >= solved_at:
        memory.update(best_at=env_steps, said=None)
    returns = _returns(row)
    if not returns:
        return _said(memory)
    window = memory["window"] = [*memory.get("window", ()), *returns][-WINDOW:]
    if len(window) < MIN_EPISODES:
        return None
    level, error = statistics.fmean(window), standard_error(window)
    if "start" not in memory:
        if len(window) < WINDOW and env_steps < START_SHARE * patience:
            return None
        memory.update(start=level, start_error=error, best=level, best_error=error, best_at=env_steps)
        memory["near_at"] = env_steps
    if level > memory["best"] + BEST_NOISE * math.hypot(error, memory["best_error"]):
        memory.update(best=level, best_error=error, best_at=env_steps, said=None)
    if solved_at is not None and level >= solved_at:
        memory.update(best_at=env_steps, said=None)
    gain = memory["best"] - memory["start"]
    if level >= memory["best"] - (FALLEN / 2 if memory.get("said") else FALLEN) * gain:
        memory["near_at"] = env_steps
    is_late = env_steps - memory["best_at"] >= patience
    has_fallen = env_steps - memory["near_at"] >= FALLEN_SHARE * patience
    memory["said"] = _judge(memory, level, has_fallen=has_fallen) if is_late else None
    return _said(memory)


def standard_error(returns: Sequence[float]) -> float:
    """Standard error of the mean of independent returns."""
    return statistics.stdev(returns) / math.sqrt(len(returns)) if len(returns) > 1 else 0.0


def _judge(memory: dict[str, Any], level: float, *, has_fallen: bool) -> str | None:
    best, start, best_at = memory["best"], memory["start"], memory["best_at"]
    if best - start <= LEARNT_NOISE * math.hypot(memory["start_error"], memory["best_error"]):
        now, before = number_text(level), number_text(start)
        return f"the mean return of {WINDOW} episodes is {now}; it was {before} at the beginning"
    if has_fallen:
        now, before = number_text(level), number_text(best)
        return f"the mean return of {WINDOW} episodes fell to {now}; it was {before} at {best_at:,} env steps"
    return None


def _said(memory: dict[str, Any]) -> str | None:
    said = memory.get("said")
    return said if isinstance(said, str) else None


def _returns(row: dict[str, Any]) -> list[float]:
    """The finite returns of a row; the mean stands for each of them where only that is known."""
    returns = row.get(RETURNS)
    if returns is None:
        mean = row.get("rollout/return_mean")
        returns = [] if mean is None else [mean] * min(int(row.get("rollout/episodes", 1)), WINDOW)
    return [float(value) for value in returns if value is not None and math.isfinite(value)]
