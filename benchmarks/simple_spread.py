"""The two ends of the scale of simple_spread: random actions, and the best assignment of agents to landmarks.

    python benchmarks/simple_spread.py --episodes 1000
    python benchmarks/simple_spread.py --runs runs/ippo__mpe2-simple_spread_v3__seed0__... --episodes 200
    python benchmarks/simple_spread.py --speed

Convention: mpe2 `simple_spread_v3`, 3 agents, 25 steps, discrete actions, `local_ratio` 0.5; the return is per agent,
the mean over the three. Given runs, their greedy policies are evaluated and placed between the two ends, in percent.
With `--speed`, the joint steps per CPU second of mpe2's parallel form, of the environment that this package steps, and
of the twin in JAX on one thread, with random actions and resets; nothing learns.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from rl_training.envs import make_env
from rl_training.seeding import episode_seed

STEP, DAMPING, PUSH = 0.1, 0.25, 0.5
"""Seconds of a step, share of speed that is lost in it, and speed that an action adds (mpe2's World)."""
STAY, LEFT, RIGHT, DOWN, UP = range(5)

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Observations (3, 18) to actions (3,)."""


def random_actions(obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(5, size=3)


def best_assignment(offsets: np.ndarray) -> tuple[int, ...]:
    """The landmark of each agent for which the distances (3, 3) sum to the least."""
    distances = np.linalg.norm(offsets, axis=2)
    return min(itertools.permutations(range(3)), key=lambda order: sum(distances[i, order[i]] for i in range(3)))


class Assigned:
    """Every agent goes to its landmark of the best assignment at the start of the episode, and stays there."""

    def __init__(self) -> None:
        self.goals: tuple[int, ...] | None = None

    def __call__(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        velocity, offsets = obs[:, :2], obs[:, 4:10].reshape(3, 3, 2)
        if self.goals is None:
            self.goals = best_assignment(offsets)
        # where the agent would come to rest if it did nothing more
        left = np.stack([offsets[i, self.goals[i]] for i in range(3)]) - velocity * STEP / DAMPING
        actions = np.full(3, STAY)
        reach = 0.5 * PUSH * STEP / DAMPING  # half of what one push moves: beyond it a push brings the agent closer
        for i, (x, y) in enumerate(left):
            if max(abs(x), abs(y)) > reach:
                actions[i] = (RIGHT if x > 0 else LEFT) if abs(x) >= abs(y) else (UP if y > 0 else DOWN)
        return actions


def play(make: Callable[[], Act], episodes: int, seed: int) -> np.ndarray:
    """Returns per agent of `episodes` episodes, from the seeds that evaluations use."""
    env: Any = make_env("mpe2/simple_spread_v3")
    rng, returns = np.random.default_rng(seed), np.zeros(episodes)
    for k in range(episodes):
        obs, _ = env.reset(seed=episode_seed(seed, k))
        act, ended = make(), False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(act(obs["agents/obs"], rng).astype(np.float64))
            returns[k] += reward
            ended = terminated or truncated
    env.close()
    return returns


# -- speed ------------------------------------------------------------------------------------------------------------

MEASURED = 3.0
"""CPU seconds for which each environment is stepped."""


def steps_per_second(take: Callable[[], int]) -> float:
    """Joint steps per CPU second of `take`, which takes some and says how many."""
    take()
    began, steps = process_time(), 0
    while process_time() - began < MEASURED:
        steps += take()
    return steps / (process_time() - began)


def parallel_form() -> Callable[[], int]:
    """An episode of mpe2's own parallel environment."""
    from mpe2 import simple_spread_v3

    env, rng = simple_spread_v3.parallel_env(), np.random.default_rng(0)

    def take() -> int:
        env.reset(seed=int(rng.integers(2**31)))
        steps = 0
        while env.agents:
            env.step({agent: int(rng.integers(5)) for agent in env.agents})
            steps += 1
        return steps

    return take


def joint_form() -> Callable[[], int]:
    """An episode of the environment that runs of the host lane step."""
    env, rng = make_env("mpe2/simple_spread_v3"), np.random.default_rng(0)

    def take() -> int:
        env.reset(seed=int(rng.integers(2**31)))
        ended, steps = False, 0
        while not ended:
            _, _, terminated, truncated, _ = env.step(rng.integers(5, size=3).astype(np.float64))
            ended, steps = terminated or truncated, steps + 1
        return steps

    return take


def compiled_form(num_envs: int, num_steps: int = 250) -> Callable[[], int]:
    """Steps of `num_envs` twins in one program, which also draws actions, observes and resets."""
    from rl_training.jax.runtime import configure

    configure()
    import jax
    import jax.numpy as jnp

    from rl_training.jax.envs import make_team
    from rl_training.jax.training.driver import rows_like

    env = make_team("mpe2/simple_spread_v3")

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        actions = jax.random.randint(key, (num_envs, 3), 0, 5)
        state, rewards, terminated, truncated = env.step(state, actions, key)
        seen, ended = env.obs(state), terminated | truncated
        fresh = env.init(key, num_envs)
        state = jax.tree.map(lambda new, old: jnp.where(rows_like(ended, old), new, old), fresh, state)
        return state, rewards.sum() + seen.sum()

    @jax.jit
    def run(state: Any, key: Any) -> Any:
        return jax.lax.scan(step, state, jax.random.split(key, num_steps))

    held = [env.init(jax.random.key(0), num_envs)]

    def take() -> int:
        held[0], sums = run(held[0], jax.random.key(1))
        np.asarray(sums)
        return num_envs * num_steps

    return take


def measure_speed() -> None:
    """Print the joint steps per CPU second of every form, and how they compare with mpe2's own."""
    forms = {"mpe2, parallel form": parallel_form(), "mpe2, as the host lane steps it": joint_form()}
    forms |= {f"JAX twin, {n} environments": compiled_form(n) for n in (32, 128, 512)}
    base = None
    for name, take in forms.items():
        rate = steps_per_second(take)
        base = rate if base is None else base
        print(f"{name:<48} {rate:12,.0f} joint steps per CPU second, {rate / base:.1f} x")


def line(name: str, returns: np.ndarray, note: str = "") -> str:
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    return f"{name:<48} {returns.mean():8.2f} +- {error:.2f} ({len(returns)} episodes){note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", nargs="*", default=[])
    parser.add_argument("--speed", action="store_true", help="measure steps per CPU second instead")
    given = parser.parse_args()
    if given.speed:
        measure_speed()
        return
    low = play(lambda: random_actions, given.episodes, given.seed)
    high = play(Assigned, given.episodes, given.seed)
    print(line("random actions", low))
    print(line("best assignment", high))
    for run in given.runs:
        import rl_training

        returns = np.array(rl_training.evaluate(run, episodes=given.episodes, seed=given.seed)["returns"])
        share = (returns.mean() - low.mean()) / (high.mean() - low.mean())
        print(line(run.rstrip("/").rpartition("/")[2], returns, f", {share:.0%} of the way"))


if __name__ == "__main__":
    main()
