"""d3rlpy's side of `offline_scores.py`: trains one seed on the same rows with the same settings, plays as it goes.

    python benchmarks/offline_scores_d3rlpy.py '{"algo": "td3_bc", ...}'     # in the peers' environment

Its own updates on batches drawn uniformly; like its own loader, without the last row of every episode that was cut off.
Observations are normalised and rewards scaled before, actions in -1..1, as on our side. Greedy policy on the episodes
that `episode_seeds` start; prints the mean return of every evaluation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import d3rlpy
import gymnasium as gym
import numpy as np
import torch
from d3rlpy.dataset import TransitionMiniBatch

Act = Callable[[Any, Any], Any]
"""Normalised observations of the open episodes and their indices, to actions as the environment takes them."""


def learner_of(algo: str, settings: dict[str, Any], updates: int, is_discrete: bool) -> Any:
    """The settings in the words of the other library."""
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=list(settings["hidden_dims"]))
    algorithms, own = d3rlpy.algos, settings["hparams"]
    rate, batch = settings["learning_rate"], {"batch_size": settings["batch_size"]}
    rates = {"actor_learning_rate": rate, "critic_learning_rate": rate}
    both: dict[str, Any] = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder, **batch}
    if algo == "bc" and is_discrete:
        return algorithms.DiscreteBCConfig(encoder_factory=encoder, learning_rate=rate, beta=0.0, **batch)
    if algo == "bc":
        return algorithms.BCConfig(encoder_factory=encoder, learning_rate=rate, **batch)
    if algo == "td3_bc":
        return algorithms.TD3PlusBCConfig(**rates, **both)
    if algo == "iql":
        decay = d3rlpy.optimizers.AdamFactory(
            lr_scheduler_factory=d3rlpy.optimizers.CosineAnnealingLRFactory(T_max=updates)
        )
        return algorithms.IQLConfig(value_encoder_factory=encoder, actor_optim_factory=decay, **rates, **both)
    if algo == "rebrac":
        both["critic_encoder_factory"] = d3rlpy.models.VectorEncoderFactory(
            hidden_units=list(settings["hidden_dims"]), use_layer_norm=settings["critic_layer_norm"]
        )
        return algorithms.ReBRACConfig(actor_beta=own["actor_beta"], critic_beta=own["critic_beta"], **rates, **both)
    if algo == "awac":
        return algorithms.AWACConfig(lam=own["temperature"], **rates, **both)
    if algo == "cql" and is_discrete:
        # its target is copied; ours follows with 0.005 of the way at every update
        return algorithms.DiscreteCQLConfig(
            encoder_factory=encoder, learning_rate=rate, alpha=own["weight"], target_update_interval=200, **batch
        )
    if algo == "cql":
        rates["actor_learning_rate"] = own["actor_learning_rate"]
        fixed = {"alpha_learning_rate": 0.0, "temp_learning_rate": own["actor_learning_rate"]}
        # twice the weight, beside squared errors that are not halved
        return algorithms.CQLConfig(
            n_action_samples=own["num_sampled"], conservative_weight=2.0 * own["weight"], **fixed, **rates, **both
        )
    raise SystemExit(f"no settings for '{algo}'")


def transformer_of(settings: dict[str, Any], is_discrete: bool, longest: int) -> Any:
    """The Decision Transformer with the same sizes, without dropout, and with the paper's optimiser."""
    own, optimizers = settings["hparams"], d3rlpy.optimizers
    kind = d3rlpy.algos.DiscreteDecisionTransformerConfig if is_discrete else d3rlpy.algos.DecisionTransformerConfig
    optimizer = optimizers.AdamWFactory(
        weight_decay=1e-4, clip_grad_norm=0.25, lr_scheduler_factory=optimizers.WarmupSchedulerFactory(1000)
    )
    rates = {"optim_factory": optimizer, "learning_rate": settings["learning_rate"]}
    if is_discrete:  # its own schedule, in tokens, is longer than these runs
        rates |= {"warmup_tokens": 1000 * settings["batch_size"] * own["window"], "final_tokens": 10**12}
        rates.pop("optim_factory")
    return kind(
        encoder_factory=d3rlpy.models.VectorEncoderFactory(hidden_units=[own["size"]]),
        batch_size=settings["batch_size"],
        context_size=own["window"],
        max_timestep=longest + 1,
        num_heads=own["heads"],
        num_layers=own["layers"],
        attn_dropout=0.0,
        resid_dropout=0.0,
        embed_dropout=0.0,
        **rates,
    )


class Rows:
    """Rows of a dataset as the peer's batches."""

    def __init__(self, path: str, seed: int, settings: dict[str, Any]) -> None:
        with np.load(path) as file:
            rows = {name: np.asarray(file[name], np.float32) for name in file.files}
        scaled, obs = settings["normalize_obs"], rows["obs"]
        self.mean: Any = obs.mean(0) if scaled else 0.0
        self.std: Any = obs.std(0) if scaled else 1.0
        self.rng, self.batch_size = np.random.default_rng(seed), settings["batch_size"]
        self.is_discrete = rows["actions"].ndim == 1
        self.rows = {**rows, "obs": self.normalized(rows["obs"])}
        kept, shape = rows["known"] > 0, (-1, 1) if self.is_discrete else rows["actions"].shape
        kept |= rows["terminated"] > 0  # what follows an end is never asked for
        self.columns: dict[str, Any] = {
            "observations": self.rows["obs"][kept],
            "actions": rows["actions"].reshape(shape)[kept],
            "rewards": rows["rewards"][kept, None],
            "next_observations": self.normalized(rows["next_obs"])[kept],
            "next_actions": rows["next_actions"].reshape(shape)[kept],
            "terminals": rows["terminated"][kept, None],
            "intervals": np.ones((int(kept.sum()), 1), np.float32),
        }
        if self.is_discrete:
            for name in ("actions", "next_actions"):
                self.columns[name] = self.columns[name].astype(np.int64)

    def normalized(self, obs: Any) -> Any:
        return ((obs - self.mean) / self.std).astype(np.float32)

    def sample(self) -> TransitionMiniBatch:
        drawn = self.rng.integers(len(self.columns["rewards"]), size=self.batch_size)
        return TransitionMiniBatch(**{name: c[drawn] for name, c in self.columns.items()}, transitions=[])

    def episodes(self, return_scale: float) -> Any:
        """Whole episodes for the transformer, with rewards divided by `return_scale`."""
        terminated = self.rows["terminated"]
        actions = self.rows["actions"].astype(np.int64)[:, None] if self.is_discrete else self.rows["actions"]
        rewards = self.rows["rewards"] / return_scale
        cut = self.rows["ended"] - terminated
        return d3rlpy.dataset.MDPDataset(self.rows["obs"], actions, rewards, terminated, cut)


def mean_return(env_id: str, episode_seeds: list[int], act: Act, normalized: Callable[[Any], Any]) -> float:
    """Mean return of greedy episodes, one environment each; `act` is also given the last rewards."""
    envs = [gym.make(env_id) for _ in episode_seeds]
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, episode_seeds, strict=True)])
    total, last = np.zeros(len(envs)), np.zeros(len(envs))
    playing = np.arange(len(envs))
    while len(playing):
        actions = act(normalized(obs[playing]), list(zip(playing, last[playing], strict=True)))
        still = []
        for k, action in zip(playing, actions, strict=True):
            obs[k], last[k], terminated, truncated, _ = envs[k].step(action)
            total[k] += last[k]
            still.append(not (terminated or truncated))
        playing = playing[np.array(still)]
    return float(total.mean())


def to_env(actions: Any, bounds: Any) -> Any:
    """Actions in -1..1 as the environment takes them."""
    if bounds is None:
        return [int(action) for action in np.asarray(actions).reshape(-1)]
    low, high = bounds
    return low + 0.5 * (np.clip(actions, -1.0, 1.0) + 1.0) * (high - low)


def train_on_transitions(given: dict[str, Any], rows: Rows, play: Callable[[Act], float]) -> list[float]:
    learner = learner_of(given["algo"], given["settings"], given["updates"], rows.is_discrete).create(device="cpu:0")
    shape, actions = rows.columns["observations"].shape[1:], rows.columns["actions"]
    learner.create_impl(shape, int(actions.max()) + 1 if rows.is_discrete else actions.shape[1])

    def act(obs: Any, _: Any) -> Any:
        return to_env(learner.predict(obs), given["bounds"])

    return trained(given, lambda: learner.update(rows.sample()), lambda: play(act))


def train_on_windows(given: dict[str, Any], rows: Rows, play: Callable[[Act], float]) -> list[float]:
    scale, target = given["return_scale"], given["target_return"]
    dataset = rows.episodes(scale)
    config = transformer_of(given["settings"], rows.is_discrete, given["max_episode_steps"])
    learner, batch, window = config.create(device="cpu:0"), config.batch_size, config.context_size
    learner.build_with_dataset(dataset)
    greedy = (
        d3rlpy.algos.GreedyTransformerActionSampler()
        if rows.is_discrete
        else d3rlpy.algos.IdentityTransformerActionSampler()
    )

    def played() -> float:
        seats = [
            learner.as_stateful_wrapper(target_return=target / scale, action_sampler=greedy)
            for _ in given["episode_seeds"]
        ]

        def act(obs: Any, rewards: Any) -> Any:
            chosen = [seats[k].predict(o, reward / scale) for o, (k, reward) in zip(obs, rewards, strict=True)]
            return to_env(np.array(chosen), given["bounds"])

        return play(act)

    return trained(given, lambda: learner.update(dataset.sample_trajectory_batch(batch, window)), played)


def trained(given: dict[str, Any], update: Callable[[], Any], played: Callable[[], float]) -> list[float]:
    """Mean return of every evaluation."""
    returns, every = [], max(given["updates"] // given["evaluations"], 1)
    for count in range(1, given["updates"] + 1):
        update()
        if count % every == 0:
            returns.append(played())
    return returns


def main(given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    d3rlpy.seed(given["seed"])
    np.random.seed(given["seed"])  # noqa: NPY002 (what its windows are drawn with)
    rows = Rows(given["rows"], given["seed"], given["settings"])

    def play(act: Act) -> float:
        return mean_return(given["env_id"], given["episode_seeds"], act, rows.normalized)

    learn = train_on_windows if given["algo"] == "dt" else train_on_transitions
    print(json.dumps({"returns": learn(given, rows, play)}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
