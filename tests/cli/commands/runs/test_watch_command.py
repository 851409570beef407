"""`rl watch` beside runs that train, and beside those that have ended."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.cli import main
from rl_training.experiments.keeping.watch import Watcher
from rl_training.experiments.launching.group_display import LineView, Row

CONFIG: dict[str, Any] = {
    "algo": "random",
    "env_id": "CartPole-v1",
    "hparams": {"num_steps": 16},
    "training": {"total_timesteps": 128, "num_eval_episodes": 0},
    "monitor": {"rules": [{"name": "first", "when": "env_steps = 64"}]},
    "logging": {"tensorboard": False, "terminal": False},
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_that_has_ended_is_shown_with_its_alerts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch"]) == 0
    assert "no run is running in 'runs'" in capsys.readouterr().err
    run = rl_training.train(CONFIG).run_dir
    assert main(["watch", "latest"]) == 0
    captured = capsys.readouterr()
    alert, ended = captured.err.splitlines()
    assert alert == f"{run.name}: alert first: env_steps = 64 (64) (at 64 env steps)"
    assert ended.startswith(f"{run.name}: finished, 128 (100%) env steps, return ")
    assert "finished  128 (100%)" in captured.out
    assert main(["watch", "latest", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["env_steps"], shown["total_timesteps"]) == ("finished", 128, 128)
    assert [alert["rule"] for alert in shown["alerts"]] == ["first"]
    assert main(["watch", "--once"]) == 0
    assert capsys.readouterr().out == "no run is running\n"


class Look(rl_training.Callback):
    """Another pair of eyes, as `rl watch` in another terminal would be."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.seen: list[bool] = []

    def on_step(self, trainer: Any, report: Any) -> None:
        self.seen.append(self.watcher.look())


@pytest.mark.usefixtures("registrations")
def test_a_run_that_trains_is_found_and_followed_to_its_end() -> None:
    lines = io.StringIO()
    look = Look(Watcher("runs", LineView(lines)))
    rl_training.register_callback("look")(lambda: look)
    run = rl_training.train({**CONFIG, "callbacks": [{"name": "look"}]}).run_dir
    assert look.seen == [True, True]
    assert not look.watcher.look()
    assert look.watcher.rows() == [Row(run.name, "finished", 128, 128, look.watcher.rows()[0].score)]
    told = lines.getvalue().splitlines()
    assert told[0] == f"{run.name}: alert first: env_steps = 64 (64) (at 64 env steps)"
    assert told[1].startswith(f"{run.name}: finished, 128 (100%) env steps, return ")


def test_an_interval_must_be_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--interval", "soon"]) == 2
    assert main(["watch", "--interval", "0"]) == 2
    assert main(["watch", "no-such-run"]) == 2
    assert "no run 'no-such-run'" in capsys.readouterr().err
