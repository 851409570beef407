"""Speed and memory of the uniform replay buffer: 1M transitions of 4 numbers, as in the table of the docs.

python benchmarks/replay.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import psutil

from rl_training.data import ReplayBuffer

CAPACITY = 1_000_000
OBS_DIM = 4


def best_rate(function: Callable[[], None], calls: int, repeats: int = 5) -> float:
    """Calls per second in the fastest of `repeats` segments; the machine's other work only ever slows a segment."""
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        rates.append(calls / (time.perf_counter() - start))
    return max(rates)


def main() -> None:
    process = psutil.Process()
    rng = np.random.default_rng(0)  # loads numpy.random, which is not the buffer's memory
    before = process.memory_info().rss
    buffer = ReplayBuffer(CAPACITY, (OBS_DIM,), (), num_envs=16, rng=rng)
    one = np.ones(OBS_DIM, np.float32)
    many, actions, rewards = np.ones((16, OBS_DIM), np.float32), np.ones(16), np.ones(16)
    flags = np.zeros(16, np.bool_)
    for _ in range(CAPACITY // 16 + 1):
        buffer.add(many, actions, rewards, many, flags, flags)
    resident = process.memory_info().rss - before
    rates = {
        "add 1, transitions/s": best_rate(lambda: buffer.add(one, 1, 1.0, one, False), 100_000),
        "add 16, transitions/s": 16 * best_rate(lambda: buffer.add(many, actions, rewards, many, flags, flags), 50_000),
        "sample(256), batches/s": best_rate(lambda: buffer.sample(256) and None, 5_000),
    }
    for name, rate in rates.items():
        print(f"{name:24} {rate:12,.0f}")
    print(f"{'memory, MB (nominal)':24} {resident / 1e6:6.1f} ({buffer.memory_bytes / 1e6:.1f})")


if __name__ == "__main__":
    main()
