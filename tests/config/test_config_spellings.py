"""The three spellings of a config file, each as a user writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.cli.commands import load_command
from rl_training.cli.fields import find_field, value_of
from rl_training.config.loading import load_config, parse_config
from rl_training.config.schema import BackboneConfig, TrainConfig, WandbConfig, WrapperConfig
from rl_training.config.searches.sweeps import SweepConfig, load_sweep
from rl_training.hparams.ppo import PPOConfig
from rl_training.registry import register_buffer
from rl_training.types import ConfigError

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
  actor:
    type: mlp
    hidden_dims: [128, 128]
    activation: relu
  critic:
    type: mlp
    hidden_dims: [256]
    activation: tanh
buffer:
  type: trajectory
  size: 2048
training:
  total_timesteps: 1000000
  eval_frequency: 10000
  checkpoint_frequency: 50000
  num_eval_episodes: 10
logging:
  terminal: true
  tensorboard: true
  wandb:
    enabled: true
    project: rl-experiments
    tags: [ppo, baseline]
"""

SWEEP = """\
base_config: experiment.yaml
sweep:
  algorithm.lr: [1e-4, 3e-4, 1e-3]
  hparams.clip_coef: [0.1, 0.2]
  experiment.seed: [1, 2, 3]
parallel_jobs: 4
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_flat_spelling(tmp_path: Path) -> None:
    cfg = load_config(write(tmp_path, "flat.yaml", FLAT))
    assert cfg == TrainConfig(algo="ppo", env_id="CartPole-v1", seed=1)
    assert cfg.hparams == PPOConfig()


def test_the_nested_spelling(tmp_path: Path) -> None:
    cfg = load_config(write(tmp_path, "nested.yaml", NESTED))
    assert (cfg.name, cfg.seed, cfg.device, cfg.algo, cfg.env_id) == ("ppo_cartpole", 42, "cuda", "ppo", "CartPole-v1")
    # 2048 transitions in the 4 environments of the default
    assert cfg.hparams == PPOConfig(num_steps=512, learning_rate=3e-4, ent_coef=0.01)
    assert (cfg.env.wrappers, cfg.env.normalize_obs, cfg.env.normalize_reward) == ((), True, False)
    assert cfg.network.actor == BackboneConfig(hidden_dims=(128, 128), activation="relu")
    assert cfg.network.critic == BackboneConfig(hidden_dims=(256,))
    assert (cfg.buffer.type, cfg.buffer.size) == ("rollout", 2048)
    training = cfg.training
    assert (training.total_timesteps, training.eval_frequency) == (1_000_000, 10_000)
    assert (training.checkpoint_frequency, training.num_eval_episodes) == (50_000, 10)
    assert cfg.logging.wandb == WandbConfig(enabled=True, project="rl-experiments", tags=("ppo", "baseline"))


def test_the_sweep_spelling(tmp_path: Path) -> None:
    base = write(tmp_path, "experiment.yaml", NESTED)
    assert load_sweep(write(tmp_path, "sweep.yaml", SWEEP)) == SweepConfig(
        base_config=str(base),
        sweep={"hparams.learning_rate": (1e-4, 3e-4, 1e-3), "hparams.clip_coef": (0.1, 0.2), "seed": (1, 2, 3)},
        parallel_jobs=4,
    )


@pytest.mark.parametrize(
    ("written", "wrappers"),
    [
        ("gym", ()),
        ([], ()),
        (["gym"], ()),
        ("time_limit", (WrapperConfig("time_limit"),)),
        ({"name": "m:W", "kwargs": {"a": 1}}, (WrapperConfig("m:W", {"a": 1}),)),
        (["a:B", {"name": "c:D", "train_only": True}], (WrapperConfig("a:B"), WrapperConfig("c:D", train_only=True))),
    ],
)
def test_wrappers_as_names_and_mappings(written: object, wrappers: tuple[WrapperConfig, ...]) -> None:
    assert parse_config({"environment": {"wrapper": written}}).env.wrappers == wrappers
    assert parse_config({}, {"env.wrappers": written}).env.wrappers == wrappers


def test_callbacks_and_sinks_as_plain_names() -> None:
    cfg = parse_config({"callbacks": ["my.mod:Callback"], "logging": {"sinks": ["jsonl", {"name": "my.mod:Sink"}]}})
    assert [callback.name for callback in cfg.callbacks] == ["my.mod:Callback"]
    assert [sink.name for sink in cfg.logging.sinks] == ["jsonl", "my.mod:Sink"]


@pytest.mark.parametrize(("written", "meant"), [("trajectory", "rollout"), ("uniform", "replay")])
def test_second_names_of_buffers(written: str, meant: str, tmp_path: Path) -> None:
    algo = {"rollout": "ppo", "replay": "dqn"}[meant]
    assert parse_config({"algo": algo, "buffer": {"type": written}}).buffer.type == meant
    assert parse_config({"algo": algo}, {"buffer.type": written}).buffer.type == meant
    assert parse_config({"algo": algo, "buffer.type": written, "plugins": ["my_parts"]}).buffer.type == meant
    write(tmp_path, "base.yaml", f"algo: {algo}\n")
    load_sweep(write(tmp_path, "sweep.yaml", f"base_config: base.yaml\nsweep: {{buffer.type: [{written}]}}"))
    with pytest.raises(ConfigError, match=f"buffer '{written}' is already registered"):
        register_buffer(written)(object)


@pytest.mark.parametrize(
    ("spelt", "value", "path"),
    [
        ("experiment.seed", 3, "seed"),
        ("experiment.name", "x", "name"),
        ("experiment.tags", ["a"], "tags"),
        ("experiment.device", "cuda", "device"),
        ("experiment.training.total_timesteps", 7, "training.total_timesteps"),
        ("algorithm.name", "a2c", "algo"),
        ("algorithm", "a2c", "algo"),
        ("algorithm.lr", 0.1, "hparams.learning_rate"),
        ("algorithm.gamma", 0.5, "hparams.gamma"),
        ("algorithm.clip_ratio", 0.3, "hparams.clip_coef"),
        ("algorithm.value_coef", 0.3, "hparams.vf_coef"),
        ("algorithm.entropy_coef", 0.3, "hparams.ent_coef"),
        ("hparams.lr", 0.1, "hparams.learning_rate"),
        ("hparams.clip-ratio", 0.3, "hparams.clip_coef"),
        ("hparams.value-coef", 0.3, "hparams.vf_coef"),
        ("hparams.entropy-coef", 0.3, "hparams.ent_coef"),
        ("environment.name", "Acrobot-v1", "env_id"),
        ("environment", "Acrobot-v1", "env_id"),
        ("environment.wrapper", ["time_limit"], "env.wrappers"),
        ("environment.num_envs", 3, "env.num_envs"),
        ("environment.normalize-obs", True, "env.normalize_obs"),
    ],
)
def test_every_alias_in_files_flags_and_sweeps(spelt: str, value: object, path: str, tmp_path: Path) -> None:
    expected = parse_config({path: value})
    assert expected != TrainConfig()
    nested: object = value
    for part in reversed(spelt.split(".")):
        nested = {part: nested}
    assert isinstance(nested, dict)
    assert parse_config(nested) == parse_config({spelt: value}) == expected
    assert parse_config({}, {spelt: value}) == expected
    flag, text = (
        find_field(spelt, load_command("train")),
        ",".join(map(str, value)) if isinstance(value, list) else str(value).lower(),
    )
    assert flag.path == path
    text = str(value) if isinstance(value, str) else text
    assert parse_config({}, {spelt: value_of(flag.path, text, spelt)}) == expected
    write(tmp_path, "base.yaml", "algo: ppo\n")
    file = write(tmp_path, "sweep.json", json.dumps({"base_config": "base.yaml", "sweep": {spelt: [value]}}))
    assert list(load_sweep(file).sweep) == [path]


# -- sweeps -----------------------------------------------------------------------------------------------------------


def sweep_error(folder: Path, text: str) -> str:
    write(folder, "base.yaml", FLAT)
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(folder, "sweep.yaml", text))
    return str(caught.value).replace(str(folder), "")


def test_every_key_and_value_of_a_sweep_is_checked(tmp_path: Path) -> None:
    message = sweep_error(
        tmp_path,
        "base_config: base.yaml\nsweep:\n  algorithm.lr: [1e-3, fast]\n  hparams.clip_coeff: [0.1]\n  seed: [1, -1]\n"
        "  hparams.gamma: []\n",
    )
    assert message.splitlines() == [
        "4 problems",
        "  /sweep.yaml:3: 'sweep.algorithm.lr': expected float or schedule {type, start, end}, got 'fast' (str)",
        "  /sweep.yaml:4: unknown key 'sweep.hparams.clip_coeff'; did you mean 'clip_coef'?",
        "  /sweep.yaml:5: 'sweep.seed' must be a whole number between 0 and 4294967295, not -1",
        "  /sweep.yaml:6: 'sweep.hparams.gamma' has no values",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base_config: base.yaml\nsweep: {hparams.lr: [1], algorithm.lr: [2]}", "are both 'hparams.learning_rate'"),
        ("base_config: base.yaml\nsweep: {seed: 3}", "'sweep.seed': expected list, got 3 (int); write [3]"),
        ("base_config: base.yaml\nsweep: {}", "'sweep' has no keys"),
        ("base_config: base.yaml\nsweep: {seed: [1]}\nparalel_jobs: 2", "did you mean 'parallel_jobs'?"),
        ("base_config: base.yaml\nsweep: {seed: [1]}\nparallel_jobs: 0", "'parallel_jobs' must be between 1"),
        ("sweep: {seed: [1]}", "'base_config' is missing"),
        ("base_config: nowhere.yaml\nsweep: {seed: [1]}", "base_config 'nowhere.yaml' is neither a file"),
        ("base_config: ppo/cartpol\nsweep: {seed: [1]}", "did you mean 'ppo/cartpole'?"),
        ("base_config: sweep.yaml\nsweep: {seed: [1]}", "a sweep file, not a config for training"),
        (f"base_config: base.yaml\nsweep: {{seed: {list(range(2001))}}}", "more than 2000 values"),
    ],
)
def test_sweep_files_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    assert message in sweep_error(tmp_path, text)


def test_a_sweep_of_an_own_algorithm_keeps_its_names(tmp_path: Path) -> None:
    write(tmp_path, "mine.yaml", "algo: my.mod:Mine\n")
    sweep = load_sweep(write(tmp_path, "sweep.yaml", "base_config: mine.yaml\nsweep: {algorithm.lr: [1, 2]}"))
    assert sweep.sweep == {"hparams.lr": (1, 2)}


def test_a_sweep_over_a_preset_and_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "base_config: {}\nsweep: {{seed: [1]}}"
    assert load_sweep(write(tmp_path, "a.yaml", text.format("ppo/cartpole"))).base_config == "ppo/cartpole"
    (tmp_path / "here").mkdir()
    (tmp_path / "sweeps").mkdir()
    base = write(tmp_path / "here", "base.yaml", FLAT)
    monkeypatch.chdir(tmp_path)
    assert load_sweep(write(tmp_path / "sweeps", "b.yaml", text.format("here/base.yaml"))).base_config == str(base)


def test_a_sweep_file_is_not_a_config(tmp_path: Path) -> None:
    write(tmp_path, "experiment.yaml", NESTED)
    with pytest.raises(ConfigError, match="a sweep file, not a config for training"):
        load_config(write(tmp_path, "sweep.yaml", SWEEP))
