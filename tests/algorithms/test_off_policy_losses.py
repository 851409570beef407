"""Targets and losses of the algorithms that learn from replay, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.crossq import CrossQ
from rl_training.algorithms.dqn import DQN, c51_projection, huber, quantile_huber_loss
from rl_training.algorithms.off_policy import critic_loss, td_targets, to_bounds
from rl_training.algorithms.sac import SAC, actor_loss, allowed_share, temperature_loss
from rl_training.algorithms.td3 import TD3, smoothed
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.crossq import CrossQConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.batch_renorm import BatchRenorm
from rl_training.models.critics import EnsembleLinear, QCritics
from rl_training.types import ActResult, BoxSpec, DictSpec, DiscreteSpec, Progress

OBS = BoxSpec(np.full(3, -1, np.float32), np.full(3, 1, np.float32), np.dtype(np.float32))
BOX = BoxSpec(np.float32([-2.0, -1.0]), np.float32([1.0, 1.0]), np.dtype(np.float32))
SMALL = NetworkConfig(
    BackboneConfig(hidden_dims=(8,), activation="relu"), BackboneConfig(hidden_dims=(8,), activation="relu")
)


def context(action_space: Any = BOX, **changes: Any) -> BuildContext:
    return BuildContext(OBS, action_space, network=SMALL, **changes)


def batch(action_space: Any = BOX, size: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape = (size, *action_space.shape)
    actions = (
        rng.uniform(-1, 1, shape).astype(np.float32)
        if isinstance(action_space, BoxSpec)
        else rng.integers(2, size=size)
    )
    obs = rng.standard_normal((2, size, 3)).astype(np.float32)
    return {
        "obs": obs[0],
        "actions": actions,
        "rewards": rng.standard_normal(size).astype(np.float32),
        "next_obs": obs[1],
        "terminated": rng.random(size) < 0.3,
        "truncated": np.zeros(size, bool),
    }


def one(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_soft_target():
    soft_value = one(5.0, 4.0).min() - 0.2 * -1.5
    assert float(td_targets(one(1.0), one(0.9), one(0.0), soft_value)) == pytest.approx(4.87)
    assert float(td_targets(one(1.0), one(0.9), one(1.0), soft_value)) == 1.0


def test_temperature_rises_where_the_entropy_is_too_low():
    log_alpha = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    temperature_loss(log_alpha, one(-1.0, -3.0), -1.0).backward()
    assert log_alpha.grad is not None
    assert float(log_alpha.grad) == pytest.approx(3.0)


def test_losses_of_actor_and_critics():
    assert float(actor_loss(one(-1.0, -2.0), one(3.0, 5.0), 0.5)) == pytest.approx((-0.5 - 3 - 1.0 - 5) / 2)
    values = torch.stack([one(1.0, 2.0), one(3.0, 2.0)])
    assert float(critic_loss(values, one(2.0, 4.0))) == pytest.approx((0.5 + 0.5 + 2 + 2) / 2)
    assert float(critic_loss(values, one(2.0, 4.0), one(1.0, 0.5))) == pytest.approx((1.0 + 2.0) / 2)


def test_target_noise_is_cut_and_then_the_action():
    actions = smoothed(one(0.0, 0.9, 0.0), one(10.0, 1.0, -1.0), 0.2, 0.5)
    assert actions.tolist() == pytest.approx([0.5, 1.0, -0.2])


def test_actions_are_scaled_to_the_bounds():
    assert to_bounds(BOX, np.float32([[0.5, 0.5], [-1.0, 1.0]])).tolist() == [[0.25, 0.5], [-2.0, 1.0]]


@pytest.mark.parametrize(
    "build", [lambda c: TD3(c, TD3Config()), lambda c: SAC(c, SACConfig()), lambda c: CrossQ(c, CrossQConfig())]
)
def test_a_saturated_policy_stays_within_the_bounds(build: Any):
    """-0.7 + 0.5 * (1 + 1) * (0.1 + 0.7) is 0.10000002 in float32; what is stored stays in -1..1."""
    space = BoxSpec(np.float32([-0.7, 0.3]), np.float32([0.1, 0.9]), np.dtype(np.float32))
    algorithm = build(context(space))
    with torch.no_grad():
        algorithm.learners["actor"].parameters.values.mul_(1e3)
    obs = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    for deterministic in (True, False):
        rng = np.random.default_rng(1)
        result = algorithm.policy.act(obs, {}, np.ones(200, bool), rng, deterministic=deterministic)
        assert np.abs(result.actions).max() == 1.0
        assert ((result.env_actions >= space.low) & (result.env_actions <= space.high)).all()


def test_td3_updates_actor_and_targets_every_second_time():
    td3 = TD3(context(), TD3Config())
    moved = []
    for _ in range(10):
        before = td3.targets["critics"].parameters.values.clone(), td3.learners["actor"].parameters.values.clone()
        td3.update(batch())
        after = td3.targets["critics"].parameters.values, td3.learners["actor"].parameters.values
        moved.append([not torch.equal(old, new) for old, new in zip(before, after, strict=True)])
    assert moved == [[False, False], [True, True]] * 5


def test_polyak_averaging():
    td3 = TD3(context(), TD3Config())
    target = td3.targets["critics"]
    target.parameters.values.zero_()
    target.source.parameters.values.fill_(1.0)
    for _ in range(100):
        target.follow(0.005)
    assert float(target.parameters.values.mean()) == pytest.approx(0.3942295635, abs=1e-6)
    assert target.parameters.values.data_ptr() != target.source.parameters.values.data_ptr()


def test_an_actor_step_leaves_the_critics_alone_but_sees_them():
    for algorithm in (SAC(context(), SACConfig()), TD3(context(), TD3Config())):
        rows = algorithm.prepare(batch())
        critics = algorithm.learners["critics"].parameters
        critics.grad.zero_()
        before = algorithm.learners["actor"].parameters.values.clone()
        loss = (
            algorithm.actor_gradient(rows, 0.2).loss if isinstance(algorithm, SAC) else algorithm.actor_gradient(rows)
        )
        algorithm.apply("actor", loss, {})
        assert not critics.grad.any()
        assert not torch.equal(before, algorithm.learners["actor"].parameters.values)


# -- DQN --------------------------------------------------------------------------------------------------------------


class Table(torch.nn.Module):
    """A network that always gives the same values."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(torch.tensor([values]).unsqueeze(2))

    def draw_noise(self, rng: Any) -> None:
        return None

    def forward(self, obs: torch.Tensor, noise: Any = None) -> torch.Tensor:
        return self.values.expand(len(obs), -1, -1)


@pytest.mark.parametrize(("double", "expected"), [(True, 1.8), (False, 4.5)])
def test_double_dqn_target(double: bool, expected: float):
    dqn = DQN(context(DiscreteSpec(2)), DQNConfig(double=double, gamma=0.9))
    dqn.q, dqn.targets["q"].network = Table(1.0, 3.0), Table(5.0, 2.0)  # type: ignore[assignment]
    rows = replace(dqn.prepare(batch(DiscreteSpec(2))), rewards=torch.zeros(6), terminated=torch.zeros(6))
    rows = replace(rows, discounts=torch.full((6,), 0.9))
    assert dqn.targets_of(rows).flatten().tolist() == pytest.approx([expected] * 6)


def test_huber():
    assert huber(one(2.0, 0.5, -2.0)).tolist() == pytest.approx([1.5, 0.125, 1.5])


def test_epsilon_is_a_function_of_env_steps():
    progress = Progress()
    dqn = DQN(context(DiscreteSpec(2), progress=progress), DQNConfig(epsilon_steps=10_000))
    assert dqn.policy.epsilon() == 1.0
    progress.advance(env_steps=5_000)
    assert dqn.policy.epsilon() == pytest.approx(0.525)
    progress.advance(env_steps=50_000)
    assert dqn.policy.epsilon() == pytest.approx(0.05)
    elsewhere = DQN(context(DiscreteSpec(2)), DQNConfig())
    elsewhere.policy.load_state_dict(dqn.policy.state_dict())
    assert elsewhere.policy.epsilon() == pytest.approx(0.05), "a loaded policy acts as it did when it was saved"


def test_c51_projection():
    support = torch.linspace(-1.0, 2.0, 4, dtype=torch.float64)  # -1, 0, 1, 2
    alone = torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    moved = c51_projection(alone, support, one(0.25), one(0.5), one(0.0))  # 0.25 + 0.5 * 1 = 0.75
    assert moved[0].tolist() == pytest.approx([0, 0.25, 0.75, 0])
    ended = c51_projection(alone, support, one(0.25), one(0.5), one(1.0))
    assert ended[0].tolist() == pytest.approx([0, 0.75, 0.25, 0])
    beyond = c51_projection(alone, support, one(9.0), one(0.5), one(0.0))
    assert beyond[0].tolist() == pytest.approx([0, 0, 0, 1])


def test_quantile_huber_loss():
    """Two quantiles (levels 1/4 and 3/4) against the sample 3 twice: errors 2 and -1, Huber 1.5 and 0.5."""
    losses, sizes = quantile_huber_loss(torch.tensor([[1.0, 4.0]]), torch.tensor([[3.0, 3.0]]))
    assert float(losses) == pytest.approx(0.25 * 1.5 + 0.25 * 0.5)
    assert float(sizes) == pytest.approx(1.5)


@pytest.mark.parametrize("distribution", ["none", "c51", "quantile"])
@pytest.mark.parametrize("option", [{}, {"dueling": True}, {"noisy": True}, {"dueling": True, "noisy": True}])
def test_options_of_dqn_combine(distribution: str, option: dict[str, Any]):
    given: dict[str, Any] = {"distribution": distribution, "atoms": 5, **option}
    dqn = DQN(context(DiscreteSpec(2)), DQNConfig(**given))
    weights = np.float32([1.0, 0.5, 1.0, 1.0, 0.2, 1.0])
    result = dqn.update({**batch(DiscreteSpec(2)), "weights": weights})
    assert result.priorities is not None
    assert result.priorities.shape == (6,)
    obs = np.ones((4, 3), np.float32)

    def act(seed: int, deterministic: bool) -> ActResult:
        return dqn.policy.act(obs, {}, np.zeros(4, bool), np.random.default_rng(seed), deterministic=deterministic)

    assert act(0, True).actions.tolist() == act(1, True).actions.tolist()
    values = [dqn.policy.action_values(obs, np.random.default_rng(seed)) for seed in (0, 1)]
    assert np.array_equal(*values) is not option.get("noisy", False)


def test_what_a_mask_forbids_is_neither_taken_nor_bootstrapped_from():
    space = DictSpec({"x": OBS, "action_mask": BoxSpec(np.zeros(2, np.int8), np.ones(2, np.int8), np.dtype(np.int8))})
    dqn = DQN(BuildContext(space, DiscreteSpec(2), network=SMALL), DQNConfig())
    obs = {"x": np.ones((50, 3), np.float32), "action_mask": np.tile(np.int8([0, 1]), (50, 1))}
    for deterministic in (True, False):
        acted = dqn.policy.act(obs, {}, np.zeros(50, bool), np.random.default_rng(0), deterministic=deterministic)
        assert set(acted.actions.tolist()) == {1}


# -- networks ---------------------------------------------------------------------------------------------------------


def test_an_ensemble_is_its_members():
    rng = np.random.default_rng(0)
    layer = EnsembleLinear(rng, (3, 4, 5), gain=1.0)
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    together = layer(x)
    for i in range(3):
        torch.testing.assert_close(together[i], x @ layer.weight[i] + layer.bias[i])
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_critics_of_dict_observations_and_discrete_actions():
    space = DictSpec({"x": OBS, "k": DiscreteSpec(4)})
    obs = {"x": torch.zeros(2, 3), "k": torch.tensor([0, 3])}
    rng = np.random.default_rng(0)
    assert QCritics(space, BOX, SMALL.critic, rng)(obs, torch.zeros(2, 2)).shape == (2, 2)
    assert QCritics(space, DiscreteSpec(5), SMALL.critic, rng, 3)(obs).shape == (3, 2, 5)


def test_batch_renormalisation():
    norm = BatchRenorm(2, 3, momentum=0.1, renorm_after=1)
    x = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0)) * 4.0 + 2.0
    first = norm(x, True)
    torch.testing.assert_close(first.mean(1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.std(1, correction=0), torch.ones(2, 3), atol=1e-3, rtol=0)
    torch.testing.assert_close(norm.mean, 0.1 * x.mean(1, keepdim=True))
    before = norm.mean.clone()
    by_running = norm(x, False)
    assert torch.equal(before, norm.mean), "without batch statistics nothing moves"
    expected = (x - norm.mean) / torch.sqrt(norm.var + 1e-3)
    torch.testing.assert_close(by_running, expected)
    # within the bounds of the correction a renormalised pass gives what the running statistics give
    norm.mean.copy_(x.mean(1, keepdim=True) + 0.5)
    norm.var.copy_(x.var(1, keepdim=True, correction=0) * 1.5)
    torch.testing.assert_close(norm(x, False), norm(x, True), atol=1e-5, rtol=1e-5)


def test_crossq_has_no_targets_and_delays_its_actor():
    crossq = CrossQ(context(), CrossQConfig())
    assert not crossq.targets
    before = crossq.learners["actor"].parameters.values.clone()
    crossq.update(batch())
    crossq.update(batch())
    assert torch.equal(before, crossq.learners["actor"].parameters.values)
    crossq.update(batch())
    assert not torch.equal(before, crossq.learners["actor"].parameters.values)


def test_updates_owed_do_not_depend_on_the_number_of_environments():
    schedule = ReplaySchedule(batch_size=32, learning_starts=100, updates_per_step=0.3)
    for stride in (1, 3, 8):
        steps = list(range(0, 1009, stride))
        owed = [schedule.owed(a, b) for a, b in pairwise(steps)]
        assert sum(owed) == math.floor((steps[-1] - 100) * 0.3)
        assert all(not updates for step, updates in zip(steps[1:], owed, strict=True) if step <= 100)


# -- masks and the temperature ----------------------------------------------------------------------------------------


def masked_sac(actions: int, allowed: Any, **hparams: Any) -> tuple[SAC, dict[str, Any]]:
    """Discrete SAC, and a batch whose row i may choose among the first allowed[i] of `actions`."""
    flags = BoxSpec(np.zeros(actions, np.int8), np.ones(actions, np.int8), np.dtype(np.int8))
    ctx = BuildContext(DictSpec({"x": OBS, "action_mask": flags}), DiscreteSpec(actions), network=SMALL)
    rows = batch(size=len(allowed))
    masks = (np.arange(actions) < np.array(allowed)[:, None]).astype(np.int8)
    rows |= {name: {"x": rows[name], "action_mask": masks} for name in ("obs", "next_obs")}
    return SAC(ctx, SACConfig(**hparams)), {**rows, "actions": np.zeros(len(allowed), np.int64)}


def test_the_target_entropy_is_one_that_the_allowed_actions_can_have():
    share = allowed_share(torch.tensor([[1] * 18, [1, 1] + [0] * 16, [1] + [0] * 17, [0] * 18]))
    assert share.tolist() == pytest.approx([1.0, math.log(2) / math.log(18), 0.0, 0.0])
    assert (0.89 * math.log(18) * share).tolist() == pytest.approx([2.572431, 0.616901, 0.0, 0.0], abs=1e-6)
    assert allowed_share(torch.ones(2, 1)).tolist() == [0.0, 0.0]


def test_the_temperature_of_masked_actions_by_hand():
    """Entropies of a uniform policy: log k. Rows of 18, 2 and 1 allowed actions miss their target by -0.11 log k."""
    sac, rows = masked_sac(18, [18, 2, 1])
    with torch.no_grad():
        sac.learners["actor"].parameters.values.zero_()
    sac.update(rows)
    grad = sac.learners["temperature"].parameters.grad
    assert float(grad) == pytest.approx(0.11 * (math.log(18) + math.log(2)) / 3, abs=1e-6)


@pytest.mark.parametrize("hparams", [{}, {"target_entropy": 2.0}])
def test_the_temperature_stays_bounded_where_masks_allow_little(hparams: dict[str, Any]):
    """With one target for all states it rises by a learning rate at every update, whatever the policy does."""
    sac, rows = masked_sac(18, [2, 2, 1, 2], learning_rate=0.05, **hparams)
    alphas = [float(torch.as_tensor(sac.update(rows).metrics["alpha"])) for _ in range(300)]
    assert max(alphas[200:]) < 3.0
    assert max(alphas[250:]) <= 1.2 * max(alphas[150:250])


def test_masks_that_allow_everything_change_nothing():
    """And without a mask the target is the number it always was."""
    plain = SAC(context(DiscreteSpec(3)), SACConfig())
    assert plain.target_entropy == 0.89 * math.log(3)
    masked, rows = masked_sac(3, [3] * 6)
    bare = {**rows, **{name: rows[name]["x"] for name in ("obs", "next_obs")}}
    for _ in range(3):
        expected, found = plain.update(bare).metrics, masked.update(rows).metrics
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, rel=1e-6
    )
