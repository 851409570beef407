"""What the NaN guard costs: its own time as a share of the CPU time of the updates it guards.

    python benchmarks/guard_cost.py [PRESET ...] [--runs 5] [--updates 100]

The guard's time is the counter around its calls (`Guard.seconds`), here by the clock of the CPU, its own cost included.
The goal is 2% of the updates' CPU time at the level `cheap`, median of the runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import load_config
from rl_training.guards import part_suspects
from rl_training.training.contract import inspected
from rl_training.types import UpdateResult

WARMUP = 5


def measure(preset: str, updates: int) -> tuple[float, float]:
    """(CPU seconds of the updates, CPU seconds of all that the guard did) in one run."""
    trainer = build_trainer(load_config(preset))
    algorithm, guard = trainer.algorithm, trainer.guard
    guard.clock = time.process_time
    learn, cpu_seconds = algorithm.update, 0.0

    def timed_update(batch: Any) -> UpdateResult:
        nonlocal cpu_seconds
        began = time.process_time()
        result = learn(batch)
        cpu_seconds += time.process_time() - began
        return result

    setattr(algorithm, "update", timed_update)  # noqa: B010 -- a method, for the length of this run
    for update in range(WARMUP + updates):
        if update == WARMUP:
            guard.seconds = cpu_seconds = 0.0
        before = trainer.progress.copy()
        metrics = trainer.train_step()
        guard.check_update(
            metrics,
            inspected(algorithm).watched,
            lambda: part_suspects({"policy": algorithm.policy.state_dict()}),
            before,
        )
    trainer.close()
    return cpu_seconds, guard.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", default=["ppo/cartpole"], help="presets to run (default ppo/cartpole)")
    parser.add_argument("--runs", type=int, default=5, help="runs per preset (default 5)")
    parser.add_argument("--updates", type=int, default=100, help="updates per run (default 100)")
    given = parser.parse_args()
    print(f"{'preset':<28}{'update, ms':>12}{'guard, us':>12}{'median %':>10}{'worst %':>9}")
    for preset in given.presets:
        with pinned_threads(1):
            runs = [measure(preset, given.updates) for _ in range(given.runs)]
        shares = [100.0 * guard / update for update, guard in runs]
        update_ms = 1e3 * statistics.median(update for update, _ in runs) / given.updates
        guard_us = 1e6 * statistics.median(guard for _, guard in runs) / given.updates
        print(f"{preset:<28}{update_ms:>12.2f}{guard_us:>12.1f}{statistics.median(shares):>10.2f}{max(shares):>9.2f}")


if __name__ == "__main__":
    main()
