"""The contract of an algorithm: what the package's own have, and what a class of a user is completed with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms.ppo import ReferenceKernel
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.off_policy import OffPolicyHparams, ReplayOptions, ReplaySchedule
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.schedules import Schedule
from rl_training.training.contract import (
    Inspectable,
    OffPolicyAlgorithm,
    inspected,
    replay_terms,
    rollout_length,
    spec_of_class,
)
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.types import ActResult, UpdateResult

OFF_POLICY = {"dqn": "CartPole-v1", **dict.fromkeys(("sac", "td3", "ddpg", "crossq"), "Pendulum-v1")}
ON_POLICY = dict.fromkeys(("ppo", "a2c", "reinforce"), "CartPole-v1")


class Plain:
    """Nothing but what `types.Algorithm` and `types.Policy` list."""

    kind = "off_policy"

    def __init__(self, ctx: Any = None, hparams: Any = None) -> None:
        self.policy = self
        self.updates = 0

    def initial_carry(self, num_envs: int) -> Any:
        return {}

    def act(self, obs: Any, carry: Any, is_first: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        actions = rng.integers(2, size=len(is_first))
        return ActResult(actions, actions, carry)

    def update(self, batch: Any) -> UpdateResult:
        self.updates += 1
        return UpdateResult({"rows": len(batch["rewards"])})

    def observe(self, batch: Any) -> None: ...

    def state_dict(self) -> Any:
        return {"updates": self.updates}

    def load_state_dict(self, state: Any, /) -> None:
        self.updates = state["updates"]


@pytest.mark.parametrize(("algo", "env_id"), [*OFF_POLICY.items(), *ON_POLICY.items()])
def test_the_algorithms_of_the_package_have_all_of_it(algo: str, env_id: str) -> None:
    trainer: Any = build_trainer(parse_config({"algo": algo, "env_id": env_id, "buffer": {}}))
    trainer.close()
    algorithm = trainer.algorithm
    assert isinstance(algorithm, Inspectable)
    assert inspected(algorithm) is algorithm
    assert isinstance(algorithm, OffPolicyAlgorithm) is (algo in OFF_POLICY)
    modules, optimizers = dict(algorithm.named_modules()), dict(algorithm.named_optimizers())
    assert modules.keys() == optimizers.keys() >= ({"network"} if algo in ON_POLICY else set())
    assert all(isinstance(module, nn.Module) for module in modules.values())
    assert sum(1 for _ in algorithm.watched()) >= 3
    if isinstance(trainer, OffPolicyTrainer):
        assert trainer.schedule == algorithm.schedule == algorithm.hp.replay
        assert trainer.terms.warmup is algorithm.warmup is not algorithm.policy


def test_reference_gradients_are_those_of_autograd_for_a_while() -> None:
    trainer: Any = build_trainer(parse_config({"algo": "ppo", "env_id": "CartPole-v1"}))
    trainer.close()
    kernel = trainer.algorithm.kernel
    assert not isinstance(kernel, ReferenceKernel)
    with suppress(ZeroDivisionError), trainer.algorithm.reference_gradients():
        assert isinstance(trainer.algorithm.kernel, ReferenceKernel)
        _ = 1 / 0
    assert trainer.algorithm.kernel is kernel


def test_a_class_that_says_nothing_gets_the_usual() -> None:
    plain: Any = Plain()
    terms = replay_terms(plain, {})
    usual = OffPolicyHparams()
    assert terms.schedule == ReplaySchedule(usual.batch_size, usual.learning_starts, usual.updates_per_step)
    assert terms.warmup is plain.policy
    assert terms.updates_per_learn == 1
    assert terms.options == ReplayOptions(n_step=1, gamma=0.99, prioritized=False, alpha=0.6, beta=None)
    assert rollout_length({}) == rollout_length(PPOConfig()) == 128
    assert (spec_of_class("plain", Plain).kind, spec_of_class("plain", Plain).hparams) == ("off_policy", dict)


def test_what_a_class_says_comes_before_its_hyperparameters() -> None:
    plain: Any = Plain()
    plain.schedule, plain.warmup, plain.updates_per_learn = ReplaySchedule(8, 2, 0.5), Plain(), 4
    terms = replay_terms(plain, {"batch_size": 99, "n_step": 3, "gamma": 0.5})
    assert (terms.schedule, terms.warmup, terms.updates_per_learn) == (plain.schedule, plain.warmup, 4)
    assert (terms.options.n_step, terms.options.gamma) == (3, 0.5)


@dataclass(frozen=True)
class Derived(OffPolicyHparams):
    """A user's, with more than the base class knows."""

    prioritized: bool = True
    priority_alpha: float = 0.3


def test_hyperparameters_of_every_form_reach_the_buffer() -> None:
    plain: Any = Plain()
    beta = Schedule(type="linear", start=0.2, end=1.0)
    mapping = {"prioritized": True, "priority_alpha": 0.7, "priority_beta": beta, "gamma": 1}
    assert replay_terms(plain, mapping).options == ReplayOptions(1, 1.0, True, 0.7, beta)
    assert replay_terms(plain, Derived(n_step=2)).options == ReplayOptions(2, 0.99, True, 0.3, None)
    own = DQNConfig(prioritized=True, priority_alpha=0.7, priority_beta=beta, n_step=2)
    assert replay_terms(plain, own).options == ReplayOptions(2, 0.99, True, 0.7, beta)
    assert replay_terms(plain, SACConfig(n_step=4, gamma=0.9)).options == ReplayOptions(4, 0.9)
    assert replay_terms(plain, {"batch_size": 8, "learning_starts": 3, "updates_per_step": 2}).schedule == (
        ReplaySchedule(8, 3, 2.0)
    )
    assert rollout_length({"num_steps": 7}) == rollout_length(PPOConfig(num_steps=7)) == 7


def test_a_plain_class_learns_from_replay() -> None:
    hparams = {"batch_size": 8, "learning_starts": 16, "updates_per_step": 0.25}
    cfg = {"algo": f"{__name__}:Plain", "env_id": "CartPole-v1", "env": {"num_envs": 2}, "buffer": {"size": 500}}
    trainer: Any = build_trainer(parse_config({**cfg, "hparams": hparams}))
    metrics = trainer.train_step()
    trainer.close()
    assert type(trainer.algorithm) is Plain
    assert trainer.algorithm.updates == trainer.progress.updates == (256 - 16) // 4
    assert metrics["train/rows"] == 8


def test_what_can_be_inspected_of_a_plain_class() -> None:
    plain: Any = Plain()
    assert list(inspected(plain).watched()) == []
    assert list(inspected(plain).named_modules()) == list(inspected(plain).named_optimizers()) == []
    net = nn.Linear(2, 1)
    plain.network, plain.optimizer = net, torch.optim.SGD(net.parameters())
    assert dict(inspected(plain).named_modules()) == {"network": net}
    assert dict(inspected(plain).named_optimizers()) == {"network": plain.optimizer}
    plain.networks, plain.watched = {"a": net}, lambda: [net.weight]
    assert dict(inspected(plain).named_modules()) == {"a": net}
    assert list(inspected(plain).watched()) == [net.weight]
    with inspected(plain).reference_gradients():
        pass
