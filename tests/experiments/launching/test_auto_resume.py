"""The same command again: starts, goes on, or has nothing to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from group_cases import tiny

from rl_training.cli import main
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.runs.directory import RunDir, run_directories

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my.json").write_text(json.dumps(tiny(Path("runs"))))
    return tmp_path


def train(*words: str) -> int:
    return main(["train", "my.json", "--auto-resume", *words])


def stop_early(run: Path) -> None:
    """As if the process had been killed after its first checkpoints."""
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "running", "exit_code": None}))


def test_it_starts_then_goes_on_then_has_nothing_to_do(capsys: Captured) -> None:
    assert train() == 0
    (run,) = run_directories(Path("runs"))
    rows = (run / "logs" / "metrics.jsonl").read_bytes()
    stop_early(run)
    assert train() == 0
    assert f"going on with '{run.absolute()}'" in capsys.readouterr().err
    assert RunDir(run).info()["status"] == "finished"
    assert len((run / "logs" / "metrics.jsonl").read_bytes().splitlines()) == len(rows.splitlines())
    assert train() == 0
    assert f"nothing to do: '{run.absolute()}' has this config and is finished" in capsys.readouterr().err
    assert run_directories(Path("runs")) == [run]


def test_another_config_and_another_seed_are_other_runs() -> None:
    assert train() == 0
    assert train("--seed=7") == 0
    assert train("--hparams.gamma=0.9") == 0
    assert len(run_directories(Path("runs"))) == 3


def test_a_run_that_is_held_is_refused(capsys: Captured) -> None:
    assert train() == 0
    (run,) = run_directories(Path("runs"))
    stop_early(run)
    with RunDir(run).lock():
        assert train() == 1
    assert "is in use by process" in capsys.readouterr().err


def test_several_unfinished_ones_are_refused_with_their_names(capsys: Captured) -> None:
    for _ in range(2):
        assert main(["train", "my.json"]) == 0
    runs = run_directories(Path("runs"))
    for run in runs:
        stop_early(run)
    assert train() == 1
    err = capsys.readouterr().err
    assert all(run.name in err for run in runs)


@pytest.mark.timeout(300)
def test_a_list_of_seeds(capsys: Captured) -> None:
    assert train("--seed=1,2", "--jobs=2") == 0
    group = SeedGroup.open("latest", "runs")
    stop_early(group.output_dir / str(group.members[0].run))
    assert train("--seed=1,2", "--jobs=2") == 0
    assert f"going on with '{group.path}'" in capsys.readouterr().err
    assert train("--seed=1,2", "--jobs=2") == 0
    assert "nothing to do" in capsys.readouterr().err
    assert len(list(Path("runs/groups").iterdir())) == 1
