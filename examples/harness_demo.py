"""The parts by themselves: four CartPoles side by side, a random policy, 1000 steps, a replay buffer to sample from.

    python examples/harness_demo.py [--seed 0] [--num-steps 1000]

Prints steps per second, memory and sampling rate, and whether the environments stayed in step: each one must have gone
through exactly the episodes that it goes through alone. Exits 1 if they did not, or below 1000 env steps per second.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
import psutil

from rl_training.algorithms.random import RandomAgent, RandomConfig
from rl_training.build_context import BuildContext
from rl_training.config import EnvConfig, TrainConfig
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import Layout
from rl_training.envs import make_env, make_vector_env
from rl_training.envs.spaces import space_spec
from rl_training.seeding import stream
from rl_training.training.collector import Collector

NUM_ENVS = 4
BATCH_SIZE = 256
NUM_SAMPLES = 2000


def in_step(buffer: ReplayBuffer, cfg: TrainConfig, num_steps: int) -> bool:
    """Each environment, played alone with the actions stored for it, gives the stored transitions bit for bit."""
    for index in range(NUM_ENVS):
        rows = slice(index, num_steps * NUM_ENVS, NUM_ENVS)  # step t of environment i is row t * NUM_ENVS + i
        env = make_env(cfg.env_id, cfg.env, seed=cfg.seed, index=index)
        obs, _ = env.reset()
        for stored, action, stored_next in zip(
            buffer.obs[rows], buffer.actions[rows], buffer.next_obs[rows], strict=True
        ):
            next_obs, _, terminated, truncated, _ = env.step(action)
            if not (np.array_equal(stored, obs) and np.array_equal(stored_next, next_obs)):
                return False
            obs = env.reset()[0] if terminated or truncated else next_obs
        env.close()
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="root seed of environments, actions and sampling")
    parser.add_argument("--num-steps", type=int, default=1000, help="steps of every environment")
    parser.add_argument("--min-rate", type=float, default=1000.0, help="env steps per second below which it fails")
    arguments = parser.parse_args()

    cfg = TrainConfig(algo="random", env_id="CartPole-v1", seed=arguments.seed, env=EnvConfig(num_envs=NUM_ENVS))
    envs = make_vector_env(cfg)
    observation_space = space_spec(envs.single_observation_space)
    action_space = space_spec(envs.single_action_space)
    policy = RandomAgent(BuildContext(observation_space, action_space, num_envs=NUM_ENVS), RandomConfig())
    layout = Layout.of(observation_space, action_space, NUM_ENVS)
    buffer = ReplayBuffer(arguments.num_steps * NUM_ENVS, rng=stream(cfg.seed, "buffer"), **layout.keywords())

    started = perf_counter()
    stats = Collector(envs, policy, stream(cfg.seed, "actions")).collect(arguments.num_steps, buffer)
    rate = stats.env_steps / (perf_counter() - started)
    envs.close()

    started = perf_counter()
    for _ in range(NUM_SAMPLES):
        buffer.sample(BATCH_SIZE)
    sampling_rate = NUM_SAMPLES / (perf_counter() - started)
    resident = psutil.Process().memory_info().rss
    together = in_step(buffer, cfg, arguments.num_steps)

    print(
        f"environments       {NUM_ENVS} x {cfg.env_id}, {stats.env_steps:,} env steps, {len(stats.episodes)} episodes"
    )
    print(f"mean return        {np.mean(stats.returns) if stats.episodes else float('nan'):.1f}")
    print(f"steps per second   {rate:,.0f}")
    print(f"sampling rate      {sampling_rate:,.0f} batches of {BATCH_SIZE} per second")
    print(f"memory             {resident / 1e6:,.0f} MB, buffer {buffer.memory_bytes / 1e6:.2f} MB")
    print(f"stayed in step     {'yes' if together else 'NO'}")
    if rate < arguments.min_rate:
        print(
            f"too slow: {rate:,.0f} env steps per second, at least {arguments.min_rate:,.0f} are expected",
            file=sys.stderr,
        )
    return 0 if together and rate >= arguments.min_rate else 1


if __name__ == "__main__":
    sys.exit(main())
