"""REINFORCE on CartPole, composed by hand: network, agent and environment as pure functions in one compiled loop.

    python examples/cartpole_reinforce_jax.py --total-timesteps 200000

A page to start your own from. Everything used here is public: swap the environment for an object with `init`, `obs` and
`step`, the network for an (init, apply) pair, the loss for yours. `rl train reinforce/cartpole --backend jax` is the
same idea with run directory, checkpoints, evaluation and resume around it.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl_training.config import BackboneConfig
from rl_training.jax.envs import make
from rl_training.jax.models.distributions import Parameters, distribution, draw
from rl_training.jax.models.networks import linear, mlp, named
from rl_training.jax.models.optimization import AdamState, adam, adam_init
from rl_training.jax.numerics.returns import gae
from rl_training.jax.runtime import configure
from rl_training.jax.training.driver import rows_like
from rl_training.numerics.initial_weights import POLICY_GAIN
from rl_training.seeding import Streams

NUM_ENVS, NUM_STEPS, GAMMA, LEARNING_RATE = 16, 128, 0.99, 5e-3

env = make("CartPole-v1")
actions_of = distribution(env.action_space)
backbone = mlp(env.observation_space, BackboneConfig(hidden_dims=(64, 64)))


class Loop(NamedTuple):
    """State of the whole program: weights, moments, environments and random key."""

    params: Any
    optimizer: AdamState
    env: Any
    key: Any


def init(seed: int) -> Loop:
    rng = Streams(seed)("init")
    head = named("output", linear(rng, backbone.out_features, actions_of.size, gain=POLICY_GAIN))
    params = {"backbone": backbone.init(rng), "head": head}
    key, env_key = jax.random.split(jax.random.key(seed))
    return Loop(params, adam_init(params), env.init(env_key, NUM_ENVS), key)


def logits(params: Any, obs: Any) -> Parameters:
    features = backbone.apply(params["backbone"], obs)
    return Parameters(features @ params["head"]["output.weight"] + params["head"]["output.bias"])


def step(params: Any, state: Any, drawn: Any) -> tuple[Any, dict[str, Any]]:
    """One step of every environment; ended episodes restart."""
    noise, fresh, key = drawn
    obs = env.obs(state)
    actions = actions_of.sample(logits(params, obs), noise, None, False)
    state, rewards, terminated, truncated = env.step(state, actions, key)
    ends = terminated | truncated
    state = jax.tree.map(lambda new, old: jnp.where(rows_like(ends, old), new, old), fresh, state)
    return state, {"obs": obs, "actions": actions, "rewards": rewards, "ends": ends}


def loss(params: Any, obs: Any, actions: Any, weights: Any) -> Any:
    logprobs, _ = actions_of.logprob_entropy(logits(params, obs), actions, None)
    return -(logprobs * weights).mean()


@jax.jit
def iterate(loop: Loop) -> tuple[Loop, Any]:
    """A rollout, the returns that followed each action, and one step along the policy gradient."""
    key, noise_key, reset_key, env_key = jax.random.split(loop.key, 4)
    noise = draw(actions_of.noise, noise_key, (NUM_STEPS, NUM_ENVS))
    fresh = jax.vmap(lambda k: env.init(k, NUM_ENVS))(jax.random.split(reset_key, NUM_STEPS))
    drawn = (noise, fresh, jax.random.split(env_key, NUM_STEPS))
    state, batch = jax.lax.scan(partial(step, loop.params), loop.env, drawn)
    zeros, ends = jnp.zeros_like(batch["rewards"]), batch["ends"]
    returns, _ = gae(batch["rewards"], zeros, zeros, ends, ends, gamma=GAMMA, gae_lambda=1.0)
    weights = (returns - returns.mean()) / (returns.std() + 1e-8)
    obs, actions = batch["obs"].reshape(-1, 4), batch["actions"].reshape(-1)
    grads = jax.grad(loss)(loop.params, obs, actions, weights.reshape(-1))
    params, optimizer = adam(loop.params, grads, loop.optimizer, learning_rate=LEARNING_RATE, eps=1e-8)
    length = ends.size / jnp.maximum(ends.sum(), 1)
    return Loop(params, optimizer, state, key), length


def main() -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    configure()
    loop, length, per_iteration = init(arguments.seed), 0.0, NUM_STEPS * NUM_ENVS
    for i in range(arguments.total_timesteps // per_iteration):
        loop, length = iterate(loop)
        if i % 10 == 9:
            print(f"{(i + 1) * per_iteration:>8,} env steps: about {float(length):.0f} steps per episode")
    return float(length)


if __name__ == "__main__":
    main()
