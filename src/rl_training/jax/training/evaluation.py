"""Evaluation as one program: complete greedy episodes on the JAX environment, all in parallel.

Episodes are identical to those of `envs/gym_adapter.py`: the same seeds and the same random numbers. An evaluation on
the Gymnasium twin of an environment starts from other states, so its scores agree only statistically.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.programs.disk_cache import Program, own_device
from rl_training.jax.training.driver import to_env
from rl_training.jax.types import JaxAlgorithm, JaxEnv
from rl_training.seeding import episode_seed
from rl_training.types import Array


class Evaluation:
    """Runs `width` episodes at once for a given algorithm state; compiled on first use, shared by runs."""

    def __init__(
        self, algorithm: JaxAlgorithm, env: JaxEnv, width: int, description: str | None = None, agents: int = 1
    ) -> None:
        """`agents` is the number of rows of an environment (`envs/teams.py`)."""

        def evaluation(state: Any, env_steps: Any, seeds: Any) -> tuple[Any, Any]:
            return jax.vmap(partial(episode, algorithm, env, agents, algorithm.policy(state, env_steps)))(seeds)

        self.width = width
        self.program = Program(evaluation, description)

    def __call__(self, state: Any, env_steps: int, seed: int, episodes: int, first: int = 0) -> tuple[Array, Array]:
        """Returns and lengths of the evaluation episodes `first`, first + 1, ... of a run with this seed, `width` at a
        time."""
        state = jax.device_put(state, own_device())  # of several runs in one program some are on other devices
        played = [self._play(state, env_steps, seed, k) for k in range(first, first + episodes, self.width)]
        returns, lengths = map(np.concatenate, zip(*played, strict=True))
        return returns[:episodes].astype(np.float64), lengths[:episodes].astype(np.int64)

    def _play(self, state: Any, env_steps: int, seed: int, first: int) -> tuple[Array, Array]:
        numbers = range(first, first + self.width)
        resets = [np.random.default_rng(episode_seed(seed, k)) for k in numbers]  # as `reset(seed=...)` in Gymnasium
        seeds = np.array([rng.integers(2**32) for rng in resets], np.uint32)
        returns, lengths = self.program(state, np.float32(env_steps), seeds)
        return np.asarray(returns), np.asarray(lengths)


def episode(algorithm: JaxAlgorithm, env: JaxEnv, agents: int, policy: Any, seed: Any) -> tuple[Any, Any]:
    """Return, the mean over the agents, and length of one greedy episode. Under `vmap`, ended episodes idle until the
    longest has ended."""
    init_key, step_key = jax.random.split(jax.random.key(seed))

    def step(playing: tuple[Any, ...]) -> tuple[Any, ...]:
        state, carry, _, total, time = playing
        actions, carry, _ = algorithm.act(policy, env.obs(state), carry, jnp.full(agents, time == 0), None, True)
        key = jax.random.fold_in(step_key, time)
        state, rewards, terminated, truncated = env.step(state, to_env(algorithm, env.action_space, actions), key)
        return state, carry, (terminated | truncated)[0], total + rewards.mean(), time + np.uint32(1)

    nothing = (jnp.zeros((), bool), jnp.zeros((), jnp.float32), jnp.zeros((), jnp.uint32))
    begin = (env.init(init_key, agents), algorithm.initial_carry(agents), *nothing)
    played = jax.lax.while_loop(lambda playing: ~playing[2], step, begin)
    return played[3], played[4]
