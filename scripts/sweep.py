#!/usr/bin/env python3
"""`rl sweep` as a script: `python scripts/sweep.py --config configs/sweeps/ppo_sweep.yaml`."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
