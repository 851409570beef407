"""A comparison says if its runs were trained with different libraries or on different processors."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_cases import new_group, train_members

from rl_training.cli import main
from rl_training.experiments.keeping.surroundings import mixture, mixture_text
from rl_training.runs.directory import RunDir


def test_only_what_differs_is_named() -> None:
    one = {"versions": {"torch": "2.12", "numpy": "2.3"}, "hardware": {"cpu": "A"}}
    other = {"versions": {"torch": "2.13", "numpy": "2.3"}, "hardware": {"cpu": "B"}}
    assert mixture([one, one]) == {}
    assert mixture([one, other, {"versions": None}]) == {"torch": ["2.12", "2.13"], "CPU": ["A", "B"]}


def test_show_warns_of_a_group_from_two_kinds_of_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = train_members(new_group(tmp_path, (1, 2)), (1, 2))
    assert mixture_text(group) is None
    run = RunDir(tmp_path / str(group.members[0].run))
    run.update_info(versions={**run.info()["versions"], "torch": "0.1"})
    assert "different torch (0.1," in str(mixture_text(group))
    assert main(["show", str(group.path)]) == 0
    assert "warning: these runs were trained with different torch" in capsys.readouterr().out
