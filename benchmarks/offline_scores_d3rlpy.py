"""d3rlpy's side of `offline_scores.py`: trains one seed on the same rows with the same settings, plays as it goes.

    python benchmarks/offline_scores_d3rlpy.py '{"algo": "td3_bc", ...}'     # in the peers' environment

Its own updates on batches of 256 rows drawn uniformly; like its own loader, without the last row of every episode that
was cut off. Observations are normalised before, rewards a tenth, actions in -1..1, as on our side. Greedy policy on the
episodes that `episode_seeds` start; prints the mean return of every evaluation.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import d3rlpy
import gymnasium as gym
import numpy as np
import torch
from d3rlpy.dataset import TransitionMiniBatch

BATCH = 256


def learner_of(algo: str, updates: int) -> Any:
    """What `offline_scores.config` asks of this package, in the words of the other."""
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=[64, 64])
    algorithms, rate = d3rlpy.algos, {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    both: dict[str, Any] = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder, "batch_size": BATCH}
    if algo == "bc":
        return algorithms.BCConfig(encoder_factory=encoder, learning_rate=1e-3, batch_size=BATCH)
    if algo == "td3_bc":
        return algorithms.TD3PlusBCConfig(**rate, **both)
    if algo == "iql":
        decay = d3rlpy.optimizers.AdamFactory(
            lr_scheduler_factory=d3rlpy.optimizers.CosineAnnealingLRFactory(T_max=updates)
        )
        return algorithms.IQLConfig(value_encoder_factory=encoder, actor_optim_factory=decay, **rate, **both)
    if algo == "rebrac":
        both["critic_encoder_factory"] = d3rlpy.models.VectorEncoderFactory(hidden_units=[64, 64], use_layer_norm=True)
        return algorithms.ReBRACConfig(actor_beta=0.05, critic_beta=0.01, **rate, **both)
    if algo == "awac":
        return algorithms.AWACConfig(lam=0.333, **rate, **both)
    if algo == "cql":
        rate["actor_learning_rate"] = 3e-4
        fixed = {"alpha_learning_rate": 0.0, "temp_learning_rate": 3e-4}
        return algorithms.CQLConfig(n_action_samples=4, conservative_weight=10.0, **fixed, **rate, **both)
    raise SystemExit(f"no settings for '{algo}'")


class Rows:
    """Rows of a dataset as the peer's batches."""

    def __init__(self, path: str, seed: int) -> None:
        with np.load(path) as file:
            rows = {name: np.asarray(file[name], np.float32) for name in file.files}
        self.mean, self.std = rows["obs"].mean(0), rows["obs"].std(0)
        self.rng = np.random.default_rng(seed)
        kept = rows["known"] > 0
        self.columns: dict[str, Any] = {
            "observations": self.normalized(rows["obs"])[kept],
            "actions": rows["actions"][kept],
            "rewards": 0.1 * rows["rewards"][kept, None],
            "next_observations": self.normalized(rows["next_obs"])[kept],
            "next_actions": rows["next_actions"][kept],
            "terminals": rows["terminated"][kept, None],
            "intervals": np.ones((int(kept.sum()), 1), np.float32),
        }

    def normalized(self, obs: Any) -> Any:
        return ((obs - self.mean) / self.std).astype(np.float32)

    def sample(self) -> TransitionMiniBatch:
        drawn = self.rng.integers(len(self.columns["rewards"]), size=BATCH)
        return TransitionMiniBatch(**{name: c[drawn] for name, c in self.columns.items()}, transitions=[])


def mean_return(learner: Any, rows: Rows, episode_seeds: list[int]) -> float:
    """Mean return of greedy episodes, one environment each."""
    envs = [gym.make("Pendulum-v1") for _ in episode_seeds]
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, episode_seeds, strict=True)])
    total, ended = np.zeros(len(envs)), False
    while not ended:
        actions = 2.0 * np.clip(learner.predict(rows.normalized(obs)), -1.0, 1.0)
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        obs, ended = np.stack([step[0] for step in steps]), bool(steps[0][3])  # all are cut off after 200 steps
        total += [float(step[1]) for step in steps]
    return float(total.mean())


def main(given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    d3rlpy.seed(given["seed"])
    rows, updates = Rows(given["rows"], given["seed"]), given["updates"]
    learner = learner_of(given["algo"], updates).create(device="cpu:0")
    learner.create_impl(rows.columns["observations"].shape[1:], rows.columns["actions"].shape[1])
    returns = []
    for update in range(1, updates + 1):
        learner.update(rows.sample())
        if update % max(updates // 10, 1) == 0:
            returns.append(mean_return(learner, rows, given["episode_seeds"]))
    print(json.dumps({"returns": returns}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
