"""Contestant: IPPO of AgileRL on simple_spread with the same settings: its own loop, its environments in processes.

    python benchmarks/teams_agilerl.py '{"env_id": "mpe2/simple_spread_v3", ...}'      # in the peers' environment

A population of one, without mutations, tournaments and checkpoints; its evaluation comes after the last update that is
timed. Prints one line of JSON: CPU time per joint step after the warm-up, with that of the workers, that of the
environment stepped alone, the rest, and the number of weights.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import numpy as np
import torch
from agilerl.algorithms import IPPO
from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy
from agilerl.vector import AsyncPettingZooVecEnv
from joint_steps import alone
from mpe2 import simple_spread_v3
from timing import Stopwatch, cpu_seconds_of


def network(widths: list[int]) -> dict[str, Any]:
    """Three hidden layers: one of the encoder, its output, one of the head."""
    first, latent, last = widths
    plain = {"activation": "ReLU", "layer_norm": False}
    return {
        "encoder_config": {"hidden_size": [first], **plain},
        "latent_dim": latent,
        "head_config": {"hidden_size": [last], **plain},
    }


def learner(env: Any, settings: dict[str, Any]) -> Any:
    """The algorithm with the settings of the contest."""
    rows = settings["num_envs"] * settings["num_steps"] * len(env.agents)
    return IPPO(
        observation_spaces=[env.single_observation_space(agent) for agent in env.agents],
        action_spaces=[env.single_action_space(agent) for agent in env.agents],
        agent_ids=list(env.agents),
        net_config=network(settings["hidden_dims"]),
        batch_size=rows // settings["num_minibatches"],
        lr=settings["learning_rate"],
        learn_step=settings["num_envs"] * settings["num_steps"],
        gamma=settings["gamma"],
        gae_lambda=settings["gae_lambda"],
        clip_coef=settings["clip_coef"],
        ent_coef=settings["ent_coef"],
        vf_coef=settings["vf_coef"],
        max_grad_norm=settings["max_grad_norm"],
        update_epochs=settings["num_epochs"],
    )


def timed(agent: Any, watch: Stopwatch) -> None:
    """Mark the end of every update."""
    learn, steps = agent.learn, [0]

    def learn_and_mark(experiences: Any) -> Any:
        found = learn(experiences)
        steps[0] += agent.learn_step
        watch.mark(steps[0])
        return found

    agent.learn = learn_and_mark


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    np.random.seed(settings["seed"])  # noqa: NPY002 (what the library draws minibatches with)
    env = AsyncPettingZooVecEnv([simple_spread_v3.parallel_env] * settings["num_envs"])
    agent = learner(env, settings)
    workers = [process.pid for process in env.processes]
    watch = Stopwatch(settings["warmup"], lambda: cpu_seconds_of(workers))
    timed(agent, watch)
    total = settings["total_timesteps"]
    with contextlib.redirect_stdout(sys.stderr):
        train_multi_agent_on_policy(
            env, "simple_spread", "IPPO", [agent], max_steps=total, evo_steps=total, eval_steps=25, verbose=False
        )
    result = watch.result()
    weights = sum(
        p.numel() for nets in (agent.actors, agent.critics) for net in nets.values() for p in net.parameters()
    )
    env.close()
    print(json.dumps({**result, **alone(simple_spread_v3.parallel_env()).beside(result), "parameters": weights}))


if __name__ == "__main__":
    main()
