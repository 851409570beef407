"""Random network distillation (Burda et al. 2018, arXiv:1810.12894): a reward for observations not seen before.

A predictor learns to give what a random, fixed target network gives. It does so where it has been trained, so its error
is large on new observations; that error, divided by the running standard deviation of its discounted sum, is the
intrinsic reward. Its returns have a value head, a discount and an advantage of their own, and do not end with episodes
unless asked to: see `hparams/exploration.py`.

Top to bottom: the mathematics as pure functions, the two networks, and what PPO calls. What differs from the paper:
the statistics of observations take in each rollout before it is judged, so that no steps of a random agent are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.rollout import concatenate_rows, flat_rows, with_edges
from rl_training.build_context import BuildContext
from rl_training.config.networks import encoders_of
from rl_training.config.schema import BackboneConfig, EncoderConfig
from rl_training.guards import Held, gradient_suspects, leaves
from rl_training.hparams.exploration import ExplorationConfig
from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.models.backbones.build import build_backbone, width
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.initialization import linear
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.optimization import FlatParameters, build_optimizer
from rl_training.numerics.metrics import mean_metrics
from rl_training.numerics.normalization import ObsNormalizer, RewardNormalizer
from rl_training.numerics.returns import gae
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import Array, Batch, BoxSpec, DictSpec, LeafSpec, Metrics, Obs, SpaceSpec, StateDict

INTRINSIC = "intrinsic_rewards"
"""Column of a rollout (T, N) with the bonus of each step."""
CHUNK = 256
"""Rows that are normalised or passed through the networks at a time: a rollout of images as floats would be large."""


# -- the mathematics --------------------------------------------------------------------------------------------------


def prediction_errors(predicted: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each row of features (B, F), (B,): how new an observation is."""
    return (predicted - targets).square().mean(1)


def continued_values(values: Array, last_values: Array, valid: Array) -> Array:
    """The value that follows each row (T, N) where episodes do not end anything: that of the next valid row.

    `last_values` (N,) follow the last row. Rows that are not `valid` (reset steps) are passed over.
    """
    following, continued = last_values, np.empty_like(values)
    for t in range(len(values) - 1, -1, -1):
        continued[t] = following
        following = np.where(valid[t], values[t], following)
    return continued


class Returns(NamedTuple):
    """Advantages and returns of one kind of reward, (T, N) each."""

    advantages: Array
    returns: Array


def intrinsic_returns(
    rewards: Array,
    values: Array,
    next_values: Array,
    batch: Batch,
    *,
    gamma: float,
    gae_lambda: float,
    episodic: bool,
) -> Returns:
    """Advantages and returns of intrinsic rewards (T, N); unless `episodic` they reach across the ends of episodes."""
    never = np.zeros(rewards.shape, bool)
    terminated = batch["terminated"] if episodic else never
    ends = batch["terminated"] | batch["truncated"] if episodic else never
    discounts = {"gamma": gamma, "gae_lambda": gae_lambda}
    return Returns(*gae(rewards, values, next_values, terminated, ends, valid=batch["valid"], **discounts))


# -- the networks -----------------------------------------------------------------------------------------------------


class Features(nn.Module):
    """Observations to features (B, F): the target, or with one more layer the predictor."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, features: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.backbone = build_backbone(space, cfg, rng)
        self.output = linear(rng, width(self.backbone), features, gain=1.0)

    def forward(self, obs: TensorObs) -> Tensor:
        return cast(Tensor, self.output(self.backbone(obs)))


def as_floats(space: SpaceSpec) -> SpaceSpec:
    """The space of normalised observations: every Box, images of bytes among them, holds unbounded floats."""

    def one(leaf: LeafSpec) -> LeafSpec:
        if not isinstance(leaf, BoxSpec):
            return leaf
        bound = np.full(leaf.shape, np.inf, np.float32)
        return BoxSpec(-bound, bound, bound.dtype)

    if isinstance(space, DictSpec):
        return DictSpec({name: one(leaf) for name, leaf in space.spaces.items()})
    return one(space)


class SeenRows(NamedTuple):
    """All observations of a rollout in rows (T * N + N + F, ...), and which of them follows each step, (T * N,)."""

    obs: Obs
    following: Array


def seen_rows(batch: Batch) -> SeenRows:
    """Observations of the steps, the last ones, the final ones; and where the true next observation of a step is."""
    num_steps, num_envs = batch["rewards"].shape
    obs = concatenate_rows(flat_rows(batch["obs"]), concatenate_rows(batch["last_obs"], batch["final_obs"]))
    following = np.arange(num_envs, (num_steps + 1) * num_envs)
    final = batch["final_index"]
    following[final] = (num_steps + 1) * num_envs + np.arange(len(final))
    return SeenRows(obs, following)


# -- what PPO calls ---------------------------------------------------------------------------------------------------


class RandomNetworkDistillation:
    """Target, predictor and statistics: gives intrinsic rewards of a rollout and learns from it."""

    def __init__(self, ctx: BuildContext, cfg: ExplorationConfig) -> None:
        self.cfg, self.guard, self.device = cfg, ctx.guard, torch.device(ctx.device)
        self.space = ctx.actor_space
        self.rng = ctx.streams("rnd")
        floats = as_floats(self.space)
        encoder = EncoderConfig("mlp", keys=encoders_of(self.space, EncoderConfig()))
        body = BackboneConfig(hidden_dims=cfg.hidden_dims, activation="relu", encoder=encoder)
        deeper = replace(body, hidden_dims=(*cfg.hidden_dims, cfg.hidden_dims[-1]))
        self.target = Features(floats, body, cfg.features, self.rng).to(self.device).requires_grad_(False)
        self.predictor = Features(floats, deeper, cfg.features, self.rng).to(self.device)
        self.parameters = FlatParameters(self.predictor)
        self.optimizer = build_optimizer(self.parameters, OptimizerConfig(), eps=1e-8)
        self.obs_normalizer = ObsNormalizer(floats, clip=cfg.obs_clip)
        self.reward_normalizer = RewardNormalizer(cfg.discount, ctx.num_envs)

    def rewards(self, batch: Batch) -> Array:
        """Intrinsic rewards (T, N) of a rollout; its observations and rewards enter the statistics first."""
        rows = seen_rows(batch)
        shown = self._shown(rows.obs)
        valid = np.concatenate([batch["valid"].reshape(-1), np.ones(count_of(shown) - batch["valid"].size, bool)])
        for chunk in chunks(len(valid)):
            self.obs_normalizer.update(taken(shown, np.arange(chunk.start, chunk.stop)[valid[chunk]]))
        with torch.no_grad():
            errors = [self._errors(shown, np.arange(part.start, part.stop)) for part in chunks(len(valid))]
        raw = torch.cat(errors).cpu().numpy()[rows.following].reshape(batch["rewards"].shape)
        ends = batch["terminated"] | batch["truncated"] if self.cfg.episodic else np.zeros(raw.shape, bool)
        self.reward_normalizer.update(raw, ends, batch["valid"])
        return self.reward_normalizer.scale(raw)

    def targets(self, batch: Batch, values: Array, edge_values: Array, gae_lambda: float) -> Returns:
        """Advantages and returns of `batch[INTRINSIC]` under the intrinsic values of the rows (T, N) and of the last
        and final observations (N + F,)."""
        rewards, num_envs = batch[INTRINSIC], values.shape[1]
        next_values = continued_values(values, edge_values[:num_envs], batch["valid"])
        if self.cfg.episodic:
            next_values = with_edges(batch, values, edge_values)
        return intrinsic_returns(
            rewards,
            values,
            next_values,
            batch,
            gamma=self.cfg.discount,
            gae_lambda=gae_lambda,
            episodic=self.cfg.episodic,
        )

    def learn(self, batch: Batch, num_epochs: int, num_minibatches: int) -> Metrics:
        """Passes over the rollout in minibatches, of each of which the predictor learns from a random share."""
        rows, records = seen_rows(batch), []
        shown, learnt = self._shown(rows.obs), rows.following[batch["valid"].reshape(-1)]
        for _ in range(num_epochs):
            order = self.rng.permutation(learnt)
            for part in np.array_split(order, min(num_minibatches, len(order))):
                count = max(1, round(self.cfg.train_fraction * len(part)))
                records.append(self._step(shown, part[:count]))
        return mean_metrics(records, lambda values: sum(values) / len(values))

    def _step(self, shown: Obs, index: Array) -> Mapping[str, float]:
        """One optimiser step of the predictor on the rows at `index`."""
        self.optimizer.zero_grad()
        loss = self._errors(shown, index).mean()
        loss.backward()
        norm, value = self.optimizer.grad_norm(), loss.detach()
        self.guard.check_gradients(norm, lambda: gradient_suspects(self._held(value)), value)
        self.optimizer.step(self.cfg.learning_rate)
        return {"predictor_loss": float(value), "predictor_grad_norm": float(norm)}

    def _errors(self, shown: Obs, index: Array) -> Tensor:
        """Prediction errors (B,) of the rows at `index`; gradients reach the predictor."""
        obs = as_tensors(self.obs_normalizer(taken(shown, index)), self.device)
        with torch.no_grad():
            targets = self.target(obs)
        return prediction_errors(self.predictor(obs), targets)

    def _shown(self, obs: Obs) -> Obs:
        """The observations that the actor sees, raw."""
        if isinstance(obs, dict) and isinstance(self.space, DictSpec):
            return {name: obs[name] for name in self.space.spaces}
        return obs

    def drop_open_episodes(self) -> None:
        """Forget the running returns of episodes that are dropped without having ended."""
        self.reward_normalizer.drop_open_episodes()

    def watched(self) -> Iterator[Tensor | Array]:
        """Tensors that the guard checks after each update."""
        yield from (self.parameters.values, *self.optimizer.tensors())
        for normalizer in (self.obs_normalizer, self.reward_normalizer):
            yield from (array for _, array in leaves(normalizer.state_dict(), ""))

    def _held(self, loss: Tensor) -> Held:
        return Held(
            optimizers={"predictor": self.optimizer.state_dict()},
            parameters={"predictor": module_state(self.predictor)},
            gradients={"predictor": self.parameters.by_name(self.parameters.grad)},
            losses={"predictor_loss": loss},
            targets={"target": module_state(self.target)},
            normalizer=self.obs_normalizer.state_dict(),
            reward_normalizer=self.reward_normalizer.state_dict(),
        )

    def state_dict(self) -> StateDict:
        return {
            "target": module_state(self.target),
            "predictor": module_state(self.predictor),
            "optimizer": self.optimizer.state_dict(),
            "obs_normalizer": self.obs_normalizer.state_dict(),
            "reward_normalizer": self.reward_normalizer.state_dict(),
            "rng": generator_state(self.rng),
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        load_module_state(self.target, state["target"])
        load_module_state(self.predictor, state["predictor"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.obs_normalizer.load_state_dict(state["obs_normalizer"])
        self.reward_normalizer.load_state_dict(state["reward_normalizer"])
        set_generator_state(self.rng, state["rng"])


def chunks(count: int) -> Iterator[slice]:
    """`count` rows in slices of at most CHUNK."""
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def count_of(obs: Obs) -> int:
    """Number of rows."""
    return len(next(iter(obs.values())) if isinstance(obs, dict) else obs)


def taken(obs: Obs, index: Array) -> Obs:
    """The rows at `index`."""
    return {name: value[index] for name, value in obs.items()} if isinstance(obs, dict) else obs[index]
