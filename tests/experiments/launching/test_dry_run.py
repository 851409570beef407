"""`--dry-run` says first what would happen, then shows the resolved config; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.config.loading import read_yaml

Captured = pytest.CaptureFixture[str]
SWEEP = "base_config: ppo/cartpole\nseeds: [0, 1]\nsweep: {hparams.clip_coef: [0.1, 0.2]}\n"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_train_shows_the_plan_before_the_config(capsys: Captured) -> None:
    assert main(["train", "ppo/cartpole", "--seed", "1,2", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    plan, _, config = out.partition("\nConfig\n")
    assert plan.splitlines()[0] == "Plan of each of 2 runs"
    words = " ".join(plan.splitlines()[1].split())
    assert words == "run ppo on CartPole-v1, seeds 1, 2, backend torch, into runs"
    assert read_yaml(config)["algo"] == "ppo"
    assert err == "dry run: nothing was written\n"
    assert not Path("runs").exists()


def test_sweep_shows_the_plan_the_trials_and_a_config(capsys: Captured) -> None:
    Path("sweep.yaml").write_text(SWEEP)
    assert main(["sweep", "sweep.yaml", "--total-timesteps", "2000", "--dry-run"]) == 0
    out = capsys.readouterr().out
    plan, _, config = out.partition("\nConfig of trial 0\n")
    assert plan.startswith(
        "Plan  2 trials x 2 seeds = 4 runs, 1 at a time\n      on ppo/cartpole, seeds 0, 1\n\ntrial  "
    )
    tree = read_yaml(config)
    assert (tree["training"]["total_timesteps"], tree["hparams"]["clip_coef"]) == (2000, 0.1)
    assert main(["sweep", "sweep.yaml", "--hparams.gamma", "2", "--dry-run"]) == 2


def test_tune_shows_the_plan_the_space_and_the_base(capsys: Captured) -> None:
    Path("tune.yaml").write_text("base_config: ppo/cartpole\nsampler: random\nnum_trials: 7\nseeds: [0, 1]\n")
    assert main(["tune", "tune.yaml", "--total-timesteps", "2000", "--dry-run"]) == 0
    out = capsys.readouterr().out
    plan, _, config = out.partition("\nConfig of the base\n")
    assert plan.startswith(
        "Plan  7 trials x up to 2 seeds on ppo/cartpole\n      random with pruner wilcoxon, 1 at a time"
    )
    assert read_yaml(config)["training"]["total_timesteps"] == 2000


def test_cleanup_says_first_what_would_go(capsys: Captured) -> None:
    run = fake_run(Path("runs"), 1, reward=1.0)
    assert main(["cleanup", "--keep-best=0", "--keep-recent=0", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Plan  1 runs would be cleaned, ")
    assert run.name in out
    assert err == "dry run: nothing was removed\n"
    assert (run / "logs").is_dir()
