"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495), strategy "future".

When a transition of a finished episode is sampled, its goal is replaced, four times out of five by default, by one that
the same episode achieved at that step or later, and its reward is recomputed. Nothing is stored twice: relabelling
happens at sampling time. Transitions of unfinished episodes keep their goal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rl_training.data.n_step import Outcomes, n_step_windows
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import Shapes, Tree
from rl_training.types import Array, ConfigError, StateDict

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"
GoalFunction = Callable[[Array, Array, dict[str, Any]], Any]
"""(achieved goals (B, ...), desired goals (B, ...), info) -> (B,). `info` is always empty: a reward that depends on the
infos of a step cannot be recomputed."""


class HindsightReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` for Dict observations with the keys observation, achieved_goal and desired_goal.

    `compute_reward` is the environment's own function of that name. `compute_terminated` (achieved, desired, info), if
    given, decides where a relabelled transition terminates; otherwise it terminates where the original did. Where the
    original terminated but the relabelled one does not reach its goal, it is truncated instead.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: Shapes,
        action_shape: Shapes,
        device: Any = None,
        *,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None = None,
        num_goals: int = 4,
        **keywords: Any,
    ) -> None:
        """`num_goals` is k of the paper: k relabelled transitions for each one that keeps its goal."""
        if not isinstance(obs_shape, Mapping) or not {OBSERVATION, ACHIEVED, DESIRED} <= obs_shape.keys():
            raise ConfigError(
                f"hindsight replay needs Dict observations with the keys {OBSERVATION}, {ACHIEVED} and {DESIRED}, not "
                f"{sorted(obs_shape) if isinstance(obs_shape, Mapping) else obs_shape}: set buffer.type to 'replay'"
            )
        if obs_shape[ACHIEVED] != obs_shape[DESIRED]:
            raise ConfigError(
                f"{ACHIEVED} {obs_shape[ACHIEVED]} cannot take the place of {DESIRED} {obs_shape[DESIRED]}"
            )
        if keywords.get("sequence_length") is not None:
            raise ConfigError(
                "hindsight replay relabels transitions, networks with memory learn from sequences: set buffer.type to "
                "'replay', or memory to none"
            )
        if num_goals < 0:
            raise ConfigError(f"num_goals must be 0 or more, not {num_goals}")
        self.compute_reward = compute_reward
        self.compute_terminated = compute_terminated
        self.num_goals = num_goals
        super().__init__(capacity, obs_shape, action_shape, device, **keywords)

    def _row_bytes(self) -> int:
        return super()._row_bytes() + 4

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        self._steps_left: Array = np.zeros(capacity, np.int32)
        """Steps from each row to the end of its episode; -1 while the episode is unfinished."""
        self._settled = 0
        self._first = np.arange(self.num_envs)
        """Number of the row with which each environment's unfinished episode starts."""

    def _batch(self, index: Array) -> dict[str, Tree]:
        self._follow_episodes()
        left = self._steps_left.take(index)
        chosen = (self.rng.random(len(index)) < self.num_goals / (self.num_goals + 1)) & (left >= 0)
        later = self.rng.integers(0, np.maximum(left, 0) + 1)
        goals = self.next_obs[ACHIEVED].take((index + later * self.num_envs) % self.capacity, axis=0)
        outcomes = partial(self._relabelled_outcomes, chosen, goals)
        window = n_step_windows(
            index, self.n_step, 1.0 if self.gamma is None else self.gamma, outcomes, self._following
        )
        obs, next_obs = self._read("obs", index), self._read("next_obs", window.last)
        obs[DESIRED][chosen] = next_obs[DESIRED][chosen] = goals[chosen]
        batch = {
            "obs": obs,
            "actions": self._read("actions", index),
            "rewards": window.rewards,
            "next_obs": next_obs,
            "terminated": window.terminated,
            "truncated": window.truncated,
        }
        return batch if self.gamma is None else {**batch, "discounts": window.discounts}

    def _relabelled_outcomes(self, chosen: Array, goals: Array, index: Array) -> Outcomes:
        """Outcomes of rows, with `goals` in place of the original goal where `chosen`."""
        rewards, terminated, truncated = self._outcomes(index)
        if chosen.any():
            achieved, desired = self.next_obs[ACHIEVED].take(index[chosen], axis=0), goals[chosen]
            rewards[chosen] = self._evaluate(self.compute_reward, achieved, desired)
            if self.compute_terminated is not None:
                reached = self._evaluate(self.compute_terminated, achieved, desired).astype(np.bool_)
                truncated[chosen] = (terminated | truncated)[chosen] & ~reached
                terminated[chosen] = reached
        return Outcomes(rewards, terminated, truncated)

    @staticmethod
    def _evaluate(function: GoalFunction, achieved: Array, desired: Array) -> Array:
        answer = np.asarray(function(achieved, desired, {}))
        if answer.shape != (len(achieved),):
            name = getattr(function, "__qualname__", str(function))
            raise ValueError(
                f"{name} of {len(achieved)} pairs of goals gave shape {answer.shape}: it must work on arrays of goals, "
                "one number for each"
            )
        return answer

    def _follow_episodes(self) -> None:
        """Find the ends of episodes among the new rows. Each row is visited once, and once more when its episode
        ends."""
        if not self._in_step:
            raise ValueError(f"hindsight replay needs whole steps of num_envs={self.num_envs} environments")
        oldest = self._written - self._size
        rows = np.arange(max(self._settled, oldest), self._written)
        self._settled = self._written
        index = rows % self.capacity
        self._steps_left[index] = -1
        skipped = self.skipped.take(index)
        ends = self.terminated.take(index) | self.truncated.take(index) | skipped
        for row, only_resets in zip(rows[ends].tolist(), skipped[ends].tolist(), strict=True):
            env = row % self.num_envs
            first = max(self._first[env], oldest + (env - oldest) % self.num_envs)
            episode = np.arange(first, row if only_resets else row + 1, self.num_envs)
            self._steps_left[episode % self.capacity] = np.arange(len(episode))[::-1]
            self._first[env] = row + self.num_envs

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        self._settled = 0
        self._first = np.arange(self.num_envs)
