"""NaN and Inf guard: a cheap look first, the search for the culprit only after a hit.

Runs in the same train step as the fault, before anything is logged or saved, so that no checkpoint ever holds a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rl_training.types import Array, Batch, Metrics, NonFiniteError, StateDict

BATCH_KEYS = ("obs", "final_obs", "last_obs", "actions", "rewards")


class Guard:
    """Checks what flows through a train step. `level` is `monitor.checks`: off, cheap or full."""

    def __init__(self, level: str) -> None:
        self.level = level

    def check_batch(self, batch: Batch) -> None:
        """Observations, actions and rewards of a rollout or replay batch."""
        if self.level == "off":
            return
        for key in BATCH_KEYS:
            for name, value in leaves(batch.get(key), key):
                if all_finite(value):
                    continue
                where = " ".join(str(i) for i in np.argwhere(~np.isfinite(value))[0])
                raise NonFiniteError(
                    f"{name} holds {first_bad(value)} at index [{where}] (time, environment, ...): the environment or "
                    f"a wrapper gave it; look at it with rl_training.envs.check_env"
                )

    def check_metrics(self, metrics: Metrics) -> None:
        """Losses and gradient norms of an update."""
        if self.level == "off":
            return
        for name, value in metrics.items():
            number = float(value)
            if not np.isfinite(number):
                raise NonFiniteError(
                    f"{name} is {number}: the update went wrong; lower hparams.learning_rate, set "
                    f"hparams.max_grad_norm, or normalise rewards. The last checkpoint is from before this update"
                )

    def check_parameters(self, part: str, state: StateDict) -> None:
        """Every array of a part; in full mode after each update, otherwise before it is saved."""
        if self.level == "off":
            return
        for name, value in leaves(state, part):
            if not all_finite(value):
                raise NonFiniteError(f"{name} holds {first_bad(value)}; it is not saved, the last checkpoint stands")


def all_finite(value: Array) -> bool:
    """One pass over float arrays. The sum of finite numbers may overflow, hence the second look."""
    if value.dtype.kind not in "fc":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(value.sum())) or bool(np.isfinite(value).all())


def first_bad(value: Array) -> str:
    return str(value[~np.isfinite(value)].flat[0])


def leaves(value: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Every array below `value` with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}/{key}")
    elif isinstance(value, np.ndarray):
        yield name, value
