"""`hparams.optimizer` in a config: its defaults, what it refuses, and what the flags make of it."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.config.loading import dump_yaml, parse_config
from rl_training.hparams.base import OnPolicyHparams
from rl_training.hparams.crossq import CrossQConfig
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.hparams.optimizer import OptimizerConfig, optimizer_type
from rl_training.hparams.pqn import PQNConfig
from rl_training.hparams.random import RandomConfig
from rl_training.types import ConfigError

ADAMW = OptimizerConfig("adamw", {"weight_decay": 0.01})


@pytest.mark.parametrize("config", [OnPolicyHparams, OffPolicyHparams, PQNConfig, CrossQConfig])
def test_adam_is_the_default_and_its_settings_belong_to_it(config: Any) -> None:
    assert config().optimizer == OptimizerConfig("adam", {})
    assert config(adam_eps=1e-3).adam_eps == 1e-3
    assert config(optimizer=ADAMW).optimizer is ADAMW
    with pytest.raises(ConfigError, match=r"adam_eps is a setting of adam.* set optimizer\.kwargs instead"):
        config(optimizer=ADAMW, adam_eps=1e-3)


def test_the_first_moment_of_crossq_is_adams_too() -> None:
    assert CrossQConfig(adam_beta1=0.7).adam_betas == (0.7, 0.999)
    with pytest.raises(ConfigError, match="adam_beta1 is a setting of adam"):
        CrossQConfig(optimizer=ADAMW, adam_beta1=0.7)


def test_adam_takes_no_kwargs() -> None:
    with pytest.raises(ConfigError, match="kwargs must be empty for adam, not betas; set adam_eps"):
        OptimizerConfig(kwargs={"betas": [0.9, 0.99]})


def test_a_config_names_it_and_is_written_back() -> None:
    cfg = parse_config({"algo": "sac", "hparams": {"optimizer": {"type": "rmsprop", "kwargs": {"alpha": 0.95}}}})
    assert optimizer_type(cfg.hparams) == "rmsprop"
    assert "type: rmsprop" in dump_yaml(cfg)
    assert optimizer_type(RandomConfig()) == "adam"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "adamx"}, r"'hparams\.optimizer\.type': unknown optimizer 'adamx'; did you mean 'adam'\?"),
        ({"type": 3}, r"'hparams\.optimizer\.type': expected str"),
        ({"kwargs": {"lr": 1.0}}, r"'hparams\.optimizer\.kwargs' must be empty for adam"),
        ({"types": "adam"}, r"hparams\.optimizer\.types.*did you mean 'type'"),
    ],
)
def test_mistakes_are_named_with_their_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({"hparams": {"optimizer": given}})


def test_hyperparameters_of_another_algorithm_may_call_their_own_thing_an_optimizer() -> None:
    cfg = parse_config({"algo": "my_project.algorithms:Mine", "hparams": {"optimizer": {"type": "sgd"}}})
    assert cfg.hparams == {"optimizer": {"type": "sgd"}}
