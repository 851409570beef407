"""The blocks of a page in their order: files to save, commands to type, scripts to run; and what comes of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FENCE = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Step:
    kind: Literal["file", "command", "script"]
    title: str
    text: str


def steps_of(page: Path) -> list[Step]:
    steps: list[Step] = []
    for language, title, text in FENCE.findall(page.read_text()):
        if title:
            steps.append(Step("file", title, text))
        elif language == "bash":
            steps += [Step("command", line, line) for line in text.splitlines()]
        else:
            assert language == "python", f"what is to be done with a {language} block?"
            steps.append(Step("script", text.strip().splitlines()[-1], text))
    return steps


def run_page(page: Path, folder: Path) -> list[tuple[Step, int, str]]:
    """Every step of a page, done in a folder, with its exit code and output."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("tutorial_runs.py")), str(page)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(step, code, text) for step, (code, text) in zip(steps_of(page), json.loads(done.stdout), strict=True)]
