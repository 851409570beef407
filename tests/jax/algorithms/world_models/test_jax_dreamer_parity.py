"""Dreamer in JAX beside its torch twin: the same first weights, and with given noise the same losses, gradients of each
loss and update.

Both compute in float64 here, so that what is compared is the mathematics: of the gradients of convolutions and norms,
float32 leaves some 2e-5 of the largest entry to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from dreamer_cases import IMAGE, B, T, box, rows, small, small_config

from rl_training.algorithms.world_models.dreamer import Dreamer as TorchDreamer
from rl_training.build_context import BuildContext
from rl_training.hparams.dreamer import SPEC, DreamerConfig
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.world_models import DynamicsConfig
from rl_training.jax.algorithms.world_models.dreamer import Trained, UpdateNoise
from rl_training.jax.host import HostAlgorithm, build_agent
from rl_training.jax.pytrees import restored, tree_state
from rl_training.types import Array, Batch, ConfigError, DictSpec, DiscreteSpec, Progress, SpaceSpec

TOLERANCE = 1e-5
GAUSSIAN = DynamicsConfig(kwargs={"latent": "gaussian"})
SLOW = pytest.mark.slow
MIXED = DictSpec({"camera": IMAGE, "room": DiscreteSpec(4), "speed": box(2)})
CASES: dict[str, tuple[SpaceSpec, SpaceSpec, dict[str, Any]]] = {
    "discrete": (box(3), DiscreteSpec(3), {"imagine_last": 2, "debias_scale": True}),
    "v1": (IMAGE, box(2), {"dynamics": GAUSSIAN, "actor_gradient": "dynamics", "return_scale": "none"}),
    "real": (box(3), box(2), {"context": "zero"}),
    "v2": (box(3), DiscreteSpec(3), {"actor_gradient": "dynamics", "value_target": "slow", "kl_dynamics": 0.8}),
    "deterministic": (box(3), DiscreteSpec(3), {"dynamics": DynamicsConfig("deterministic"), "imagine_last": 2}),
    "stochastic": (IMAGE, DiscreteSpec(3), {"dynamics": DynamicsConfig("stochastic"), "imagine_last": 2}),
    "blocks": (MIXED, DiscreteSpec(2), {"dynamics": DynamicsConfig(kwargs={"blocks": 2}), "value_target": "slow"}),
}
OTHER_DYNAMICS = ("deterministic", "stochastic")
"""Cases whose dynamics have other parts than an RSSM."""
FAST = ("discrete",)
"""One program for `make test`; the others are slow to compile."""


@dataclass(frozen=True)
class Pair:
    """What both backends make of one batch with the same noise."""

    torch_losses: dict[str, float]
    torch_grads: dict[str, dict[str, Array]]
    """Loss to gradients by the name of the tensor, as JAX names it."""
    torch_metrics: dict[str, float]
    torch_state: dict[str, Any]
    losses: dict[str, float]
    grads: dict[str, dict[str, Array]]
    metrics: dict[str, float]
    state: Any


def twins(case: str) -> tuple[TorchDreamer, HostAlgorithm]:
    """Both backends with the weights of torch, where the heads that start at 0 got numbers, and a moved slow critic."""
    observation, action, given = CASES[case]
    given = {"free_nats": 0.1, "warmup_updates": 0, **given}
    twin = small(observation, action, **given)
    agent = build_agent(replace(twin.ctx, progress=Progress()), SPEC, small_config(**given))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for head in (twin.model.reward, twin.critic, twin.slow_critic, twin.actor):
            head.output.weight.normal_(0.0, 0.2, generator=generator)
    agent.policy.load_state_dict(twin.policy.state_dict())
    networks = twin.state_dict()["networks"]
    critic, slow = (restored(agent.state.networks["critic"], networks[name]) for name in ("critic", "slow_critic"))
    agent.state = agent.state._replace(networks={"critic": critic}, targets={"critic": slow})
    return twin, agent


def batch_of(twin: TorchDreamer) -> Batch:
    """Sequences with a start, an end by termination, one by a time limit, and rows that are no transitions."""
    if isinstance(twin.ctx.observation_space, DictSpec):
        rng = np.random.default_rng(4)

        def mixed() -> dict[str, Array]:
            return {
                "camera": rng.integers(0, 256, (B, T, 16, 16, 1), dtype=np.uint8),
                "room": rng.integers(0, 4, (B, T)),
                "speed": rng.standard_normal((B, T, 2)).astype(np.float32),
            }

        batch = {**rows(small()), "obs": mixed(), "next_obs": mixed()}
    else:
        batch = rows(twin)
    batch["truncated"][2, 1], batch["is_first"][2, 2] = True, True
    batch["valid"][0, 3], batch["is_first"][0, 4] = False, True
    return batch


def given_noise(twin: TorchDreamer, seed: int) -> UpdateNoise:
    """The numbers that torch draws from a generator with this seed."""
    rng, size = np.random.default_rng(seed), twin.model.dynamics.noise_size
    observed = rng.random((T, B, size), dtype=np.float32)
    count = (twin.hp.imagine_last or T) * B
    steps = [
        (twin.actions.draw((count,), rng), rng.random((count, size), dtype=np.float32))
        for _ in range(twin.hp.imagine_horizon)
    ]
    actions, imagined = (np.stack(column) for column in zip(*steps, strict=True))
    return UpdateNoise(observed, actions, imagined)


def has_normal_latents(twin: TorchDreamer) -> bool:
    return twin.hp.dynamics is GAUSSIAN or twin.hp.dynamics.type == "stochastic"


def in_float64(twin: TorchDreamer) -> None:
    """Make torch compute in float64, from the same observations, rewards and noise."""
    for network in (twin.networks, twin.slow_critic):
        network.double()
    for encoder in (twin.model.encoder.vector, *twin.model.encoder.images.values()):
        if encoder is not None:
            encoder.register_forward_pre_hook(lambda module, inputs: (inputs[0].double(),))
    twin.ready(actor=twin.actor, critic=twin.critic)  # parameters and moments in one vector of the new type
    if has_normal_latents(twin):  # normal numbers of uniform ones: float32 leaves 1e-6 to the two libraries
        uniform = twin.uniform
        twin.uniform = lambda *shape: uniform(*shape).double()  # type: ignore[method-assign]
    prepare = twin.prepare

    def prepared(batch: Batch) -> Any:
        steps = prepare(batch)
        start = {name: value.double() for name, value in steps.start.items()}
        exact = steps.mapped(lambda column: column.double() if column.dtype == torch.float32 else column)
        return exact._replace(start=start)

    twin.prepare = prepared  # type: ignore[method-assign]


def exact(tree: Any) -> Any:
    """Floats as float64, everything else unchanged."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf, tree)


def by_torch(twin: TorchDreamer, batch: Batch) -> tuple[dict[str, float], dict[str, dict[str, Array]]]:
    twin.rng = np.random.default_rng(7)
    losses, _ = twin.losses(twin.prepare(batch))
    named = dict(twin.networks.named_parameters())
    grads = {}
    for name, loss in losses.items():
        twin.optimizer.zero_grad()
        loss.backward(retain_graph=True)
        grads[name] = {key: parameter.grad.numpy().copy() for key, parameter in named.items()}  # type: ignore[union-attr]
    return {name: float(loss.detach()) for name, loss in losses.items()}, grads


def flat_names(trained: Trained) -> dict[str, Array]:
    """The tensors of all networks under the names that torch has for them, and in its layout."""
    parts = tree_state(trained)
    return {f"{network}.{name}": value for network, tensors in parts.items() for name, value in tensors.items()}


@cache
def compared(case: str) -> Pair:
    """One compilation for everything that is compared: losses, the gradient of each of them, and the update."""
    twin, agent = twins(case)
    in_float64(twin)
    batch, noise = batch_of(twin), given_noise(twin, 7)
    torch_losses, torch_grads = by_torch(twin, batch)
    if twin.hp.return_scale == "percentile":
        twin.scale.load_state_dict({"low": 0.0, "high": 0.0, "updates": 0})  # `by_torch` moved it
    twin.rng = np.random.default_rng(7)
    torch_metrics = {name: float(value) for name, value in twin.update(batch).metrics.items()}

    parts = agent.functions.learn.__self__  # type: ignore[attr-defined]
    names = list(torch_losses)

    def everything(state: Any, batch: Batch, noise: UpdateNoise) -> Any:
        steps = parts.prepare(batch)
        steps = steps._replace(start=exact(steps.start))

        def losses(trained: Trained) -> Any:
            found = parts.losses(trained, state, steps, noise)[0]
            together = jnp.stack([found[name] for name in names])
            return together, together

        trained = Trained(*state.params, state.networks["critic"])
        grads, losses_of = jax.jacrev(losses, has_aux=True)(trained)
        return losses_of, grads, parts.update(state, steps, noise, state.hyper["learning_rate"])

    with jax.enable_x64(True):
        given = exact(noise) if has_normal_latents(twin) else noise
        found = jax.jit(everything)(exact(agent.state), batch, given)
    losses, jacobian, (state, metrics) = jax.tree.map(np.asarray, found)
    each = {
        name: flat_names(jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), jacobian)) for i, name in enumerate(names)
    }
    return Pair(
        torch_losses,
        torch_grads,
        torch_metrics,
        {**twin.state_dict(), "policy": twin.policy.state_dict()["network"]},
        dict(zip(names, map(float, losses), strict=True)),
        each,
        {name: float(value) for name, value in metrics.items()},
        state,
    )


def marked(names: Iterable[str]) -> Any:
    return pytest.mark.parametrize("case", [case if case in FAST else pytest.param(case, marks=SLOW) for case in names])


cases = marked(CASES)


@pytest.mark.parametrize("case", CASES)
def test_first_weights_are_those_of_torch(case: str) -> None:
    observation, action, given = CASES[case]
    twin = small(observation, action, **given)
    agent = build_agent(replace(twin.ctx, progress=Progress()), SPEC, small_config(**given))
    ours, theirs = agent.policy.state_dict()["network"], twin.policy.state_dict()["network"]
    assert ours.keys() == theirs.keys() == {"model", "actor"}
    for network, tensors in theirs.items():
        assert ours[network].keys() == tensors.keys()
        for name, value in tensors.items():
            np.testing.assert_array_equal(ours[network][name], value, err_msg=name)
    for name, value in twin.state_dict()["networks"]["critic"].items():
        np.testing.assert_array_equal(tree_state(agent.state.networks["critic"])[name], value, err_msg=name)


@cases
def test_every_loss_is_that_of_torch(case: str) -> None:
    pair = compared(case)
    assert pair.losses.keys() == pair.torch_losses.keys()
    for name, value in pair.torch_losses.items():
        assert pair.losses[name] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), name
    assert min(abs(value) for value in pair.losses.values()) > 0.0


@cases
def test_every_gradient_of_every_loss_is_that_of_torch(case: str) -> None:
    """To 1e-5 of the largest entry of each tensor. Of what torch computes as exactly 0, JAX does too."""
    pair = compared(case)
    count = 0
    for loss, tensors in pair.torch_grads.items():
        ours = pair.grads[loss]
        assert ours.keys() == tensors.keys()
        largest = max(float(np.abs(value).max()) for value in tensors.values())
        for name, value in tensors.items():
            limit = TOLERANCE * max(float(np.abs(value).max()), TOLERANCE * largest)
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=limit, err_msg=f"{loss}: {name}")
            count += bool(np.abs(value).max() > 0)
    assert count > 100, "the comparison is of numbers, not of zeros"


SEEING = {"model.encoder", "model.dynamics.core", "model.dynamics.posterior_head"}
REACHED: dict[str, set[str]] = {
    "reconstruction_loss": SEEING | {"model.decoder"},
    "reward_loss": SEEING | {"model.reward"},
    "continue_loss": SEEING | {"model.goes_on"},
    "dynamics_loss": SEEING | {"model.dynamics.prior_head"},
    "representation_loss": SEEING,
    "policy_loss": {"actor"},
    "value_loss": {"critic"},
    "replay_value_loss": SEEING | {"critic"},
}


@marked(case for case in CASES if case not in OTHER_DYNAMICS)
@pytest.mark.parametrize("loss", REACHED)
def test_who_learns_from_which_loss(loss: str, case: str) -> None:
    """Also with gradients through the dynamics: the policy's loss reaches the policy alone."""
    parts = (*SEEING, "model.dynamics.prior_head", "model.decoder", "model.reward", "model.goes_on", "actor", "critic")
    grads = compared(case).grads[loss]
    reached = {part for part in parts if any(value.any() for name, value in grads.items() if name.startswith(part))}
    assert reached == REACHED[loss]


@cases
def test_the_update_is_that_of_torch(case: str) -> None:
    """Metrics, the scale of returns, the mean squares of gradients after clipping, and the slow critic. A first step of
    LaProp is the sign of the gradient, so weights are compared where that is beyond rounding."""
    pair = compared(case)
    assert pair.metrics.keys() == pair.torch_metrics.keys()
    for name, value in pair.torch_metrics.items():
        assert pair.metrics[name] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), name
    theirs, state = pair.torch_state, pair.state
    averages = [theirs["scale"]["low"], theirs["scale"]["high"]]
    np.testing.assert_allclose(state.scale, averages, rtol=TOLERANCE, atol=TOLERANCE)
    assert int(state.optimizer.steps) == theirs["optimizer"]["steps"] == 1
    squares = flat_names(state.optimizer.square)
    assert squares.keys() == theirs["optimizer"]["square"].keys()
    moved = flat_names(Trained(*state.params, state.networks["critic"]))
    networks = {**theirs["policy"], "critic": theirs["networks"]["critic"]}
    expected = {f"{network}.{name}": value for network, tensors in networks.items() for name, value in tensors.items()}
    for name, value in theirs["optimizer"]["square"].items():
        largest = float(value.max())
        np.testing.assert_allclose(squares[name], value, rtol=0, atol=3 * TOLERANCE * max(largest, 1e-12), err_msg=name)
        clear = value > 1e-6 * largest
        np.testing.assert_allclose(moved[name][clear], expected[name][clear], rtol=0, atol=1e-6, err_msg=name)
    for name, value in theirs["networks"]["slow_critic"].items():
        np.testing.assert_allclose(tree_state(state.targets["critic"])[name], value, atol=TOLERANCE, err_msg=name)


# -- acting -----------------------------------------------------------------------------------------------------------


def states(twin: TorchDreamer, count: int, seed: int = 2) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    spec = twin.model.dynamics.state_spec
    carry = {
        name: rng.integers(0, 3, (count, *shape)).astype(dtype)
        if dtype == np.uint8
        else rng.standard_normal((count, *shape)).astype(dtype)
        for name, (shape, dtype) in spec.items()
    }
    return {**carry, "action": rng.uniform(-2, 2, (count, twin.actions.size)).astype(np.float32)}


@pytest.mark.parametrize("case", ["discrete", "real"])
def test_acting_in_numpy_is_that_of_torch(case: str) -> None:
    """Greedy, from states inside and at the start of episodes; no program is compiled for it."""
    twin, agent = twins(case)
    assert agent.policy.in_numpy
    obs, carry = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32), states(twin, 64)
    is_first = np.arange(64) % 3 == 0
    rng = np.random.default_rng(0)
    ours, theirs = (t.policy.act(obs, carry, is_first, rng, deterministic=True) for t in (agent, twin))
    np.testing.assert_allclose(ours.actions, theirs.actions, atol=TOLERANCE)
    np.testing.assert_allclose(ours.env_actions, theirs.env_actions, atol=TOLERANCE)
    for name, value in theirs.carry.items():
        np.testing.assert_allclose(ours.carry[name], value, atol=TOLERANCE, err_msg=name)
    assert ours.extras.keys() == theirs.extras.keys()


def test_acting_in_numpy_draws_as_the_program_does() -> None:
    """With the same noise NumPy and JAX choose the same latents and actions."""
    twin, agent = twins("real")
    functions = agent.functions
    obs, carry = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32), states(twin, 64)
    noise = np.random.default_rng(1).standard_normal((64, *functions.noise.shape)).astype(np.float32)
    given = (agent.policy.acting(), obs, carry, np.arange(64) % 3 == 0, noise)
    ours, theirs = functions.act(*given, False), jax.jit(functions.act, static_argnums=5)(*given, False)
    np.testing.assert_allclose(ours[0], theirs[0], atol=TOLERANCE)
    for name, value in theirs[1].items():
        np.testing.assert_allclose(ours[1][name], value, atol=TOLERANCE, err_msg=name)


def test_at_the_start_of_an_episode_carry_and_previous_action_do_not_matter() -> None:
    twin, agent = twins("real")
    obs, used = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32), states(twin, 2)
    blank, starts = agent.policy.initial_carry(2), np.ones(2, bool)
    results = [agent.policy.act(obs, carry, starts, np.random.default_rng(1)) for carry in (blank, used)]
    for name in blank:
        np.testing.assert_array_equal(results[0].carry[name], results[1].carry[name])
    goes_on = agent.policy.act(obs, used, ~starts, np.random.default_rng(1))
    assert not np.array_equal(goes_on.carry["deter"], results[0].carry["deter"])
    still = agent.policy.act(obs, {**used, "action": blank["action"]}, ~starts, np.random.default_rng(1))
    assert not np.array_equal(still.carry["deter"], goes_on.carry["deter"]), "the previous action is part of the carry"


# -- what is refused and what it counts -------------------------------------------------------------------------------


def agent_for(observation: SpaceSpec, action: SpaceSpec, hp: DreamerConfig, **given: Any) -> HostAlgorithm:
    return build_agent(BuildContext(observation, action, **given), SPEC, hp)


@pytest.mark.parametrize(("size", "count"), [("size1m", 640_867), ("mini", 133_795)])
def test_parameter_counts_on_walker(size: Any, count: int) -> None:
    state = agent_for(box(24), box(6), DreamerConfig(size=size)).state
    leaves = jax.tree.leaves((state.params, state.networks))
    assert sum(leaf.size for leaf in leaves) == count


@SLOW
def test_the_learning_rate_follows_its_schedule() -> None:
    """The step is proportional to the rate: half of it in the middle of a linear schedule to 0, none at the end."""
    twin = small()
    given = small_config(learning_rate=Schedule("linear", 1e-3, 0.0), warmup_updates=0)
    agent = build_agent(replace(twin.ctx, progress=Progress()), SPEC, given)
    learn, batch, total = jax.jit(agent.functions.learn), rows(twin), twin.ctx.total_timesteps

    def step(progress: float) -> Array:
        state, _ = learn(agent.state, batch, progress * total, jax.random.PRNGKey(0))
        moved = jax.tree.map(lambda new, old: np.ravel(new - old), state.params, agent.state.params)
        return np.concatenate(jax.tree.leaves(moved))

    assert np.abs(step(0.0)).max() > 1e-4
    np.testing.assert_allclose(step(0.5), 0.5 * step(0.0), rtol=1e-3, atol=1e-7)
    assert not step(1.0).any()


def test_what_does_not_fit_is_refused_as_in_torch() -> None:
    odd = replace(IMAGE, low=np.zeros((30, 30, 1), np.uint8), high=np.full((30, 30, 1), 255, np.uint8))
    with pytest.raises(ConfigError, match="multiples of 16, not 30x30"):
        agent_for(odd, box(1), small_config())
    with pytest.raises(ConfigError, match=r"leave env\.normalize_obs out"):
        agent_for(box(3), box(1), small_config(), normalize_obs=True)
    with pytest.raises(ConfigError, match=r"takes no 'clases' .*did you mean 'classes'"):
        agent_for(box(3), box(1), small_config(dynamics=DynamicsConfig(kwargs={"clases": 3})))
    with pytest.raises(ConfigError, match="16 is not divisible into 3 blocks"):
        agent_for(box(3), box(1), small_config(dynamics=DynamicsConfig(kwargs={"blocks": 3})))
