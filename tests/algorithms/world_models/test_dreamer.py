"""Dreamer as a whole: sizes, who learns from which loss, resets, acting, options of earlier versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dreamer_cases import IMAGE, B, T, box, rows, small

from rl_training.algorithms.world_models.dreamer import Dreamer
from rl_training.build_context import BuildContext
from rl_training.hparams.dreamer import DreamerConfig
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.world_models import SIZES, DynamicsConfig, ModelSize, supports_world_model
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec, MultiDiscreteSpec, SpaceSpec

PUBLISHED = {
    "size1m": 640_867,
    "size12m": 9_738_019,
    "size25m": 21_782_947,
    "size50m": 38_612_003,
    "size100m": 86_622_499,
    "size200m": 153_769_507,
    "size400m": 345_473_059,
}


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("size", ["size1m", "size12m"])
def test_parameter_counts_on_walker(size: Any) -> None:
    dreamer = Dreamer(BuildContext(box(24), box(6)), DreamerConfig(size=size))
    assert parameters(dreamer.networks) == PUBLISHED[size]


@pytest.mark.parametrize("size", sorted(PUBLISHED))
def test_parameter_counts_by_the_formula(size: str) -> None:
    """All published sizes, from the shapes of the layers: the large ones are not built."""
    assert layer_sum(SIZES[size], 24, 6) == PUBLISHED[size]


def layer_sum(size: ModelSize, obs: int, actions: int, blocks: int = 8) -> int:
    deter, hidden, units, latent = size.deter, size.hidden, size.units, size.stoch * size.classes
    features = deter + latent

    def layer(inputs: int, outputs: int) -> int:
        return inputs * outputs + 2 * outputs  # weights, bias, scale of the norm

    def head(inputs: int, layers: int, outputs: int) -> int:
        return layer(inputs, units) + (layers - 1) * layer(units, units) + units * outputs + outputs

    core = layer(deter, hidden) + layer(latent, hidden) + layer(actions, hidden)
    core += deter * (deter // blocks + 3 * hidden) + 2 * deter + 3 * deter * (deter // blocks) + 3 * deter
    prior = layer(deter, hidden) + layer(hidden, hidden) + hidden * latent + latent
    posterior = layer(deter + units, hidden) + hidden * latent + latent
    encoder = layer(obs, units) + 2 * layer(units, units)
    heads = head(features, 3, obs) + head(features, 1, 255) + head(features, 1, 1)
    heads += head(features, 3, 2 * actions) + head(features, 3, 255)
    return encoder + core + prior + posterior + heads


def test_parts_of_size1m() -> None:
    model = Dreamer(BuildContext(box(5), box(1)), DreamerConfig())
    assert parameters(model.networks) == 637_446
    walker = Dreamer(BuildContext(box(24), box(6)), DreamerConfig())
    parts = {name: parameters(part) for name, part in walker.model.named_children()}
    assert parts == {"encoder": 10_112, "dynamics": 364_416, "decoder": 51_096, "reward": 57_663, "goes_on": 41_153}
    assert (parameters(walker.actor), parameters(walker.critic)) == (50_316, 66_111)


# -- gradients --------------------------------------------------------------------------------------------------------


def reached(dreamer: Dreamer, name: str, length: int = T) -> set[str]:
    """Which parts get a gradient from one loss."""
    dreamer.optimizer.zero_grad()
    losses, _ = dreamer.losses(dreamer.prepare(rows(dreamer, length)))
    losses[name].backward()
    dynamics = dreamer.model.dynamics
    parts: dict[str, Any] = {
        "encoder": dreamer.model.encoder,
        "core": dynamics.core,
        "prior": dynamics.prior_head,
        "posterior": dynamics.posterior_head,
        "decoder": dreamer.model.decoder,
        "reward": dreamer.model.reward,
        "continue": dreamer.model.goes_on,
        "actor": dreamer.actor,
        "critic": dreamer.critic,
    }
    return {key for key, part in parts.items() if any(p.grad.any() for p in part.parameters())}


SEEING = {"encoder", "core", "posterior"}
FREE: dict[str, Any] = {"free_nats": 0.0}


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("reconstruction_loss", SEEING | {"decoder"}),
        ("reward_loss", {"reward"}),
        ("continue_loss", SEEING | {"continue"}),
        ("dynamics_loss", SEEING | {"prior"}),
        ("representation_loss", SEEING),
        ("policy_loss", {"actor"}),
        ("value_loss", {"critic"}),
        ("replay_value_loss", {"critic"}),
    ],
)
def test_who_learns_from_which_loss(loss: str, expected: set[str]) -> None:
    """The last layers of reward and critic start at 0, so nothing below them learns from them at first."""
    assert reached(small(**FREE), loss) == expected


@pytest.mark.parametrize(
    ("loss", "expected"),
    [("reward_loss", SEEING | {"reward"}), ("value_loss", {"critic"}), ("replay_value_loss", SEEING | {"critic"})],
)
def test_who_learns_once_the_heads_are_not_zero(loss: str, expected: set[str]) -> None:
    dreamer = small(**FREE)
    with torch.no_grad():
        for head in (dreamer.model.reward, dreamer.critic):
            head.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    assert reached(dreamer, loss) == expected


def test_the_prior_is_pulled_only_by_earlier_latents() -> None:
    """With one step the divergence that moves the prior reaches no observation: posterior and tokens are constants."""
    assert reached(small(**FREE), "dynamics_loss", length=1) == {"core", "prior"}


def test_below_the_free_nats_the_divergence_teaches_nothing() -> None:
    dreamer = small(free_nats=1000.0)
    assert reached(dreamer, "dynamics_loss") == set()
    assert reached(dreamer, "representation_loss") == set()


@pytest.mark.parametrize("action", [box(2), DiscreteSpec(3)])
def test_gradients_through_the_dynamics_reach_the_actor_alone(action: SpaceSpec) -> None:
    """V1's actor: the returns themselves are differentiated, with model and critic as constants."""
    dreamer = small(action=action, actor_gradient="dynamics", ent_coef=0.0)
    with torch.no_grad():
        dreamer.model.reward.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    assert reached(dreamer, "policy_loss") == {"actor"}
    assert all(parameter.requires_grad for parameter in dreamer.networks.parameters())
    assert reached(dreamer, "value_loss") == {"critic"}


def test_the_gradient_through_the_dynamics_is_that_of_finite_differences() -> None:
    """d(policy loss) / d(bias of the actor) for continuous actions, everything in float64 and all noise repeated.

    The latents are Gaussian: samples of categoricals jump, and their straight-through gradient is no derivative.
    Weights of steps count as constants, so discounts are constant here; so do bounds of actions, so these stay within.
    """
    dreamer = gaussian_actor()
    bias, valid = dreamer.actor.output.bias, torch.ones(4, dtype=torch.float64)
    rng = np.random.default_rng(1)
    state = {
        name: torch.from_numpy(rng.standard_normal(value.shape))
        for name, value in dreamer.model.dynamics.initial(4).items()
    }

    def loss(change: float) -> Any:
        dreamer.rng = np.random.default_rng(5)
        with torch.no_grad():
            bias[0] += change
        value = dreamer.behaviour_losses(dreamer.imagine(state), valid)[0]["policy_loss"]
        with torch.no_grad():
            bias[0] -= change
        return value

    (slope,) = torch.autograd.grad(loss(0.0), [bias])
    step = 1e-5
    numerical = (loss(step) - loss(-step)).item() / (2 * step)
    assert abs(numerical) > 1e-3
    assert slope[0].item() == pytest.approx(numerical, rel=1e-5)


def gaussian_actor() -> Dreamer:
    dreamer = small(
        action=box(1),
        actor_gradient="dynamics",
        ent_coef=0.0,
        return_scale="none",
        dynamics=DynamicsConfig(kwargs={"latent": "gaussian"}),
    )
    dreamer.networks.double()
    dreamer.slow_critic.double()
    with torch.no_grad():
        for head in (dreamer.model.reward, dreamer.critic):
            head.output.weight.normal_(0.0, 0.03, generator=torch.Generator().manual_seed(0))
        dreamer.model.goes_on.output.weight.zero_()
        dreamer.actor.output.bias[1] = -20.0
    return dreamer


# -- acting and resets ------------------------------------------------------------------------------------------------


def test_at_the_start_of_an_episode_carry_and_previous_action_do_not_matter() -> None:
    dreamer = small(action=box(2))
    policy, rng = dreamer.policy, np.random.default_rng(0)
    obs = rng.standard_normal((2, 3)).astype(np.float32)
    blank = policy.initial_carry(2)
    used = {
        "deter": rng.standard_normal(blank["deter"].shape).astype(np.float32),
        "stoch": rng.integers(0, 3, blank["stoch"].shape).astype(np.uint8),
        "action": rng.standard_normal(blank["action"].shape).astype(np.float32),
    }
    starts = np.ones(2, bool)
    results = [policy.act(obs, carry, starts, np.random.default_rng(1)) for carry in (blank, used)]
    assert np.array_equal(results[0].actions, results[1].actions)
    assert all(np.array_equal(results[0].carry[name], results[1].carry[name]) for name in blank)
    goes_on = policy.act(obs, used, ~starts, np.random.default_rng(1))
    assert not np.array_equal(goes_on.carry["deter"], results[0].carry["deter"])
    still = policy.act(obs, {**used, "action": blank["action"]}, ~starts, np.random.default_rng(1))
    assert not np.array_equal(still.carry["deter"], goes_on.carry["deter"]), "the previous action is part of the carry"


def test_replayed_states_are_those_of_acting() -> None:
    """Acting for some steps and observing the stored rows with the same noise give the same states: reward, action and
    reset belong to the steps that the model sees."""
    dreamer = small()
    policy, rng = dreamer.policy, np.random.default_rng(0)
    carry, obs = policy.initial_carry(1), rng.standard_normal((T + 1, 1, 3)).astype(np.float32)
    acted, actions = [], []
    for t in range(T):
        result = policy.act(obs[t], carry, np.array([t == 0]), rng, deterministic=True)
        carry = result.carry
        acted.append(carry["deter"])
        actions.append(result.actions)
    batch = {
        "obs": obs[:-1].swapaxes(0, 1),
        "next_obs": obs[1:].swapaxes(0, 1),
        "actions": np.stack(actions, 1),
        "rewards": np.zeros((1, T), np.float32),
        "terminated": np.zeros((1, T), bool),
        "truncated": np.zeros((1, T), bool),
        "is_first": np.arange(T)[None] == 0,
        "valid": np.ones((1, T), bool),
        "carry": {name: value for name, value in policy.initial_carry(1).items() if name != "action"},
    }
    with torch.no_grad():
        seen = dreamer.model.observe(dreamer.prepare(batch), None)
    np.testing.assert_allclose(seen.states["deter"].numpy(), np.stack(acted), atol=1e-6)


def test_a_window_goes_on_from_its_stored_state() -> None:
    """Windows that start inside an episode, with the state stored at their first row, give the states of the whole."""
    dreamer = small()
    batch = rows(dreamer, 6)
    with torch.no_grad():
        whole = dreamer.model.observe(dreamer.prepare(batch), None).states
        stored = dreamer.model.dynamics.stored({name: value[3] for name, value in whole.items()})
        # sequence 2 has no start: arrival 3 is at the next observation of row 3, which is row 4's own
        tail = {name: value[:, 4:] for name, value in batch.items() if name != "carry"}
        tail["carry"] = {name: value.numpy() for name, value in stored.items()}
        later = dreamer.model.observe(dreamer.prepare(tail), None).states
    np.testing.assert_allclose(later["deter"][:, 2].numpy(), whole["deter"][4:, 2].numpy(), atol=1e-6)


def test_continuous_actions_are_stored_as_drawn_and_sent_within_bounds() -> None:
    dreamer = small(action=box(2, bound=3.0))
    obs = np.zeros((500, 3), np.float32)
    result = dreamer.policy.act(obs, dreamer.policy.initial_carry(500), np.ones(500, bool), np.random.default_rng(0))
    assert np.abs(result.actions).max() > 1.0
    np.testing.assert_allclose(result.env_actions, 3.0 * np.clip(result.actions, -1.0, 1.0), atol=1e-6)
    assert np.array_equal(result.carry["action"], result.actions)


# -- observations and options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"action": box(2)},
        {"observation": IMAGE},
        {"context": "zero"},
        {"value_target": "slow", "return_scale": "none"},
        {"imagine_last": 2},
        {"sequence_length": 1},
    ],
)
def test_every_kind_learns_with_finite_numbers(given: dict[str, Any]) -> None:
    dreamer = small(**given)
    before = dreamer.parameters.values.clone()
    batch = rows(dreamer, dreamer.length)
    for _ in range(3):
        metrics = dreamer.update(batch).metrics
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert not torch.equal(before, dreamer.parameters.values)


def test_dynamics_without_a_belief_have_no_losses_of_one() -> None:
    """Constants at the free nats would stand in the log and in the total, as if there were a divergence."""
    dreamer = small(dynamics=DynamicsConfig("deterministic"))
    metrics = dreamer.update(rows(dreamer)).metrics
    assert not {"dynamics_loss", "representation_loss"} & metrics.keys()
    parts = ("reconstruction", "reward", "continue", "open_loop", "policy", "value", "replay_value")
    assert float(metrics["loss"]) == pytest.approx(sum(float(metrics[f"{name}_loss"]) for name in parts), rel=1e-5)


def test_mixed_observations() -> None:
    space = DictSpec({"camera": IMAGE, "speed": box(2), "room": DiscreteSpec(4)})
    dreamer = small(space)
    rng = np.random.default_rng(0)

    def obs(*shape: int) -> dict[str, Any]:
        return {
            "camera": rng.integers(0, 256, (*shape, 16, 16, 1), dtype=np.uint8),
            "speed": rng.standard_normal((*shape, 2)).astype(np.float32),
            "room": rng.integers(0, 4, shape),
        }

    batch = {**rows(small()), "obs": obs(B, T), "next_obs": obs(B, T)}
    assert np.isfinite(float(dreamer.update(batch).metrics["loss"]))
    policy = dreamer.policy
    result = policy.act(obs(2), policy.initial_carry(2), np.ones(2, bool), rng)
    assert result.actions.shape == (2,)
    assert set(dreamer.model.decoder(torch.zeros(1, dreamer.model.dynamics.features))) == {"camera", "speed", "room"}


def test_a_model_learns_to_predict_a_fixed_batch() -> None:
    """Reconstruction, reward and continue losses of one batch that is learnt by heart."""
    dreamer = small(learning_rate=3e-3, warmup_updates=0)
    batch = rows(dreamer)
    first = dreamer.update(batch).metrics
    for _ in range(150):
        last = dreamer.update(batch).metrics
    for name in ("reconstruction_loss", "reward_loss", "continue_loss"):
        assert float(last[name]) < 0.5 * float(first[name]), name


def test_the_learning_rate_follows_its_schedule() -> None:
    """The step is proportional to the rate: half of it in the middle of a linear schedule to 0, none at the end."""

    def step(progress: float) -> torch.Tensor:
        dreamer = small(learning_rate=Schedule("linear", 1e-3, 0.0), warmup_updates=0)
        dreamer.ctx.progress.env_steps = round(progress * dreamer.ctx.total_timesteps)
        before = dreamer.parameters.values.clone()
        dreamer.update(rows(dreamer))
        return dreamer.parameters.values - before

    assert float(step(0.0).abs().max()) > 1e-4
    torch.testing.assert_close(step(0.5), 0.5 * step(0.0), rtol=1e-3, atol=1e-7)
    assert not step(1.0).any()


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    odd = BoxSpec(np.zeros((30, 30, 1), np.uint8), np.full((30, 30, 1), 255, np.uint8), np.dtype(np.uint8))
    with pytest.raises(ConfigError, match="multiples of 16, not 30x30"):
        small(odd)
    with pytest.raises(ConfigError, match=r"leave env\.normalize_obs out"):
        Dreamer(BuildContext(box(3), box(1), normalize_obs=True), DreamerConfig(size="mini"))
    with pytest.raises(ConfigError, match="belong together"):
        DreamerConfig(size="custom")
    with pytest.raises(ConfigError, match="imagine_last 99 is more than the sequence_length of 64"):
        DreamerConfig(imagine_last=99)
    assert "Box actions" in str(supports_world_model(box(3), MultiDiscreteSpec((2, 2))))
    mask = DictSpec({"obs": box(3), "action_mask": box(2)})
    assert "mask" in str(supports_world_model(mask, DiscreteSpec(2)))
