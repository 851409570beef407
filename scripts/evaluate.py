#!/usr/bin/env python3
"""`rl eval` as a script: `python scripts/evaluate.py latest --episodes 100`."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main(["eval", *sys.argv[1:]]))
