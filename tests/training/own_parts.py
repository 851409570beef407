"""One part of every kind, as a user would write them: nothing here is registered anywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import rl_training
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.models import PolicyNetwork
from rl_training.models.initialization import linear
from rl_training.types import UpdateResult


class Algorithm(rl_training.BaseAlgorithm):
    """Raises the probability of whatever was rewarded."""

    @dataclass(frozen=True)
    class Hparams:
        num_steps: int = 16
        learning_rate: float = 1e-3

    def setup(self) -> None:
        ctx = self.ctx
        policy = PolicyNetwork(ctx.observation_space, ctx.action_space, ctx.network.actor, ctx.streams("init"))
        self.networks["policy"] = policy

    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return self.networks["policy"].get_action(obs, deterministic, rng)

    def update(self, batch: Any) -> UpdateResult:
        obs, actions, rewards = self.flat(batch, "obs", "actions", "rewards")
        policy = self.networks["policy"]
        loss = -(policy.log_prob(obs, actions) * rewards).mean()
        policy.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter -= self.hparams.learning_rate * parameter.grad
        return UpdateResult({"loss": loss.detach(), "own_metric": 7})


class Network(nn.Module):
    """One layer of `width` units over a flat observation."""

    def __init__(self, space: Any, config: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.out_features = config.kwargs["width"]
        self.own = linear(rng, space.shape[0], self.out_features, gain=1.0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.own(obs))


class Environment(gym.Env[Any, Any]):
    """Four numbers, two actions, 3 points per step, five steps."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), 3.0, self.time == 5, False, {}


class Wrapper(gym.RewardWrapper[Any, Any]):
    """Rewards times `factor`."""

    def __init__(self, env: Any, factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> Any:
        return reward * self.factor


class Buffer(RolloutBuffer):
    """Counts the rollouts it hands out, over all its instances."""

    handed_out = 0

    def as_batch(self) -> Any:
        Buffer.handed_out += 1
        return super().as_batch()


class Logger:
    """Metric rows into a file of its own."""

    def __init__(self, path: str) -> None:
        self.path, self.lines = Path(path), ""

    def log(self, row: Any, /) -> None:
        self.lines += json.dumps(row["env_steps"]) + "\n"

    def log_eval(self, row: Any, /) -> None:
        pass

    def close(self) -> None:
        self.path.write_text(self.lines)


class Callback(rl_training.Callback):
    """Counts train steps; the count is part of the checkpoint."""

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, trainer: Any, report: Any) -> None:
        self.count += 1

    def state_dict(self) -> Any:
        return {"count": self.count}

    def load_state_dict(self, state: Any, /) -> None:
        self.count = state["count"]
