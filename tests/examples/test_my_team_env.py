"""The example of an environment with several agents passes its own check, and its team learns."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_porters_learn_to_push_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("my_team_env")
    try:
        assert example.main(8_000, str(tmp_path)) > 0.6  # random pushing stays below -1
    finally:
        sys.modules.pop("my_team_env", None)
