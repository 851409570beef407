"""The config reference is what the dataclasses say today."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

from rl_training.config.fields import FieldDoc, field_docs
from rl_training.hparams.schedules import Schedule
from rl_training.registry import algorithms

TOOL = Path(__file__).parents[2] / "tools" / "config_reference.py"
PAGE = TOOL.parents[1] / "docs" / "config-reference.md"


def test_the_page_is_not_stale() -> None:
    tool = runpy.run_path(str(TOOL))
    assert PAGE.read_text() == tool["page"](), f"{PAGE.name} is out of date: run `{tool['COMMAND']}`"


def row(path: str, doc: FieldDoc) -> str:
    assert doc.doc, f"{path} has no sentence"
    return f"| `{path}` | {doc.type} | `{doc.default}` | {doc.doc} |"


def test_every_field_is_there_with_its_sentence() -> None:
    text = PAGE.read_text()
    assert all(row(path, doc) in text for path, doc in field_docs("ppo").items())
    for algo in filter(algorithms.is_builtin, algorithms.names()):  # other tests may have registered theirs
        section = text.partition(f"\n### {algo}\n")[2].partition("\n#")[0]
        hparams = {path: doc for path, doc in field_docs(algo).items() if path.startswith("hparams.")}
        assert hparams
        assert all(row(path, doc) in section for path, doc in hparams.items())
    for item in dataclasses.fields(Schedule):
        assert f"| `{item.name}` |" in text.partition("\n## Schedules\n")[2]
