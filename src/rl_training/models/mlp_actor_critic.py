"""MLPActorCritic: policy and state value on two small MLPs, built from spaces; `step` gives what a rollout stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.config.schema import Activation, BackboneConfig, NetworkConfig
from rl_training.models.networks import ActorCritic, as_tensors
from rl_training.models.observed import action_mask
from rl_training.types import Array, DictSpec, LeafSpec, Obs, SpaceSpec


class MLPActorCritic(ActorCritic):
    """`ActorCritic` with MLP backbones. The spaces are Gymnasium's or the package's own records."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Activation = "tanh",
        *,
        shared: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = rng if rng is not None else np.random.default_rng(0)
        backbone = BackboneConfig(hidden_dims=tuple(hidden_sizes), activation=activation)
        cfg = NetworkConfig(actor=backbone, critic=backbone, shared=shared)
        super().__init__(_as_spec(observation_space), _as_spec(action_space), cfg, rng)
        self.rng = rng

    @torch.no_grad()
    def step(
        self, obs: Obs, *, deterministic: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[Array, Array, Array]:
        """(actions, values, log-probabilities) for observations (N, ...), as arrays with N rows.

        Actions are drawn with `rng`, or else with this network's own generator.
        """
        tensors = as_tensors(obs, next(self.parameters()).device)
        mask = action_mask(tensors)
        mean = self.action_head(self.actor(tensors)).mean.cpu().numpy()
        actions = self.action_head.sample(
            mean, rng or self.rng, deterministic=deterministic, mask=None if mask is None else mask.cpu().numpy()
        )
        logprobs, _, values = self(tensors, torch.as_tensor(actions, device=next(self.parameters()).device))
        return actions, values.cpu().numpy(), logprobs.cpu().numpy()

    def act(self, obs: Obs, *, deterministic: bool = False, rng: np.random.Generator | None = None) -> Array:
        """The actions alone."""
        return self.step(obs, deterministic=deterministic, rng=rng)[0]


def _as_spec(space: Any) -> SpaceSpec:
    if isinstance(space, LeafSpec | DictSpec):
        return space
    from rl_training.envs.spaces import space_spec  # here: networks alone need no Gymnasium

    return space_spec(space)
