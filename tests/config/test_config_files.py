"""Files, presets and bases: found from any working directory; errors name the chain of bases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rl_training.config.loading import (
    dump_yaml,
    load_config,
    parse_config,
    preset_names,
    preset_path,
    read_yaml,
)
from rl_training.config.schema import TrainConfig
from rl_training.config.searches.sweeps import is_sweep_file, load_sweep
from rl_training.config.searches.tuning import is_tune_file, load_tune
from rl_training.hparams.ppo import PPOConfig
from rl_training.types import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))


def error(path: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value)


# -- presets ----------------------------------------------------------------------------------------------------------


def test_presets_that_ship() -> None:
    assert {
        "ppo/cartpole",
        "ppo/acrobot",
        "ppo/pendulum",
        "ppo/mountaincar_continuous",
        "ppo/lunarlander",
        "a2c/cartpole",
        "reinforce/cartpole",
        "random/cartpole",
        "constant/cartpole",
        "ppo/pong_quick",
        "ppo/pong_small",
        "dqn/pong_small",
        "ppo/hopper",
        "ppo/dmc_cheetah_run",
        "sac/walker2d",
        "sac/dmc_cartpole_balance_pixels",
    } <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_states_what_it_must(name: str) -> None:
    cfg = load_config(name)
    tree = read_yaml(preset_path(name))
    assert cfg.algo == name.split("/")[0]
    assert {"version", "algo", "env_id"} <= tree.keys()
    if cfg.training.total_updates is None:
        assert "num_envs" in tree["env"]
        assert "total_timesteps" in tree["training"]
    else:
        assert "path" in tree["dataset"]
        assert "total_updates" in tree["training"]
    assert "base" not in tree
    assert parse_config(read_yaml(dump_yaml(cfg))) == cfg
    assert preset_path(name).read_text().startswith("# "), "a preset says what it is"


@pytest.mark.parametrize(
    ("name", "env_id", "budget"),
    [
        ("ppo/cartpole", "CartPole-v1", 100_000),
        ("ppo/acrobot", "Acrobot-v1", 500_000),
        ("ppo/pendulum", "Pendulum-v1", 200_000),
        ("ppo/mountaincar_continuous", "MountainCarContinuous-v0", 200_000),
        ("ppo/lunarlander", "LunarLander-v3", 1_000_000),
        ("ppo/cartpole_no_velocity", "CartPole-v1", 100_000),
        ("sac/pendulum_no_velocity", "Pendulum-v1", 30_000),
        ("ppo/minigrid_doorkey", "MiniGrid-DoorKey-5x5-v0", 300_000),
        ("ppo/minigrid_memory", "MiniGrid-MemoryS7-v0", 2_000_000),
        ("ppo/halfcheetah", "HalfCheetah-v5", 200_000),
        ("td3/halfcheetah", "HalfCheetah-v5", 100_000),
        ("sac/hopper", "Hopper-v5", 100_000),
        ("sac/dmc_cartpole_swingup", "dm_control/cartpole-swingup-v0", 50_000),
        ("ppo/pong", "PongNoFrameskip-v4", 10_000_000),
        ("ppo/breakout", "BreakoutNoFrameskip-v4", 10_000_000),
        ("dqn/pong", "PongNoFrameskip-v4", 10_000_000),
    ],
)
def test_budgets_of_the_scored_presets(name: str, env_id: str, budget: int) -> None:
    cfg = load_config(name)
    assert (cfg.env_id, cfg.training.total_timesteps) == (env_id, budget)


def test_unknown_presets_are_refused_with_a_suggestion() -> None:
    assert "no config file or preset 'ppo/cartpol'; did you mean 'ppo/cartpole'?" in error("ppo/cartpol")
    with pytest.raises(ConfigError, match="unknown preset 'ppo/cartpol'; did you mean 'ppo/cartpole'"):
        preset_path("ppo/cartpol")


def test_the_name_of_an_algorithm_leads_to_its_presets() -> None:
    message = error("td3")
    assert "td3/pendulum" in message
    assert "--algo td3" in message
    assert "sac/pendulum" not in message


@pytest.mark.parametrize(
    "name", ["../ppo/cartpole", "ppo/../ppo/cartpole", "", ".", "\x00", "x" * 100_000, "ppo/" * 9999]
)
def test_strange_names_lead_nowhere(name: str) -> None:
    error(name)
    with pytest.raises(ConfigError):
        preset_path(name)


# -- the files of the repository --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_config_of_the_repository_loads(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # none of them needs a working directory
    if is_tune_file(path):
        load_config(load_tune(path).base_config)
    elif is_sweep_file(path):
        load_config(load_sweep(path).base_config)
    else:
        load_config(path)


def test_configs_that_exist_by_name() -> None:
    names = {str(path.relative_to(CONFIGS)) for path in FILES}
    assert {
        "ppo/cartpole.yaml",
        "quickstart/ppo_cartpole.yaml",
        "experiments/ppo_cartpole.yaml",
        "algorithms/my_algorithm.yaml",
        "sweeps/ppo_sweep.yaml",
    } <= names
    assert any(name.startswith("environments/") for name in names)
    assert any(name.startswith("networks/") for name in names)


def test_the_named_configs_hold_what_they_say() -> None:
    assert load_config(CONFIGS / "quickstart/ppo_cartpole.yaml") == TrainConfig(seed=1)
    assert load_config(CONFIGS / "ppo/cartpole.yaml") == load_config("ppo/cartpole", {"seed": 1})
    nested = load_config(CONFIGS / "experiments/ppo_cartpole.yaml")
    assert (nested.name, nested.seed, nested.hparams.num_steps) == ("ppo_cartpole", 42, 512)
    own = load_config(CONFIGS / "algorithms/my_algorithm.yaml")
    assert own.algo == "examples.my_algorithm:MyAlgorithm"
    assert own.hparams == {"num_steps": 256, "learning_rate": 3e-3, "gamma": 0.99}
    wide = load_config(CONFIGS / "experiments/ppo_lunarlander_wide.yaml")
    assert (wide.env_id, wide.env.num_envs, wide.base) == ("LunarLander-v3", 16, None)
    assert wide.network.actor.hidden_dims == wide.network.critic.hidden_dims == (256, 256)
    sweep = load_sweep(CONFIGS / "sweeps/ppo_sweep.yaml")
    assert set(sweep.sweep) == {"hparams.learning_rate", "hparams.clip_coef", "seed"}


# -- bases ------------------------------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_a_chain_of_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "parts",
        bottom="seed: 1\ntags: [a, b]\nenv: {num_envs: 2, kwargs: {x: 1, y: 1}}\nhparams: {gamma: 0.5}",
        middle="base: bottom.yaml\nexperiment: {seed: 2}\nenvironment: {kwargs: {y: 2}}",
    )
    write(tmp_path, top="base: parts/middle.yaml\ntags: [c]\nalgorithm: {lr: 1e-3}")
    monkeypatch.chdir("/")
    cfg = load_config(tmp_path / "top.yaml", {"hparams.gamma": 0.9})
    assert (cfg.seed, cfg.tags, cfg.env.num_envs, cfg.env.kwargs) == (2, ("c",), 2, {"x": 1, "y": 2})
    assert cfg.hparams == PPOConfig(gamma=0.9, learning_rate=1e-3)
    assert cfg.base is None


def test_several_bases_and_presets(tmp_path: Path) -> None:
    write(tmp_path, network="network: {shared: true}\nseed: 5", top="base: [ppo/cartpole, network.yaml]\nname: x")
    cfg = load_config(tmp_path / "top.yaml")
    preset = load_config("ppo/cartpole")
    assert (cfg.hparams, cfg.network.shared, cfg.seed, cfg.name) == (preset.hparams, True, 5, "x")


def test_a_base_from_a_folder_above(tmp_path: Path) -> None:
    write(tmp_path / "configs" / "parts", base="seed: 7")
    write(tmp_path / "configs" / "deep" / "er", top="base: configs/parts/base.yaml")
    assert load_config(tmp_path / "configs/deep/er/top.yaml").seed == 7


def test_a_base_is_not_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "here", base="seed: 7")
    write(tmp_path / "there", top="base: base.yaml")
    monkeypatch.chdir(tmp_path / "here")
    assert "base 'base.yaml' is neither a file" in error(tmp_path / "there/top.yaml")


def test_a_mapping_may_have_a_base() -> None:
    assert parse_config({"base": "ppo/cartpole", "seed": 3}) == load_config("ppo/cartpole", {"seed": 3})


def test_circles_are_refused_with_the_way(tmp_path: Path) -> None:
    write(tmp_path, a="base: b.yaml", b="base: c.yaml", c="base: ./a.yaml", self="base: self.yaml")
    names = error(tmp_path / "a.yaml").replace(f"{tmp_path}/", "")
    assert names == "a circle of bases: a.yaml -> b.yaml -> c.yaml -> a.yaml"
    os.symlink(tmp_path / "self.yaml", tmp_path / "link.yaml")
    assert "a circle of bases" in error(tmp_path / "link.yaml")


def test_a_missing_base_is_refused_with_the_way(tmp_path: Path) -> None:
    write(tmp_path, a="base: b.yaml", b="base: gone.yaml", c="base: ppo/cartpol")
    message = error(tmp_path / "a.yaml").replace(str(tmp_path), "DIR")
    assert message == "DIR/a.yaml -> DIR/b.yaml: base 'gone.yaml' is neither a file (looked in DIR) nor a preset"
    assert error(tmp_path / "c.yaml").endswith("nor a preset; did you mean 'ppo/cartpole'?")


def test_bases_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, **{f"n{i}": f"base: [n{i + 1}.yaml, n{i + 1}.yaml]" for i in range(20)}, n20="seed: 1")
    assert "more than 32 bases" in error(tmp_path / "n0.yaml")


@pytest.mark.parametrize("base", ["3", "{a: 1}", "[1]", "[[a]]", "true"])
def test_a_base_of_a_wrong_type(base: str, tmp_path: Path) -> None:
    write(tmp_path, a=f"base: {base}")
    assert "base" in error(tmp_path / "a.yaml")


# -- other ways to miss a file ----------------------------------------------------------------------------------------


def test_files_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, config="seed: 1")
    assert "does not exist; did you mean 'config.yaml'?" in error(tmp_path / "confg.yaml")
    assert f"did you mean '{tmp_path}/config.yaml'?" in error(tmp_path / "config")
    assert "is a folder, not a config file" in error(tmp_path)
    assert "does not exist" in error("no/such/folder/config.yaml")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in error(tmp_path / "pipe")


def test_json_configs_load(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"experiment": {"seed": 3}, "algorithm": {"lr": 1e-3}}')
    assert load_config(tmp_path / "config.json").hparams.learning_rate == 1e-3
