"""Kernels against their references over the whole range of what they are given, row by row where rows matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.kernels.ppo import (
    Rows,
    categorical_gradient,
    gaussian_gradient,
    normalized,
    surrogate,
    value_gradient,
)
from rl_training.algorithms.ppo import PPO, Coefficients, ppo_loss
from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.heads import ActionParams, categorical_logprob_entropy, gaussian_logprob_entropy
from rl_training.numerics.normalization import normalized as normalized_by_torch
from rl_training.types import BoxSpec, DiscreteSpec

NONE = np.zeros(0, np.float32)


def floats(*arrays: Any) -> list[Any]:
    return [np.asarray(array, np.float32) for array in arrays]


# -- PPO: the clipped surrogate ---------------------------------------------------------------------------------------


def surrogate_by_autograd(logprobs: Any, rows: Rows, clip_coef: float) -> tuple[Any, dict[str, Any]]:
    tensors = {name: torch.from_numpy(getattr(rows, name)) for name in ("old_logprobs", "advantages")}
    new = torch.from_numpy(logprobs).requires_grad_()
    zeros = torch.zeros_like(new)
    minibatch = {**tensors, "logprobs": new, "returns": zeros, "values": zeros, "new_values": zeros, "entropy": zeros}
    losses = ppo_loss(minibatch, clip_coef=clip_coef, ent_coef=0.0, vf_coef=0.0)
    losses["loss"].backward()
    assert new.grad is not None
    return new.grad.numpy(), {name: float(value.detach()) for name, value in losses.items()}


def at_a_bound(logprobs: Any, rows: Rows, clip_coef: float) -> Any:
    """Rows whose ratio is a few roundings from a bound: exp of NumPy and of torch may fall on different sides."""
    ratio = np.exp((logprobs - rows.old_logprobs).astype(np.float64))
    return np.minimum(np.abs(ratio - (1 - clip_coef)), np.abs(ratio - (1 + clip_coef))) <= 1e-6 * np.maximum(ratio, 1.0)


@pytest.mark.parametrize("clip_coef", [1e-4, 0.01, 0.1, 0.2, 0.5, 0.51, 0.6, 0.9, 1.0, 1.5, 3.0, 10.0])
def test_every_row_has_the_gradient_of_the_surrogate(clip_coef: float) -> None:
    """`1 + (ratio - 1)` rounds where the ratio is beyond 0.5..2, which made 265 of 20,000 rows at 0.6 look clipped."""
    rng = np.random.default_rng(1)
    for scale in (1e-4, 0.3, 1.0, 5.0, 30.0):
        for advantages in (rng.normal(size=4000), np.zeros(4000), 1e10 * rng.normal(size=4000)):
            old = -rng.exponential(size=4000)
            logprobs, old, advantages = floats(old + rng.normal(0.0, scale, 4000), old, advantages)
            rows = Rows(NONE, old, advantages, NONE, NONE)
            with np.errstate(all="ignore"):
                by_hand, losses = surrogate(logprobs, rows, clip_coef)
            by_autograd, expected = surrogate_by_autograd(logprobs, rows, clip_coef)
            terms = np.exp((logprobs - old).astype(np.float64)) * np.abs(advantages)
            far = (terms < 1e38) & np.isfinite(by_autograd) & ~at_a_bound(logprobs, rows, clip_coef)
            largest = float(np.abs(by_autograd[far]).max())
            np.testing.assert_allclose(by_hand[far], by_autograd[far], rtol=1e-5, atol=1e-12 * largest)
            assert far.mean() > 0.5
            if np.isfinite(expected["policy_loss"]):
                assert losses["policy_loss"] == pytest.approx(expected["policy_loss"], rel=1e-4, abs=1e-6)


def test_a_row_at_the_bound_has_its_whole_gradient_and_equal_terms_half() -> None:
    ratio = np.float32([0.5, 1.5, 1.5, 1.0])
    tiny = np.float32(1e-45)  # ratio * advantage and its clipped form round to the same number
    rows = Rows(NONE, np.zeros(4, np.float32), np.array([1.0, 1.0, tiny, -2.0], np.float32), NONE, NONE)
    by_hand, _ = surrogate(np.log(ratio), rows, 0.5)
    by_autograd, _ = surrogate_by_autograd(np.log(ratio), rows, 0.5)
    assert by_hand.tolist() == by_autograd.tolist()
    assert by_hand[3] == 0.5  # -(ratio * -2) / 4


def test_a_ratio_that_overflows_is_reported_by_both() -> None:
    """Autograd multiplies infinity by 0: the guard stops the run, with the kernel as without it."""
    rows = Rows(NONE, np.full(3, -200.0, np.float32), np.float32([1.0, -1.0, 0.0]), NONE, NONE)
    logprobs = np.full(3, -1.0, np.float32)
    with np.errstate(all="ignore"):
        by_hand, _ = surrogate(logprobs, rows, 0.2)
    by_autograd, _ = surrogate_by_autograd(logprobs, rows, 0.2)
    assert np.isfinite(by_hand).tolist() == np.isfinite(by_autograd).tolist() == [False, False, False]


# -- PPO: values, advantages, heads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_vf", [None, 1e-6, 0.01, 0.2, 1.0, 30.0, 1e9])
@pytest.mark.parametrize("whole_numbers", [False, True])
def test_every_row_has_the_gradient_of_the_value_loss(clip_vf: float | None, whole_numbers: bool) -> None:
    """Whole numbers make the plain and the clipped error equal, with other signs, in many rows."""
    rng = np.random.default_rng(2)
    drawn = rng.integers(-4, 5, (3, 2000)) if whole_numbers else rng.normal(0.0, 3.0, (3, 2000))
    values, old, returns = floats(*drawn)
    new = torch.from_numpy(values).requires_grad_()
    zeros = torch.zeros(len(values))
    given = {"returns": torch.from_numpy(returns), "values": torch.from_numpy(old), "new_values": new}
    minibatch = {**given, **dict.fromkeys(("logprobs", "old_logprobs", "advantages", "entropy"), zeros)}
    losses = ppo_loss(minibatch, clip_coef=0.2, ent_coef=0.0, vf_coef=0.7, clip_vf=clip_vf)
    losses["loss"].backward()
    assert new.grad is not None
    loss, by_hand = value_gradient(values, Rows(NONE, NONE, NONE, returns, old), Coefficients(0.2, 0.0, 0.7, clip_vf))
    np.testing.assert_allclose(by_hand, new.grad.numpy(), rtol=1e-5, atol=1e-9)
    assert loss == pytest.approx(float(losses["value_loss"].detach()), rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1e-3, 1.0, 1e10, 1e18, 1e19, 1e25, 1e37])
def test_advantages_of_any_size_are_normalised_alike(scale: float) -> None:
    advantages = (scale * np.random.default_rng(3).normal(size=64)).astype(np.float32)
    expected = normalized_by_torch(torch.from_numpy(advantages)).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(normalized(advantages), expected, rtol=1e-4, atol=1e-6)
    assert scale < 1e-6 or np.abs(expected).max() > 1.0


@pytest.mark.parametrize("ent_coef", [0.0, 1e-4, 1.0, 1e3])
@pytest.mark.parametrize("size", [0.0, 1.0, 50.0, 1e4])
def test_every_row_of_logits_has_its_gradient(size: float, ent_coef: float) -> None:
    rng = np.random.default_rng(4)
    logits, old, advantages = floats(size * rng.normal(size=(500, 5)), -rng.exponential(size=500), rng.normal(size=500))
    actions = rng.integers(5, size=500)
    coefficients = Coefficients(0.6, ent_coef, 0.5, None)
    given = torch.from_numpy(logits).requires_grad_()
    logprobs, entropy = categorical_logprob_entropy(given, torch.from_numpy(actions), None)
    old = logprobs.detach().numpy() + 0.3 * old  # ratios of 1 and more, as actions that were drawn have
    losses = _policy_losses(logprobs, entropy, old, advantages, coefficients)
    losses["loss"].backward()
    assert given.grad is not None
    found = categorical_gradient(logits, Rows(actions, old, advantages, NONE, NONE), coefficients)
    smallest = 1e-6 * float(given.grad.abs().max()) + 1e-7 * ent_coef / len(logits)  # p log p + p H cancels
    np.testing.assert_allclose(found.outputs, given.grad.numpy(), rtol=1e-4, atol=smallest)
    assert found.losses["entropy_loss"] == pytest.approx(float(losses["entropy_loss"].detach()), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("ent_coef", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("log_std", [-8.0, -1.0, 0.0, 6.0])
def test_every_row_of_means_has_its_gradient(log_std: float, ent_coef: float) -> None:
    rng = np.random.default_rng(5)
    std = np.exp(log_std)
    means, noise, advantages = floats(rng.normal(size=(500, 3)), rng.normal(size=(500, 3)), rng.normal(size=500))
    actions = (means + std * noise).astype(np.float32)
    deviations = np.full(3, log_std, np.float32)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (means, deviations)]
    logprobs, entropy = gaussian_logprob_entropy(ActionParams(*tensors), torch.from_numpy(actions))
    old = (logprobs.detach().numpy() + rng.normal(0.0, 0.4, 500)).astype(np.float32)
    coefficients = Coefficients(0.6, ent_coef, 0.5, None)
    _policy_losses(logprobs, entropy, old, advantages, coefficients)["loss"].backward()
    found = gaussian_gradient(means, deviations, Rows(actions, old, advantages, NONE, NONE), coefficients)
    assert found.log_std is not None
    for by_hand, tensor in ((found.outputs, tensors[0]), (found.log_std, tensors[1])):
        assert tensor.grad is not None
        largest = float(tensor.grad.abs().max())
        np.testing.assert_allclose(by_hand, tensor.grad.numpy(), rtol=1e-4, atol=1e-5 * largest)


def _policy_losses(logprobs: Any, entropy: Any, old: Any, advantages: Any, coefficients: Coefficients) -> Any:
    zeros = torch.zeros(len(old))
    given = {"logprobs": logprobs, "entropy": entropy, "old_logprobs": torch.from_numpy(old)}
    minibatch = {**given, "advantages": torch.from_numpy(advantages), "returns": zeros}
    return ppo_loss({**minibatch, "values": zeros, "new_values": zeros}, **coefficients._asdict())


# -- whole updates ----------------------------------------------------------------------------------------------------

ONES = np.ones(3, np.float32)
OBS = BoxSpec(-ONES, ONES, ONES.dtype)
BOX = BoxSpec(-ONES[:2], ONES[:2], ONES.dtype)
ROWS = 12


def pair(kind: Any, config: Any, action_space: Any, activation: str = "tanh", **hparams: Any) -> list[Any]:
    """The same algorithm with its kernel and without, weights stirred."""
    backbone = BackboneConfig(hidden_dims=(8, 6), activation=activation)
    cases = []
    for kernel in ("auto", "reference"):
        ctx = BuildContext(OBS, action_space, num_envs=2, network=NetworkConfig(backbone, backbone))
        case = kind(ctx, config(kernel=kernel, **hparams))
        learners = [case.policy.parameters] if kind is PPO else [other.parameters for other in case.learners.values()]
        rng = np.random.default_rng(6)
        for learner in learners:
            learner.values.add_(torch.from_numpy(rng.normal(0.0, 0.3, len(learner.values)).astype(np.float32)))
        cases.append(case)
    assert [type(case.kernel).__name__ for case in cases] == ["FastKernel", "ReferenceKernel"]
    return cases


def transitions(action_space: Any, scale: float = 1.0, gamma: float | None = None) -> dict[str, Any]:
    """Rows with zero and unit discounts and weights among them."""
    rng = np.random.default_rng(7)
    discounts = np.where(rng.random(ROWS) < 0.3, rng.choice([0.0, 1.0], ROWS), rng.random(ROWS))
    box = isinstance(action_space, BoxSpec)
    return {
        "obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32) if box else rng.integers(3, size=ROWS),
        "rewards": (scale * rng.normal(size=ROWS)).astype(np.float32),
        "terminated": rng.random(ROWS) < 0.3,
        "discounts": (discounts if gamma is None else np.full(ROWS, gamma)).astype(np.float32),
        "weights": rng.choice(np.float32([0.0, 0.5, 1.0]), ROWS),
    }


def gradients(case: Any, batch: dict[str, Any]) -> list[Any]:
    """Of every learner that has a kernel; the stream is put back, so that both ways draw the same noise."""
    rows, state = case.prepare(batch), case.rng.bit_generator.state
    if isinstance(case, DQN):
        case.gradient(rows)
    elif isinstance(case, SAC):
        case.critics_gradient(rows, case.alpha())
        case.actor_gradient(rows, case.alpha())
    else:
        case.critics_gradient(rows)
        case.actor_gradient(rows)
    case.rng.bit_generator.state = state
    names = ("q",) if isinstance(case, DQN) else ("critics", "actor")
    return [case.learners[name].parameters.grad.numpy().copy() for name in names]


def check_rows(cases: list[Any], batch: dict[str, Any]) -> None:
    """The whole batch, and each of its rows alone."""
    everything = gradients(cases[1], batch)
    largest = [float(np.abs(gradient).max()) for gradient in everything]
    for by_hand, expected, scale in zip(gradients(cases[0], batch), everything, largest, strict=True):
        np.testing.assert_allclose(by_hand, expected, rtol=2e-4, atol=2e-5 * scale)
    for row in range(ROWS):
        single = {name: column[row : row + 1] for name, column in batch.items()}
        both = zip(*(gradients(case, single) for case in cases), largest, strict=True)
        for by_hand, expected, scale in both:
            np.testing.assert_allclose(by_hand, expected, rtol=2e-4, atol=2e-5 * max(scale, np.abs(expected).max()))


SAC_RANGE: list[dict[str, Any]] = [
    {},
    *({"alpha": alpha} for alpha in (0.0, 1e-6, 1.0, 1e4)),
    *({"num_critics": count} for count in (1, 5)),
    *({"target_entropy": entropy} for entropy in (-100.0, 100.0)),
]
TD3_RANGE: list[dict[str, Any]] = [
    {},
    *({"target_noise": noise} for noise in (0.0, 1e-3, 1e3)),
    *({"target_noise_clip": clip} for clip in (0.0, 1e3)),
    *({"num_critics": count} for count in (1, 4)),
]


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(
    ("kind", "config", "ranges"), [(SAC, SACConfig, SAC_RANGE), (TD3, TD3Config, TD3_RANGE)], ids=["sac", "td3"]
)
def test_every_row_of_an_actor_critic_has_its_gradients(
    kind: Any, config: Any, ranges: list[dict[str, Any]], activation: str, scale: float
) -> None:
    for hparams in ranges:
        check_rows(pair(kind, config, BOX, activation, **hparams), transitions(BOX, scale))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("double", [True, False])
def test_every_row_of_dqn_has_its_gradient(double: bool, scale: float) -> None:
    for activation in ("tanh", "relu"):
        check_rows(
            pair(DQN, DQNConfig, DiscreteSpec(3), activation, double=double), transitions(DiscreteSpec(3), scale)
        )


def test_equal_values_choose_the_same_action() -> None:
    cases = pair(DQN, DQNConfig, DiscreteSpec(3), double=True)
    for case in cases:
        case.learners["q"].parameters.values.zero_()
    check_rows(cases, transitions(DiscreteSpec(3)))


OFF_POLICY: list[dict[str, Any]] = [
    *({"max_grad_norm": norm} for norm in (1e-6, 1e6, None)),
    *({"gamma": gamma} for gamma in (0.0, 1.0)),
    *({"tau": tau} for tau in (0.0, 1.0)),
]


@pytest.mark.parametrize("hparams", OFF_POLICY, ids=str)
def test_updates_from_replay_agree(hparams: dict[str, Any]) -> None:
    kinds = [
        (SAC, SACConfig, BOX, {}),
        (TD3, TD3Config, BOX, {"actor_every_updates": 1}),
        (TD3, TD3Config, BOX, {"actor_every_updates": 3}),
        (DQN, DQNConfig, DiscreteSpec(3), {"target_every_updates": 1}),
    ]
    for kind, config, space, more in kinds:
        cases = pair(kind, config, space, **hparams, **more)
        for case in cases:
            for _ in range(3):
                case.update(transitions(space, gamma=hparams.get("gamma", 0.9)))
        fast, slow = (
            torch.cat([part.parameters.values for part in (*case.learners.values(), *case.targets.values())])
            for case in cases
        )
        torch.testing.assert_close(fast, slow, rtol=0, atol=2e-5)


@pytest.mark.parametrize("clip_coef", [0.01, 0.6, 10.0])
@pytest.mark.parametrize("max_grad_norm", [1e-6, 1e6, None])
@pytest.mark.parametrize("action_space", [DiscreteSpec(3), BOX], ids=["discrete", "box"])
def test_updates_of_ppo_agree(action_space: Any, max_grad_norm: float | None, clip_coef: float) -> None:
    rng = np.random.default_rng(8)
    lead = (16, 2)
    box = isinstance(action_space, BoxSpec)
    batch = {
        "obs": rng.normal(size=(*lead, 3)).astype(np.float32),
        "actions": rng.normal(size=(*lead, 2)).astype(np.float32) if box else rng.integers(3, size=lead),
        "rewards": rng.normal(size=lead).astype(np.float32),
        "terminated": rng.random(lead) < 0.1,
        "truncated": np.zeros(lead, bool),
        "valid": np.ones(lead, bool),
        "last_obs": rng.normal(size=(2, 3)).astype(np.float32),
        "final_obs": np.zeros((0, 3), np.float32),
        "final_index": np.zeros(0, np.int64),
    }
    for hparams in ({"gamma": 0.0, "ent_coef": 0.0}, {"gamma": 1.0, "ent_coef": 1.0, "vf_coef": 0.0, "clip_vf": 0.05}):
        cases = pair(PPO, PPOConfig, action_space, max_grad_norm=max_grad_norm, clip_coef=clip_coef, **hparams)
        for case in cases:
            case.update(batch)
        fast, slow = (case.policy.parameters.values for case in cases)
        torch.testing.assert_close(fast, slow, rtol=0, atol=2e-5)
