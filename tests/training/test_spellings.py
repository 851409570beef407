"""The three spellings of a config file, each loaded as it is written and trained for a moment."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import load_config
from rl_training.config.searches.sweeps import load_sweep, trials_of
from rl_training.trainer import TrainResult, train

FLAT = """\
algo: ppo
env_id: CartPole-v1
seed: 1
"""

NESTED = """\
experiment:
  name: ppo_cartpole
  seed: 42
  device: cuda
algorithm:
  name: ppo
  lr: 3e-4
  gamma: 0.99
  gae_lambda: 0.95
  clip_ratio: 0.2
  value_coef: 0.5
  entropy_coef: 0.01
environment:
  name: CartPole-v1
  wrapper: gym
  normalize_obs: true
  normalize_reward: false
network:
  actor: {type: mlp, hidden_dims: [16], activation: relu}
  critic: {type: mlp, hidden_dims: [16], activation: relu}
buffer:
  type: trajectory
  size: 256
training:
  total_timesteps: 256
  eval_frequency: 10000
  checkpoint_frequency: 50000
  num_eval_episodes: 1
logging:
  terminal: false
  tensorboard: false
  wandb:
    enabled: true
    project: rl-experiments
    tags: [ppo, baseline]
"""

SWEEP = """\
base_config: base.yaml
sweep:
  algorithm.lr: [1e-3]
  experiment.seed: [7]
  buffer.type: [uniform]
parallel_jobs: 2
"""


def short(folder: Path, **more: Any) -> dict[str, Any]:
    quiet = {"logging.terminal": False, "logging.tensorboard": False, "training.num_eval_episodes": 1}
    return {"output_dir": str(folder / "runs"), **quiet, **more}


def trained(result: TrainResult) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((result.run_dir / "run.json").read_text())
    assert (info["status"], result.metrics["env_steps"] > 0) == ("finished", True)
    return info


def test_the_flat_spelling_trains(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT)
    sizes = {"total_timesteps": 128, "num_envs": 2, "hparams.num_steps": 32}
    info = trained(train(load_config(tmp_path / "flat.yaml", short(tmp_path, **sizes))))
    assert (info["algo"], info["env_id"], info["seed"]) == ("ppo", "CartPole-v1", 1)


def test_the_nested_spelling_trains_without_a_gpu_or_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import wandb

    started: list[dict[str, Any]] = []
    monkeypatch.setattr(wandb, "init", lambda **keywords: started.append(keywords))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "nested.yaml").write_text(NESTED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        info = trained(train(load_config(tmp_path / "nested.yaml", {"output_dir": str(tmp_path / "runs")})))
    assert (info["name"], info["seed"]) == ("ppo_cartpole", 42)
    told = sorted(str(warning.message) for warning in caught if issubclass(warning.category, UserWarning))
    assert [text.split(":")[0] for text in told] == ["device 'cuda' is not available here", "no W&B key found"]
    assert [(one["mode"], one["project"]) for one in started] == [("offline", "rl-experiments")]


def test_the_sweep_spelling_trains(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("algo: dqn\nenv_id: CartPole-v1\nbuffer: {size: 1000}\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    sweep = load_sweep(tmp_path / "sweep.yaml")
    (trial,) = trials_of(sweep)
    cfg = load_config(sweep.base_config, {**short(tmp_path), **trial, "seed": 7, "total_timesteps": 256})
    assert (cfg.hparams.learning_rate, cfg.buffer.type) == (1e-3, "replay")
    assert trained(train(cfg))["seed"] == 7
