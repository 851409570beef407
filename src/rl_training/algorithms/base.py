"""BaseAlgorithm: the shortest start for an algorithm of your own. Write `setup`, `act` and `update`; the rest is done.

Everything put into `networks`, `optimizers` and `generators` is saved and restored automatically, and networks are
moved to the device. For more control implement the `Algorithm` protocol of `rl_training.types` instead: nothing in the
package requires this base. `rl_training.testing.check_algorithm` checks an algorithm, however it is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.rollout import flat_rows
from rl_training.build_context import BuildContext
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.hparams.base import supports_anything
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.optimization import load_optimizer_state, optimizer_state
from rl_training.numerics.encoding import to_env
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import (
    ActResult,
    Array,
    Batch,
    Carry,
    ConfigError,
    DictSpec,
    Metrics,
    Obs,
    SpaceSpec,
    StateDict,
    UpdateResult,
)


class BaseAlgorithm:
    """Learns from rollouts of `num_steps` steps per environment.

    A dataclass `Hparams` inside your class declares hyperparameters; without it they arrive as a mapping.
    """

    kind = "on_policy"
    normalizes = False
    """Set True if your algorithm applies `ctx.normalize_obs` and `ctx.normalize_reward`; they are refused otherwise."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "update" in vars(cls):
            cls.update = _keeping_metrics(cls.update)  # type: ignore[method-assign, assignment]

    def __init__(self, ctx: BuildContext, hparams: Any) -> None:
        self.ctx = ctx
        self.hparams = hparams
        self._latest_metrics: Metrics = {}
        self.networks: dict[str, nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.generators: dict[str, np.random.Generator] = {}
        _check_class(type(self), ctx)
        self.setup()
        _check_setup(self)
        for network in self.networks.values():
            network.to(ctx.device)
        self.policy = _Acting(self)

    @staticmethod
    def supports(observation_space: SpaceSpec, action_space: SpaceSpec) -> str | None:
        """Why your algorithm cannot work with these spaces, as a sentence for the user; None where it can."""
        return supports_anything(observation_space, action_space)

    def setup(self) -> None:
        """Fill `self.networks` and `self.optimizers`. Draw initial weights with `self.ctx.streams("init")`.

        Other random numbers (an order of minibatches) come from a stream kept in `self.generators`.
        """

    def act(self, obs: Obs, rng: np.random.Generator, *, deterministic: bool = False) -> Array:
        """Actions (N, ...) for observations (N, ...). Draw noise with `rng`."""
        raise NotImplementedError

    def update(self, batch: Batch) -> UpdateResult:
        """Learn from a rollout (see `rl_training.types.Batch`) and return what should be logged."""
        raise NotImplementedError

    def observe(self, batch: Batch) -> None:
        """Called after `update`, for statistics that must not move inside a rollout."""

    def flat(self, batch: Batch, *columns: str | Obs) -> list[Any]:
        """Columns of a rollout as tensors (B, ...) of its real transitions, on the device.

        A column is a name in `batch` or your own (T, N, ...) array: `obs, gains = self.flat(batch, "obs", gains)`.
        """
        keep = batch["valid"].reshape(-1)
        arrays = [batch[column] if isinstance(column, str) else column for column in columns]
        return [as_tensors(flat_rows(array, keep), self.ctx.device) for array in arrays]

    def watched(self) -> Iterator[Tensor]:
        """Tensors that the NaN guard checks after each update."""
        for network in self.networks.values():
            yield from (parameter.detach() for parameter in network.parameters())

    def get_metrics(self) -> dict[str, float]:
        """The metrics of the latest `update` as numbers; empty before the first one."""
        return {name: float(value) for name, value in self._latest_metrics.items()}

    def save_checkpoint(self, run_dir: str | Path) -> Path:
        """Write this algorithm's state below `run_dir/checkpoints`, for loops of your own; returns the folder.

        A run of the package saves more than this (environments, buffers, logs), by itself.
        """
        parts = {"algorithm": self.state_dict(), "policy": self.policy.state_dict()}
        return CheckpointManager(run_dir).save(parts, step=self.ctx.progress.env_steps)

    def load_checkpoint(self, run_dir: str | Path, which: str | int = "latest") -> None:
        """Read what `save_checkpoint` wrote, or these two parts of a run: `latest`, `best` or a step."""
        parts = CheckpointManager(run_dir).load(which, ("algorithm", "policy")).parts
        self.load_state_dict(parts["algorithm"])
        self.policy.load_state_dict(parts["policy"])

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Networks that are trained, for debug mode."""
        yield from self.networks.items()

    def named_optimizers(self) -> Iterator[tuple[str, torch.optim.Optimizer]]:
        """Optimisers, for debug mode."""
        yield from self.optimizers.items()

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd: here they always do."""
        return nullcontext()

    def state_dict(self) -> StateDict:
        return learning_state(self.networks, self.optimizers, self.generators)

    def load_state_dict(self, state: StateDict, /) -> None:
        load_learning_state(self.networks, self.optimizers, self.generators, state)


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
        space = self.algorithm.ctx.action_space
        assert not isinstance(space, DictSpec), "refused before anything is built"
        if actions.shape != (len(is_first), *space.shape):
            raise ConfigError(
                f"{type(self.algorithm).__name__}.act returned actions of shape {actions.shape} for {len(is_first)} "
                f"observations; one action has the shape {space.shape}, so {(len(is_first), *space.shape)} is needed"
            )
        return ActResult(actions, to_env(space, actions), carry)

    def state_dict(self) -> StateDict:
        return {name: module_state(network) for name, network in self.algorithm.networks.items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, network in self.algorithm.networks.items():
            load_module_state(network, state[name])


# -- state ------------------------------------------------------------------------------------------------------------

Networks = dict[str, nn.Module]
Optimizers = dict[str, torch.optim.Optimizer]
Generators = dict[str, np.random.Generator]


def learning_state(networks: Networks, optimizers: Optimizers, generators: Generators) -> StateDict:
    """The state of optimisers, by the names of the parameters they move, and of generators."""
    modules = nn.ModuleDict(networks)
    return {
        "optimizers": {name: optimizer_state(optimizer, modules) for name, optimizer in optimizers.items()},
        "generators": {name: generator_state(generator) for name, generator in generators.items()},
    }


def load_learning_state(networks: Networks, optimizers: Optimizers, generators: Generators, state: StateDict) -> None:
    """The inverse of `learning_state`, in place."""
    modules = nn.ModuleDict(networks)
    for name, optimizer in optimizers.items():
        load_optimizer_state(optimizer, modules, state["optimizers"][name])
    for name, generator in generators.items():
        set_generator_state(generator, state["generators"][name])


def _keeping_metrics(update: Callable[[Any, Batch], UpdateResult]) -> Callable[[Any, Batch], UpdateResult]:
    """`update`, with its metrics kept for `get_metrics`."""

    @functools.wraps(update)
    def keeping(self: Any, batch: Batch) -> UpdateResult:
        result = update(self, batch)
        if isinstance(result, UpdateResult):  # anything else is refused, in words, by the trainer
            self._latest_metrics = result.metrics
        return result

    return keeping


# -- mistakes that would only show later ------------------------------------------------------------------------------


def _check_class(cls: type[BaseAlgorithm], ctx: BuildContext) -> None:
    needed = {"act": "act(self, obs, rng, *, deterministic=False)", "update": "update(self, batch)"}
    for name, signature in needed.items():
        if getattr(cls, name) is getattr(BaseAlgorithm, name):
            raise ConfigError(f"algorithm {cls.__name__} has no {name}(); write `def {signature}` in it")
    for switch in ("normalize_obs", "normalize_reward"):
        if getattr(ctx, switch) and not cls.normalizes:
            raise ConfigError(
                f"env.{switch}: algorithm {cls.__name__} does not normalise; use the wrapper of that name "
                f"(env.wrappers: [{switch}]), or apply ctx.{switch} in your class and set `normalizes = True` there"
            )


def _check_setup(algorithm: BaseAlgorithm) -> None:
    """Networks, optimisers and generators kept anywhere else would silently stay out of checkpoints."""
    name = type(algorithm).__name__
    kept = {id(module) for network in algorithm.networks.values() for module in network.modules()}
    kept |= {id(part) for parts in (algorithm.optimizers, algorithm.generators) for part in parts.values()}
    homes = {nn.Module: "networks", torch.optim.Optimizer: "optimizers", np.random.Generator: "generators"}
    for attribute, value in vars(algorithm).items():
        home = next((home for kind, home in homes.items() if isinstance(value, kind)), None)
        if attribute == "policy":
            raise ConfigError(f"{name}.setup sets self.policy, which is taken; put it into self.networks instead")
        if home is not None and id(value) not in kept:
            raise ConfigError(
                f"{name}.setup keeps self.{attribute} out of self.{home}, so it would not be saved; "
                f'add self.{home}["{attribute}"] = self.{attribute}'
            )
