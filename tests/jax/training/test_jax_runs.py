"""Runs of the compiled lane as users start them: run directory, resume, signals, seeds, refusals, what is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from rl_training import evaluate, load, train
from rl_training.assembly.build import build_trainer
from rl_training.assembly.lanes import lane_of
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.loading import load_config
from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.hparams.schedules import Schedule
from rl_training.training.compiled import CompiledTrainer, Position
from rl_training.types import ConfigError, NonFiniteError

pytestmark = pytest.mark.usefixtures("as_users_compile")
TOTAL = 60_000
FLAGS = [
    "ppo/cartpole",
    "--backend=jax",
    "--training.num-eval-episodes=1",
    "--training.eval-frequency=10000",
    "--training.checkpoint-frequency=10000",
    "--logging.tensorboard=false",
]


def config(tmp_path: Path, total: int = TOTAL, **given: Any) -> TrainConfig:
    cfg = load_config("ppo/cartpole", {"backend": "jax", "output_dir": str(tmp_path), **given})
    rhythm = {"num_eval_episodes": 1, "eval_frequency": 10_000, "checkpoint_frequency": 10_000}
    training = replace(cfg.training, total_timesteps=total, **rhythm)  # type: ignore[arg-type]
    return replace(cfg, training=training, logging=replace(cfg.logging, terminal=False, tensorboard=False))


def start(tmp_path: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "rl_training", "train", *FLAGS, f"--output-dir={tmp_path}", *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def the_run(tmp_path: Path) -> Path:
    (run,) = tmp_path.glob("ppo__*")
    return run


def final_state(run: Path) -> dict[str, Any]:
    """Everything the last checkpoint holds but the logs, whose lengths follow the clock fields."""
    parts = CheckpointManager(run).load("latest").parts
    return {name: part for name, part in parts.items() if name != "logs"}


def rows(run: Path, name: str = "metrics") -> list[dict[str, Any]]:
    lines = (run / "logs" / f"{name}.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "system/"))} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(tmp_path_factory.mktemp("whole"))).run_dir


def test_a_compiled_run_leaves_an_ordinary_run_directory(uninterrupted: Path) -> None:
    metrics = rows(uninterrupted)
    assert [row["env_steps"] for row in metrics] == list(range(256, TOTAL + 256, 256)), "a row per rollout"
    evaluated = [row["env_steps"] for row in metrics if "eval/return_mean" in row]
    assert evaluated == [10_240, 20_224, 30_208, 40_192, 50_176, 60_160], (
        "at the first rollout end behind each multiple"
    )
    episodes = rows(uninterrupted, "episodes")
    assert len(episodes) == metrics[-1]["episodes"]
    assert sum(episode["length"] for episode in episodes) <= TOTAL + 256
    assert all(episode["return"] == episode["length"] for episode in episodes), "CartPole pays 1 per step"
    assert all(not episode["terminated"] for episode in episodes if episode["length"] == 500)
    info = json.loads((uninterrupted / "run.json").read_text())
    assert (info["status"], info["exact"], info["threads"]) == ("finished", True, 1)
    steps = CheckpointManager(uninterrupted).steps()
    assert steps[-1] == 60_160


def test_the_metrics_are_those_of_the_torch_twin(uninterrupted: Path, tmp_path: Path) -> None:
    torch_run = train(replace(config(tmp_path, total=512), backend="torch")).run_dir
    assert set(rows(uninterrupted)[0]) == set(rows(torch_run)[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_ended_halfway_goes_on_as_if_nothing_had_happened(
    how: signal.Signals, uninterrupted: Path, tmp_path: Path
) -> None:
    process = start(tmp_path, f"--total-timesteps={TOTAL}")
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("ppo__*/checkpoints/step_0000000[1-4]*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    code = process.wait(60)
    assert code == (143 if how is signal.SIGTERM else -9)
    run = the_run(tmp_path)
    assert rows(run)[-1]["env_steps"] < TOTAL, "it was ended too late for this test to mean anything"
    assert main(["resume", str(run)]) == 0
    np.testing.assert_equal(final_state(run), final_state(uninterrupted))
    assert rows(run) == rows(uninterrupted)
    assert rows(run, "episodes") == rows(uninterrupted, "episodes")
    assert rows(run, "evals") == rows(uninterrupted, "evals")


def test_what_a_run_would_cost_is_known_without_compiling_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["train", "dqn/cartpole", "--backend=jax", "--hparams.learning-starts=900", "--total-timesteps=1000"]
    assert main([*words, "--hparams.updates-per-step=0.5", "--num-envs=7", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["env_steps"], plan["updates"]) == (1000, 50)
    kept = list(tmp_path.rglob("*.program"))
    assert len(kept) == 1, "the first states of the environments, and not the loop"


def test_a_run_that_fails_before_it_starts_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made below it")
    words = [sys.executable, "-m", "rl_training", "train", *FLAGS, f"--output-dir={tmp_path / 'file' / 'runs'}"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "error: cannot create a run in output_dir" in ended.stderr
    assert len(list(tmp_path.rglob("*.program"))) == 1, "the loop was given up"


def test_many_seeds_are_threads_and_each_is_its_solo_run(uninterrupted: Path, tmp_path: Path) -> None:
    words = ["train", *FLAGS, f"--output-dir={tmp_path}", f"--total-timesteps={TOTAL}", "--seed=0,1,2", "--jobs=2"]
    assert main([*words, "--logging.terminal=false"]) == 0
    runs = sorted(tmp_path.glob("ppo__*"))
    assert len(runs) == 3
    (first,) = [run for run in runs if "__seed0__" in run.name]
    np.testing.assert_equal(final_state(first), final_state(uninterrupted))
    assert rows(first) == rows(uninterrupted)
    assert len({rows(run)[-1]["train/loss"] for run in runs}) == 3


def test_one_failing_seed_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = CompiledTrainer.train_step

    def failing(self: CompiledTrainer) -> Any:
        if self.algorithm.seed == 1:
            raise NonFiniteError("train/loss is nan")
        return step(self)

    monkeypatch.setattr(CompiledTrainer, "train_step", failing)
    words = ["train", *FLAGS, f"--output-dir={tmp_path}", "--total-timesteps=2000", "--seed=0,1,2", "--jobs=1"]
    assert main([*words, "--logging.terminal=false"]) == 1
    ended = {run.name.split("__")[2]: json.loads((run / "run.json").read_text()) for run in tmp_path.glob("ppo__*")}
    assert {seed: info["status"] for seed, info in ended.items()} == {
        "seed0": "finished",
        "seed1": "failed",
        "seed2": "finished",
    }


def test_the_length_of_chunks_changes_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    trainer = build_trainer(config(tmp_path))
    assert isinstance(trainer, CompiledTrainer)
    reports = []
    for trainer.pace in (1, 3, 2, 7, 7):
        trainer.train_step()
        reports += trainer.history
    expected = rows(uninterrupted)[:20]
    assert [report.metrics["train/policy_loss"] for report in reports] == pytest.approx(
        [row["train/policy_loss"] for row in expected], rel=0, abs=0
    )


def test_episodes_are_counted_step_by_step_whatever_the_rollouts_are() -> None:
    rng, steps, envs = np.random.default_rng(0), 60, 3
    rewards = rng.standard_normal((steps, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < 0.1
    expected, totals, lengths = [], np.zeros(envs), np.zeros(envs, int)
    for t, i in np.ndindex(steps, envs):
        totals[i], lengths[i] = totals[i] + rewards[t, i], lengths[i] + 1
        if terminated[t, i] or truncated[t, i]:
            expected.append((i, pytest.approx(totals[i]), lengths[i], terminated[t, i]))
            totals[i], lengths[i] = 0.0, 0
    position = Position(SimpleNamespace(is_first=np.ones(envs, bool)))  # type: ignore[arg-type]
    rollouts = [[column[t : t + 12] for column in (rewards, terminated, truncated)] for t in range(0, steps, 12)]
    episodes = [episode for rollout in rollouts for episode in position.episodes(*rollout)]
    assert [(e.env_index, e.episode_return, e.length, e.terminated) for e in episodes] == expected
    np.testing.assert_allclose(position.returns, totals)
    np.testing.assert_array_equal(position.lengths, lengths)


def test_a_run_without_evaluations_takes_long_chunks() -> None:
    training = {"num_eval_episodes": 0, "checkpoint_frequency": 0}
    trainer = build_trainer(load_config("ppo/cartpole", {"backend": "jax", "training": training}), to_run=False)
    assert isinstance(trainer, CompiledTrainer)
    assert not trainer.stops


def test_nothing_is_compiled_after_the_first_chunk(tmp_path: Path) -> None:
    trainer = build_trainer(config(tmp_path))
    assert isinstance(trainer, CompiledTrainer)
    trainer.train_step()
    trainer.load_state_dict(trainer.state_dict())
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **_: compiled.append(name))
    try:
        for trainer.pace in (1, 2, 5, 3):
            trainer.train_step()
            trainer.load_state_dict(trainer.state_dict())
        assert not [name for name in compiled if "compile" in name], "no trace, no lowering, no compilation"
        jax.jit(lambda x: x * 3.25)(1.0)
        assert [name for name in compiled if "compile" in name], "the listener would have heard one"
    finally:
        jax.monitoring.clear_event_listeners()


def test_a_nan_stops_the_chunk_it_appears_in_and_names_the_first_bad_update(tmp_path: Path) -> None:
    cfg = config(tmp_path, total=20_000)
    broken = replace(cfg, hparams=replace(cfg.hparams, learning_rate=Schedule("linear", 1e30, 0.0)))
    with pytest.raises(NonFiniteError, match=r"train/.* is .* in update [12], which began at env step (0|256):"):
        train(broken)
    (run,) = tmp_path.glob("ppo__*")
    assert CheckpointManager(run).steps() == [0]


def test_a_run_can_be_evaluated_loaded_and_continued_in_torch(uninterrupted: Path, tmp_path: Path) -> None:
    result = evaluate(uninterrupted, episodes=3)
    assert result["env_steps"] == 60_160
    assert result["returns"][0] == rows(uninterrupted, "evals")[-1]["returns"][0], "episode 0 is the last evaluation's"
    policy = load(uninterrupted)
    assert policy.predict(np.zeros(4, np.float32)) in (0, 1)
    torch_cfg = replace(config(tmp_path, total=256), backend="torch")
    child = train(torch_cfg, init_from=str(uninterrupted)).run_dir
    parent, start_of_child = (CheckpointManager(run) for run in (uninterrupted, child))
    np.testing.assert_equal(
        start_of_child.load(0).parts["policy"]["network"], parent.load("latest").parts["policy"]["network"]
    )


def test_the_lane_is_chosen_by_the_environment_and_refused_with_a_reason(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    assert lane_of(cfg) == "compiled"
    assert lane_of(replace(cfg, lane="host")) == "host"
    assert lane_of(replace(cfg, env_id="LunarLander-v3")) == "host"
    assert lane_of(replace(cfg, backend="torch")) == "host"
    with pytest.raises(ConfigError, match=r"'LunarLander-v3' has no form in JAX; use lane: host"):
        lane_of(replace(cfg, env_id="LunarLander-v3", lane="compiled"))
    with pytest.raises(ConfigError, match=r"env\.frame_stack is for Gymnasium environments"):
        lane_of(replace(cfg, env=EnvConfig(frame_stack=4), lane="compiled"))
    with pytest.raises(ConfigError, match="needs backend: jax"):
        build_trainer(replace(cfg, backend="torch", lane="compiled"))
    with pytest.raises(ConfigError, match="'a2c' has no JAX implementation; use backend: torch"):
        build_trainer(load_config("a2c/cartpole", {"backend": "jax", "output_dir": str(tmp_path)}))


def test_what_minibatches_cannot_be_is_refused(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    with pytest.raises(ConfigError, match="num_minibatches 3 does not divide the 256 rows"):
        build_trainer(replace(cfg, hparams=replace(cfg.hparams, num_minibatches=3)))


IMPORTS = """
import sys
import rl_training
assert not {"jax", "torch"} & set(sys.modules), "import rl_training is light"
from rl_training.cli import main
code = main(sys.argv[1:])
assert "torch" not in sys.modules, "a jax run imports no torch"
assert "jax" in sys.modules
raise SystemExit(code)
"""


@pytest.mark.parametrize("lane", ["compiled", "host"])
def test_a_jax_run_imports_no_torch(lane: str, tmp_path: Path) -> None:
    words = ["train", *FLAGS, f"--output-dir={tmp_path}", "--total-timesteps=256", f"--lane={lane}"]
    words[1] = "ppo/cartpole" if lane == "compiled" else "reinforce/cartpole"
    quick = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if lane == "host" else None
    subprocess.run([sys.executable, "-c", IMPORTS, *words], check=True, stdout=subprocess.DEVNULL, env=quick)


def test_without_jax_the_package_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['jax'] = None; from rl_training.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["train", *FLAGS, f"--output-dir={tmp_path}"]
    ended = subprocess.run([sys.executable, "-c", hide, *words], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "pip install 'rl-training[jax]'" in ended.stderr


SIMPLER = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("reinforce/cartpole", "pqn/cartpole", "td3/pendulum")
]
"""Their programs are made of the parts of the other three."""


@pytest.mark.parametrize("preset", ["ppo/cartpole", "dqn/cartpole", "sac/pendulum", *SIMPLER])
def test_keys_are_used_once_and_nothing_is_nan(preset: str) -> None:
    """The whole program of every algorithm under JAX's own checks."""
    narrow = {"hidden_dims": [8]}
    cfg = load_config(
        preset, {"backend": "jax", "env": {"num_envs": 2}, "network": {"actor": narrow, "critic": narrow}}
    )
    small = {"num_steps": 8, "num_epochs": 1, "num_minibatches": 1, "learning_starts": 240, "batch_size": 4}
    small = {name: value for name, value in small.items() if hasattr(cfg.hparams, name)}
    jax.config.update("jax_disable_most_optimizations", True)  # compiles in half of the time
    with jax.debug_key_reuse(True), jax.debug_nans(True):
        trainer = build_trainer(replace(cfg, hparams=replace(cfg.hparams, **small)))
        trainer.train_step()
    assert trainer.progress.updates > 0
