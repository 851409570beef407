"""Acting in NumPy gives what the torch modules give, also after an update moved the weights."""

from __future__ import annotations

import numpy as np
import pytest
from dreamer_cases import SMALL, box, rows, small

from rl_training.algorithms.world_models.latent_policy import LatentPolicy
from rl_training.types import DiscreteSpec, SpaceSpec


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("action", [DiscreteSpec(3), box(2)])
@pytest.mark.parametrize("deterministic", [False, True])
def test_equals_torch(action: SpaceSpec, blocks: int, deterministic: bool) -> None:
    from rl_training.hparams.world_models import DynamicsConfig

    dreamer = small(action=action, dynamics=DynamicsConfig(kwargs={"blocks": blocks}), learning_rate=1e-2)
    policy = dreamer.policy
    assert policy.in_numpy is not None
    for _ in range(3):
        dreamer.update(rows(dreamer))
    rng, carry = np.random.default_rng(0), policy.initial_carry(6)
    for t in range(6):
        obs = rng.standard_normal((6, 3)).astype(np.float32)
        is_first = rng.random(6) < (1.0 if t == 0 else 0.3)
        draws = [None if deterministic else np.random.default_rng(t) for _ in range(2)]
        ours, numbers = policy.decide(obs, carry, is_first, draws[0])
        theirs, expected = LatentPolicy.decide(policy, obs, carry, is_first, draws[1])
        np.testing.assert_allclose(ours["deter"], theirs["deter"], atol=1e-5)
        assert np.array_equal(ours["stoch"], theirs["stoch"])
        np.testing.assert_allclose(numbers, expected, atol=1e-5)
        assert all(ours[name].dtype == theirs[name].dtype for name in ours)
        assert numbers.dtype == np.float32
        carry = {**theirs, "action": expected}


def test_images_and_gaussian_latents_act_in_torch() -> None:
    from dreamer_cases import IMAGE

    from rl_training.hparams.world_models import DynamicsConfig

    assert small(IMAGE).policy.in_numpy is None
    assert small(dynamics=DynamicsConfig(kwargs={"latent": "gaussian"})).policy.in_numpy is None
    assert SMALL.deter == 16
