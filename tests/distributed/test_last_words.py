"""The message of a process that ends without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from rl_training.distributed.last_words import LastWords
words = LastWords("error: it's 100% \\"gone\\"")
{end}
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("os._exit(1)", 1, 'error: it\'s 100% "gone"\n'),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, 'error: it\'s 100% "gone"\n'),
        ("raise SystemExit(3)", 3, ""),
        ("words.close(); words.close(); os._exit(1)", 1, ""),
    ],
)
def test_it_is_said_unless_it_was_taken_back(end: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (done.returncode, done.stderr) == (code, said)
