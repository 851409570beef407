"""Strict loading: every problem at once with its place, what is accepted, and what never happens (imports, guesses)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from rl_training.config.loading import (
    check_hparams,
    config_sha256,
    config_to_mapping,
    dump_yaml,
    load_config,
    parse_config,
    parse_override_value,
    read_yaml,
    validate_config,
)
from rl_training.config.schema import EnvConfig, NetworkConfig, TrainConfig
from rl_training.hparams.a2c import A2CConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.schedules import Schedule
from rl_training.types import ConfigError


def problems(tree: dict[str, Any], overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(tree, overrides, source="my.yaml")
    lines = str(caught.value).splitlines()
    return [line.strip() for line in (lines[1:] if lines[0].endswith(" problems") else lines)]


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"hparams": {"clip_coeff": 1}}, "unknown key 'hparams.clip_coeff'; did you mean 'clip_coef'?"),
        ({"algorithm": {"clip_ratoi": 1}}, "unknown key 'algorithm.clip_ratoi'; did you mean 'clip_ratio'?"),
        ({"hparams": {"n_steps": 1}}, "unknown key 'hparams.n_steps'; did you mean 'num_steps'?"),
        ({"environment": {"nam": 1}}, "unknown key 'environment.nam'; did you mean 'name'?"),
        ({"enviroment": {"name": 1}}, "unknown key 'enviroment'; did you mean 'environment'?"),
        ({"learning_rate": 1}, "unknown key 'learning_rate'; did you mean 'hparams.learning_rate'?"),
        ({"monitor": {"zzz": 1}}, "unknown key 'monitor.zzz' (known: "),
        ({"env": {"wrappers": [{"name": "a:B", "nam": 1}]}}, "unknown key 'env.wrappers[0].nam'; did you mean 'name'?"),
        ({"env": {"wrappers": [{"kwargs": {}}]}}, "'env.wrappers[0].name' is missing; it takes str"),
        ({"seed": "1"}, "'seed': expected int, got '1' (str); remove the quotes"),
        ({"seed": True}, "'seed': expected int, got true (bool)"),
        ({"network": {"actor": {"type": []}}}, "'network.actor.type': expected str, got [] (list)"),
        ({"training": {"total_timesteps": 1e6}}, "expected int, got 1000000.0 (float); write 1000000"),
        ({"hparams": {"gamma": "high"}}, "'hparams.gamma': expected float, got 'high' (str)"),
        ({"hparams": {"gamma": None}}, "'hparams.gamma': expected float, got null"),
        ({"hparams": {"lr": [1]}}, "'hparams.lr': expected float or schedule {type, start, end}, got [1] (list)"),
        ({"hparams": {"lr": {"type": "linear", "start": 1}}}, "'hparams.lr.end' is missing; it takes float"),
        ({"hparams": {"lr": {"type": "linea", "start": 1, "end": 0}}}, "got 'linea' (str); did you mean 'linear'?"),
        ({"hparams": {"lr": {"type": "exponential", "start": 1, "end": 0}}}, "needs start > 0 and end > 0"),
        ({"hparams": {"lr": {"type": "linear", "start": -1, "end": 0}}}, "must be >= 0, not -1.0"),
        ({"name": 3}, "'name': expected str or null, got 3 (int); put it in quotes"),
        ({"tags": "a"}, "'tags': expected list of str, got 'a' (str); write [a]"),
        ({"tags": [1]}, "'tags[0]': expected str, got 1 (int)"),
        ({"logging": {"terminal": "yes"}}, "got 'yes' (str); write true or false, without quotes"),
        ({"backend": "torhc"}, "expected one of torch, jax, got 'torhc' (str); did you mean 'torch'?"),
        ({"network": {"actor": 3}}, "'network.actor': expected mapping with type, hidden_dims"),
        ({"network": {"actor": {"hidden_dims": 64}}}, "expected list of int, got 64 (int); write [64]"),
        ({"network": {"actor": {"hidden_dims": [64, 0]}}}, "'network.actor.hidden_dims' must be between 1 and"),
        ({"env": {"kwargs": [1]}}, "'env.kwargs': expected mapping, got [1] (list)"),
        ({"env": {"num_envs": 0}}, "'env.num_envs' must be between 1 and"),
        ({"env": {"num_envs": 10**18}}, "'env.num_envs' must be between 1 and"),
        ({"seed": -1}, "'seed' must be a whole number between 0 and 4294967295, not -1"),
        ({"device": "tpu"}, "'device' must be auto, cpu, mps, cuda or cuda:N, not 'tpu'"),
        ({"algo": "pppo"}, "unknown algorithm 'pppo'; did you mean 'ppo'?"),
        ({"algo": "my.mod.Algo"}, "your own: 'my.mod:Algo'"),
        ({"algo": 3}, "'algo': expected str, got 3 (int)"),
        (
            {"network": {"critic": {"type": "mpl"}}},
            "unknown network 'mpl'; did you mean 'mlp'? (backend torch has: cnn, grid, gru, impala, lstm, mlp, ",
        ),
        (
            {"backend": "jax", "network": {"actor": {"type": "grü"}}},
            "unknown network 'grü'; did you mean 'gru'? (backend jax has: cnn, grid, gru, impala, lstm, mlp, nature, ",
        ),
        ({"buffer": {"type": "rolout"}}, "unknown buffer 'rolout'; did you mean 'rollout'?"),
        ({"logging": {"sinks": ["jsnl"]}}, "unknown logger 'jsnl'; did you mean 'jsonl'?"),
        ({"env": {"wrappers": ["clip_rewards"]}}, "unknown wrapper 'clip_rewards'; did you mean 'clip_reward'?"),
        ({"callbacks": ["my.mod.Bored"]}, "unknown callback 'my.mod.Bored' (your own: 'my.mod:Bored')"),
        ({"algo": "a2c", "hparams": {"clip_coef": 1}}, "unknown key 'hparams.clip_coef'"),
        ({"hparams": 3}, "'hparams': expected mapping with num_steps"),
        ({"hparams": {"num_steps": 1, "num_minibatches": 5}}, "'hparams.num_minibatches' 5 is more than the rollout"),
    ],
)
def test_one_problem_is_one_line(tree: dict[str, Any], message: str) -> None:
    (line,) = problems(tree)
    assert line.startswith("my.yaml: ")
    assert message in line


def test_all_problems_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        textwrap.dedent("""\
        seed: -1
        device: tpu
        hparams:
          clip_coeff: 0.1
          gamma: 2
          num_steps: 0
          vf_coef: high
        env:
          num_envs: 0
          frame_stack: 0
        training:
          total_timesteps: 1e6
        """)
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    heading, *lines = str(caught.value).splitlines()
    assert heading == "9 problems"
    assert sorted(line.strip().removeprefix(f"{path}:").split(":")[0] for line in lines) == sorted(
        ["1", "2", "4", "5", "6", "7", "9", "10", "12"]
    )


def test_messages_name_the_flag_the_file_or_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("hparams:\n  gama: 1\n")
    (tmp_path / "top.yaml").write_text("base: base.yaml\n\nseed: x\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "top.yaml", {"hparams.clip-coeff": 1, "num-envs": 0, "hparams.lr.end": "x"})
    lines = {line.strip() for line in str(caught.value).replace(f"{tmp_path}/", "").splitlines()[1:]}
    assert {
        "base.yaml:2: unknown key 'hparams.gama'; did you mean 'gamma'?",
        "top.yaml:3: 'seed': expected int, got 'x' (str)",
        "--hparams.clip-coeff: unknown key 'hparams.clip-coeff'; did you mean 'clip_coef'?",
        "--num-envs must be between 1 and 1e+06, not 0",
        "--hparams.lr.end: expected float, got 'x' (str)",
    } <= lines


def test_sections_are_not_said_to_disagree_where_one_of_them_is_wrong() -> None:
    """The default of 4 environments would not fit the buffer, but the number that was meant is not known."""
    (line,) = problems({"buffer": {"size": 2046}, "env": {"num_envs": "2"}})
    assert "'env.num_envs': expected int, got '2' (str)" in line


def test_keys_of_any_size() -> None:
    assert "nested more than 32 levels deep" in problems({".".join("a" * 1000): 1})[0]
    for tree in ({"x" * 100_000: 1}, {"env": {"\x1b[2J" * 50: 1}}):
        (line,) = problems(tree)
        assert len(line) < 600
        assert line.isprintable(), "no control characters reach the terminal"


def test_very_many_problems_are_cut_short() -> None:
    lines = problems({f"key{i}": 1 for i in range(3000)})
    assert len(lines) == 51
    assert lines[-1].startswith("... and ")


# -- what is accepted -------------------------------------------------------------------------------------------------


def test_whole_numbers_are_floats_where_floats_are_expected() -> None:
    hparams = parse_config({"hparams": {"gamma": 1, "learning_rate": 1, "max_grad_norm": None}}).hparams
    assert (type(hparams.gamma), type(hparams.learning_rate), hparams.max_grad_norm) == (float, float, None)


def test_schedules() -> None:
    cfg = parse_config(read_yaml("hparams: {lr: {type: linear, start: 3e-4, end: 0}, clip_ratio: 0.1}"))
    assert cfg.hparams.learning_rate == Schedule("linear", 3e-4, 0.0)
    assert parse_config({}, {"hparams.learning-rate": 1e-3}).hparams.learning_rate == 1e-3


def test_the_word_off_is_text() -> None:
    assert parse_config(read_yaml("monitor: {checks: off}")).monitor.checks == "off"


def test_overrides_win_over_the_file_in_any_spelling() -> None:
    cfg = parse_config(
        {"algorithm": {"lr": 1e-3}, "env": {"num_envs": 2}}, {"hparams.learning_rate": 2e-3, "num-envs": 8}
    )
    assert (cfg.hparams.learning_rate, cfg.env.num_envs) == (2e-3, 8)


def test_two_flags_for_one_field_are_refused() -> None:
    (line,) = problems({}, {"hparams.lr": 1, "algorithm.lr": 2})
    assert line.startswith("--algorithm.lr: ")
    assert "both are 'hparams.learning_rate'" in line


def test_a_base_is_no_flag() -> None:
    assert problems({}, {"base": "ppo/cartpole"})[0].startswith("--base: a base belongs in a file")


def test_bad_python_values() -> None:
    with pytest.raises(ConfigError, match="expected a mapping, got list"):
        parse_config([])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="every key must be text"):
        parse_config({}, {3: 4})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"--env\.kwargs: a value of type object has no place"):
        parse_config({}, {"env.kwargs": {"a": object()}})


# -- buffer and rollout -----------------------------------------------------------------------------------------------


def test_num_steps_follows_from_the_buffer() -> None:
    assert parse_config({"buffer": {"size": 2048}}).hparams.num_steps == 512
    assert parse_config({"buffer": {"size": 2048}}, {"num_envs": 8}).hparams.num_steps == 256
    assert parse_config({"buffer": {"size": 512}, "hparams": {"num_steps": 128}}).hparams.num_steps == 128
    assert parse_config({"algo": "random", "buffer": {"size": 7}}).hparams.num_steps == 128


@pytest.mark.parametrize("steps", [128, 100])
def test_num_steps_that_was_given_must_agree_with_the_buffer(steps: int) -> None:
    """128 is the default of PPO: given all the same, so it is not replaced in silence."""
    tree = {"buffer": {"size": 2048}}
    expected = f"'buffer.size' 2048 is not hparams.num_steps {steps} x env.num_envs 4 = {4 * steps}; drop one"
    assert expected in problems({**tree, "hparams": {"num_steps": steps}})[0]
    assert expected in problems(tree, {"hparams.num-steps": steps})[0]


def test_a_buffer_that_no_rollout_fills() -> None:
    assert "'buffer.size' 2047 is not a multiple of env.num_envs 4" in problems({"buffer": {"size": 2047}})[0]


# -- algorithms of one's own ------------------------------------------------------------------------------------------


def test_nothing_of_a_user_is_imported(tmp_path: Path) -> None:
    """In a process of its own: a module that would leave a trace when imported, named in every place that takes one."""
    (tmp_path / "trap.py").write_text("open('trap_was_imported', 'w').close()\n")
    (tmp_path / "own.yaml").write_text(
        "algo: trap:Algo\nenv_id: trap:Env\nplugins: [trap]\nhparams: {lr: 1}\ncallbacks: [trap:C]\n"
        "env: {wrappers: [trap:W]}\nnetwork: {actor: {type: trap:N}}\nbuffer: {type: trap:B}\n"
        "logging: {sinks: [trap:S]}\n"
    )
    load = "from rl_training.config.loading import *; cfg = load_config('own.yaml')"
    code = f"{load}; config_sha256(cfg); print(cfg.hparams)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'lr': 1}"
    assert not (tmp_path / "trap_was_imported").exists()


def test_hparams_of_an_own_algorithm_stay_a_mapping() -> None:
    cfg = parse_config({"algo": "my.mod:Mine", "algorithm": {"lr": 1, "net-size": {"a.b": [1, 2]}}})
    assert cfg.hparams == {"lr": 1, "net-size": {"a.b": [1, 2]}}
    assert parse_config(read_yaml(dump_yaml(cfg))) == cfg


def test_an_unknown_name_is_fine_with_plugins() -> None:
    cfg = parse_config({"algo": "mine", "plugins": ["my_plugin"], "hparams": {"anything": 1}})
    assert (cfg.algo, cfg.hparams) == ("mine", {"anything": 1})


def test_an_installed_plugin_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "their_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[rl_training.plugins]\ntheirs = their_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert parse_config({"algo": "theirs"}).algo == "theirs"


@dataclass(frozen=True)
class OwnHparams:
    """Plain, without the package's config for pydantic, as a user may write it."""

    learning_rate: float | Schedule = 1e-3
    layers: tuple[int, ...] = (8,)
    clip_ratio: float = 0.1
    temperature: Annotated[float, Field(gt=0)] = 1.0

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers must not be empty")


def test_check_hparams_makes_the_users_class() -> None:
    values = {"lr": {"type": "linear", "start": 1, "end": 0}, "layers": [4, 4], "clip_ratio": 1}
    made = check_hparams(OwnHparams, values, algo="m:A")
    assert made == OwnHparams(Schedule("linear", 1.0, 0.0), (4, 4), 1.0)
    assert check_hparams(dict, {"x": 1}, algo="m:A") == {"x": 1}


def test_check_hparams_refuses_like_a_file() -> None:
    with pytest.raises(ConfigError) as caught:
        check_hparams(OwnHparams, {"leyers": [1], "clip_ratio": "x", "layers": []}, algo="m:A")
    text = str(caught.value)
    assert "hparams of 'm:A': unknown key 'hparams.leyers'; did you mean 'layers'?" in text
    assert "'hparams.clip_ratio': expected float, got 'x' (str)" in text
    assert "'hparams.layers' must not be empty" in text
    with pytest.raises(ConfigError, match=r"'hparams\.temperature': Input should be greater than 0, got -1 \(int\)"):
        check_hparams(OwnHparams, {"temperature": -1}, algo="m:A")


# -- objects ----------------------------------------------------------------------------------------------------------


def test_object_to_yaml_to_object() -> None:
    cfg = TrainConfig(
        algo="a2c",
        hparams=A2CConfig(learning_rate=Schedule("cosine", 1e-3, 1e-5), max_grad_norm=None),
        name="a: b # c",
        tags=("1", "off", "3e-4"),
        env=EnvConfig(kwargs={"a.b": [1, None, {"c": True}]}),
    )
    assert parse_config(read_yaml(dump_yaml(cfg))) == cfg
    assert parse_config(config_to_mapping(cfg)) == cfg
    assert next(iter(config_to_mapping(cfg))) == "version"


def test_the_hash_is_of_the_meaning() -> None:
    cfg = TrainConfig(hparams=PPOConfig(gamma=1))
    same = parse_config({"algorithm": {"gamma": 1.0}})
    assert config_sha256(cfg) == config_sha256(same)
    assert config_sha256(cfg) != config_sha256(replace(cfg, seed=1))
    assert len(config_sha256(cfg)) == 64


def test_validate_config_finds_what_python_let_through() -> None:
    cfg = validate_config(TrainConfig(hparams=PPOConfig(gamma=1), env=EnvConfig(kwargs={"size": (1, 2)})))
    assert type(cfg.hparams.gamma) is float
    assert cfg.env.kwargs == {"size": [1, 2]}
    with pytest.raises(ConfigError, match=r"TrainConfig: 'network\.shared': expected bool, got 'x'"):
        validate_config(TrainConfig(network=NetworkConfig(shared="x")))  # type: ignore[arg-type]


def test_the_tree_itself_refuses() -> None:
    for bad in (
        {"seed": -1},
        {"seed": "1"},
        {"seed": True},
        {"device": "gpu"},
        {"version": 0},
        {"hparams": {"gamma": 1}},
        {"algo": "a2c", "hparams": PPOConfig()},
    ):
        with pytest.raises(ConfigError):
            TrainConfig(**bad)  # type: ignore[arg-type]


def test_the_tree_takes_paths_and_classes(tmp_path: Path) -> None:
    assert TrainConfig(output_dir=tmp_path).output_dir == str(tmp_path)  # type: ignore[arg-type]
    assert TrainConfig(algo="m:A", hparams=OwnHparams()).hparams["clip_ratio"] == 0.1


# -- flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("5", 5),
        ("true", True),
        ("null", None),
        ("[64,64]", [64, 64]),
        ("{type: linear, start: 3e-4, end: 0}", {"type": "linear", "start": 3e-4, "end": 0}),
        ("CartPole-v1", "CartPole-v1"),
        ("my.mod:Thing", "my.mod:Thing"),
        ("a: b", "a: b"),
        ("!!python/name:os.system", "!!python/name:os.system"),
        ("*alias", "*alias"),
        ("'5'", "5"),
        ("", ""),
        ("off", "off"),
    ],
)
def test_flag_values(text: str, value: Any) -> None:
    parsed = parse_override_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_flag_values_by_field() -> None:
    assert parse_override_value("007", "name") == "007"
    assert parse_override_value("null", "experiment.name") is None
    assert parse_override_value("a, b", "tags") == ["a", "b"]
    assert parse_override_value("[a, b]", "tags") == ["a", "b"]
    assert parse_override_value("1e-3", "hparams.lr") == 1e-3
    assert parse_override_value("1", "env.kwargs.x") == 1


@pytest.mark.parametrize("text", ["1e999", ".nan", "[1", "{a: !!x 1}", "[" * 100, "9" * 100, "\udcff"])
def test_flag_values_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--hparams\.gamma: "):
        parse_override_value(text, "hparams.gamma")
