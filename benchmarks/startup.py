"""How long a user waits: `rl --help`, `import rl_training`, and from `rl train` to the first metrics of its run.

    python benchmarks/startup.py [--repeats 5 | --quick]

Prints the best and the median of fresh processes. The goals are 0.5 s for the help and 3 s for the first metrics.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PYTHON = sys.executable
RL = [PYTHON, "-m", "rl_training"]
SHORT_RUN = ["--total-timesteps", "200000", "--logging.tensorboard", "false"]


def seconds_of(command: list[str]) -> float:
    """Wall time of a command that must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def seconds_to_first_metrics() -> float:
    """From the start of `rl train` to a row of metrics.jsonl with env_steps > 0; the run is then ended."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [*RL, "train", "ppo/cartpole", "--output-dir", folder, *SHORT_RUN]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                if any(has_progress(path) for path in Path(folder).glob("*/logs/metrics.jsonl")):
                    return time.perf_counter() - start
                time.sleep(0.005)
        finally:
            process.terminate()
            process.wait()
    raise SystemExit(f"`rl train` ended with exit code {process.returncode} before its first metrics")


def has_progress(path: Path) -> bool:
    """True if a whole row says env_steps > 0."""
    lines = path.read_text().splitlines(keepends=True)
    return any(json.loads(line)["env_steps"] > 0 for line in lines if line.endswith("\n"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per line (default 5)")
    parser.add_argument("--quick", action="store_true", help="one process per line")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats
    waits: dict[str, Callable[[], float]] = {
        "rl --help": lambda: seconds_of([*RL, "--help"]),
        "rl train --help": lambda: seconds_of([*RL, "train", "--help"]),
        "import rl_training": lambda: seconds_of([PYTHON, "-c", "import rl_training"]),
        "python -c pass": lambda: seconds_of([PYTHON, "-c", "pass"]),
        "rl train, first metrics": seconds_to_first_metrics,
    }
    print(f"{'seconds':<26}{'best':>8}{'median':>8}")
    for name, measure in waits.items():
        times = [measure() for _ in range(repeats)]
        print(f"{name:<26}{min(times):>8.2f}{statistics.median(times):>8.2f}")


if __name__ == "__main__":
    main()
