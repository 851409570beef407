"""ValueFunction: state values and action values of one network, with a target copy that follows it."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.critics import QCritics
from rl_training.models.networks import BaseNetwork, QNetwork, ValueNetwork, as_tensors, polyak_update
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, Obs, SpaceSpec


class ValueFunction(BaseNetwork):
    """V(s) without an action space, Q(s, a) with one: all actions at once if Discrete, `members` critics if Box.

    `online` is trained; `target` has no gradients and moves only in `update_target`. Both are saved.
    """

    def __init__(
        self,
        observation_space: SpaceSpec,
        action_space: SpaceSpec | None = None,
        cfg: BackboneConfig | None = None,
        rng: np.random.Generator | None = None,
        *,
        tau: float = 0.005,
        members: int = 2,
    ) -> None:
        super().__init__()
        rng = rng if rng is not None else np.random.default_rng(0)
        cfg = cfg or BackboneConfig()
        self.online: ValueNetwork | QNetwork | QCritics
        if action_space is None:
            self.online = ValueNetwork(observation_space, cfg, rng)
        elif isinstance(action_space, DiscreteSpec):
            self.online = QNetwork(observation_space, action_space, cfg, rng)
        elif isinstance(action_space, BoxSpec):
            self.online = QCritics(observation_space, action_space, cfg, rng, members)
        else:
            raise ConfigError(f"action values need Discrete or Box actions, not {type(action_space).__name__}")
        self.tau = tau
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, obs: Obs | TensorObs, actions: Tensor | None = None, *, target: bool = False) -> Tensor:
        """State values where there are no actions in the space or in the call, action values otherwise; (B,)."""
        return self.state_values(obs, target=target) if actions is None else self.action_values(obs, actions, target)

    def state_values(self, obs: Obs | TensorObs, *, target: bool = False) -> Tensor:
        """V(s) as (B,); with Discrete actions it is the value of the best one."""
        network = self.target if target else self.online
        if isinstance(network, QCritics):
            raise ConfigError("with Box actions a state has no value of its own: call action_values(obs, actions)")
        values: Tensor = network(as_tensors(obs, self.device))
        return values.max(dim=1).values if isinstance(network, QNetwork) else values

    def action_values(self, obs: Obs | TensorObs, actions: Tensor, target: bool = False) -> Tensor:
        """Q(s, a) as (B,); with Box actions it is the minimum over the critics, as in TD3 and SAC."""
        network, tensors = self.target if target else self.online, as_tensors(obs, self.device)
        actions = torch.as_tensor(actions, device=self.device)
        if isinstance(network, QCritics):
            values: Tensor = network(tensors, actions)  # (E, B)
            return values.min(dim=0).values
        if isinstance(network, QNetwork):
            values = network(tensors)  # (B, A)
            return values.gather(1, actions.long().unsqueeze(1)).squeeze(1)
        raise ConfigError("this value function was built without an action space: give it one for action values")

    def update_target(self, tau: float | None = None) -> None:
        """Move the target towards the online network by `tau`, or by the fraction given at construction; 1 copies."""
        polyak_update(self.online, self.target, self.tau if tau is None else tau)
