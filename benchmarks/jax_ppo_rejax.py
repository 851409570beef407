"""Contestant: PPO of rejax with the same settings, on CartPole of gymnax, without evaluation.

    python benchmarks/jax_ppo_rejax.py '{"env_id": "CartPole-v1", "num_envs": 4, ...}'      # in the peers' environment

Prints one line of JSON: the speed of the compiled program in its second run, and what it learnt: the mean return of 100
greedy episodes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
from rejax import PPO
from rejax.evaluate import evaluate
from timing import Stopwatch


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a contest in the words of rejax."""
    same = "num_envs num_steps num_epochs num_minibatches learning_rate gamma gae_lambda ent_coef vf_coef max_grad_norm"
    return {
        "env": settings["env_id"],
        **{name: settings[name] for name in same.split()},
        "clip_eps": settings["clip_coef"],
        "agent_kwargs": {"hidden_layer_sizes": settings["hidden_dims"], "activation": "tanh"},
        "total_timesteps": settings["total_timesteps"],
        "eval_freq": settings["total_timesteps"],
        "skip_initial_evaluation": True,
    }


def greedy_returns(algorithm: Any, params: Any, key: Any) -> Any:
    """Of 100 episodes in which the likeliest action is taken, as this package is scored. The package's own evaluation
    draws its actions."""

    def act(obs: Any, _: Any) -> Any:
        return algorithm.actor.apply(params, obs[None], method="_action_dist").mode()[0]

    limit = algorithm.env_params.max_steps_in_episode
    return evaluate(act, key, algorithm.env, algorithm.env_params, 100, limit)[1]


def main() -> None:
    settings = json.loads(sys.argv[1])
    algorithm = PPO.create(**arguments(settings))
    train = jax.jit(algorithm.replace(eval_callback=lambda algorithm, state, key: ()).train)
    first, second, third = jax.random.split(jax.random.key(settings["seed"]), 3)
    jax.block_until_ready(train(first))
    watch = Stopwatch(warmup=0)
    watch.mark(0)
    state, _ = jax.block_until_ready(train(second))
    watch.mark(settings["total_timesteps"])
    returns = greedy_returns(algorithm, state.actor_ts.params, third)
    print(json.dumps({**watch.result(), "score": float(returns.mean())}))


if __name__ == "__main__":
    main()
