"""Open-loop predictions: what the model sees, what it is asked, and their errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dreamer_cases import IMAGE, box, rows, small

from rl_training.algorithms.world_models.dreams import foresee, open_loop_errors
from rl_training.numerics.symlog import symexp
from rl_training.types import ConfigError, DictSpec


def test_after_the_context_the_model_sees_nothing() -> None:
    """Other observations behind the context change nothing, other actions do; within the context both matter."""
    dreamer = small(action=box(1))
    batch = rows(dreamer, 6)
    batch["is_first"][:], batch["terminated"][:] = False, False

    def features(**changed: object) -> np.ndarray:
        steps = dreamer.prepare({**batch, **changed})
        return foresee(dreamer.model, steps, 3, np.random.default_rng(0)).numpy()

    base, late = features(), batch["next_obs"].copy()
    late[:, 3:] += 1.0
    assert np.array_equal(base, features(next_obs=late))
    early = batch["next_obs"].copy()
    early[:, :3] *= -30.0
    assert not np.array_equal(base[:3], features(next_obs=early)[:3])
    actions = batch["actions"].copy()
    actions[:, 4] += 1.0
    changed = features(actions=actions)
    assert np.array_equal(base[:4], changed[:4])
    assert not np.array_equal(base[4], changed[4])


def test_errors_are_those_of_the_decoder_and_end_with_the_episode() -> None:
    dreamer = small()
    batch = rows(dreamer, 8)
    batch["is_first"][:], batch["terminated"][:] = False, False
    batch["is_first"][1, 4] = True
    steps = dreamer.prepare(batch)
    found = open_loop_errors(dreamer.model, steps, 3, np.random.default_rng(0), (1, 2, 5, 6))
    assert set(found) == {1, 2, 5}, "step 6 would be behind the end of the sequences"
    features = foresee(dreamer.model, steps, 3, np.random.default_rng(0))
    with torch.no_grad():
        predicted = dreamer.model.decoder(features[7])["obs"].numpy()
    target = dreamer.model.decoder.targets(steps.obs[7])["obs"].numpy()  # type: ignore[index]
    unbroken = [0, 2]
    assert found[5] == pytest.approx(np.sqrt(np.square(predicted - target)[unbroken].mean()), rel=1e-5)


def test_a_dream_is_in_the_units_of_the_environment() -> None:
    space = DictSpec({"camera": IMAGE, "speed": box(2)})
    dreamer = small(space, action=box(1, 2.0))
    rng = np.random.default_rng(0)
    obs = {
        "camera": rng.integers(0, 256, (4, 16, 16, 1), dtype=np.uint8),
        "speed": (100 * rng.standard_normal((4, 2))).astype(np.float32),
    }
    actions = rng.uniform(-2, 2, (6, 1)).astype(np.float32)
    found = dreamer.policy.dream(obs, actions, rng, samples=3, context=2)
    assert found.context == 2
    assert found.images == ("camera",)
    assert found.predicted["camera"].shape == (3, 7, 16, 16, 1)
    assert found.predicted["speed"].shape == (3, 7, 2)
    assert found.rewards.shape == found.continues.shape == (3, 7)
    np.testing.assert_allclose(found.true["speed"], obs["speed"], rtol=1e-4)
    np.testing.assert_allclose(found.true["camera"], obs["camera"] / 255, atol=1e-6)
    with torch.no_grad():
        carry = dreamer.policy.initial_carry(1)
        first = {name: value[:1] for name, value in obs.items()}
        state, _ = dreamer.policy.decide(first, carry, np.ones(1, bool), None)
    assert state["deter"].shape == (1, 16)
    with pytest.raises(ConfigError, match="4 observations have 3 actions between them, but there are 2"):
        dreamer.policy.dream(obs, actions[:2], rng)


def test_reconstructions_of_the_context_do_not_depend_on_what_follows() -> None:
    dreamer = small()
    obs = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    short = dreamer.policy.dream(obs, np.array([0, 1]), np.random.default_rng(1), samples=2)
    long = dreamer.policy.dream(obs, np.array([0, 1, 1, 0]), np.random.default_rng(1), samples=2)
    np.testing.assert_allclose(short.predicted["obs"], long.predicted["obs"][:, :3], rtol=1e-5)
    assert np.isfinite(symexp(long.predicted["obs"])).all()
    steps = dreamer.prepare(rows(dreamer))
    assert len(steps.part(slice(2)).rewards) == 2
