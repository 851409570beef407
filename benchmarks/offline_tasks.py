"""What the offline learning tables consist of: tasks, their datasets' names, and the settings of every algorithm.

The settings are one neutral record (`Settings`), which `offline_scores.py` turns into a config of this package and
`offline_scores_d3rlpy.py` into one of d3rlpy, so that both sides learn with the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Reward = Literal["raw", "return_range"] | float
PEER = "d3rlpy"
SEEDS = (0, 1, 2)
GREEDY = ("medium-greedy", "expert-greedy")
"""Further sets of Pendulum: the same policies without sampling."""


@dataclass(frozen=True)
class Settings:
    """Everything that both libraries are told about learning."""

    hidden_dims: tuple[int, ...]
    learning_rate: float
    reward: Reward = "raw"
    """What rewards are multiplied with, as `dataset.reward`."""
    normalize_obs: bool = True
    batch_size: int = 256
    critic_layer_norm: bool = False
    top_fraction: float = 1.0
    hparams: Mapping[str, Any] = field(default_factory=dict)
    """What only this algorithm has, by our names."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Task:
    """An environment with its datasets, and who learns from them for how long."""

    env_id: str
    title: str
    sets: tuple[str, ...]
    algorithms: tuple[str, ...]
    updates: int
    hidden_dims: tuple[int, ...]
    learning_rate: float
    episodes: int
    """Greedy episodes of an evaluation."""
    max_episode_steps: int
    reward: Reward = "raw"
    """For the algorithms whose critics see returns as they are."""
    hparams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What differs from `COMMON`, by algorithm."""
    text: str = ""
    """How the page describes the datasets."""

    def settings(self, name: str) -> Settings:
        """Those of an algorithm, or of BC on the best tenth of the episodes (`bc-10%`)."""
        algo = algorithm_of(name)
        own = {**COMMON.get(algo, {}), **self.hparams.get(algo, {})}
        rate = own.pop("learning_rate", self.learning_rate)
        return Settings(
            hidden_dims=self.hidden_dims,
            learning_rate=rate,
            reward="raw" if algo in NO_SCALE else own.pop("reward", self.reward),
            normalize_obs=self.env_id != "CartPole-v1",
            batch_size=own.pop("batch_size", 256),
            critic_layer_norm=algo == "rebrac",
            top_fraction=0.1 if name == "bc-10%" else 1.0,
            hparams=own,
        )


NO_SCALE = ("bc", "dt")
"""Algorithms that no scale of rewards changes."""
COMMON: dict[str, dict[str, Any]] = {
    "cql": {"num_sampled": 4, "actor_learning_rate": 3e-4, "weight": 5.0},
    "dt": {"batch_size": 64, "size": 64, "layers": 2, "heads": 2, "window": 10},
}
TASKS = {
    "pendulum": Task(
        "Pendulum-v1",
        "Pendulum",
        ("random", "medium", "medium-replay", "expert"),
        ("bc", "bc-10%", "td3_bc", "iql", "cql", "rebrac", "awac", "dt"),
        updates=20_000,
        hidden_dims=(64, 64),
        learning_rate=1e-3,
        episodes=20,
        max_episode_steps=200,
        reward=0.1,
        hparams={"rebrac": {"actor_beta": 0.05, "critic_beta": 0.01}, "awac": {"temperature": 0.333}},
        text="0 is the mean return of random actions, 100 that of the SAC policy that made the datasets: `random` "
        "(uniform actions), `medium` (the policy halfway), `medium-replay` (the replay rows of 1,000 steps later) and "
        "`expert` (the last policy), with sampled actions; 5,000 rows each, of the replay those that were stored.",
    ),
    "hopper": Task(
        "Hopper-v5",
        "Hopper",
        ("medium", "medium-replay"),
        ("bc", "bc-10%", "td3_bc", "iql", "rebrac"),
        updates=50_000,
        hidden_dims=(256, 256),
        learning_rate=3e-4,
        episodes=10,
        max_episode_steps=1000,
        hparams={
            "iql": {"reward": "return_range"},
            "rebrac": {"learning_rate": 1e-3, "actor_beta": 0.05, "critic_beta": 0.01},
        },
        text="0 is the mean return of random actions, 100 that of the best policy of the SAC run that made the "
        "datasets: `medium` (100,000 steps of its policy where an evaluation first passed a third of its best one, "
        "with sampled actions) and `medium-replay` (the ring of 100,000 replay rows when that had happened and it was "
        "full).",
    ),
    "cartpole": Task(
        "CartPole-v1",
        "CartPole",
        ("mixed",),
        ("bc", "cql", "dt"),
        updates=5_000,
        hidden_dims=(64, 64),
        learning_rate=1e-3,
        episodes=20,
        max_episode_steps=500,
        hparams={"cql": {"weight": 0.5, "num_sampled": 4}},
        text="0 is the mean return of random actions, 100 the most that an episode can have. `mixed`: 4,500 rows of a "
        "player that follows a good rule with probability 0.3 and does the opposite otherwise, 1,500 of one that "
        "follows it with 0.8; most rows do the wrong thing.",
    ),
}


def algorithm_of(name: str) -> str:
    """`bc` of `bc-10%`."""
    return name.partition("-")[0]
