"""The content of a compiled rollout: true next observations at episode ends, and new noise at every step."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.ppo import SPEC, PPOConfig
from rl_training.jax.algorithms.on_policy import Learner
from rl_training.jax.envs.base import box
from rl_training.jax.host import build_agent
from rl_training.jax.training.driver import Loop, draws, iteration, make_driver, split_for
from rl_training.jax.training.timetable import Timetable, timetable
from rl_training.jax.types import JaxAlgorithm, Noise
from rl_training.seeding import Streams

T, N = 6, 2


class Counted(NamedTuple):
    steps: Any
    start: Any
    luck: Any


class Counting:
    """Observations: a count that begins anywhere in 0..1, and the luck of the last step. Episodes have three steps; the
    first environment terminates them, the second truncates them."""

    observation_space = box(-np.inf, np.inf, (2,))
    action_space = box(-np.inf, np.inf, (1,))
    max_episode_steps = None

    def init(self, key: Any, n: int) -> Counted:
        return Counted(jnp.zeros(n), jax.random.uniform(key, (n,)), jnp.zeros(n))

    def obs(self, state: Counted) -> Any:
        return jnp.stack([state.steps + state.start, state.luck], axis=1)

    def step(self, state: Counted, action: Any, key: Any) -> tuple[Counted, Any, Any, Any]:
        steps, first = state.steps + 1.0, jnp.arange(len(state.steps)) == 0
        after = Counted(steps, state.start, jax.random.normal(key, steps.shape))
        return after, steps, (steps >= 3.0) & first, (steps >= 3.0) & ~first


class State(NamedTuple):
    params: Any
    normalizer: Any
    hyper: Any
    seen: Any
    """The last rollout that was learnt from, and a random number of that learning."""


def learn(state: State, batch: Any, env_steps: Any, key: Any) -> tuple[State, Any]:
    seen = {name: batch[name] for name in ("obs", "next_obs", "actions")}
    return state._replace(seen={**seen, "learning": jax.random.uniform(key)}), {"loss": jnp.zeros(())}


WATCHING = JaxAlgorithm(
    rollout_length=T,
    replay=None,
    noise=Noise("normal", (1,)),
    init=lambda rng, hyper: None,
    policy=lambda state, env_steps: (),
    act=lambda policy, obs, carry, is_first, noise, deterministic: (noise, carry, {}),
    learn=learn,
    observe=lambda state, batch: state,
    initial_carry=lambda num_envs: {},
)
"""Acts with its noise and remembers what it was given to learn from."""


@pytest.fixture(scope="module")
def rollouts() -> list[dict[str, Any]]:
    """Two of them, one after the other: (T, N, ...) arrays."""
    shapes = {"obs": (T, N, 2), "next_obs": (T, N, 2), "actions": (T, N, 1), "learning": ()}
    state = State({}, {}, {}, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    driver, seen = make_driver(WATCHING, Counting(), N), []
    loop: Loop = driver.start(state, jax.random.key(5))
    for env_steps in (0, T * N):
        loop, _ = driver.chunk(loop, np.int32(1), timetable(WATCHING, N, env_steps, 1))
        seen.append({name: np.array(column) for name, column in loop.learner.seen.items()})
    return seen


def test_the_successor_at_the_end_of_an_episode_is_its_last_observation(rollouts: list[dict[str, Any]]) -> None:
    """Not the first one of the next episode, which is below 1."""
    for seen in rollouts:
        obs, next_obs = seen["obs"][..., 0], seen["next_obs"][..., 0]
        np.testing.assert_allclose(next_obs - obs, 1.0, rtol=1e-6)
        np.testing.assert_array_equal(np.floor(next_obs).T, [[1, 2, 3, 1, 2, 3]] * N)
        np.testing.assert_array_equal(np.floor(obs).T, [[0, 1, 2, 0, 1, 2]] * N)


def test_noise_is_fresh_in_every_step_environment_and_rollout(rollouts: list[dict[str, Any]]) -> None:
    actions, luck, starts, learning = (
        [rows["actions"] for rows in rollouts],
        [rows["next_obs"][..., 1] for rows in rollouts],
        [rows["obs"][[0, 3], :, 0] for rows in rollouts],
        [rows["learning"] for rows in rollouts],
    )
    assert [len(np.unique(numbers)) for numbers in (actions, luck, starts, learning)] == [24, 24, 8, 2]


def test_an_episode_that_was_cut_is_worth_what_its_last_observation_is_worth() -> None:
    """The worked example with V(obs) = obs: gamma .9, lambda .8, truncated at step 1 with a last observation of 4."""
    network = NetworkConfig(BackboneConfig(hidden_dims=()), BackboneConfig(hidden_dims=()))
    ctx = BuildContext(box(-9, 9, (1,)), box(-9, 9, (1,)), num_envs=1, network=network, streams=Streams(0))
    hp = PPOConfig(num_steps=3, num_minibatches=1, gamma=0.9, gae_lambda=0.8)
    agent, learner = build_agent(ctx, SPEC, hp), Learner(ctx, hp)
    value_head = {"output.weight": np.ones((1, 1), np.float32), "output.bias": np.zeros(1, np.float32)}
    state = agent.state._replace(params={**agent.state.params, "value_head": value_head})

    def column(*numbers: float) -> Any:
        return np.array(numbers, np.float32)[:, None]

    batch = {
        "obs": column(0.5, 1.0, 1.5)[..., None],
        "next_obs": column(1.0, 4.0, 2.0)[..., None],
        "actions": np.zeros((3, 1, 1), np.float32),
        "outputs": np.zeros((3, 1, 1), np.float32),
        "rewards": column(1.0, 2.0, 3.0),
        "terminated": np.zeros((3, 1), bool),
        "truncated": column(0.0, 1.0, 0.0) > 0.0,
    }
    prepare = jax.jit(learner.prepare)
    np.testing.assert_allclose(prepare(state, batch)[1].advantages, [4.712, 4.6, 3.3], rtol=1e-5)
    ended = {**batch, "terminated": batch["truncated"], "truncated": batch["terminated"]}
    np.testing.assert_allclose(prepare(state, ended)[1].advantages, [2.12, 1.0, 3.3], rtol=1e-5)


class EndsOnce(Counting):
    """An environment whose episode ends only at a count of 9."""

    def step(self, state: Counted, action: Any, key: Any) -> tuple[Counted, Any, Any, Any]:
        steps = state.steps + 1.0
        return Counted(steps, state.start, state.luck), steps, steps == 9.0, jnp.zeros(len(steps), bool)


@pytest.mark.parametrize(("every", "rollout", "step"), [(-1, 1, 4), (4, 2, 2)])
def test_gsde_draws_exactly_when_it_is_due(every: int, rollout: int, step: int) -> None:
    """What is carried after two rollouts of 6 steps is the noise of the last step that drew. The episode is 5 steps old
    at the beginning, ended by step 3 of the first rollout, and the next goes on to the end of the second."""
    network = NetworkConfig(BackboneConfig(hidden_dims=(3,)), BackboneConfig(hidden_dims=(3,)))
    env: Any = EndsOnce()
    ctx = BuildContext(env.observation_space, env.action_space, num_envs=N, network=network, streams=Streams(0))
    hp = PPOConfig(num_steps=T, num_minibatches=1, num_epochs=1, use_sde=True, sde_sample_freq=every)
    algorithm, state = Learner(ctx, hp).algorithm(lambda state, *_: (state, {})), build_agent(ctx, SPEC, hp).state
    where, key = Counted(*np.float32([[5.0] * N, [0.0] * N, [0.0] * N])), jax.random.key(5)
    carry = {**algorithm.initial_carry(N), "age": np.ones(N, np.int32)}
    loop = Loop(state, where, carry, np.zeros(N, bool), key, np.uint32(0))
    advance = jax.jit(partial(iteration, algorithm, env, N))
    for _ in range(2):
        loop, _ = advance(loop, Timetable(np.zeros(1, np.float32)))
    keys = split_for(jax.random.fold_in(key, rollout), T)[1:]
    np.testing.assert_array_equal(loop.carry["draws"], draws(algorithm, env, N, keys)[0][step])
