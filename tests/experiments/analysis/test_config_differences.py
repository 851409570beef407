"""A comparison says how the configs of its entries differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.experiments.analysis.config_differences import config_differences, mixed, varied
from rl_training.experiments.analysis.entries import Entry, Run


def run(name: str = "r", **config: Any) -> Run:
    return Run(Path(name), {"config": {"seed": 0, "hparams": {"gamma": 0.99}, **config}})


ONE = Entry("one", (run(seed=1), run(seed=2)))
TWO = Entry("two", (run(hparams={"gamma": 0.9}), run(hparams={"gamma": 0.9, "tau": 0.1})))


def test_fields_that_differ_between_entries() -> None:
    assert config_differences([ONE, TWO]) == {
        "hparams.gamma": {"one": "0.99", "two": "0.9"},
        "hparams.tau": {"one": "-", "two": "-, 0.1"},
    }
    assert config_differences([ONE, Entry("copy", ONE.runs)]) == {}
    assert config_differences([ONE]) == {}


def test_fields_that_differ_inside_an_entry() -> None:
    assert mixed(ONE) == []
    assert mixed(TWO) == ["hparams.tau"]
    assert varied([*ONE.runs, *TWO.runs]) == ["hparams.gamma", "hparams.tau"]


def test_many_values_are_cut() -> None:
    many = Entry("many", tuple(run(x=number) for number in range(9)))
    assert config_differences([ONE, many])["x"] == {"one": "-", "many": "0, 1, 2, 3, ..."}


def test_the_table_and_the_page_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (fake_run(Path("runs"), number, reward=1.0, name=f"run{number}", seed=0) for number in (1, 2))
    resolved = other / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("gamma: 0.99", "gamma: 0.9"))
    assert main(["compare", "run1", "run2"]) == 0
    out = capsys.readouterr().out
    assert "what differs between the configs\nentry  hparams.gamma\nrun1   0.99\nrun2   0.9\n" in out
    assert main(["compare", "run1", "run1"]) == 0
    assert "what differs between the configs: nothing but seeds and names" in capsys.readouterr().out
    assert main(["compare", "algorithm=ppo"]) == 0
    assert "algorithm=ppo: its own runs differ in hparams.gamma" in capsys.readouterr().err
    assert one.is_dir()
