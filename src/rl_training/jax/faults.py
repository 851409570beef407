"""Where a number stopped being one inside a compiled program: noted by the rollout, named by the host after the chunk.

The compiled form of what `rl_training.guards` looks at in the host lane, in the same order and with the same names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.guards import FROM_ENVIRONMENT, FROM_POLICY, Finding
from rl_training.jax.pytrees import fields_of
from rl_training.jax.types import Batch

ORDER = {"obs": 0, "actions": 1, "rewards": 2, "next_obs": 3}
"""What a rollout is searched for, each spoilt by those before it."""


class Faults(NamedTuple):
    """Of one rollout; zero where every number is one."""

    batch: dict[str, Any]
    """By the path of an array: [row of the first bad number, that number]."""
    learner: Any
    """Of each leaf of the state after learning: NaN or Inf if it holds one, else 0."""


def faults_of(batch: Batch, learner: Any) -> Faults:
    seen = {f"{name}{path}": leaf for name in ORDER for path, leaf in floats(batch[name])}
    return Faults(
        {path: first_fault(leaf) for path, leaf in seen.items()},
        jnp.stack([spoilt(leaf).sum() for leaf in jax.tree.leaves(learner)]),
    )


def floats(tree: Any) -> list[tuple[str, Any]]:
    leaves = {f"/{key}": leaf for key, leaf in tree.items()} if isinstance(tree, dict) else {"": tree}
    return [(path, leaf) for path, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.floating)]


def spoilt(x: Any) -> Any:
    """What is not finite as it is, 0 elsewhere."""
    return jnp.where(jnp.isfinite(x), 0.0, x).astype(jnp.float32)


def first_fault(x: Any) -> Any:
    """[row, number] of the first number of (T, N, ...) that is none."""
    rows = spoilt(x).reshape(x.shape[0] * x.shape[1], -1).sum(1)
    row = jnp.argmax(rows != 0.0)
    return jnp.stack([row.astype(jnp.float32), rows[row]])


# -- on the host, of the records of a chunk ---------------------------------------------------------------------------


def are_none(faults: Faults) -> bool:
    """Whether the rollouts of a chunk met finite numbers only; rows that are not filled hold zeros."""
    return not np.asarray(faults.learner).any() and not any(np.asarray(x)[:, 1].any() for x in faults.batch.values())


def in_batch(faults: Faults, k: int, num_envs: int) -> Finding | None:
    """The bad number of rollout k that came first: an observation before the action taken on it, and so on."""
    found: dict[tuple[int, float], Finding] = {}
    for path, column in faults.batch.items():
        row, value = np.asarray(column)[k].tolist()
        name, (step, env) = path.split("/")[0], divmod(int(row), num_envs)
        # an observation is named by the step that acts on it; where none does, by the step that gave it
        when = (step + 1, 0.5) if name == "next_obs" else (step, ORDER[name])
        cure = FROM_POLICY if name == "actions" else FROM_ENVIRONMENT
        if value != 0.0:
            found[when] = Finding(f"{path} at step {step} of environment {env}", value, cure)
    return found[min(found)] if found else None


def in_learner(faults: Faults, k: int, learner: Any) -> dict[str, Any]:
    """The faults of the state after rollout k, by its fields and in its structure."""
    return fields_of(jax.tree.unflatten(jax.tree.structure(learner), list(np.asarray(faults.learner)[k])))
