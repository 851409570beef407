"""A run put together: which callbacks in which order, what is saved beside the trainer, and that it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.assembly.running.run import Run, assemble
from rl_training.assembly.running.user_parts import user_parts
from rl_training.checkpointing.seal import Seal, SealCheck
from rl_training.config.loading import parse_config
from rl_training.runs.directory import RunDir
from rl_training.types import CheckpointError


class Counting(rl_training.Callback):
    """A callback with state."""

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, trainer: Any, report: Any) -> None:
        self.count += 1

    def state_dict(self) -> Any:
        return {"count": self.count}

    def load_state_dict(self, state: Any, /) -> None:
        self.count = state["count"]


def assembled(tmp_path: Path, directory: RunDir | None = None, **given: Any) -> Run:
    mapping = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "env": {"num_envs": 1},
        "hparams": {"num_steps": 16, "num_minibatches": 1},
        "training": {"total_timesteps": 64, "num_eval_episodes": 1},
        "logging": {"terminal": False, "tensorboard": False, **given.pop("logging", {})},
        "output_dir": str(tmp_path),
        **given,
    }
    cfg = parse_config(mapping)
    directory = directory or RunDir.create(cfg)
    users = user_parts(cfg, [Counting()])
    return assemble(cfg, build_trainer(cfg), directory, users, SealCheck(Seal.of(directory)))


def names(run: Run) -> list[str]:
    return [type(callback).__name__.removesuffix("Callback").lower() for callback in run.callbacks]


def test_the_callbacks_are_in_their_order(tmp_path: Path) -> None:
    run = assembled(tmp_path)
    assert names(run) == ["guard", "eval", "monitor", "log", "counting", "checkpoint", "progress"]
    run.trainer.close()
    everything = {"logging": {"trace": True, "video_frequency": 32}, "monitor": {"debug": {"enabled": True}}}
    full = assembled(tmp_path, **everything)
    order = ["guard", "trace", "eval", "video", "monitor", "log", "debug", "counting", "checkpoint", "progress"]
    assert names(full) == order
    full.trainer.close()


def test_a_checkpoint_has_the_parts_of_the_trainer_then_the_callbacks_and_last_the_logs(tmp_path: Path) -> None:
    run = assembled(tmp_path)
    run.trainer.run(64, run.callbacks)
    run.trainer.close()
    parts = run.manager.load_latest().parts
    beside = ["eval", "monitor", "log", "callback_0", "checkpoint", "logs"]
    assert list(parts) == ["policy", "algorithm", "collector", "env", "progress", *beside, "stop"]
    assert parts["callback_0"] == {"count": 4}


def test_the_saver_restores_what_it_saved(tmp_path: Path) -> None:
    run = assembled(tmp_path)
    run.trainer.run(64, run.callbacks)
    run.trainer.close()
    fresh = assembled(tmp_path, RunDir.open(run.manager.path.parent))
    fresh.saver.restore(fresh.trainer, run.manager.load_latest().parts)
    fresh.trainer.close()
    assert fresh.trainer.progress.env_steps == 64
    assert next(callback.count for callback in fresh.callbacks if isinstance(callback, Counting)) == 4
    parts = run.manager.load_latest().parts
    del parts["callback_0"]
    with pytest.raises(CheckpointError, match="has no part 'callback_0'"):
        fresh.saver.restore(fresh.trainer, parts)


def test_a_checkpoint_without_alerts_is_resumed_all_the_same(tmp_path: Path) -> None:
    run = assembled(tmp_path)
    state = run.trainer.state_dict(run.saver.beside)
    del state["monitor"]
    run.saver.restore(run.trainer, state)
    run.trainer.close()


def test_a_trainer_alone_saves_its_own_parts(tmp_path: Path) -> None:
    run = assembled(tmp_path)
    assert list(run.trainer.state_dict()) == ["policy", "algorithm", "collector", "env", "progress", "stop"]
    run.trainer.close()
