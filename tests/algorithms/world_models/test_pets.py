"""PETS: how plans are scored, what the search finds, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dreamer_cases import box
from torch import Tensor

from rl_training.algorithms.world_models.pets import PETS, PLAN, plan_returns
from rl_training.build_context import BuildContext
from rl_training.config.schema import NetworkConfig
from rl_training.dynamics.base import State
from rl_training.dynamics.ensemble import Draws, Ensemble, Scales
from rl_training.hparams.ensembles import EnsembleConfig
from rl_training.hparams.pets import SPEC, PETSConfig
from rl_training.seeding import Streams
from rl_training.types import Batch, BoxSpec, ConfigError, DictSpec, DiscreteSpec

GOAL = 0.6


class Sums(Ensemble):
    """Member m earns m + 1 times the first action, moves by it, and ends beyond 1.5."""

    def step(self, obs: Tensor, actions: Tensor, draws: Draws | None, scales: Scales | None = None) -> State:
        factors = torch.arange(1.0, self.members + 1)[:, None]
        moved = obs + actions[..., :1]
        ended = (moved[..., 0] > 1.5).to(torch.float32)
        return {"obs": moved, "reward": factors * actions[..., 0], "terminated": ended}


class Near(Ensemble):
    """Earns most where the action is `GOAL`."""

    def step(self, obs: Tensor, actions: Tensor, draws: Draws | None, scales: Scales | None = None) -> State:
        reward = -(actions[..., 0] - GOAL).square()
        return {"obs": obs, "reward": reward, "terminated": torch.zeros_like(reward)}


def pets(kind: type[Ensemble] | None = None, **given: Any) -> PETS:
    ensemble = EnsembleConfig(kwargs={"members": 2, "hidden": 8, "layers": 1})
    hp = {"candidates": 40, "elites": 4, "plan_horizon": 3, "dynamics": ensemble, **given}
    made = PETS(BuildContext(box(3), box(1, 2.0), streams=Streams(0)), PETSConfig(**hp))
    if kind is not None:
        made.model.__class__ = kind
    return made


def test_the_score_of_a_plan_is_the_mean_over_members_until_the_predicted_end() -> None:
    ensemble = Sums(1, 1, np.random.default_rng(0), members=3, hidden=4, layers=1)
    sequences = torch.tensor([[[[1.0], [1.0], [1.0]], [[0.5], [0.5], [0.25]]]])  # (1, 2, 3, 1)
    noise = torch.rand(3, 3, 1, 2, 3)
    found = plan_returns(ensemble, torch.zeros(1, 1), sequences, noise, gamma=0.5)
    # the mean factor is 2; the first sequence arrives at 2 > 1.5 with its second action and earns nothing after it
    np.testing.assert_allclose(found, [[2.0 * (1.0 + 0.5), 2.0 * (0.5 + 0.25 + 0.0625)]], rtol=1e-6)


def test_the_search_finds_the_action_that_the_model_rewards() -> None:
    policy = pets(Near, candidates=200, elites=20, iterations=6).policy
    first = np.ones(2, bool)
    result = policy.act(
        np.zeros((2, 3), np.float32), policy.initial_carry(2), first, np.random.default_rng(0), deterministic=True
    )
    np.testing.assert_allclose(result.actions, GOAL, atol=0.05)
    np.testing.assert_allclose(result.env_actions, 2.0 * GOAL, atol=0.1)
    np.testing.assert_allclose(result.carry[PLAN][:, :2, 0], GOAL, atol=0.1)
    np.testing.assert_array_equal(result.carry[PLAN][:, 2], 0.0)


def test_greedy_actions_depend_on_observation_and_plan_alone() -> None:
    policy, rng = pets().policy, np.random.default_rng(0)
    obs = rng.standard_normal((4, 3)).astype(np.float32)
    carry = {PLAN: rng.uniform(-1, 1, (4, 3, 1)).astype(np.float32)}
    none = np.zeros(4, bool)
    together = policy.act(obs, carry, none, rng, deterministic=True).actions
    for row in range(4):
        alone = policy.act(obs[row : row + 1], {PLAN: carry[PLAN][row : row + 1]}, none[:1], rng, deterministic=True)
        np.testing.assert_allclose(alone.actions[0], together[row], atol=1e-5)
    noisy = policy.act(obs, carry, none, np.random.default_rng(1)).actions
    assert not np.array_equal(noisy, together)


def test_a_new_episode_forgets_the_plan() -> None:
    policy, rng = pets().policy, np.random.default_rng(0)
    obs, planned = np.zeros((1, 3), np.float32), {PLAN: np.full((1, 3, 1), 0.9, np.float32)}
    fresh = policy.act(obs, policy.initial_carry(1), np.ones(1, bool), rng, deterministic=True).actions
    forgotten = policy.act(obs, planned, np.ones(1, bool), rng, deterministic=True).actions
    kept = policy.act(obs, planned, np.zeros(1, bool), rng, deterministic=True).actions
    np.testing.assert_array_equal(fresh, forgotten)
    assert not np.array_equal(kept, fresh)


def linear_batch(rows: int, seed: int) -> Batch:
    """Transitions of x' = x + 0.1 a, reward = -x_0, without an end."""
    rng = np.random.default_rng(seed)
    obs, actions = (rng.standard_normal((rows, size)).astype(np.float32) for size in (3, 1))
    return {
        "obs": obs,
        "actions": np.clip(actions, -1, 1),
        "rewards": -obs[:, 0],
        "next_obs": obs + 0.1 * np.clip(actions, -1, 1),
        "terminated": np.zeros(rows, bool),
    }


def test_the_ensemble_learns_a_linear_system() -> None:
    algorithm = pets(learning_rate=3e-3, dynamics=EnsembleConfig(kwargs={"members": 2, "hidden": 32, "layers": 2}))
    first = float(algorithm.update(linear_batch(128, 0)).metrics["model_error"])
    for update in range(1, 300):
        metrics = algorithm.update(linear_batch(128, update)).metrics
    assert first > 0.5
    assert float(metrics["model_error"]) < 0.02
    obs, actions = torch.zeros(2, 1, 3), torch.ones(2, 1, 1)
    after = algorithm.model.step(obs, actions, None)
    np.testing.assert_allclose(after["obs"].detach(), 0.1, atol=0.03)
    assert after["terminated"].max() == 0.0


def test_every_member_gets_a_batch_of_its_own() -> None:
    algorithm = pets(batch_size=16)
    assert algorithm.schedule.batch_size == 2 * 16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_step": 3}, "n_step must be 1"),
        ({"elites": 50}, "elites 50 are more than the 40 candidates"),
        ({"plan_horizon": 0}, "plan_horizon must be >= 1"),
        ({"dynamics": EnsembleConfig("rssm")}, "does not predict observed vectors; take ensemble"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pets(**given)


def test_spaces_that_do_not_fit_are_refused_in_words() -> None:
    image = BoxSpec(np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8), np.dtype(np.uint8))
    for space in (image, DictSpec({"a": box(2)}), DiscreteSpec(3)):
        assert "one vector of real numbers" in str(SPEC.supports(space, box(1)))
    assert "needs Box actions" in str(SPEC.supports(box(3), DiscreteSpec(2)))
    assert "finite action bounds" in str(SPEC.supports(box(3), box(1, np.inf)))
    assert SPEC.supports(box(3), box(1)) is None


@pytest.mark.parametrize("switch", ["normalize_obs", "normalize_reward"])
def test_normalisation_is_refused(switch: str) -> None:
    ctx = BuildContext(box(3), box(1), **{switch: True})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"env.{switch}: the ensemble standardises"):
        PETS(ctx, PETSConfig())


def test_a_network_section_is_refused() -> None:
    """There is no policy network that it could be about."""
    network = NetworkConfig(shared=True)
    with pytest.raises(ConfigError, match=r"network: there is no network but the ensemble.*leave the section"):
        PETS(BuildContext(box(3), box(1), network=network), PETSConfig())
