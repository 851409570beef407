"""Every dynamics against the contract, and the RSSM against the numbers of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.dynamics import Dynamics, build_dynamics
from rl_training.dynamics.base import detached, rows_of
from rl_training.dynamics.rssm import RSSM, gated
from rl_training.models.world_models.layers import NormedMLP
from rl_training.types import ConfigError

TOKENS, ACTIONS, T, B = 6, 2, 5, 3
KINDS: dict[str, dict[str, Any]] = {
    "rssm": {"deter": 16, "hidden": 8, "stoch": 4, "classes": 3},
    "rssm blocks": {"deter": 16, "hidden": 8, "stoch": 4, "classes": 3, "blocks": 4},
    "rssm gaussian": {"deter": 16, "hidden": 8, "stoch": 4, "latent": "gaussian"},
    "deterministic": {"deter": 16, "hidden": 8},
    "stochastic": {"stoch": 4, "hidden": 8},
    "ensemble": {"members": 3, "hidden": 8, "layers": 2},
}


def made(kind: str, seed: int = 0) -> Dynamics:
    return build_dynamics(kind.split()[0], KINDS[kind], (TOKENS, ACTIONS), np.random.default_rng(seed))


def inputs(dynamics: Dynamics, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    actions = torch.from_numpy(rng.uniform(-1.5, 1.5, (T, B, ACTIONS)).astype(np.float32))
    tokens = torch.from_numpy(rng.standard_normal((T, B, TOKENS), np.float32))
    is_first = torch.zeros(T, B)
    is_first[0, 0] = is_first[2, 1] = 1.0
    noise = torch.from_numpy(rng.random((T, B, dynamics.noise_size), np.float32))
    return actions, tokens, is_first, noise


@pytest.fixture(params=KINDS)
def dynamics(request: pytest.FixtureRequest) -> Dynamics:
    return made(request.param)


def test_shapes(dynamics: Dynamics) -> None:
    actions, tokens, is_first, noise = inputs(dynamics)
    observed = dynamics.observe(dynamics.initial(B), actions, tokens, is_first, noise)
    assert dynamics.read(observed.states).shape == (T, B, dynamics.features)
    divergence = dynamics.divergence(observed.posterior, observed.prior)
    assert divergence.shape == ((T, B) if observed.posterior else ())
    stored = dynamics.stored({name: value[-1] for name, value in observed.states.items()})
    assert {name: (value.shape[1:], value.numpy().dtype) for name, value in detached(stored).items()} == {
        name: (torch.Size(shape), dtype) for name, (shape, dtype) in dynamics.state_spec.items()
    }
    imagined = dynamics.imagine(rows_of(observed.states), actions.repeat(1, T, 1), noise.repeat(1, T, 1))
    assert dynamics.read(imagined).shape == (T, T * B, dynamics.features)


def test_observe_is_a_loop_of_correct(dynamics: Dynamics) -> None:
    actions, tokens, is_first, noise = inputs(dynamics)
    observed = dynamics.observe(dynamics.initial(B), actions, tokens, is_first, noise)
    state = dynamics.initial(B)
    for t in range(T):
        state = dynamics.correct(state, actions[t], tokens[t], is_first[t], noise[t])
        torch.testing.assert_close(dynamics.read(state), dynamics.read(observed.states)[t])


def test_imagine_is_a_loop_of_predict(dynamics: Dynamics) -> None:
    actions, tokens, is_first, noise = inputs(dynamics)
    observed = dynamics.observe(dynamics.initial(B), actions, tokens, is_first, noise)
    state = {name: value[-1] for name, value in observed.states.items()}
    for draws in (noise, None):
        imagined, following = dynamics.imagine(state, actions, draws), state
        for t in range(T):
            following = dynamics.predict(following, actions[t], None if draws is None else draws[t])
            torch.testing.assert_close(dynamics.read(following), dynamics.read(imagined)[t])


def test_the_faster_observe_is_that_of_the_base(dynamics: Dynamics) -> None:
    actions, tokens, is_first, noise = inputs(dynamics)
    fast = dynamics.observe(dynamics.initial(B), actions, tokens, is_first, noise)
    plain = Dynamics.observe(dynamics, dynamics.initial(B), actions, tokens, is_first, noise)
    for one, other in zip(fast, plain, strict=True):
        for name, value in one.items():
            torch.testing.assert_close(value, other[name])


def test_where_an_episode_starts_nothing_before_counts(dynamics: Dynamics) -> None:
    actions, tokens, _, noise = inputs(dynamics)
    first = torch.ones(B)
    zero = dynamics.correct(dynamics.initial(B), torch.zeros(B, ACTIONS), tokens[0], torch.zeros(B), noise[0])
    carry = {name: torch.randn(value.shape) for name, value in dynamics.initial(B).items()}
    fresh = dynamics.correct(carry, actions[0], tokens[0], first, noise[0])
    assert torch.equal(dynamics.read(fresh), dynamics.read(zero))


def test_the_previous_action_counts_inside_an_episode() -> None:
    dynamics = made("rssm")
    actions, tokens, _, noise = inputs(dynamics)
    one, other = (
        dynamics.correct(dynamics.initial(B), action, tokens[0], torch.zeros(B), noise[0])["deter"]
        for action in (actions[0], torch.zeros(B, ACTIONS))
    )
    assert not torch.equal(one, other)


def test_the_same_noise_gives_the_same_state(dynamics: Dynamics) -> None:
    actions, tokens, is_first, noise = inputs(dynamics)
    runs = [dynamics.observe(dynamics.initial(B), actions, tokens, is_first, noise).states for _ in range(2)]
    assert torch.equal(dynamics.read(runs[0]), dynamics.read(runs[1]))


@pytest.mark.parametrize("kind", ["rssm", "rssm gaussian", "stochastic"])
def test_other_noise_gives_another_state(kind: str) -> None:
    dynamics = made(kind)
    actions, tokens, is_first, noise = inputs(dynamics)
    runs = [dynamics.observe(dynamics.initial(B), actions, tokens, is_first, n).states for n in (noise, 1.0 - noise)]
    assert not torch.equal(dynamics.read(runs[0]), dynamics.read(runs[1]))


def test_initial_weights_come_from_the_generator(dynamics: Dynamics) -> None:
    kind = next(name for name in KINDS if type(made(name)) is type(dynamics))
    one, again, other = made(kind), made(kind), made(kind, seed=1)
    weights = [torch.cat([p.detach().flatten() for p in each.parameters()]) for each in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


# -- the RSSM ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deter", "units", "classes", "parameters"), [(512, 64, 4, 640_867), (2048, 256, 16, 9_738_019)]
)
def test_parameters_of_published_sizes(deter: int, units: int, classes: int, parameters: int) -> None:
    """The whole DreamerV3 agent of sizes 1M and 12M on walker: 24 observed numbers, 6 actions, 255 bins."""
    rng = np.random.default_rng(0)
    rssm = RSSM(units, 6, rng, deter=deter, hidden=units, classes=classes)
    heads = ((3, 24), (1, 255), (1, 1), (3, 12), (3, 255))  # decoder, reward, continue, policy, value
    parts = [rssm, NormedMLP(rng, 24, units, 3)]
    parts += [NormedMLP(rng, rssm.features, units, layers, outputs) for layers, outputs in heads]
    assert sum(parameter.numel() for part in parts for parameter in part.parameters()) == parameters


def test_the_gate() -> None:
    values = [torch.tensor(value, dtype=torch.float64) for value in (0.0, 1.0, 0.0, 0.5)]
    assert float(gated(*values)) == pytest.approx(0.489811734427971, abs=1e-14)


def test_the_arranged_core_is_the_block_linear_layer_of_the_reference() -> None:
    rssm = made("rssm blocks")
    assert isinstance(rssm, RSSM)
    core, blocks = rssm.core, rssm.blocks
    deter, latent, actions = torch.randn(B, 16), torch.randn(B, 12), torch.randn(B, ACTIONS)
    scaled = actions / actions.abs().clamp(min=1.0)
    assert core.from_latent is not None
    shared = torch.cat([core.from_deter(deter), core.from_latent(latent), core.from_action(scaled)], dim=1)
    parts = []
    for block in range(blocks):
        own = slice(4 * block, 4 * block + 4)
        inside = torch.cat([deter[:, own], shared], dim=1)  # [h_g, x0, x1, x2]
        weight = torch.cat([core.recurrent[block], core.shared[:, own]])
        parts.append(inside @ weight + core.bias[own])
    x = torch.nn.functional.silu(core.norm(torch.cat(parts, dim=1)))
    gates = core.gates(x).view(B, blocks, 3, 4)
    expected = gated(*(gates[:, :, i].reshape(B, 16) for i in range(3)), deter)
    torch.testing.assert_close(core(deter, latent, core.action_part(actions)), expected)


def gradients(dynamics: Dynamics, loss: Tensor) -> set[str]:
    """Parts of the RSSM, and "tokens", that a loss reaches."""
    dynamics.zero_grad()
    loss.backward()
    return {
        name.split(".")[0]
        for name, parameter in dynamics.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    }


@pytest.mark.parametrize(("steps", "reached"), [(1, False), (T, True)])
def test_the_dynamics_loss_reaches_posterior_and_tokens_only_through_earlier_latents(steps: int, reached: bool) -> None:
    rssm = made("rssm")
    actions, tokens, is_first, noise = (values[:steps] for values in inputs(rssm))
    tokens.requires_grad_()
    observed = rssm.observe(rssm.initial(B), actions, tokens, is_first, noise)
    loss = rssm.divergence(detached(observed.posterior), observed.prior).sum()
    parts = gradients(rssm, loss)
    assert {"core", "prior_head"} <= parts
    assert ("posterior_head" in parts) == reached
    assert (tokens.grad is not None and bool(tokens.grad.abs().max() > 0)) == reached


def test_the_representation_loss_reaches_all_but_the_prior() -> None:
    rssm = made("rssm")
    actions, tokens, is_first, noise = inputs(rssm)
    tokens.requires_grad_()
    observed = rssm.observe(rssm.initial(B), actions, tokens, is_first, noise)
    assert gradients(rssm, rssm.divergence(observed.posterior, detached(observed.prior)).sum()) == {
        "core",
        "posterior_head",
    }
    assert tokens.grad is not None
    assert tokens.grad.abs().max() > 0


def test_below_the_free_nats_there_is_no_gradient() -> None:
    rssm = made("rssm")
    actions, tokens, is_first, noise = inputs(rssm)
    observed = rssm.observe(rssm.initial(B), actions, tokens, is_first, noise)
    loss = rssm.divergence(observed.posterior, observed.prior).clamp(min=1e6).sum()
    assert gradients(rssm, loss) == set()


# -- the ensemble -----------------------------------------------------------------------------------------------------


def test_every_member_predicts_as_many_rows_and_each_row_is_predicted_once() -> None:
    ensemble = made("ensemble")
    rows = 7
    with torch.no_grad():  # members that are told apart: member m always predicts the change m
        for parameter in ensemble.parameters():
            parameter.zero_()
        ensemble.output.bias[:, 0, :TOKENS] = torch.arange(3.0)[:, None]  # type: ignore[union-attr]
        ensemble.lowest.fill_(-30.0)  # type: ignore[operator]
        ensemble.highest.fill_(-29.0)  # type: ignore[operator]
    state = {**ensemble.initial(rows), "obs": 100.0 * torch.arange(rows)[:, None].expand(rows, TOKENS)}
    after = ensemble.predict(state, torch.zeros(rows, ACTIONS), torch.rand(rows, ensemble.noise_size))["obs"]
    changes = (after - state["obs"]).detach()[:, 0].round().tolist()
    assert set(changes) == {0.0, 1.0, 2.0}
    assert max(changes.count(member) for member in (0.0, 1.0, 2.0)) <= 3
    average = ensemble.predict(state, torch.zeros(rows, ACTIONS))["obs"] - state["obs"]
    torch.testing.assert_close(average, torch.ones(rows, TOKENS))


# -- by name ----------------------------------------------------------------------------------------------------------


def test_defaults_are_given_where_a_class_takes_them() -> None:
    suggested = {"deter": 32, "stoch": 5, "classes": 7, "hidden": 16}
    rng = np.random.default_rng(0)
    rssm = build_dynamics("rssm", {"classes": 3}, (TOKENS, ACTIONS), rng, suggested)
    assert rssm.state_spec["deter"][0] == (32,)
    assert rssm.features == 32 + 5 * 3
    assert build_dynamics("stochastic", {}, (TOKENS, ACTIONS), rng, suggested).features == 5


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("rsm", {}, "unknown dynamics 'rsm'; did you mean 'rssm'?"),
        ("rssm", {"detr": 3}, "dynamics 'rssm' takes no 'detr'; did you mean 'deter'?"),
        ("rssm", {"deter": 0}, "deter must be at least 1, not 0"),
        ("rssm", {"deter": 300}, "deter 300 is not divisible into 8 blocks"),
        ("rssm", {"latent": "normal"}, "latent must be categorical or gaussian"),
        ("rssm", {"unimix": 1.5}, "unimix"),
        ("ensemble", {"members": 0}, "members must be at least 1"),
        ("deterministic", {"open_loop": 0}, "open_loop must be at least 1"),
        ("deterministic", {"open_loop": 1.5}, r"kwargs\.open_loop must be a whole number, not 1\.5"),
        ("deterministic", {"deter": 100, "blocks": 8}, r"kwargs\.deter 100 is not divisible into 8 blocks"),
        ("deterministic", {"hidden": 0}, r"kwargs\.hidden must be at least 1, not 0"),
        ("deterministic", {"blocks": 0}, r"kwargs\.blocks must be at least 1, not 0"),
        ("stochastic", {"stoch": 0}, r"kwargs\.stoch must be at least 1, not 0"),
        ("stochastic", {"layers": 0}, r"kwargs\.layers must be at least 1, not 0"),
        ("rssm", {"deter": "64"}, r"kwargs\.deter must be a whole number, not '64'"),
        ("rssm", {"unimix": "no"}, r"kwargs\.unimix must be at least 0 and less than 1, not 'no'"),
        ("rl_training.numerics.symlog:symlog", {}, "is called with"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(name: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", "\\?")):
        build_dynamics(name, kwargs, (TOKENS, ACTIONS), np.random.default_rng(0))
