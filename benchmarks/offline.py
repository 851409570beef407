"""Offline contest: updates per CPU second of this package, in torch and in JAX, beside d3rlpy on the same dataset file.

By hand, on quiet cores; contestants take turns, each in a process of its own with one thread:

    python benchmarks/offline.py --widths 256,256 --seconds 20 --rounds 3 --core 0

The table also says which share of the machine's own matrix product each reaches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT
from offline_work import BATCHES, flops, write_work
from peers import peers_python

HERE = Path(__file__).resolve().parent


def sgemm_flops(width: int, rows: int, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a product (rows, width) x (width, width) in float32."""
    one, other = np.ones((rows, width), np.float32), np.ones((width, width), np.float32)
    count, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        one @ other
        count += 1
    return 2.0 * rows * width * width * count / (time.process_time() - began)


def measured(command: list[str], core: int | None) -> dict[str, Any]:
    """What a contestant prints."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **single}
    done = subprocess.run([*pinned, *command], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", default=",".join(BATCHES))
    parser.add_argument("--widths", default="256,256")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int)
    parser.add_argument("--json", type=Path, help="append a line of results to this file")
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    limit = sgemm_flops(widths[0], 256)
    print(f"one thread multiplies at {limit / 1e9:.0f} GFLOP/s (256 x {widths[0]} by {widths[0]} x {widths[0]})")
    print("| algorithm | d3rlpy | torch | JAX | torch / d3rlpy | JAX / d3rlpy | share of sgemm: d3rlpy, torch, JAX |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = str(Path(folder) / "work.npz")
        write_work(Path(work))
        size, peer = json.dumps(widths), str(peers_python(".venv-peers-offline"))
        for algo in options.algorithms.split(","):
            ours = [sys.executable, str(HERE / "offline_ours.py"), algo]
            commands = {
                "d3rlpy": [peer, str(HERE / "offline_d3rlpy.py"), algo, work, size, str(options.seconds)],
                "torch": [*ours, "torch", work, size, str(options.seconds)],
                "jax": [*ours, "jax", work, size, str(options.seconds)],
            }
            rates: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(options.rounds):
                for name, command in commands.items():
                    rates[name].append(measured(command, options.core)["updates_per_cpu_second"])
            middle = {name: statistics.median(values) for name, values in rates.items()}
            shares = [middle[name] * flops(algo, widths, BATCHES[algo]) / limit for name in commands]
            ratios = [middle[name] / middle["d3rlpy"] for name in ("torch", "jax")]
            cells = [*(f"{middle[name]:.1f}" for name in commands), *(f"{ratio:.2f} x" for ratio in ratios)]
            print(f"| {algo} | {' | '.join(cells)} | {', '.join(f'{share:.0%}' for share in shares)} |", flush=True)
            if options.json is not None:
                with options.json.open("a") as file:
                    row = {"algo": algo, "widths": widths, "rates": rates, "sgemm_flops": limit, "shares": shares}
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
