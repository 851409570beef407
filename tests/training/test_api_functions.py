"""The functions of the package as a notebook calls them: configs and fields, names of runs, documented signatures."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.config.loading import parse_config
from rl_training.config.schema import TrainConfig
from rl_training.trainer import resolved_config
from rl_training.types import ConfigError, RunError

PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"


@pytest.mark.parametrize("kind", ["preset", "file", "mapping", "object"])
def test_fields_change_any_config(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algo: ppo\nseed: 1\n")
    given: Any = {
        "preset": "ppo/cartpole",
        "file": tmp_path / "mine.yaml",
        "mapping": {"algo": "ppo"},
        "object": TrainConfig(),
    }[kind]
    fields = {
        "seed": 3,
        "total_timesteps": 500,
        "hparams.clip_coef": 0.1,
        "env": {"num_envs": 8},
        "algorithm.lr": 0.01,
        "callbacks": ["my.mod:Thing"],
    }
    cfg = resolved_config(given, fields).config
    assert (cfg.seed, cfg.training.total_timesteps, cfg.env.num_envs) == (3, 500, 8)
    assert (cfg.hparams.clip_coef, cfg.hparams.learning_rate) == (0.1, 0.01)
    assert cfg.callbacks[0].name == "my.mod:Thing"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sed": 1}, r"train\(\): unknown key 'sed'; did you mean 'seed'\?"),
        ({"clip_coef": 0.1}, r"train\(\): unknown key 'clip_coef'; did you mean 'hparams.clip_coef'\?"),
        ({"hparams.clip_coeff": 0.1}, "did you mean 'clip_coef'"),
        ({"total_timesteps": 1e3}, "expected int, got 1000.0"),
        ({"base": "ppo/cartpole"}, "a base belongs in a file"),
        ({"seed": object()}, "a value of type object has no place in a config"),
    ],
)
def test_fields_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rl_training.train("ppo/cartpole", **fields)


def test_runs_are_found_by_name_in_a_folder(tmp_path: Path) -> None:
    cfg = parse_config({"name": "mine", "output_dir": str(tmp_path / "here"), "logging.terminal": False})
    rl_training.train(cfg, num_envs=1, total_timesteps=32, **{"hparams.num_steps": 16, "training.num_eval_episodes": 1})
    here = tmp_path / "here"
    assert rl_training.load("mine", output_dir=here).env_steps == 32
    assert rl_training.evaluate("latest", output_dir=here, episodes=1)["episodes"] == 1
    assert rl_training.resume("mine", output_dir=here).stop_reason == "already finished"
    with pytest.raises(RunError):
        rl_training.load("mine", output_dir=tmp_path)


def test_the_page_has_the_signatures_of_the_code() -> None:
    documented = dict(re.findall(r"^\| `(\w+)(\(.*?\))` \|", PAGE.read_text(), re.MULTILINE))
    assert {"train", "resume", "load", "evaluate", "predict", "export", "reset"} <= documented.keys()
    policy = rl_training.eval.SavedPolicy  # type: ignore[attr-defined]
    for name, text in documented.items():
        function = getattr(policy, name, None) or getattr(rl_training, name)
        parameters = [
            item.replace(annotation=inspect.Parameter.empty)
            for item in inspect.signature(function).parameters.values()
            if item.name != "self"
        ]
        assert text == str(inspect.Signature(parameters)).replace("'", '"'), name
