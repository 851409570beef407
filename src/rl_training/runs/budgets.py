"""The budget history of a run: which `total_timesteps` applied from which env step on.

Schedules and the last evaluation depend on the budget, and a resume may raise or lower it. Every change is therefore
recorded, in run.json and in each checkpoint, so that a reproduction can change the budget at the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Budget:
    """From `env_steps` on, the run trained towards `total_timesteps` in total; both in updates where the run is offline
    (`axis` in run.json)."""

    env_steps: int
    total_timesteps: int


@dataclass(frozen=True)
class Leg:
    """A section of a run under one budget, up to `stop` env steps."""

    total_timesteps: int
    stop: int


def budgets_json(budgets: Sequence[Budget]) -> list[dict[str, int]]:
    """Budgets as JSON values, for run.json and checkpoints."""
    return [asdict(budget) for budget in budgets]


def read_budgets(value: Any) -> list[Budget]:
    """The inverse of `budgets_json`; an empty list for anything else, which means that the history is unknown."""
    entries, fields = value if isinstance(value, list) else [], ("env_steps", "total_timesteps")
    for entry in entries:
        if not (isinstance(entry, Mapping) and all(type(entry.get(name)) is int for name in fields)):
            return []
    return [Budget(*(entry[name] for name in fields)) for entry in entries]


def taken_over(saved: Sequence[Budget], step: int, total: int, *, goes_on: bool = False) -> list[Budget]:
    """The budgets of a run that resumes at `step` with `total`, after those `saved` in its checkpoint. `goes_on` says
    that the run had already ended by itself, so that even an unchanged budget counts as a new one.

    >>> taken_over([Budget(0, 96)], 64, 48)
    [Budget(env_steps=0, total_timesteps=96), Budget(env_steps=64, total_timesteps=48)]
    """
    known = [budget for budget in saved if budget.env_steps <= step]
    if known and known[-1].total_timesteps == total and not goes_on:
        return known
    return [*known, Budget(step, total)]


def are_known(budgets: Sequence[Budget]) -> bool:
    """Whether the history starts at env step 0; version 0.1.0 did not record changes of the budget."""
    return bool(budgets) and budgets[0].env_steps == 0


def legs(budgets: Sequence[Budget], limit: int, *, ended: bool) -> list[Leg]:
    """The sections of a run up to `limit` env steps. A last one that starts at `limit` trained nothing; it counts if
    the run has `ended` there, because its evaluation is in the log.

    >>> legs([Budget(0, 96), Budget(64, 48)], 64, ended=True)
    [Leg(total_timesteps=96, stop=64), Leg(total_timesteps=48, stop=64)]
    """
    found = []
    for number, budget in enumerate(budgets):
        is_last = number + 1 == len(budgets)
        spent = budget.env_steps == limit and budget.total_timesteps <= limit and (ended or not is_last)
        if budget.env_steps < limit or spent:
            found.append(Leg(budget.total_timesteps, limit if is_last else min(budgets[number + 1].env_steps, limit)))
    return found
