"""Value normalisation changes the units of a critic, not its values; a centralised critic fits what others cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms.multi_agent.ippo import rescale
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.types import ConfigError


def config(algo: str, env_id: str, seed: int = 0, **hparams: Any) -> dict[str, Any]:
    return {
        "algo": algo,
        "env_id": env_id,
        "seed": seed,
        "env": {"num_envs": 32},
        "hparams": {"num_steps": 4, "learning_rate": 1e-2, **hparams},
        "network": {"actor": {"hidden_dims": [16]}, "critic": {"hidden_dims": [32, 32]}},
        "training": {"num_eval_episodes": 0, "total_timesteps": 10_000},
    }


def test_rescaling_keeps_every_value() -> None:
    layer, x = nn.Linear(4, 1), torch.randn(9, 4)
    before, after = (2.0, 3.0), (-1.0, 0.5)
    values = layer(x) * before[1] + before[0]
    rescale(layer, before, after)
    torch.testing.assert_close(layer(x) * after[1] + after[0], values)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_values_are_in_their_true_units(memory: str) -> None:
    """Advantages and returns of a rollout do not depend on the units that the critic works in."""
    cfg = config("ippo", "RLTeam/Leaving-v0", num_steps=8)
    cfg["network"]["critic"]["memory"] = memory
    trainer = build_trainer(parse_config(cfg))
    trainer.collector.collect(8, trainer.buffer)
    batch = trainer.algorithm.rows("agents", trainer.buffer.as_batch())
    algorithm = trainer.algorithm.members["agents"].algorithm
    first = algorithm.prepare(batch)
    mean, std = algorithm.policy.units
    raw = first.learnt()
    assert std > 0.3
    np.testing.assert_allclose(raw.returns.mean(), 0.0, atol=1e-5)
    again = algorithm.prepare(batch).learnt()  # the same rollout: statistics stay, values are those of the new units
    assert algorithm.policy.units == pytest.approx((mean, std))
    torch.testing.assert_close(raw.advantages, again.advantages, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(raw.values, again.values, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_critic_of_all_signs_fits_what_that_of_one_cannot(seed: int) -> None:
    """The value is 1 + sign * sign, and an agent sees one of the two: off by 1 at best, half the square is 0.5."""
    losses = {}
    for algo in ("ippo", "mappo"):
        with pinned_threads(1):
            trainer = build_trainer(parse_config(config(algo, "RLTeam/HiddenSigns-v0", seed, normalize_value=False)))
            while trainer.progress.env_steps < 6_000:
                metrics = trainer.train_step()
            trainer.close()
        losses[algo] = float(metrics["train/value_loss"])
        assert metrics["rollout/return_mean"] > 0.7, "both agents choose action 1; the signs have mean 0"
    assert losses["mappo"] < 1e-3
    assert losses["ippo"] > 0.4


SEEN = {
    "own": ["obs", "agent_id"],
    "state": ["agent_id", "critic_state"],
    "both": ["obs", "agent_id", "critic_state"],
}


@pytest.mark.parametrize("critic_input", SEEN)
def test_what_critics_see(critic_input: str) -> None:
    trainer = build_trainer(parse_config(config("ippo", "RLTeam/Leaving-v0", critic_input=critic_input)))
    network = trainer.algorithm.members["agents"].algorithm.network
    assert list(network.critic.leaves) == SEEN[critic_input]
    assert list(network.actor.leaves) == ["obs", "agent_id"]
    trainer.close()


def test_normalised_values_and_a_bonus_are_refused() -> None:
    with pytest.raises(ConfigError, match="normalize_value' scales one kind of return"):
        parse_config(config("ippo", "RLTeam/Leaving-v0", exploration={"type": "rnd"}))
