"""`rl train`, `eval`, `resume` on tiny runs, and the mistakes that only show when something is built."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from rl_training.cli import main
from rl_training.config.loading import load_config

Captured = pytest.CaptureFixture[str]
TINY = ["--hparams.num-steps", "16", "--num-envs", "2", "--total-timesteps", "96", "--logging.tensorboard", "false"]
EVAL_KEYS = {"run", "checkpoint", "env_steps", "seed", "deterministic", "episodes", "returns", "lengths"} | {
    "return_mean",
    "return_std",
    "return_iqm",
    "length_mean",
}

ENVIRONMENTS = '''
"""Environments that no built-in algorithm can use, and one that breaks."""
import gymnasium as gym
import numpy as np


class WholeNumbers(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(0, 5, (2,), np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, True, {}


class Chatty(WholeNumbers):
    action_space = gym.spaces.Discrete(2)

    def step(self, action):
        print("stepping")
        return super().step(action)
'''


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 96 env steps with checkpoints at 0, 64 and 96, made by the command itself."""
    folder = tmp_path_factory.mktemp("trained")
    flags = ["--output-dir", str(folder), "--seed", "5", "--name", "first", "--training.checkpoint-frequency", "64"]
    flags += ["--training.num-eval-episodes", "2", "--training.eval-frequency", "0"]
    assert main(["train", *TINY, *flags]) == 0
    return next(path for path in folder.iterdir() if (path / "run.json").is_file())


def result_of(capsys: Captured, words: list[str]) -> Any:
    code = main(words)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def refusal(capsys: Captured, words: list[str], code: int) -> str:
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.splitlines()[-1].startswith("error: ")
    return captured.err


# -- train ------------------------------------------------------------------------------------------------------------


def test_a_run_keeps_its_config_source_and_command(capsys: Captured, tmp_path: Path) -> None:
    source = "algo: a2c\nenv_id: CartPole-v1  # the one with the pole\nlogging: {tensorboard: false}\n"
    (tmp_path / "my.yaml").write_text(source)
    result = result_of(capsys, ["train", "my.yaml", "--total-timesteps=64", "--tags", "a,b", "--json"])
    run = Path(result["run"])
    assert run.parent == tmp_path / "runs"
    assert run.name.startswith("a2c__CartPole-v1__seed0__")
    assert (run / "configs" / "source.yaml").read_text() == source
    assert load_config(run / "configs" / "resolved.yaml").tags == ("a", "b")
    argv = json.loads((run / "run.json").read_text())["argv"]
    assert argv == ["rl", "train", "my.yaml", "--total-timesteps=64", "--tags", "a,b", "--json"]
    assert (result["exit_code"], result["metrics"]["env_steps"]) == (0, 64)
    assert Path(result["checkpoint"]).name == "step_000000000064"


def test_the_end_of_a_run_says_where_it_is_and_what_to_type_next(capsys: Captured) -> None:
    assert main(["train", *TINY]) == 0
    out = capsys.readouterr().out
    assert "runs/ppo__CartPole-v1__seed0__" in out
    assert "rl eval " in out


def test_a_run_that_ends_before_it_learns_says_so(capsys: Captured) -> None:
    words = ["train", "dqn/cartpole", "--training.num-eval-episodes=0", "--hparams.learning-starts=64"]
    assert main([*words, "--total-timesteps=64"]) == 0
    assert "nothing yet: hparams.learning_starts is 64" in capsys.readouterr().out
    assert main([*words, "--total-timesteps=256"]) == 0
    assert "nothing yet" not in capsys.readouterr().out


def test_debug_is_short_and_checks_everything(capsys: Captured) -> None:
    words = ["train", "--num-envs=2", "--hparams.num-steps=16", "--tags=mine", "--training.num-eval-episodes=1"]
    assert main([*words, "--debug", "--json"]) == 0
    captured = capsys.readouterr()
    run = Path(json.loads(captured.out)["run"])
    cfg = load_config(run / "configs" / "resolved.yaml")
    assert cfg.training.total_timesteps == 4 * 16 * 2
    assert (cfg.training.eval_frequency, cfg.training.checkpoint_frequency, cfg.monitor.checks) == (32, 32, "full")
    assert (cfg.training.num_eval_episodes, cfg.tags) == (1, ("mine", "debug"))
    assert "debug: training.total_timesteps 100000 -> 128" in captured.err


@pytest.mark.parametrize("steps", [32, 320])
def test_debug_keeps_a_budget_that_is_given(capsys: Captured, steps: int) -> None:
    result = result_of(capsys, ["train", *TINY, f"--total-timesteps={steps}", "--debug", "--json"])
    assert result["metrics"]["env_steps"] == steps


def test_dry_run_shows_config_and_plan_and_writes_nothing(capsys: Captured, tmp_path: Path) -> None:
    words = ["train", *TINY, "--training.eval-frequency=32", "--training.checkpoint-frequency=48", "--dry-run"]
    shown = result_of(capsys, [*words, "--json"])
    assert shown["config"]["training"]["total_timesteps"] == 96
    plan = shown["plan"]
    # actor 4-64-64-2 and critic 4-64-64-1: 2 x (320 + 4160) + 130 + 65
    assert plan["parameters"] == 9155
    assert (plan["updates"], plan["evaluations"], plan["checkpoints"]) == (3, 4, 3)
    assert {"memory_bytes", "disk_bytes"} <= plan.keys()
    assert main([*words, "--seed=1,2"]) == 0
    out = capsys.readouterr().out
    assert "total_timesteps: 96" in out
    assert "Plan of each of 2 runs" in out
    assert list(tmp_path.iterdir()) == []


def test_init_from_another_run(capsys: Captured, trained: Path) -> None:
    result = result_of(capsys, ["train", *TINY, "--init-from", f"{trained}:64", "--json"])
    assert json.loads((Path(result["run"]) / "run.json").read_text())["parent"] == f"{trained}:64"


# -- eval and resume --------------------------------------------------------------------------------------------------


def test_eval_prints_the_documented_record(capsys: Captured, trained: Path) -> None:
    result = result_of(capsys, ["eval", str(trained), "--episodes", "3", "--seed", "11", "--json"])
    assert result.keys() >= EVAL_KEYS
    assert (result["run"], result["checkpoint"], result["env_steps"]) == (str(trained), "latest", 96)
    assert (result["seed"], result["deterministic"], result["episodes"]) == (11, True, 3)
    assert result["returns"] == [float(length) for length in result["lengths"]]
    assert result["return_mean"] == pytest.approx(sum(result["returns"]) / 3)


def test_eval_does_not_depend_on_the_number_of_environments(capsys: Captured, trained: Path) -> None:
    words = ["eval", str(trained), "--episodes=5", "--stochastic", "--json"]
    one, many = (result_of(capsys, [*words, f"--num-envs={n}"]) for n in (1, 3))
    assert one["returns"] == many["returns"]
    assert one["deterministic"] is False


def test_eval_of_a_named_run_at_a_step(capsys: Captured, trained: Path) -> None:
    words = ["--output-dir", str(trained.parent), "--episodes=1", "--json"]
    assert result_of(capsys, ["eval", "first", "--checkpoint=64", *words])["env_steps"] == 64
    assert result_of(capsys, ["eval", "latest", "--checkpoint=0", *words])["env_steps"] == 0
    assert result_of(capsys, ["eval", trained.name[:12], *words])["env_steps"] == 96


def test_eval_in_words(capsys: Captured, trained: Path) -> None:
    assert main(["eval", str(trained), "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == str(trained)
    assert "2 greedy episodes, seed" in out
    assert "return " in out


def test_resume_extends_a_run_both_ways(capsys: Captured) -> None:
    run = Path(result_of(capsys, ["train", *TINY, "--json"])["run"])
    extended = result_of(capsys, ["resume", "latest", "--total-timesteps", "128", "--json"])
    assert (extended["run"], extended["metrics"]["env_steps"]) == (str(run), 128)
    again = result_of(capsys, ["train", "--resume", run.name, "--total-timesteps", "160", "--json"])
    assert (again["run"], again["metrics"]["env_steps"]) == (str(run), 160)


def test_a_missing_checkpoint_is_named(capsys: Captured, trained: Path) -> None:
    assert "7" in refusal(capsys, ["eval", str(trained), "--checkpoint", "7"], 1)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_an_unknown_environment(capsys: Captured, tmp_path: Path) -> None:
    message = refusal(capsys, ["train", "--env-id", "CartPol-v1"], 2)
    assert "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?" in message
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    monkeypatch.delitem(gym.registry, "MiniGrid-Empty-5x5-v0", raising=False)  # another test may have imported it
    message = refusal(capsys, ["train", "--env-id", "MiniGrid-Empty-5x5-v0"], 2)
    assert "pip install 'rl-training[minigrid]'" in message


def test_an_algorithm_that_does_not_fit_the_actions(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_test_envs.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    message = refusal(capsys, ["train", "--env-id", "cli_test_envs:WholeNumbers"], 2)
    assert "algorithm 'ppo' does not fit environment 'cli_test_envs:WholeNumbers'" in message
    assert "Box actions of dtype int64" in message
    assert not (tmp_path / "runs").exists()


def test_what_an_environment_prints_stays_out_of_the_json(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_chatty_envs.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = result_of(capsys, ["train", *TINY, "--env-id", "cli_chatty_envs:Chatty", "--json"])
    assert result["exit_code"] == 0


def test_an_output_folder_that_is_a_file(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    message = refusal(capsys, ["train", *TINY], 1)
    assert "cannot create a run in output_dir 'runs'" in message
    assert "a file is in the way" in message
    assert (tmp_path / "runs").read_text() == "in the way"


def test_folders_that_are_no_run(capsys: Captured, tmp_path: Path, trained: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert "is not a run" in refusal(capsys, ["eval", "notes"], 2)
    assert f"use '{trained}'" in refusal(capsys, ["resume", str(trained / "logs")], 2)
    assert "holds 1 runs but is not a run itself" in refusal(capsys, ["eval", str(trained.parent)], 2)
