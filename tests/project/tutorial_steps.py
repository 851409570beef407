"""The blocks of a page in their order: files to save, commands to type, scripts to run."""

from __future__ import annotations

import re
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
