"""Environments of several agents in JAX step as their twins do, and their rows are the rows of the host."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.lanes import lane_of
from rl_training.assembly.multi_agent.compiled import joint_of
from rl_training.config.loading import parse_config
from rl_training.config.schema import EnvConfig
from rl_training.envs import make_env, space_spec
from rl_training.jax.envs import TEAM_TWINS, make_team
from rl_training.jax.envs.simple_spread import SimpleSpread, World
from rl_training.jax.envs.teams import AgentRows
from rl_training.numerics.agents import row_obs, row_space
from rl_training.types import ConfigError

SPREAD = "mpe2/simple_spread_v3"


def world_of(env: Any) -> World:
    """The state of an mpe2 environment, for one environment."""
    world = env.unwrapped.env.env.world
    parts = [
        [agent.state.p_pos for agent in world.agents],
        [agent.state.p_vel for agent in world.agents],
        [landmark.state.p_pos for landmark in world.landmarks],
    ]
    return World(*(jnp.asarray(np.array(part)[None], jnp.float32) for part in parts))


def seen_after(env: Any, state: Any, actions: Any) -> tuple[Any, ...]:
    """One step, with what the agents and their critics see then."""
    state, *results = env.step(state, actions, jax.random.key(0))
    return state, *results, env.obs(state), env.critic_state(state)


@pytest.mark.parametrize("kwargs", [{}, {"N": 4, "local_ratio": 0.25, "continuous_actions": True, "max_cycles": 10}])
def test_simple_spread_steps_as_mpe2_does(kwargs: dict[str, Any]) -> None:
    """Twenty episodes, in which agents collide: observations, rewards and ends, in float32."""
    env: Any = make_env(SPREAD, EnvConfig(kwargs=kwargs))
    twin = make_team(SPREAD, kwargs)
    advance = jax.jit(lambda state, actions: seen_after(twin, state, actions))
    rng, touched = np.random.default_rng(0), 0
    for seed in range(20):
        env.reset(seed=seed)
        state = twin.init(jax.random.key(0), 1)._replace(inner=world_of(env))
        ended, steps = False, 0
        while not ended:
            count = len(twin.agents)
            actions = rng.random((count, 5)) if kwargs else rng.integers(5, size=count)
            obs, _, terminated, truncated, _ = env.step(actions.reshape(-1).astype(np.float64))
            taken = jnp.asarray(actions, jnp.float32 if kwargs else jnp.int32)[None]
            state, rewards, *ends, seen, shared = advance(state, taken)
            np.testing.assert_allclose(seen[0], obs["agents/obs"], atol=1e-4)
            np.testing.assert_allclose(rewards[0], obs["agents:reward"], atol=1e-4)
            np.testing.assert_allclose(shared[0], obs["critic_state"], atol=1e-4)
            assert [bool(flag[0]) for flag in ends] == [terminated, truncated]
            ended, steps = terminated or truncated, steps + 1
            touched += int(np.ptp(obs["agents:reward"]) > 0.0)
        assert steps == kwargs.get("max_cycles", 25)
    assert touched > 5, "agents collide in some of the steps"


def test_agents_at_one_place_stay_finite() -> None:
    twin = SimpleSpread()
    state = World(jnp.zeros((1, 3, 2)), jnp.zeros((1, 3, 2)), jnp.ones((1, 3, 2)))
    after, rewards, *_ = jax.jit(twin.step)(state, jnp.zeros((1, 3), jnp.int32), jax.random.key(0))
    assert np.isfinite(after.velocities).all()
    assert np.isfinite(rewards).all()


def test_first_places_are_uniform() -> None:
    state = jax.jit(SimpleSpread().init, static_argnums=1)(jax.random.key(1), 4000)
    for places in (state.positions, state.landmarks):
        np.testing.assert_allclose(np.asarray(places).mean((0, 1)), 0.0, atol=0.05)
        np.testing.assert_allclose(np.asarray(places).std((0, 1)), 3**-0.5, atol=0.02)
    assert not np.asarray(state.velocities).any()


def test_the_two_step_game_is_that_of_the_host() -> None:
    host: Any = make_env("RLTeam/TwoStepGame-v0")
    twin = make_team("RLTeam/TwoStepGame-v0")
    advance = jax.jit(lambda state, actions: seen_after(twin, state, actions))
    for moves in itertools.product(range(2), repeat=4):
        host.reset(seed=0)
        state = twin.init(jax.random.key(0), 1)
        for actions in (moves[:2], moves[2:]):
            obs, _, terminated, truncated, _ = host.step(np.array(actions, np.float64))
            state, rewards, *ends, seen, shared = advance(state, jnp.asarray([actions]))
            np.testing.assert_array_equal(rewards[0], obs["agents:reward"])
            assert [bool(flag[0]) for flag in ends] == [terminated, truncated]
            if not terminated:
                np.testing.assert_array_equal(seen[0], obs["agents/obs"])
                np.testing.assert_array_equal(shared[0], obs["critic_state"])


@pytest.mark.parametrize("env_id", TEAM_TWINS)
@pytest.mark.parametrize("state", ["auto", "concat", "none"])
def test_the_joint_observation_is_that_of_the_host(env_id: str, state: Any) -> None:
    cfg = parse_config({"algo": "ippo", "env_id": env_id, "env": {"agents": {"state": state}}})
    expected = space_spec(make_env(env_id, cfg.env).observation_space)
    assert joint_of(cfg, make_team(env_id)) == expected


@pytest.mark.parametrize(("ids", "state"), [(True, "env"), (True, "concat"), (False, "none")])
def test_rows_are_those_of_the_host(ids: bool, state: Any) -> None:
    """Row n * A + a is agent a of environment n, with its number and the state of its environment."""
    twin = make_team(SPREAD)
    cfg = parse_config({"algo": "ippo", "env_id": SPREAD, "env": {"agents": {"state": state}}})
    joint, shown = joint_of(cfg, twin), state != "none"
    rows = AgentRows(twin, row_space(joint, "agents", ids=ids, state=shown), ids=ids, state=state)
    actions = np.array([0, 1, 2, 3, 4, 0])

    @jax.jit
    def both(key: Any) -> tuple[Any, Any]:
        begin = rows.init(key, 6)
        return (
            (*rows.step(begin, jnp.asarray(actions), key), rows.obs(begin)),
            (*twin.step(begin, jnp.asarray(actions.reshape(2, 3)), key), twin.obs(begin), twin.critic_state(begin)),
        )

    (after, rewards, terminated, truncated, seen), (*other, all_obs, shared) = both(jax.random.key(3))
    host = {"agents/obs": np.asarray(all_obs), "agents:alive": np.ones((2, 3)), "critic_state": np.asarray(shared)}
    expected = row_obs(joint, "agents", host, 1, ids=ids, state=shown)
    jax.tree.map(np.testing.assert_array_equal, seen, expected)
    jax.tree.map(np.testing.assert_array_equal, after, other[0])
    np.testing.assert_array_equal(rewards, np.asarray(other[1]).reshape(-1))
    assert terminated.shape == truncated.shape == (6,)


REFUSED = {
    "a twin has not every argument": ({"env": {"kwargs": {"curriculum": True}}}, r"env\.kwargs\.curriculum is not in"),
    "one policy": ({"env": {"agents": {"policies": "separate"}}}, "compiled programs have one policy"),
    "replay": ({"algo": "dqn"}, "'dqn' learns from replay"),
    "masks": ({"env": {"agents": {"masks": "info"}}}, r"env\.agents\.masks: info is for PettingZoo"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_compiled_runs_on_the_host_or_is_refused(case: str) -> None:
    given, message = REFUSED[case]
    cfg = parse_config({"algo": "ippo", "env_id": SPREAD, "backend": "jax", **given})
    assert lane_of(cfg) == "host"
    with pytest.raises(ConfigError, match=message):
        lane_of(replace(cfg, lane="compiled"))


def test_a_team_with_one_policy_is_compiled() -> None:
    cfg = parse_config({"algo": "ippo", "env_id": SPREAD, "backend": "jax", "env": {"kwargs": {"N": 4}}})
    assert lane_of(cfg) == "compiled"
