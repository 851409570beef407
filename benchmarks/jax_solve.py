"""Contestant: `rl train` in the JAX lane from exec to exit, first with an empty compile cache, then with a filled one.

    python benchmarks/jax_solve.py '{"stop_at_return": 475, "seed": 0, "scratch": "/tmp/a"}'

Prints one line of JSON: the wall and CPU seconds of both, and what the second run printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def solve(settings: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    """Wall and CPU time of a whole process, and its result."""
    flags = {
        "--backend": "jax",
        "--stop-at-return": settings["stop_at_return"],
        "--seed": settings["seed"],
        "--output-dir": settings["scratch"],
    }
    words = [f"{flag}={value}" for flag, value in flags.items()]
    command = [sys.executable, "-m", "rl_training", "train", "ppo/cartpole", *words, "--json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(Path(settings["scratch"]) / "cache")}
    start, cpu_start = time.perf_counter(), sum(os.times()[2:4])
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return time.perf_counter() - start, sum(os.times()[2:4]) - cpu_start, json.loads(process.stdout)


def main() -> None:
    settings = json.loads(sys.argv[1])
    empty, empty_cpu, _ = solve(settings)
    filled, filled_cpu, result = solve(settings)
    cpu = {"filled_cpu_seconds": filled_cpu, "empty_cpu_seconds": empty_cpu}
    print(json.dumps({**result, "filled_seconds": filled, "empty_seconds": empty, **cpu}))


if __name__ == "__main__":
    main()
