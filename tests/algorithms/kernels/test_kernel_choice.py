"""What a subclass overrides is used, whatever kernel its algorithm has; the plain class keeps the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms import dqn as dqn_module
from rl_training.algorithms import ppo as ppo_module
from rl_training.algorithms import sac as sac_module
from rl_training.algorithms import td3 as td3_module
from rl_training.algorithms.ddpg import build as build_ddpg
from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.sac import SAC, sampled_soft_values
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.ddpg import DDPGConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.types import BoxSpec, DiscreteSpec

ONES = np.ones(3, np.float32)
OBS = BoxSpec(-ONES, ONES, ONES.dtype)
BOX = BoxSpec(-ONES[:2], ONES[:2], ONES.dtype)
CHOICE = DiscreteSpec(2)
SMALL = BackboneConfig(hidden_dims=(8,), activation="relu")
STEPS = 6


def context(action_space: Any) -> BuildContext:
    return BuildContext(OBS, action_space, num_envs=1, network=NetworkConfig(SMALL, SMALL))


def built(cls: type, **hparams: Any) -> Any:
    """One of the classes below on its space."""
    kinds = ((PPO, PPOConfig, CHOICE), (DQN, DQNConfig, CHOICE), (SAC, SACConfig, BOX), (TD3, TD3Config, BOX))
    config, space = next((config, space) for base, config, space in kinds if issubclass(cls, base))
    return cls(context(space), config(**hparams))


def batch(algorithm: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    discrete = isinstance(algorithm.ctx.action_space, DiscreteSpec)
    rollout = isinstance(algorithm, PPO)
    lead = (STEPS, 1) if rollout else (STEPS,)
    draw = rng.standard_normal
    actions = rng.integers(2, size=lead) if discrete else rng.uniform(-1, 1, (*lead, 2)).astype(np.float32)
    rows = {
        "obs": draw((*lead, 3)).astype(np.float32),
        "actions": actions,
        "rewards": draw(lead).astype(np.float32),
        "terminated": np.zeros(lead, bool),
        "truncated": np.zeros(lead, bool),
    }
    if not rollout:
        return {**rows, "next_obs": draw((*lead, 3)).astype(np.float32)}
    edges = {"last_obs": draw((1, 3)).astype(np.float32), "final_obs": np.zeros((0, 3), np.float32)}
    return {**rows, **edges, "valid": np.ones(lead, bool), "final_index": np.zeros(0, np.int64)}


def parameters(algorithm: Any) -> torch.Tensor:
    if isinstance(algorithm, PPO):
        return algorithm.policy.parameters.values
    return torch.cat([learner.parameters.values for learner in algorithm.learners.values()])


def is_fast(algorithm: Any) -> bool:
    """Whether the kernel is the hand-written one; each algorithm has exactly two."""
    kinds = {"FastKernel": True, "ReferenceKernel": False}
    return kinds[type(algorithm.kernel).__name__]


def after_updates(algorithm: Any, count: int = 2) -> torch.Tensor:
    for _ in range(count):
        algorithm.update(batch(algorithm))
    return parameters(algorithm).clone()


# -- subclasses -------------------------------------------------------------------------------------------------------


class PPOLoss(PPO):
    def loss(self, rollout: Any, coefficients: Any) -> Any:
        losses = super().loss(rollout, coefficients)
        return {**losses, "loss": losses["loss"] + 3.0 * losses["value_loss"]}


class DQNLosses(DQN):
    def losses(self, predicted: Any, targets: Any) -> Any:
        losses, errors = super().losses(predicted, targets)
        return losses * torch.linspace(0.0, 2.0, len(losses)), errors


class DQNTargets(DQN):
    def targets_of(self, rows: Any) -> Any:
        return super().targets_of(rows) + 5.0


class DQNExpected(DQN):
    def expected(self, numbers: Any) -> Any:
        return -super().expected(numbers)


class SACTargets(SAC):
    def targets_of(self, rows: Any, alpha: Any) -> Any:
        return super().targets_of(rows, alpha) + 5.0


class SACCritics(SAC):
    def loss_of_critics(self, values: Any, targets: Any, weights: Any) -> Any:
        return (values - targets).abs().mean()


class SACActor(SAC):
    def loss_of_actor(self, logprobs: Any, values: Any, alpha: Any) -> Any:
        return super().loss_of_actor(logprobs, -values, alpha)


def pessimistic_soft_values(*inputs: Any) -> Any:
    return sampled_soft_values(*inputs) - 5.0


class SACPart(SAC):
    """A part replaced after the base has built everything."""

    def __init__(self, ctx: Any, hp: Any) -> None:
        super().__init__(ctx, hp)
        self.actions = self.actions._replace(soft_values=pessimistic_soft_values)


class SACMethodOfAPart(SAC):
    def __init__(self, ctx: Any, hp: Any) -> None:
        super().__init__(ctx, hp)
        plain = self.actor.sample  # type: ignore[union-attr]
        self.actor.sample = lambda obs, noise: plain(obs, 2.0 * noise)  # type: ignore[method-assign, union-attr]


class SACNoise(SAC):
    def noise(self, *shape: int) -> Any:
        return 2.0 * super().noise(*shape)


class Shifted(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 0.7


class TD3Layer(TD3):
    """A layer of a user's own, with the weights of the one it replaces."""

    def __init__(self, ctx: Any, hp: Any) -> None:
        super().__init__(ctx, hp)
        self.actor.output.__class__ = Shifted


class TD3Forward(TD3):
    def __init__(self, ctx: Any, hp: Any) -> None:
        super().__init__(ctx, hp)
        plain = self.critics.forward
        self.critics.forward = lambda *inputs: plain(*inputs) * 2.0  # type: ignore[method-assign]


class TD3Targets(TD3):
    def targets_of(self, rows: Any) -> Any:
        return super().targets_of(rows) + 5.0


class TD3Noise(TD3):
    def with_noise(self, actions: Any) -> Any:
        return torch.full_like(actions, 0.9)


class TD3TargetLayer(TD3):
    """A layer changed in the target network only."""

    def __init__(self, ctx: Any, hp: Any) -> None:
        super().__init__(ctx, hp)
        self.targets["critics"].network.layers[1] = nn.Softplus()  # type: ignore[union-attr, operator, index]


class TD3Critics(TD3):
    def loss_of_critics(self, values: Any, targets: Any, weights: Any) -> Any:
        return (values - targets).abs().mean()


class TD3Actor(TD3):
    def loss_of_actor(self, rows: Any) -> Any:
        return -super().loss_of_actor(rows)


OVERRIDES = [
    *(PPOLoss, DQNLosses, DQNTargets, DQNExpected, SACTargets, SACCritics, SACActor, SACPart, SACMethodOfAPart),
    *(SACNoise, TD3Layer, TD3Forward, TD3Targets, TD3Noise, TD3TargetLayer, TD3Critics, TD3Actor),
]


@pytest.mark.parametrize("cls", OVERRIDES)
def test_an_override_is_used(cls: type) -> None:
    own, same_by_autograd, plain = built(cls), built(cls, kernel="reference"), built(cls.__mro__[1])
    assert not is_fast(own)
    assert is_fast(plain)
    learnt = after_updates(own)
    assert torch.equal(learnt, after_updates(same_by_autograd))
    assert float((learnt - after_updates(plain)).abs().max()) > 1e-4


class GradientsKept(SAC):
    def critics_gradient(self, rows: Any, alpha: Any) -> Any:
        return super().critics_gradient(rows, 2.0 * alpha)


def test_what_the_kernel_does_not_stand_in_for_may_be_overridden() -> None:
    """The override is called, and its `super()` is as fast as ever."""
    own, plain = built(GradientsKept), built(SAC)
    assert is_fast(own)
    assert float((after_updates(own) - after_updates(plain)).abs().max()) > 1e-5


FUNCTIONS = [
    *((PPO, ppo_module, name) for name in ("ppo_loss", "normalized")),
    *((DQN, dqn_module, name) for name in ("dqn_loss", "huber", "td_targets", "greedy", "of_actions")),
    *((SAC, sac_module, name) for name in ("td_targets", "critic_loss", "actor_loss")),
    *((TD3, td3_module, name) for name in ("td_targets", "critic_loss", "smoothed")),
]


@pytest.mark.parametrize(("cls", "module", "name"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_replaced_function_is_used(cls: type, module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calls = getattr(module, name), []

    def mine(*args: Any, **keywords: Any) -> Any:
        calls.append(name)
        return plain(*args, **keywords)

    monkeypatch.setattr(module, name, mine)
    after_updates(built(cls))
    assert calls


@pytest.mark.parametrize("cls", [PPO, DQN, SAC, TD3])
def test_the_plain_class_and_one_that_adds_nothing_keep_the_kernel(cls: type) -> None:
    class Same(cls):  # type: ignore[misc, valid-type]
        def state_dict(self) -> Any:
            return super().state_dict()

    assert is_fast(built(cls))
    assert is_fast(built(Same))
    assert not is_fast(built(cls, kernel="reference"))


def test_ddpg_has_the_kernel_of_td3() -> None:
    assert is_fast(build_ddpg(context(BOX), DDPGConfig()))


def spectral(layer: nn.Module) -> None:
    nn.utils.parametrizations.spectral_norm(layer)


def replaced_activation(network: Any) -> None:
    network.layers[1] = nn.ELU()


@pytest.mark.parametrize("change", [lambda network: spectral(network.layers[0]), replaced_activation])
@pytest.mark.parametrize("part", ["actor", "critic"])
def test_layers_changed_in_place_take_the_reference(part: str, change: Callable[[Any], None]) -> None:
    algorithm = built(PPO)
    change(getattr(algorithm.network, part))
    assert not is_fast(algorithm)
