"""Fitted Q evaluation (Le et al. 2019, arXiv:1903.08738): what a policy would return, from a dataset alone.

Critics are fitted to r + gamma Q'(s', pi(s')) for a fixed policy; the estimate is their mean value at the first
observations of the dataset's whole episodes, since others may begin anywhere. It is as good as the dataset covers what
the policy does: `distance` says how far its actions are from those of the dataset, `diverged` whether the values are
beyond what any sequence of the dataset's rewards could give.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.off_policy import OffPolicyAlgorithm, critic_loss, td_targets
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, DatasetConfig, NetworkConfig
from rl_training.data.datasets.dataset import CHUNK, Dataset
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.hparams.fqe import FQEConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.models.critics import QCritics
from rl_training.models.observed import Seen
from rl_training.numerics.encoding import from_bounds
from rl_training.seeding import Streams
from rl_training.types import (
    REWARD,
    Array,
    Batch,
    BoxSpec,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    Metrics,
    NonFiniteError,
    Obs,
    Policy,
    UpdateResult,
)

__all__ = ["FQE", "FQEConfig", "OpeResult", "off_policy_estimate"]


@dataclass(frozen=True)
class OpeResult:
    """What off-policy evaluation found."""

    estimate: float
    """Discounted return of the policy from the first observations of whole episodes, or of all where none is whole:
    mean over critics and episodes."""
    spread: float
    """Standard deviation of the critics' estimates."""
    critics: list[float]
    """The estimate of each critic."""
    data_return: float | None
    """Mean discounted return of the dataset's whole episodes; None without any."""
    distance: float
    """How far the policy is from the dataset: mean absolute difference of Box actions in -1..1, or the share of
    Discrete actions that differ."""
    bounds: tuple[float, float]
    """The smallest and the largest discounted return that rewards of the dataset allow."""
    diverged: bool
    """Whether a critic is outside of the bounds, or fitting broke off at a value that is not finite."""
    gamma: float
    fitted: float
    """How far the critics can have got towards the values of the policy, 0 to 1: see `FQEConfig.fitted`."""

    def to_json(self) -> dict[str, Any]:
        """JSON values; numbers that are not finite are null."""
        plain = asdict(self)
        plain["bounds"] = list(self.bounds)
        for name in ("estimate", "spread"):
            plain[name] = plain[name] if np.isfinite(plain[name]) else None
        plain["critics"] = [value if np.isfinite(value) else None for value in self.critics]
        return plain


class FQE(OffPolicyAlgorithm):
    """Critics alone, of actions that the batch brings along as `next_actions`."""

    def __init__(self, ctx: BuildContext, hp: FQEConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        self.options, self.is_discrete = hp, isinstance(ctx.action_space, DiscreteSpec)
        space = cast(BoxSpec | DiscreteSpec, ctx.action_space)
        rng = ctx.streams("init")
        self.critics = QCritics(ctx.observation_space, space, ctx.network.critic, rng, hp.num_critics)
        self.learner("critics", self.critics)
        self.target("critics")

    def values(self, critics: Any, obs: Seen, actions: Tensor) -> Tensor:
        """Values (E, B) of actions."""
        if not self.is_discrete:
            return cast(Tensor, critics(obs, actions))
        values = critics(obs)  # (E, B, A)
        return cast(Tensor, values.gather(2, actions.long().view(1, -1, 1).expand(len(values), -1, 1)).squeeze(2))

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the critics, each towards its own targets."""
        self.updates += 1
        rows, metrics = self.prepare(batch), cast(Metrics, {})
        assert rows.next_actions is not None
        with torch.no_grad():
            following = self.values(self.targets["critics"].network, rows.next_obs, rows.next_actions)
            targets = td_targets(rows.rewards, rows.discounts, rows.terminated, following)
        loss = critic_loss(self.values(self.critics, rows.obs, rows.actions), targets)
        metrics["critic_loss"] = loss.detach()
        metrics["critic_grad_norm"] = self.step("critics", loss, metrics)
        self.targets["critics"].follow(self.options.tau)
        return UpdateResult(metrics)


def off_policy_estimate(policy: Policy, data: Dataset, hp: FQEConfig | None = None) -> OpeResult:
    """Fit critics of a greedy policy to a dataset and report what they say."""
    hp = hp or FQEConfig()
    space = data.info.spaces[1]
    if not isinstance(space, BoxSpec | DiscreteSpec):
        raise ConfigError("off-policy evaluation is for Box and Discrete actions")
    backbone = BackboneConfig(hidden_dims=hp.hidden_dims, activation="relu")
    network = NetworkConfig(backbone, backbone)
    ctx = BuildContext(*data.info.spaces, network=network, streams=Streams(hp.seed), normalize_obs=True)
    scale = float(np.abs(np.asarray(data.rewards, np.float64)).mean()) / (1.0 - hp.gamma) or 1.0
    algorithm = FQE(ctx, hp)
    freeze(algorithm, data)
    chosen = greedy_actions(policy, data)
    replay = DatasetReplay(data, Streams(hp.seed)("buffer"), DatasetConfig(reward=1.0 / scale))
    replay.extra["next_actions"] = chosen[data.places + 1]
    broke_off = False
    try:
        for _ in range(hp.total_updates):
            algorithm.update(replay.sample(hp.batch_size))
    except NonFiniteError:
        broke_off = True
    begins = data.starts[data.whole] if data.whole.any() else data.starts
    with torch.no_grad():
        obs = algorithm.observations(data.obs_of(begins))
        values = algorithm.values(algorithm.critics, obs, algorithm.tensor(chosen[data.places[begins]]))
    estimates = (values.double().mean(1) * scale).tolist()
    low, high = possible_returns(data, hp.gamma)
    slack = 0.01 * (high - low)
    within = all(np.isfinite(value) and low - slack <= value <= high + slack for value in estimates)
    return OpeResult(
        float(np.mean(estimates)),
        float(np.std(estimates)),
        [float(value) for value in estimates],
        discounted_return(data, hp.gamma),
        action_distance(chosen[data.places], replay.actions),
        (low, high),
        broke_off or not within,
        hp.gamma,
        hp.fitted,
    )


def freeze(algorithm: FQE, data: Dataset) -> None:
    """Take the mean and standard deviation of the dataset's observations."""
    for start in range(0, len(data), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(data)))
        algorithm.observe({"obs": data.obs_of(rows), "valid": np.ones(len(rows), np.bool_)})


def possible_returns(data: Dataset, gamma: float) -> tuple[float, float]:
    """The smallest and the largest discounted return of any sequence of the dataset's rewards; an episode may end."""
    rewards = np.asarray(data.rewards, np.float64)
    return min(rewards.min(), 0.0) / (1.0 - gamma), max(rewards.max(), 0.0) / (1.0 - gamma)


def discounted_return(data: Dataset, gamma: float) -> float | None:
    """Mean discounted return of whole episodes."""
    rewards = np.asarray(data.rewards, np.float64)
    totals = [
        float(rewards[begin:end] @ gamma ** np.arange(end - begin))
        for (begin, end), whole in zip(data.episodes(), data.whole, strict=True)
        if whole
    ]
    return float(np.mean(totals)) if totals else None


def action_distance(chosen: Array, actions: Array) -> float:
    """Mean absolute difference, or the share of discrete actions that differ."""
    if actions.dtype.kind == "f":
        return float(np.abs(chosen.astype(np.float64) - actions).mean())
    return float((chosen != actions).mean())


# -- what a policy does in a dataset ----------------------------------------------------------------------------------


def greedy_actions(policy: Policy, data: Dataset) -> Array:
    """The policy's greedy action at every observation of a dataset, (R + E, ...), as critics see actions. A policy with
    memory follows each episode as it was recorded."""
    if policy.initial_carry(1):
        return followed_actions(policy, data)
    count, rng, parts = len(data) + len(data.starts), np.random.default_rng(0), []
    for start in range(0, count, CHUNK):
        rows = slice(start, min(start + CHUNK, count))
        obs = observed(data, rows)
        first = np.ones(rows.stop - rows.start, np.bool_)
        parts.append(policy.act(obs, {}, first, rng, deterministic=True).env_actions)
    return as_unit(data, np.concatenate(parts))


def as_unit(data: Dataset, actions: Array) -> Array:
    """Actions of the environment as critics see them: Box actions in -1..1."""
    space = data.info.spaces[1]
    if not isinstance(space, BoxSpec):
        return actions
    scaled: Array = np.clip(from_bounds(space, actions), -1.0, 1.0)
    return scaled


def followed_actions(policy: Policy, data: Dataset) -> Array:
    """`greedy_actions` of a policy with memory: one episode after the other."""
    rng, parts = np.random.default_rng(0), []
    for number, (begin, end) in enumerate(data.episodes()):
        carry = policy.initial_carry(1)
        for step in range(end - begin + 1):
            place = begin + number + step
            if REWARD in carry and step:
                carry[REWARD] = np.asarray(data.rewards[begin + step - 1 : begin + step], np.float32)
            obs, first = observed(data, slice(place, place + 1)), np.array([step == 0])
            result = policy.act(obs, carry, first, rng, deterministic=True)
            carry = result.carry
            parts.append(result.env_actions)
    return as_unit(data, np.concatenate(parts))


def observed(data: Dataset, rows: slice) -> Obs:
    """Stored observations, final ones included."""
    if isinstance(data.info.spaces[0], DictSpec):
        return {key: np.asarray(leaf[rows]) for key, leaf in cast(dict[str, Array], data.observations).items()}
    return np.asarray(cast(Array, data.observations)[rows])
