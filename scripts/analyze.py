#!/usr/bin/env python3
"""`rl compare` as a script: `python scripts/analyze.py baseline latest --metrics reward,loss --html report.html`."""

import sys

from rl_training.cli import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
