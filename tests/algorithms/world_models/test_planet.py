"""PlaNet: what the search sees of the model, what it finds, and what it plays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dreamer_cases import SMALL, B, T, box, rows

from rl_training.algorithms.world_models.planet import PlaNet, predicted_return
from rl_training.build_context import BuildContext
from rl_training.dynamics.latents import Categorical, Gaussian
from rl_training.dynamics.rssm import RSSM
from rl_training.hparams.planet import SPEC, PlaNetConfig
from rl_training.hparams.world_models import SIZES, DynamicsConfig
from rl_training.seeding import Streams
from rl_training.types import ConfigError, DiscreteSpec


def small(**given: Any) -> PlaNet:
    hp: dict[str, Any] = {
        "batch_size": B,
        "sequence_length": T,
        "custom": SMALL,
        "candidates": 60,
        "elites": 6,
        **given,
    }
    return PlaNet(BuildContext(box(3), box(2, 3.0), streams=Streams(0)), PlaNetConfig(**hp))


def test_another_size_takes_the_place_of_the_default_widths() -> None:
    assert PlaNetConfig().widths.deter == 200
    assert PlaNetConfig(size="mini").custom is None
    assert PlaNetConfig(size="mini").widths == SIZES["mini"]
    with pytest.raises(ConfigError, match="belong together"):
        PlaNetConfig(size="mini", custom=SIZES["tiny"])


def test_a_plan_is_scored_by_the_sum_of_its_rewards_while_the_episode_goes_on() -> None:
    planet = small(dynamics=DynamicsConfig("deterministic"))
    model, rng = planet.model, np.random.default_rng(0)
    with torch.no_grad():
        model.reward.output.weight.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(0))
        model.goes_on.output.weight.normal_(generator=torch.Generator().manual_seed(1))
        state = {"deter": torch.from_numpy(rng.standard_normal((4, 16)).astype(np.float32))}
        actions = torch.from_numpy(rng.uniform(-1, 1, (3, 4, 2)).astype(np.float32))
        found = predicted_return(model, state, actions, None)
        total, alive = torch.zeros(4), torch.ones(4)
        for action in actions:
            state = model.dynamics.predict(state, action)
            features = model.dynamics.read(state)
            total += alive * model.rewards(features)
            alive = alive * model.continues(features)
    np.testing.assert_allclose(found, total, rtol=1e-5)


def test_the_search_finds_the_actions_that_the_model_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that rewards a first action near (0.3, -0.7): that is what is played, scaled to the bounds."""
    planet = small(iterations=8)

    def rewarded(model: Any, state: Any, actions: Any, noise: Any) -> Any:
        return -((actions[0] - torch.tensor([0.3, -0.7])) ** 2).sum(1)

    monkeypatch.setattr("rl_training.algorithms.world_models.planet.predicted_return", rewarded)
    policy = planet.policy
    obs = np.zeros((5, 3), np.float32)
    result = policy.act(obs, policy.initial_carry(5), np.ones(5, bool), np.random.default_rng(0), deterministic=True)
    np.testing.assert_allclose(result.actions, np.broadcast_to([0.3, -0.7], (5, 2)), atol=0.02)
    np.testing.assert_allclose(result.env_actions, 3.0 * result.actions, atol=1e-6)
    noisy = policy.act(np.zeros((300, 3), np.float32), policy.initial_carry(300), np.ones(300, bool),
                       np.random.default_rng(1))  # fmt: skip
    assert noisy.actions[:, 0].std() == pytest.approx(0.3, abs=0.06)
    assert np.abs(noisy.actions).max() <= 1.0
    assert np.array_equal(noisy.carry["action"], noisy.actions), "told what was played, not what was planned"


def test_candidates_are_told_apart_by_their_actions_not_by_their_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal actions from equal states have equal scores, whatever the latents are drawn from; different decisions
    draw their own. A greedy search draws none."""
    planet = small()
    seen: list[Any] = []

    def recorded(model: Any, state: Any, actions: Any, noise: Any) -> Any:
        seen.append(noise)
        return predicted_return(model, state, actions, noise)

    monkeypatch.setattr("rl_training.algorithms.world_models.planet.predicted_return", recorded)
    torch.nn.init.normal_(planet.model.reward.output.weight, 0.0, 0.1, generator=torch.Generator().manual_seed(0))
    policy, obs, starts = planet.policy, np.zeros((2, 3), np.float32), np.ones(2, bool)
    for greedy in (False, True):
        policy.act(obs, policy.initial_carry(2), starts, np.random.default_rng(0), deterministic=greedy)
    drawn = [None if noise is None else noise.unflatten(1, (2, 60)) for noise in seen]
    assert all(torch.equal(noise, noise[:, :, :1].expand_as(noise)) for noise in drawn if noise is not None)
    assert [noise is None for noise in drawn] == [False] * 10 + [True] * 10
    assert not torch.equal(drawn[0][:, 0], drawn[0][:, 1])
    with torch.no_grad():
        scores = policy.scores(
            planet.model.dynamics.initial(2),
            np.zeros((2, 7, 12, 2), np.float32),
            np.random.default_rng(1).random((12, 2, planet.model.dynamics.noise_size), np.float32),
        )
    np.testing.assert_allclose(scores, np.broadcast_to(scores[:, :1], scores.shape), rtol=1e-5)


def test_greedy_actions_depend_on_the_state_alone() -> None:
    """Neither on the generator nor on what else is decided at the same time."""
    policy = small().policy
    obs = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    together = policy.act(obs, policy.initial_carry(3), np.ones(3, bool), np.random.default_rng(1), deterministic=True)
    for i in range(3):
        alone = policy.act(
            obs[i : i + 1], policy.initial_carry(1), np.ones(1, bool), np.random.default_rng(2), deterministic=True
        )
        np.testing.assert_allclose(alone.actions[0], together.actions[i], atol=1e-4)


def test_before_learning_starts_actions_are_uniform_and_states_are_followed() -> None:
    planet = small()
    obs = np.ones((400, 3), np.float32)
    result = planet.warmup.act(obs, planet.warmup.initial_carry(400), np.ones(400, bool), np.random.default_rng(0))
    assert np.abs(np.mean(result.actions)) < 0.1
    assert result.actions.std() == pytest.approx(1 / np.sqrt(3), abs=0.03)
    assert result.carry["stoch"].any()


@pytest.mark.parametrize("kind", ["rssm", "stochastic", "deterministic"])
def test_the_model_learns_a_batch_by_heart_with_every_kind_of_dynamics(kind: str) -> None:
    planet = small(dynamics=DynamicsConfig(kind), learning_rate=3e-3, warmup_updates=0)
    batch = rows(planet)  # type: ignore[arg-type]
    first = planet.update(batch).metrics
    for _ in range(100):
        last = planet.update(batch).metrics
    names = {"reconstruction_loss", "reward_loss"} | ({"open_loop_loss"} & set(first))
    assert ("open_loop_loss" in first) is (kind == "deterministic")
    for name in names:
        assert float(last[name]) < 0.7 * float(first[name]), name


def test_latents_stay_gaussian_whatever_else_is_said_about_the_dynamics() -> None:
    """The sizes of the paper have one class, with which categorical latents could not tell anything."""
    for given in (DynamicsConfig(), DynamicsConfig("rssm"), DynamicsConfig(kwargs={"hidden": 9})):
        dynamics = small(dynamics=given).model.dynamics
        assert isinstance(dynamics, RSSM)
        assert isinstance(dynamics.latent, Gaussian)
    asked = small(dynamics=DynamicsConfig(kwargs={"latent": "categorical"})).model.dynamics
    assert isinstance(asked, RSSM)
    assert isinstance(asked.latent, Categorical)


def test_what_does_not_fit_is_refused() -> None:
    assert "Box actions" in str(SPEC.supports(box(3), DiscreteSpec(2)))
    with pytest.raises(ConfigError, match="elites 7 are more than the 5 candidates"):
        PlaNetConfig(candidates=5, elites=7)
    with pytest.raises(ConfigError, match=r"did you mean 'rssm'"):
        small(dynamics=DynamicsConfig("rsm"))
