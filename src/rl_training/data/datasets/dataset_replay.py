"""Batches of a dataset, drawn uniformly with replacement. Nothing is added to it."""

from __future__ import annotations

import numpy as np

from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.merging import best_episodes
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import Array, Batch, CheckpointError, ConfigError, StateDict

RETURN_SCALE = 1000.0
"""What the range of returns is scaled to by `dataset.reward: return_range` (Kostrikov et al. 2021, appendix)."""


class DatasetReplay:
    """What an offline run learns from: the rows of a dataset, with actions in -1..1 and rewards scaled."""

    def __init__(self, data: Dataset, rng: np.random.Generator, cfg: DatasetConfig) -> None:
        self.rng = rng
        self.sha256 = data.sha256
        """Of the whole dataset, also where only its best episodes are used."""
        self.has_scores = data.has_scores
        self.data = data
        if cfg.top_fraction < 1.0:
            self.data = data.select(best_episodes(data.returns, cfg.top_fraction))
        self.actions = self.data.unit_actions()
        scale = reward_scale(data, cfg)
        self.rewards: Array = (np.asarray(self.data.rewards, np.float64) * scale).astype(np.float32)
        self.terminated, self.truncated = np.asarray(self.data.terminated), np.asarray(self.data.truncated)
        self.memory_bytes = sum(int(a.nbytes) for a in (self.actions, self.rewards, self.terminated, self.truncated))
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
