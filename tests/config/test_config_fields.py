"""The sentences, types and defaults that `--help` and the reference are made of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rl_training.config.fields import FieldDoc, describe, hint_at
from rl_training.config.loading import field_docs, parse_config
from rl_training.hparams.ppo import PPOConfig
from rl_training.registry import algorithms
from rl_training.types import ConfigError


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_field_carries_a_sentence(algo: str) -> None:
    for path, doc in field_docs(algo).items():
        assert doc.path == path
        assert len(doc.doc) > 8, path
        assert doc.doc.endswith("."), path


def test_sentences_types_and_defaults() -> None:
    docs = field_docs("ppo")
    assert docs["hparams.num_epochs"] == FieldDoc("hparams.num_epochs", "int", "4", "Passes over each rollout.")
    assert docs["hparams.learning_rate"].type == "float or schedule {type, start, end}"
    assert docs["hparams.learning_rate"].default == "0.0003"
    assert docs["env.vectorization"].type == "one of sync, async, native"
    assert docs["network.actor.hidden_dims"].default == "[64, 64]"
    assert (docs["name"].type, docs["name"].default) == ("str or null", "null")
    assert docs["logging.wandb.enabled"].default == "false"
    assert docs["env.kwargs"].default == "{}"


def test_hyperparameters_are_those_of_the_algorithm() -> None:
    assert field_docs("a2c")["hparams.num_steps"].default == "8"
    assert "hparams.clip_coef" not in field_docs("a2c")
    assert "1 is the n-step return" in field_docs("a2c")["hparams.gae_lambda"].doc, "a subclass says it anew"
    assert field_docs("my.mod:Algo")["hparams"].default == "{}"


def test_unknown_algorithm() -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'pppo'; did you mean 'ppo'"):
        field_docs("pppo")


def test_types_by_path() -> None:
    assert describe(hint_at(("env", "wrappers", 0, "name"), PPOConfig)) == "str"
    assert describe(hint_at(("hparams", "gamma"), PPOConfig)) == "float"
    assert describe(hint_at(("no", "such"), PPOConfig)) == "any value"


def test_every_default_is_accepted_as_written() -> None:
    from rl_training.config.loading import parse_override_value

    docs = field_docs("ppo")
    overrides = {path: parse_override_value(doc.default, path) for path, doc in docs.items() if path != "base"}
    assert parse_config({}, overrides) == parse_config({})


def test_loading_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rl_training.config.loading import *; load_config('ppo/cartpole'); field_docs(); "
        "heavy = ('torch', 'jax', 'gymnasium', 'matplotlib', 'tensorboard', 'wandb', 'rich'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pydantic_is_set_up_only_when_something_is_loaded() -> None:
    code = "import sys, rl_training.config.loading; print('pydantic.type_adapter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
