"""ConfigManager: the four verbs over the loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.config import ConfigManager, TrainConfig
from rl_training.config.loading import load_config
from rl_training.types import ConfigError


def test_load_override_validate_save(tmp_path: Path) -> None:
    manager = ConfigManager()
    cfg = manager.load("ppo/cartpole", {"seed": 5})
    assert cfg == load_config("ppo/cartpole", {"seed": 5})
    changed = manager.override(cfg, {"env.num_envs": 2, "hparams.lr": 1e-3})
    assert (changed.env.num_envs, changed.hparams.learning_rate, changed.seed) == (2, 1e-3, 5)
    assert cfg.env.num_envs != 2, "the config that was given is not changed"
    path = manager.save(changed, tmp_path / "deep" / "mine.yaml")
    assert manager.load(path) == changed
    assert manager.validate(changed) == changed


def test_a_mapping_is_a_config_too() -> None:
    tree = {"algo": "dqn", "environment": {"name": "CartPole-v1"}}
    assert ConfigManager.load(tree).env_id == ConfigManager.validate(tree).env_id == "CartPole-v1"


def test_what_cannot_run_is_refused_with_every_problem() -> None:
    with pytest.raises(ConfigError, match="num_env'; did you mean") as caught:
        ConfigManager.validate({"algo": "ppo", "env_id": "CartPole-v1", "env": {"num_env": 2}, "seed": -1})
    assert "seed" in str(caught.value)
    with pytest.raises(ConfigError, match="clip_coeff"):
        ConfigManager.override(TrainConfig(algo="ppo", env_id="CartPole-v1"), {"hparams.clip_coeff": 0.1})
