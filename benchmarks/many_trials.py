"""What a sweep of ten thousand trials costs its parent: CPU time, memory, disk. The trials themselves do nothing.

    python benchmarks/many_trials.py [--trials 10000 | --quick]

A random sweep runs from the command to its end on an executor of our own whose members end at once, the writing of the
trials included. Goals for 10,000: 30 s of CPU, 300 MB, 10 MB in the sweep's folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SWEEP = """
base_config: ppo/cartpole
ranges:
  hparams.learning_rate: {low: 1e-5, high: 1e-2, log: true}
  hparams.clip_coef: {low: 0.05, high: 0.4}
executor: instant:Instant
"""
EXECUTOR = '''
class Handle:
    where, holder, is_running = "nowhere", None, False
    def poll(self): return 0
    def wait(self): return 0
    def send_signal(self, number): pass

class Instant:
    """Members end before they begin."""
    name, is_remote = "instant:Instant", True
    def __init__(self, config): pass
    def slots(self): return 256
    def start(self, task): return Handle()
    def lost(self, holder): return None
    def close(self): pass
'''


def measure(trials: int) -> dict[str, float]:
    """CPU seconds, peak MB and MB on disk of one sweep in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "instant.py").write_text(EXECUTOR)
        Path(folder, "sweep.yaml").write_text(f"{SWEEP}num_trials: {trials}\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "rl_training", "sweep", "sweep.yaml", "--output-dir", "runs", "--json"]
        env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        summary = json.loads(done.stdout)
        states = [run["status"] for trial in summary["trials"] for run in trial["runs"]]
        assert states == ["finished"] * trials
        files = [path for path in Path(folder, "runs", "sweeps").rglob("*") if path.is_file()]
        return {
            "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "peak_mb": after.ru_maxrss / 1024,
            "folder_mb": sum(path.stat().st_size for path in files) / 1e6,
            "files": len(files),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="200 trials")
    options = parser.parse_args()
    found = measure(200 if options.quick else options.trials)
    for name, value in found.items():
        print(f"{name:<12} {value:10.2f}")


if __name__ == "__main__":
    main()
