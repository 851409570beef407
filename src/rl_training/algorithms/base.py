"""BaseAlgorithm: a short way to a first algorithm of your own. Write `setup`, `act` and `update`; the rest is done.

Everything put into `networks` and `optimizers` is saved, restored and moved to the device by itself. For more control
implement the `Algorithm` protocol of `rl_training.types` instead: nothing in the package asks for this base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.on_policy import to_env
from rl_training.context import BuildContext
from rl_training.models.networks import load_module_state, module_state
from rl_training.models.optimization import load_optimizer_state, optimizer_state
from rl_training.types import ActResult, Array, Batch, Carry, Obs, StateDict, UpdateResult


class BaseAlgorithm:
    """Learns from rollouts of `num_steps` steps per environment.

    A dataclass `Hparams` inside your class declares hyperparameters; without it they arrive as a mapping.
    """

    kind = "on_policy"

    def __init__(self, ctx: BuildContext, hparams: Any) -> None:
        self.ctx = ctx
        self.hparams = hparams
        self.networks: dict[str, nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.setup()
        for network in self.networks.values():
            network.to(ctx.device)
        self.policy = _Acting(self)

    def setup(self) -> None:
        """Fill `self.networks` and `self.optimizers`. Draw initial weights with `self.ctx.streams("init")`."""

    def act(self, obs: Obs, rng: np.random.Generator, *, deterministic: bool = False) -> Array:
        """Actions (N, ...) for observations (N, ...). Draw noise with `rng`."""
        raise NotImplementedError(f"{type(self).__name__} needs an act(obs, rng, deterministic=False)")

    def update(self, batch: Batch) -> UpdateResult:
        """Learn from a rollout (see `rl_training.types.Batch`) and return what should be logged."""
        raise NotImplementedError(f"{type(self).__name__} needs an update(batch) that returns an UpdateResult")

    def observe(self, batch: Batch) -> None:
        """Called after `update`, for statistics that must not move inside a rollout."""

    def watched(self) -> Iterator[Tensor]:
        """What the NaN guard looks at after each update."""
        for network in self.networks.values():
            yield from (parameter.detach() for parameter in network.parameters())

    def state_dict(self) -> StateDict:
        modules = nn.ModuleDict(self.networks)
        return {name: optimizer_state(optimizer, modules) for name, optimizer in self.optimizers.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        modules = nn.ModuleDict(self.networks)
        for name, optimizer in self.optimizers.items():
            load_optimizer_state(optimizer, modules, state[name])


class _Acting:
    """The policy side of a BaseAlgorithm: its networks, and its `act` in the shape the collector calls."""

    def __init__(self, algorithm: BaseAlgorithm) -> None:
        self.algorithm = algorithm

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        actions = np.asarray(self.algorithm.act(obs, rng, deterministic=deterministic))
        return ActResult(actions, to_env(self.algorithm.ctx.action_space, actions), carry)

    def state_dict(self) -> StateDict:
        return {name: module_state(network) for name, network in self.algorithm.networks.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, network in self.algorithm.networks.items():
            load_module_state(network, state[name])
