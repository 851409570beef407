"""One rollout of T steps in N environments, as arrays (T, N, ...).

It only stores; values, log-probabilities and advantages are computed by the algorithm (`numerics.returns.gae`). Custom
training loops that keep them beside the data find arrays for them here, allocated lazily, and
`compute_returns_and_advantages`, a thin call of the same `gae`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.data.storage import (
    DTypes,
    FieldLayout,
    Layout,
    Shapes,
    Tree,
    allocate,
    map_tree,
    read,
    to_numpy,
    to_tensors,
    write,
)
from rl_training.numerics.returns import gae
from rl_training.seeding import stream
from rl_training.types import Array, Batch, Carry, Obs, StateDict, VectorStep

_COLLECTED = ("obs", "actions", "rewards", "dones", "truncated", "is_first", "valid")
"""Fields that a collector fills."""


class _Field:
    """A stored array as an attribute: allocated lazily; assigning an array or tensor copies into it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, buffer: RolloutBuffer | None, owner: type) -> Tree:
        return self if buffer is None else buffer._field(self.name)

    def __set__(self, buffer: RolloutBuffer, value: Tree) -> None:
        write(buffer._field(self.name), ..., map_tree(to_numpy, value))


class RolloutBuffer:
    """Filled by a collector (`begin`, then `store` per step, then `as_batch`), or by hand through its attributes.

    Shapes are those of one environment's observation and action and may be dicts of shapes; `data.Layout.of` makes them
    from spaces. Storage is NumPy; torch tensors where a `device` is given.
    """

    obs = _Field()
    actions = _Field()
    rewards = _Field()
    dones = _Field()
    """(T, N) transition t ended its episode by termination."""
    truncated = _Field()
    """(T, N) transition t ended its episode by truncation."""
    logprobs = _Field()
    values = _Field()
    advantages = _Field()
    returns = _Field()

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        obs_shape: Shapes,
        action_shape: Shapes,
        *,
        obs_dtype: DTypes = np.float32,
        action_dtype: DTypes = np.float32,
        rng: np.random.Generator | None = None,
        device: Any = None,
    ) -> None:
        self.num_steps = num_steps
        self.num_envs = num_envs
        self.device = device
        self.rng = stream(0, "buffer") if rng is None else rng
        """Shuffles `minibatches`."""
        self.layout = Layout(obs_shape, action_shape, obs_dtype, action_dtype, num_envs)
        self._fields: dict[str, FieldLayout] = {
            "obs": self.layout.obs,
            "actions": self.layout.actions,
            **dict.fromkeys(("dones", "truncated", "is_first", "valid"), ((), np.bool_)),
            **dict.fromkeys(("rewards", "logprobs", "values", "advantages", "returns"), ((), np.float32)),
        }
        self._arrays: dict[str, Tree] = {}
        self._extras: dict[str, Tree] = {}
        self._last_obs = allocate((num_envs,), *self.layout.obs, device)
        self._empty_final = allocate((0,), *self.layout.obs)
        for name in _COLLECTED:
            self._field(name)
        write(self._arrays["valid"], ..., True)
        self.begin(self._last_obs, {})

    # -- filled by a collector ----------------------------------------------------------------------------------------

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Start a new rollout, overwriting the last. `carry` is the policy's memory before the first step; `obs` is
        ignored, because the first `store` brings it again."""
        self._position = 0
        self._initial_carry = {key: np.array(value) for key, value in carry.items()}
        self._final_obs: list[Tree] = []
        self._final_index: list[Array] = []

    def store(self, step: VectorStep) -> None:
        """Copy one step of all environments into the next row."""
        t = self._position
        if t == self.num_steps:
            raise ValueError(f"the rollout already holds its {self.num_steps} steps; call begin() before the next one")
        arrays = self._arrays
        write(arrays["obs"], t, step.obs)
        write(arrays["actions"], t, step.actions)
        write(arrays["rewards"], t, step.rewards)
        write(arrays["dones"], t, step.terminated)
        write(arrays["truncated"], t, step.truncated)
        write(arrays["is_first"], t, step.is_first)
        write(arrays["valid"], t, step.valid)
        write(self._last_obs, ..., step.next_obs)
        if step.extras or self._extras:
            self._store_extras(t, step.extras)
        ended = step.terminated | step.truncated
        if np.count_nonzero(ended):
            (rows,) = np.nonzero(ended & step.valid)
            self._final_obs.append(read(step.next_obs, rows))
            self._final_index.append(t * self.num_envs + rows)
        self._position = t + 1

    def as_batch(self) -> Batch:
        """The rollout so far, as `types.Batch` describes it.

        Arrays are views of this buffer, valid until the next `begin`: learn from them or copy them. `last_obs` are the
        true successors of the last row; where that row ended an episode, its final observation.
        """
        length = self._position
        if length == 0:
            raise ValueError("the rollout is empty: store() at least one step before as_batch()")
        names = ("obs", "actions", "rewards", "truncated", "is_first", "valid")
        batch: Batch = {name: read(self._field(name), slice(length)) for name in names}
        batch["terminated"] = self._field("dones")[:length]
        batch["final_obs"], batch["final_index"] = self._finals()
        batch["last_obs"] = self._last_obs
        batch["initial_carry"] = self._initial_carry
        batch.update({name: array[:length] for name, array in self._extras.items()})
        return batch

    def _finals(self) -> tuple[Tree, Tree]:
        """Final observations of episodes (K, ...), and the flat row t * N + i that each of them follows (K,)."""
        index = np.concatenate(self._final_index) if self._final_index else np.zeros(0, np.int64)
        if isinstance(self._empty_final, dict):
            final: Tree = {
                key: np.concatenate([empty, *(step[key] for step in self._final_obs)], dtype=empty.dtype)
                for key, empty in self._empty_final.items()
            }
        else:
            final = np.concatenate([self._empty_final, *self._final_obs], dtype=self._empty_final.dtype)
        if self.device is None:
            return final, index
        return to_tensors(final, self.device), to_tensors(index, self.device)

    def _store_extras(self, t: int, extras: dict[str, Array]) -> None:
        if t == 0:
            self._extras = {name: self._allocate_extra(name, value) for name, value in extras.items()}
        if extras.keys() != self._extras.keys():
            raise ValueError(
                f"a policy must give the same extras at every step: {sorted(self._extras)} so far, now {sorted(extras)}"
            )
        for name, value in extras.items():
            write(self._extras[name], t, value)

    def _allocate_extra(self, name: str, value: Array) -> Tree:
        if name in (*self._fields, "terminated", "final_obs", "final_index", "last_obs", "initial_carry"):
            raise ValueError(f"a policy's extra cannot be called '{name}': a rollout batch has that key already")
        return allocate((self.num_steps,), value.shape, value.dtype, self.device)

    def state_dict(self) -> StateDict:
        """The rollout so far; only one that waits to be learnt from is saved (`env.overlap`)."""
        stored = slice(self._position)
        final_obs, final_index = self._finals()
        state = {
            "fields": {name: read(self._field(name), stored) for name in _COLLECTED},
            "extras": {name: array[stored] for name, array in self._extras.items()},
            "last_obs": self._last_obs,
            "final_obs": final_obs,
            "final_index": final_index,
            "initial_carry": self._initial_carry,
        }
        return state if self.device is None else _on_host(state)

    def load_state_dict(self, state: StateDict, /) -> None:
        self.begin(self._last_obs, state["initial_carry"])
        length = len(state["fields"]["rewards"])
        for name in _COLLECTED:
            write(self._field(name), slice(length), state["fields"][name])
        self._extras = {name: self._allocate_extra(name, value[0]) for name, value in state["extras"].items()}
        for name, array in self._extras.items():
            write(array, slice(length), state["extras"][name])
        write(self._last_obs, ..., state["last_obs"])
        if len(state["final_index"]):
            self._final_obs, self._final_index = [state["final_obs"]], [np.array(state["final_index"])]
        self._position = length

    # -- for custom training loops ------------------------------------------------------------------------------------

    def compute_returns_and_advantages(
        self, last_value: Any, gamma: float, gae_lambda: float, next_values: npt.ArrayLike | None = None
    ) -> None:
        """Fill `advantages` and `returns` from `rewards values dones truncated`; the chain is cut at both kinds of end.

        `next_values[t]` (T, N) is V of the true successor of row t. Without it, V of the next row is used and
        `last_value` (N,) after the last one. That is wrong after a truncated row, whose next row belongs to another
        episode, so pass `next_values` where episodes are truncated.
        """
        length = self._position or self.num_steps
        rows = ("rewards", "values", "dones", "truncated", "valid")
        rewards, values, terminated, truncated, valid = (to_numpy(self._field(name))[:length] for name in rows)
        if next_values is None:
            last = np.broadcast_to(to_numpy(last_value).reshape(-1), (self.num_envs,))
            next_values = np.concatenate([values[1:], last[None].astype(values.dtype)])
        advantages, returns = gae(
            rewards,
            values,
            to_numpy(next_values).astype(values.dtype),
            terminated,
            terminated | truncated,
            gamma=gamma,
            gae_lambda=gae_lambda,
            valid=valid,
        )
        write(self._field("advantages"), slice(length), advantages)
        write(self._field("returns"), slice(length), returns)

    def minibatches(self, batch_size: int) -> Iterator[dict[str, Tree]]:
        """Every transition once, shuffled by `rng`: rows of `obs actions logprobs values advantages returns`."""
        length = self._position or self.num_steps
        order = self.rng.permutation(np.flatnonzero(to_numpy(self._field("valid"))[:length]))
        names = ("obs", "actions", "logprobs", "values", "advantages", "returns")
        flat = {name: map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._field(name)) for name in names}
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield {name: read(tree, rows) for name, tree in flat.items()}

    def _field(self, name: str) -> Tree:
        array = self._arrays.get(name)
        if array is None:
            array = allocate((self.num_steps, self.num_envs), *self._fields[name], self.device)
            self._arrays[name] = array
        return array


def _on_host(state: Any) -> Any:
    """Nested dicts of tensors and arrays as arrays."""
    return {key: _on_host(value) for key, value in state.items()} if isinstance(state, dict) else to_numpy(state)
