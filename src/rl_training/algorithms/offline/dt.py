"""Decision Transformer (Chen et al. 2021, arXiv:2106.01345): acting as the continuation of a sequence.

A step is three tokens: the return that is still to come, the observation, the action. A causal transformer (the memory
`transformer` of the networks) sees the last `memory.window` steps and predicts each action from the tokens before it.
Acting asks for a return and lowers it by every reward received.

Top to bottom: the losses, the network, the policy, the algorithm. What differs from the paper: positions are relative,
so episodes may have any length, and there is no dropout.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.off_policy import OffPolicyAlgorithm
from rl_training.algorithms.policies import NetworkPolicy
from rl_training.build_context import BuildContext
from rl_training.config.networks import spelt_out
from rl_training.config.schema import MemoryConfig, NetworkConfig
from rl_training.hparams.dt import SPEC, DTConfig
from rl_training.hparams.off_policy import OffPolicyHparams, SequenceOptions
from rl_training.models.backbones.build import build_actor_backbone, width
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.backbones.transformer import Transformer
from rl_training.models.heads import MASKED_LOGIT, CategoricalHead
from rl_training.models.initialization import linear
from rl_training.models.networks import as_tensors
from rl_training.models.transfer import to_device
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import (
    ACTION_MASK,
    REWARD,
    ActResult,
    Array,
    Batch,
    BoxSpec,
    Carry,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    Metrics,
    Obs,
    SpaceSpec,
    StateDict,
    UpdateResult,
)

__all__ = ["SPEC", "DTConfig", "DecisionTransformer", "sequence_loss"]

TOKENS = 3
"""Tokens of a step: return, observation, action."""


def sequence_loss(outputs: Tensor, actions: Tensor, valid: Tensor) -> Tensor:
    """Mean error of predictions (B, K, ...) over the steps that are there: squared for real actions (B, K, A), cross
    entropy of log-probabilities for discrete ones (B, K)."""
    if actions.dtype.is_floating_point:
        errors = (outputs - actions.reshape(outputs.shape)).square().mean(2)
    else:
        errors = -outputs.gather(2, actions.long().unsqueeze(2)).squeeze(2)
    return (errors * valid).sum() / valid.sum()


class SequenceModel(nn.Module):
    """From windows of returns, observations and actions to predictions of the actions."""

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: BoxSpec | DiscreteSpec,
        network: NetworkConfig,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        actor = spelt_out(network.actor)
        memory = actor.memory
        if memory.type != "transformer":
            raise ConfigError(
                f"'dt' is a transformer, not '{memory.type}': give network.actor.memory.type: transformer"
            )
        plain = replace(network, actor=replace(actor, memory=MemoryConfig()))
        self.window = memory.window
        self.encoder = build_actor_backbone(observation_space, plain, rng)
        self.is_discrete = isinstance(action_space, DiscreteSpec)
        self.action_size = action_space.n if isinstance(action_space, DiscreteSpec) else math.prod(action_space.shape)
        self.observed = linear(rng, width(self.encoder), memory.size, gain=1.0)
        self.wanted = linear(rng, 1, memory.size, gain=1.0)
        self.acted = linear(rng, self.action_size, memory.size, gain=1.0)
        self.transformer = Transformer(
            memory.size,
            memory.size,
            rng,
            layers=memory.layers,
            heads=memory.heads,
            window=TOKENS * memory.window,
            gating=memory.gating,
        )
        self.head: CategoricalHead | None = None
        self.output: nn.Linear | None = None
        if isinstance(action_space, DiscreteSpec):
            self.head = CategoricalHead(memory.size, action_space, rng)
        else:
            self.output = linear(rng, memory.size, self.action_size, gain=POLICY_GAIN)

    def forward(self, returns: Tensor, obs: TensorObs, actions: Tensor) -> Tensor:
        """Actions in -1..1 (B, T, A), or logits of discrete ones, predicted from returns (B, T), observations
        (B * T, ...) and encoded actions (B, T, A); a prediction does not depend on the action of its own step."""
        observed = self.observed(self.encoder(obs)).unflatten(0, returns.shape)
        tokens = torch.stack([self.wanted(returns.unsqueeze(2)), observed, self.acted(actions)], 2).flatten(1, 2)
        episode = torch.zeros(tokens.shape[:2], dtype=torch.int64, device=tokens.device)
        features = self.transformer.whole(tokens, episode)[:, 1::TOKENS]
        if self.head is not None:
            return cast(Tensor, self.head.output(features))
        assert self.output is not None
        return torch.tanh(self.output(features))


class SequencePolicy(NetworkPolicy):
    """Predicts the action of the newest step; the carry holds the window of steps so far."""

    network: SequenceModel

    def __init__(
        self, network: SequenceModel, ctx: BuildContext, normalizer: ObsNormalizer | None, target: float | None
    ) -> None:
        super().__init__(network, ctx, normalizer)
        self.chosen_target = target
        self.target_return, self.return_scale = target or 0.0, 1.0

    def aim_at(self, returns: Array) -> None:
        """Take the scale of returns, and the target unless one is configured, from those of a dataset's episodes."""
        self.return_scale = max(float(np.abs(returns).max()), 1e-6)
        self.target_return = float(returns.max()) if self.chosen_target is None else self.chosen_target

    def initial_carry(self, num_envs: int) -> Carry:
        window, space = self.network.window, self.observation_space
        leaves = space.spaces if isinstance(space, DictSpec) else {"": space}
        seen = {f"obs/{name}": np.zeros((num_envs, window, *leaf.shape), leaf.dtype) for name, leaf in leaves.items()}
        return {
            **seen,
            "actions": np.zeros((num_envs, window, self.network.action_size), np.float32),
            "returns": np.zeros((num_envs, window), np.float32),
            "length": np.zeros(num_envs, np.int64),
            REWARD: np.zeros(num_envs, np.float32),
        }

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        carry = self.extended(obs, carry, is_first)
        newest = np.arange(len(is_first)), carry["length"] - 1
        outputs = self.predicted(carry)[newest]
        if self.network.head is None:
            space = cast(BoxSpec, self.action_space)
            carry["actions"][newest] = outputs
            actions = outputs.reshape(len(outputs), *space.shape)
            return ActResult(actions, to_bounds(space, actions), carry)
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        actions = self.network.head.sample(outputs, rng, deterministic=deterministic, mask=mask)
        carry["actions"][newest] = np.eye(self.network.action_size, dtype=np.float32)[actions]
        return ActResult(actions, actions, carry)

    def extended(self, obs: Obs, carry: Carry, is_first: Array) -> Carry:
        """The carry with one more step, whose action is not chosen yet; a full window loses its oldest one."""
        window = self.network.window
        length = np.where(is_first, 0, carry["length"])
        last = carry["returns"][np.arange(len(length)), np.maximum(length - 1, 0)]
        wanted = np.where(is_first, self.target_return / self.return_scale, last - carry[REWARD] / self.return_scale)
        is_full = length == window
        place = np.arange(len(length)), np.where(is_full, window - 1, length)
        leaves = obs if isinstance(obs, dict) else {"": obs}
        newest = {f"obs/{name}": leaf for name, leaf in leaves.items()} | {"returns": wanted, "actions": 0.0}
        after: Carry = {"length": np.minimum(length + 1, window), REWARD: np.zeros_like(carry[REWARD])}
        for name, value in newest.items():
            if name not in carry:
                continue
            rows = carry[name].copy()
            rows[is_full] = np.roll(rows[is_full], -1, axis=1)
            rows[place] = value
            after[name] = rows
        return {name: after[name] for name in carry}

    def predicted(self, carry: Carry) -> Array:
        """Predictions (N, K, A) of all steps of the window."""
        rows = {name.removeprefix("obs/"): value for name, value in carry.items() if name.startswith("obs/")}
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in rows.items()}
        obs = self.normalize(flat if isinstance(self.observation_space, DictSpec) else flat[""])
        returns, actions = (to_device(carry[name], self.device) for name in ("returns", "actions"))
        with torch.no_grad():
            return cast(Array, self.network(returns, as_tensors(obs, self.device), actions).cpu().numpy())

    def state_dict(self) -> StateDict:
        aim = {"target_return": self.target_return, "return_scale": self.return_scale}
        return {**super().state_dict(), **aim}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        self.target_return, self.return_scale = float(state["target_return"]), float(state["return_scale"])


class DecisionTransformer(OffPolicyAlgorithm):
    """One network, one supervised loss."""

    def __init__(self, ctx: BuildContext, hp: DTConfig) -> None:
        super().__init__(ctx, cast(OffPolicyHparams, hp))
        self.options = hp
        space = cast(BoxSpec | DiscreteSpec, ctx.action_space)
        self.model = SequenceModel(ctx.observation_space, space, ctx.network, ctx.streams("init"))
        self.learner("actor", self.model)
        self.act_with(SequencePolicy(self.model, ctx, self.normalizer, hp.target_return))

    @property
    def sequences(self) -> SequenceOptions:
        """Windows, in place of transitions."""
        return SequenceOptions(self.model.window)

    def aim_at(self, returns: Array) -> None:
        """Told the returns of the dataset's episodes before the first update."""
        self.policy.aim_at(returns)

    def rate(self, name: str) -> float:
        """Current step size, which rises from 0 over the first updates."""
        warmup = self.options.warmup_updates
        return super().rate(name) * min(self.updates / warmup if warmup else 1.0, 1.0)

    def update(self, batch: Batch) -> UpdateResult:
        """One step towards the actions of windows (B, K, ...)."""
        self.updates += 1
        self._batch, metrics = batch, cast(Metrics, {})
        loss = self.loss(batch)
        metrics["actor_loss"] = loss.detach()
        metrics["actor_grad_norm"] = self.step("actor", loss, metrics)
        return UpdateResult(metrics)

    def loss(self, batch: Batch) -> Tensor:
        """How far the predictions are from the dataset's actions."""
        seen, given = batch["obs"], self.tensor(batch["actions"])
        if isinstance(seen, dict):
            flat: Obs = {name: rows.reshape(-1, *rows.shape[2:]) for name, rows in seen.items()}
        else:
            flat = seen.reshape(-1, *seen.shape[2:])
        returns, valid = self.tensor(batch["returns_to_go"]) / self.policy.return_scale, self.tensor(batch["valid"])
        size = self.model.action_size
        encoded = F.one_hot(given.long(), size).float() if self.model.is_discrete else given.flatten(2)
        outputs = self.model(returns, self.observations(flat), encoded)
        if not self.model.is_discrete:
            return sequence_loss(outputs, given.flatten(2), valid.float())
        if isinstance(seen, dict) and ACTION_MASK in seen:
            outputs = outputs.masked_fill(self.tensor(seen[ACTION_MASK]) == 0, MASKED_LOGIT)
        return sequence_loss(F.log_softmax(outputs, dim=2), given, valid.float())
