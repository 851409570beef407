"""AgentTrainer: trains a `BaseAgent` episode by episode in one environment; a small front over the collector.

It has no config, no log files and no callbacks: `rl_training.train` is the way to runs that have them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.algorithms.agent import PART, BaseAgent
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import fitting
from rl_training.config.schema import EnvConfig
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import layout
from rl_training.envs.factory import EnvThunk
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.numerics.encoding import to_env
from rl_training.seeding import stream
from rl_training.training.collector import Collector, Episode
from rl_training.training.evaluation import EvalResult, evaluate_policy
from rl_training.types import (
    ActResult,
    Array,
    Batch,
    Carry,
    ConfigError,
    Metrics,
    Obs,
    Progress,
    StateDict,
    Stateful,
    VectorStep,
)


class AgentTrainer:
    """Without `replay`, the agent learns once after each episode, from all of it. With a `ReplayBuffer` it learns after
    each step, from `batch_size` transitions, once `learning_starts` of them are there.
    """

    def __init__(
        self,
        agent: BaseAgent,
        env: str | Callable[..., gym.Env[Any, Any]],
        *,
        env_config: EnvConfig | None = None,
        replay: ReplayBuffer | None = None,
        batch_size: int = 64,
        learning_starts: int = 0,
        seed: int = 0,
    ) -> None:
        """`env` is a Gymnasium id, "package.module:Class", or a class or function that makes an environment."""
        if isinstance(env, gym.Env):
            raise ConfigError(
                "AgentTrainer builds its environments itself, for training and for evaluation: give it the id, "
                "the class, or a function that makes one (`lambda: MyEnv()`)"
            )
        self.agent = agent
        self.replay = replay
        self.batch_size = batch_size
        self.learning_starts = max(learning_starts, batch_size)
        self.seed = seed
        self.progress = Progress()
        self.thunk = EnvThunk(env, env_config or EnvConfig(), seed)
        self.env = ResumableSyncVectorEnv([self.thunk])
        self.policy = _AgentPolicy(agent)
        self.collector = Collector(self.env, self.policy, stream(seed, "actions"))

    def train_episode(self) -> Metrics:
        """Play one episode and learn; returns its `return` and `length`, and the metrics of the latest update."""
        metrics: Metrics = {}
        episode, steps = None, _Steps()
        while episode is None:
            stats = self.collector.collect(1, steps if self.replay is None else self.replay)
            self.progress.advance(env_steps=stats.env_steps, episodes=len(stats.episodes))
            episode = stats.episodes[0] if stats.episodes else None
            if self.replay is not None and len(self.replay) >= self.learning_starts:
                metrics = self._update(self.replay.sample(self.batch_size))
        if self.replay is None:
            metrics = self._update(steps.as_batch(self.agent))
        return {**_summary(episode), **metrics}

    def train(self, num_episodes: int) -> list[Metrics]:
        """Train for `num_episodes` episodes; returns what `train_episode` says of each."""
        return [self.train_episode() for _ in range(num_episodes)]

    def evaluate(self, num_episodes: int = 10) -> EvalResult:
        """Play `num_episodes` whole episodes with `training=False`, in an environment of their own."""
        thunk = EnvThunk(self.thunk.env, self.thunk.cfg, self.seed, training=False)
        return evaluate_policy(
            self.policy, lambda index: thunk(), episodes=num_episodes, seed=self.seed, num_envs=1, deterministic=True
        )

    def save_checkpoint(self, run_dir: str | Path) -> Path:
        """Write agent, progress, environment and replay below `run_dir/checkpoints`; call it between episodes."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return CheckpointManager(run_dir).save(parts, step=self.progress.env_steps)

    def load_checkpoint(self, run_dir: str | Path, which: str | int = "latest") -> None:
        """Go on where `save_checkpoint` was called, as if training had not been interrupted."""
        checkpoint = CheckpointManager(run_dir).load(which)
        for name, part in self._parts().items():
            with fitting(f"the checkpoint's part '{name}'"):
                part.load_state_dict(checkpoint.parts[name])

    def close(self) -> None:
        self.env.close()

    def _update(self, batch: Batch) -> Metrics:
        self.progress.advance(updates=1)
        return self.agent.update(batch)

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {
            PART: self.agent,
            "progress": self.progress,
            "collector": self.collector,
            "env": self.env,
        }
        return parts if self.replay is None else {**parts, "replay": self.replay}


class _AgentPolicy:
    """An agent in the shape that the collector and the evaluation call; its state is the agent's."""

    def __init__(self, agent: BaseAgent) -> None:
        self.agent = agent

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        if is_first[0]:
            self.agent.reset()
        row = {name: column[0] for name, column in obs.items()} if isinstance(obs, dict) else obs[0]
        actions = np.asarray(self.agent.select_action(row, training=not deterministic))[None]
        return ActResult(actions, to_env(self.agent.action_space, actions), carry)

    def state_dict(self) -> StateDict:
        return self.agent.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.agent.load_state_dict(state)


class _Steps:
    """The steps of one episode, whose length is known only at its end."""

    def __init__(self) -> None:
        self.steps: list[VectorStep] = []

    def begin(self, obs: Obs, carry: Carry) -> None:
        """The trainer collects step by step; an episode goes on."""

    def store(self, step: VectorStep) -> None:
        self.steps.append(step)  # not copied: every array of ResumableSyncVectorEnv is new

    def as_batch(self, agent: BaseAgent) -> Batch:
        (obs_shape, obs_dtype), (action_shape, action_dtype) = map(
            layout, (agent.observation_space, agent.action_space)
        )
        buffer = RolloutBuffer(
            len(self.steps), 1, obs_shape, action_shape, obs_dtype=obs_dtype, action_dtype=action_dtype
        )
        for step in self.steps:
            buffer.store(step)
        return buffer.as_batch()


def _summary(episode: Episode) -> Metrics:
    return {"return": episode.episode_return, "length": episode.length}
