#!/usr/bin/env python3
"""`rl show` as a script: `python scripts/analyze.py latest`, also for groups and sweeps."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main(["show", *sys.argv[1:]]))
