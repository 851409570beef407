"""Batches of a dataset, drawn uniformly with replacement. Nothing is added to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.merging import best_episodes
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import Array, Batch, CheckpointError, ConfigError, StateDict

RETURN_SCALE = 1000.0
"""What the range of returns is scaled to by `dataset.reward: return_range` (Kostrikov et al. 2021, appendix)."""


EXTRA = ("next_actions", "returns_to_go")
"""Columns that batches have where an algorithm asks for them."""


class DatasetReplay:
    """What an offline run learns from: the rows of a dataset, with actions in -1..1 and rewards scaled."""

    def __init__(
        self,
        data: Dataset,
        rng: np.random.Generator,
        cfg: DatasetConfig,
        columns: Sequence[str] = (),
        gamma: float = 0.99,
    ) -> None:
        """`columns` of EXTRA are in every batch too; `gamma` discounts the returns to go."""
        self.rng = rng
        self.sha256 = data.sha256
        """Of the whole dataset, also where only its best episodes are used."""
        self.has_scores = data.has_scores
        self.data = data
        if cfg.top_fraction < 1.0:
            self.data = data.select(best_episodes(data.returns, cfg.top_fraction, data.whole))
        self.actions = self.data.unit_actions()
        self.reward_scale = reward_scale(data, cfg)
        """What rewards are multiplied with."""
        self.rewards: Array = (np.asarray(self.data.rewards, np.float64) * self.reward_scale).astype(np.float32)
        self.terminated, self.truncated = np.asarray(self.data.terminated), np.asarray(self.data.truncated)
        self.extra: dict[str, Array] = {}
        if "next_actions" in columns:
            self.extra |= next_actions(self.data, self.actions)
        if "returns_to_go" in columns:
            self.extra["returns_to_go"] = returns_to_go(self.data, self.rewards, gamma)
        held = (self.actions, self.rewards, self.terminated, self.truncated, *self.extra.values())
        self.memory_bytes = sum(int(column.nbytes) for column in held)
        """Bytes in memory; observations stay in their files, unless only some episodes are used."""

    def __len__(self) -> int:
        return len(self.data)

    def sample(self, batch_size: int) -> Batch:
        """Copies of `batch_size` transitions."""
        rows = self.rng.integers(len(self), size=batch_size)
        return {
            "obs": self.data.obs_of(rows),
            "actions": self.actions.take(rows, axis=0),
            "rewards": self.rewards.take(rows),
            "next_obs": self.data.next_obs_of(rows),
            "terminated": self.terminated.take(rows),
            "truncated": self.truncated.take(rows),
            **{name: column.take(rows, axis=0) for name, column in self.extra.items()},
        }

    def score(self, returns: Array) -> Array:
        """Normalised scores of returns."""
        return self.data.score(returns)

    def state_dict(self) -> StateDict:
        return {"sha256": self.sha256, "rng": generator_state(self.rng)}

    def load_state_dict(self, state: StateDict, /) -> None:
        if state["sha256"] != self.sha256:
            raise CheckpointError(
                f"the run learnt from a dataset with SHA-256 {state['sha256'][:12]}..., this one has "
                f"{self.sha256[:12]}...: a run goes on with the dataset that it was started with"
            )
        set_generator_state(self.rng, state["rng"])


def next_actions(data: Dataset, actions: Array) -> dict[str, Array]:
    """What was done after each row, and whether that is known: it is not at the last row of an episode."""
    known = np.ones(len(data), np.bool_)
    known[data.episodes()[:, 1] - 1] = False
    following = np.concatenate([actions[1:], actions[:1]])
    following[~known] = 0
    return {"next_actions": following, "next_known": known}


def returns_to_go(data: Dataset, rewards: Array, gamma: float) -> Array:
    """Lower bounds (R,) of the discounted return from each row on.

    An episode that terminated gives the return itself. What would have followed one that was cut off is unknown: it is
    taken to be the smallest reward of the dataset for ever, or 0 where no reward is negative.
    """
    smallest = min(float(rewards.min()), 0.0)
    worst = 0.0 if smallest == 0.0 else smallest / (1.0 - gamma) if gamma < 1.0 else -np.inf
    bounds = np.empty(len(data), np.float64)
    for begin, end in data.episodes():
        value = 0.0 if data.terminated[end - 1] else worst
        for row in range(end - 1, begin - 1, -1):
            value = float(rewards[row]) + gamma * value
            bounds[row] = value
    return bounds.astype(np.float32)


def reward_scale(data: Dataset, cfg: DatasetConfig) -> float:
    """What rewards are multiplied with."""
    if cfg.reward == "raw":
        return 1.0
    if cfg.reward != "return_range":
        return float(cfg.reward)
    returns = data.returns[data.whole]
    if not returns.size or returns.max() == returns.min():
        raise ConfigError(
            "dataset.reward: return_range needs whole episodes of different returns; give a number instead"
        )
    return RETURN_SCALE / float(returns.max() - returns.min())
