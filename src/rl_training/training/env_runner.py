"""EnvRunner: collect by hand, without a trainer. A thin front over the collector for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import Layout
from rl_training.envs import space_spec
from rl_training.training.collector import Collector
from rl_training.types import Batch, Policy


class EnvRunner:
    """Steps `env_fns` side by side with `policy`; `max_steps` bounds an episode's length."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        policy: Policy,
        max_steps: int | None = None,
        *,
        seed: int = 0,
    ) -> None:
        def limited(make: Callable[[], gym.Env[Any, Any]]) -> Callable[[], gym.Env[Any, Any]]:
            return lambda: make() if max_steps is None else gym.wrappers.TimeLimit(make(), max_steps)

        self.env = SyncVectorEnv([limited(make) for make in env_fns], autoreset_mode=AutoresetMode.SAME_STEP)
        self.policy = policy
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """Start all environments anew, from the same seed."""
        self.collector = Collector(self.env, self.policy, np.random.default_rng(self.seed))
        self.collector.start_from(self.env.reset(seed=self.seed)[0])

    def collect_rollouts(self, n_steps: int) -> tuple[Batch, list[float]]:
        """`n_steps` steps of every environment as a (T, N) batch, and the returns of the episodes that ended."""
        spaces = space_spec(self.env.single_observation_space), space_spec(self.env.single_action_space)
        buffer = RolloutBuffer(num_steps=n_steps, **Layout.of(*spaces, num_envs=self.env.num_envs).keywords())
        stats = self.collector.collect(n_steps, buffer)
        return buffer.as_batch(), stats.returns
