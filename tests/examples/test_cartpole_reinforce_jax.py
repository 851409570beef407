"""The page that composes agent, network and environment by hand learns when it is run as a script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "cartpole_reinforce_jax.py"


def test_the_page_learns() -> None:
    words = [sys.executable, str(SCRIPT), "--total-timesteps", "102400"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lengths = [int(found) for found in re.findall(r"about (\d+) steps per episode", printed)]
    assert len(lengths) == 5
    assert lengths[-1] > 100  # a random policy lasts about 22 steps
