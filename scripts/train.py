#!/usr/bin/env python3
"""`rl train` as a script: `python scripts/train.py ppo/cartpole --seed 1`."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
