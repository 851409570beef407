"""Observations for critics only in JAX: no bit of an action depends on them, critics learn from them in both lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rl_training
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.hparams import dqn, ppo, pqn, reinforce, sac, td3
from rl_training.jax.host import build_agent
from rl_training.seeding import Streams
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

NUMBER = BoxSpec(np.float32([-1.0]), np.float32([1.0]), np.dtype("f"))
SPACE = DictSpec({"obs": NUMBER, "cue": NUMBER})
CASES: dict[str, Any] = {
    "ppo": (ppo, DiscreteSpec(3), "none"),
    "ppo with gru": (ppo, DiscreteSpec(3), "gru"),
    "reinforce with lstm": (reinforce, DiscreteSpec(3), "lstm"),
    "sac": (sac, NUMBER, "none"),
    "td3": (td3, NUMBER, "none"),
}


def agent(module: Any, action_space: Any, memory: str = "none", critic_only: tuple[str, ...] = ("cue",)) -> Any:
    part = BackboneConfig(hidden_dims=(8,), memory=MemoryConfig(memory, size=8))
    network = NetworkConfig(part, part, critic_only=critic_only)
    ctx = BuildContext(SPACE, action_space, 4, network=network, streams=Streams(1), normalize_obs=True)
    return build_agent(ctx, module.SPEC, module.SPEC.hparams())


def actions(policy: Any, cues: Any, deterministic: bool) -> np.ndarray:
    rng, obs_rng, taken = np.random.default_rng(3), np.random.default_rng(4), []
    carry = policy.initial_carry(4)
    for step, cue in enumerate(cues):
        obs = {"obs": obs_rng.standard_normal((4, 1)).astype("f"), "cue": np.full((4, 1), cue, "f")}
        result = policy.act(obs, carry, np.full(4, step == 0), rng, deterministic=deterministic)
        carry = result.carry
        taken.append(np.asarray(result.extras.get("outputs", result.actions)))
    return np.stack(taken)


@pytest.mark.parametrize("case", CASES)
def test_no_bit_of_an_action_depends_on_what_only_critics_see(case: str) -> None:
    policy = agent(*CASES[case]).policy
    for greedy in (True, False):
        assert actions(policy, (1, 1), greedy).tobytes() == actions(policy, (-7, 3), greedy).tobytes()
    open_eyed = agent(*CASES[case], critic_only=()).policy
    assert actions(open_eyed, (1, 1), True).tobytes() != actions(open_eyed, (-7, 3), True).tobytes()


@pytest.mark.parametrize("lane", ["host", "compiled"])
def test_a_critic_that_sees_the_cue_explains_the_returns_and_the_actor_stays_at_chance(
    lane: str, tmp_path: Any
) -> None:
    """Four fifths of the variance of returns is the cue; the rest is whether the actor happens to match."""
    part = {"hidden_dims": [16]}
    given = {
        "algo": "ppo",
        "env_id": "RLProbe/HiddenCue-v0",
        "backend": "jax",
        "lane": lane,
        "output_dir": str(tmp_path),
        "env": {"num_envs": 16},
        "hparams": {"num_steps": 16, "learning_rate": 1e-2, "ent_coef": 0.1},
        "network": {"actor": part, "critic": part, "critic_only": ["cue"]},
        "training": {"total_timesteps": 8192, "num_eval_episodes": 2},
    }
    result = rl_training.train(parse_config(given))
    assert result.metrics["train/explained_variance"] > 0.6
    policy = rl_training.load(result.run_dir)
    rows = {"obs": np.zeros((2, 1), "f"), "cue": np.array([[-1.0], [1.0]], "f")}
    first, second = policy.predict(rows)
    assert first == second
    exported = policy.export("numpy")
    chosen, _ = exported.step(rows, exported.initial_carry(2), np.ones(2, bool))
    np.testing.assert_array_equal(chosen, [first, second])


@pytest.mark.parametrize("module", [dqn, pqn])
def test_algorithms_that_act_with_their_critic_refuse(module: Any) -> None:
    with pytest.raises(ConfigError, match="acts with the network that values the actions"):
        agent(module, DiscreteSpec(3))
