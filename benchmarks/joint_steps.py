"""CPU time of PettingZoo's parallel environments stepped alone; NumPy and the standard library only."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

SEGMENTS = 5


class Alone(NamedTuple):
    """What a joint step of an environment costs by itself."""

    env_us_per_step: float

    def beside(self, timed: dict[str, float]) -> dict[str, float]:
        """The cost of a step of training without the environment's own."""
        own = timed["cpu_us_per_step"] - self.env_us_per_step
        return {"env_us_per_step": self.env_us_per_step, "own_us_per_step": own}


def alone(env: Any, steps: int = 2000) -> Alone:
    """The median of some segments of `steps` joint steps with random discrete actions, resets included."""
    rng = np.random.default_rng(0)
    counts = {agent: int(env.action_space(agent).n) for agent in env.possible_agents}
    actions = [{agent: int(rng.integers(count)) for agent, count in counts.items()} for _ in range(steps)]
    found = []
    for segment in range(SEGMENTS):
        env.reset(seed=segment)
        started = time.process_time()
        for joint in actions:
            if not env.agents:
                env.reset()
            env.step(joint)
        found.append(1e6 * (time.process_time() - started) / steps)
    return Alone(sorted(found)[SEGMENTS // 2])
