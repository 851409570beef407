"""The first non-finite value inside a compiled program: recorded per rollout, named by the host after the chunk.

The compiled counterpart of the checks in `rl_training.guards`, in the same order and with the same names.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.guards import FROM_ENVIRONMENT, FROM_POLICY, Finding
from rl_training.jax.pytrees import fields_of
from rl_training.jax.types import Batch

ORDER = {"obs": 0, "actions": 1, "rewards": 2, "next_obs": 3}
"""Columns of a rollout that are checked, causes before effects."""


class Fault(NamedTuple):
    """The first non-finite value of an array and its place; the value is 0 if all are finite."""

    place: Any
    value: Any


class Faults(NamedTuple):
    """The first non-finite values of one rollout."""

    batch: dict[str, Fault]
    """Array path to fault, whose place is a row."""
    learner: Fault
    """The fault of the state after learning; its place is the index among all values, in the order of `searched`."""


def faults_of(batch: Batch, learner: Any) -> Faults:
    """Check a rollout and the state after learning from it; traceable."""
    seen = {f"{name}{path}": leaf for name in ORDER for path, leaf in floats(batch[name])}
    # concatenated into one vector: checking every leaf by itself would add a fifth to the compile time
    leaves = jax.tree.leaves(list(searched(learner).values()))
    state = jnp.concatenate([leaf.astype(jnp.float32).reshape(-1) for leaf in leaves])
    return Faults(
        {path: first_fault(leaf.reshape(-1), leaf[0, 0].size) for path, leaf in seen.items()}, first_fault(state, 1)
    )


def searched(learner: Any) -> dict[str, Any]:
    """The fields of a state, with those of the policy last: they are effects of the others, never causes."""
    return dict(sorted(fields_of(learner).items(), key=lambda field: field[0] in ("params", "normalizer")))


def floats(tree: Any) -> list[tuple[str, Any]]:
    """The floating-point arrays of an array or dict of arrays, with their paths."""
    leaves = {f"/{key}": leaf for key, leaf in tree.items()} if isinstance(tree, dict) else {"": tree}
    return [(path, leaf) for path, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.floating)]


def first_fault(numbers: Any, width: int) -> Fault:
    """The first fault of a vector that holds rows of `width` numbers."""
    place = jnp.where(jnp.isfinite(numbers), numbers.size, jnp.arange(numbers.size)).min()
    value = numbers.at[place].get(mode="fill", fill_value=0.0)
    return Fault(place // width, value.astype(jnp.float32))


# -- on the host, from the records of a chunk -------------------------------------------------------------------------


def are_none(faults: Faults) -> bool:
    """Whether all values in the rollouts of a chunk were finite; unused rows hold zeros."""
    return not any(np.asarray(fault.value).any() for fault in (faults.learner, *faults.batch.values()))


def in_batch(faults: Faults, k: int, num_envs: int, agents: int = 1) -> Finding | None:
    """The earliest non-finite value in the data of rollout k: an observation comes before the action taken on it. An
    environment has a row for each of its `agents`."""
    found: dict[tuple[int, float], Finding] = {}
    for path, column in faults.batch.items():
        row, value = (np.asarray(part)[k].item() for part in column)
        name, (step, place) = path.split("/")[0], divmod(row, num_envs * agents)
        env, agent = divmod(place, agents)
        who = f"agent {agent} of environment {env}" if agents > 1 else f"environment {env}"
        # an observation belongs to the step that acts on it; if there is none, to the step that returned it
        when = (step + 1, 0.5) if name == "next_obs" else (step, ORDER[name])
        cure = FROM_POLICY if name == "actions" else FROM_ENVIRONMENT
        if value != 0.0:
            found[when] = Finding(f"{path} at step {step} of {who}", value, cure)
    return found[min(found)] if found else None


def in_learner(faults: Faults, k: int, learner: Any) -> dict[str, Any]:
    """The state after rollout k by field, with the non-finite value in place of its leaf and 0 for all others."""
    place, value = (np.asarray(part)[k].item() for part in faults.learner)
    fields = searched(learner)
    leaves, structure = jax.tree.flatten(list(fields.values()))
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    marks = [np.float32(value if begin <= place < end else 0.0) for begin, end in pairwise([0, *ends])]
    return dict(zip(fields, jax.tree.unflatten(structure, marks), strict=True))
