"""The parser and the values of flags, by hand-written command lines."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rl_training.cli.commands import COMMANDS, FIRST
from rl_training.cli.commands.many.seeds import parse_seeds
from rl_training.cli.commands.records.diff import COMMAND as DIFF
from rl_training.cli.commands.records.tag import COMMAND as TAG
from rl_training.cli.commands.runs.eval import COMMAND as EVAL
from rl_training.cli.commands.runs.train import COMMAND as TRAIN
from rl_training.cli.commands.runs.train import TrainOptions
from rl_training.cli.config_options import SHORT_FORMS
from rl_training.cli.dispatch import find_command, parse_words
from rl_training.cli.fields import all_fields, field_hint, field_values, find_field, value_of
from rl_training.cli.parser import UsageError
from rl_training.config.aliases import canonical_key
from rl_training.config.loading import load_config
from rl_training.types import ConfigError


def train(line: str) -> TrainOptions:
    return parse_words(TRAIN, line.split())


def parse_line(line: str) -> None:
    command, rest = find_command(line.split())
    assert command is not None
    parse_words(command, rest)


def test_the_three_first_commands_come_first() -> None:
    assert [command.name for command in FIRST] == ["train", "eval", "resume"]
    assert list(COMMANDS)[:3] == ["train", "eval", "resume"]


def test_positional_options_and_fields_are_told_apart() -> None:
    line = "ppo/cartpole --seed 3 --hparams.clip-coef 0.1 --debug --num-envs=8 --init-from runs/a:200"
    parsed = train(line)
    assert parsed.source == "ppo/cartpole"
    assert (parsed.debug, parsed.init_from, parsed.given) == (True, "runs/a:200", ("debug", "init-from"))
    assert (parsed.dry_run, parsed.resume, parsed.jobs, parsed.json) == (False, None, None, False)
    assert parsed.fields.texts == {"seed": "3", "hparams.clip_coef": "0.1", "env.num_envs": "8"}
    assert " ".join(parsed.words) == f"rl train {line}"


@pytest.mark.parametrize(
    "line",
    [
        "--env.num-envs 8",
        "--env.num_envs 8",
        "--env.num-envs=8",
        "--num-envs 8",
        "--num_envs=8",
        "--environment.num-envs 8",
        "--num-envs 4 --env.num_envs 8",
    ],
)
def test_spellings_of_one_field(line: str) -> None:
    assert train(line).fields.texts == {"env.num_envs": "8"}


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ("--algorithm.lr", "hparams.learning_rate"),
        ("--algorithm.clip-ratio", "hparams.clip_coef"),
        ("--experiment.name", "name"),
        ("--environment.name", "env_id"),
        ("--training.eval-frequency", "training.eval_frequency"),
        ("--network.actor.hidden-dims", "network.actor.hidden_dims"),
        ("--env.kwargs.render-fps", "env.kwargs.render-fps"),
        ("--hparams.of-your-own", "hparams.of_your_own"),
    ],
)
def test_aliases_and_paths(flag: str, path: str) -> None:
    assert train(f"{flag} 1").fields.texts == {path: "1"}


@pytest.mark.parametrize(
    ("line", "text", "source"),
    [
        ("--env.normalize-obs", "true", None),
        ("--env.normalize-obs ppo/cartpole", "true", "ppo/cartpole"),
        ("--env.normalize-obs false ppo/cartpole", "false", "ppo/cartpole"),
        ("ppo/cartpole --env.normalize-obs True", "True", "ppo/cartpole"),
        ("--env.normalize-obs=false", "false", None),
        ("--env.normalize-obs --debug", "true", None),
    ],
)
def test_a_boolean_may_stand_alone(line: str, text: str, source: str | None) -> None:
    parsed = train(line)
    assert (parsed.fields.texts["env.normalize_obs"], parsed.source) == (text, source)


def test_negative_numbers_are_values() -> None:
    assert train("--stop-at-return -200").fields.texts == {"training.stop_at_return": "-200"}


def test_every_short_form_names_a_field_and_its_own_alias() -> None:
    fields = all_fields()
    assert {option.field for option in SHORT_FORMS} <= set(fields)
    assert all(canonical_key(option.name) == option.field for option in SHORT_FORMS)


def test_every_field_is_a_flag() -> None:
    for path in all_fields():
        assert find_field(path.replace("_", "-"), TRAIN).path == path


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("training.total_timesteps", "200_000", 200_000),
        ("training.total_timesteps", "1e6", 1_000_000),
        ("training.total_timesteps", "1.5", 1.5),
        ("training.total_episodes", "null", None),
        ("hparams.learning_rate", "3e-4", 3e-4),
        ("hparams.learning_rate", "{type: linear, start: 3e-4, end: 0}", {"type": "linear", "start": 3e-4, "end": 0}),
        ("hparams.action", "[0.5, 1]", [0.5, 1]),
        ("hparams.action", "0.5,1", [0.5, 1]),
        ("name", "5", "5"),
        ("name", "null", None),
        ("env_id", "true", "true"),
        ("tags", "fast,first try", ["fast", "first try"]),
        ("tags", "[a, b]", ["a", "b"]),
        ("tags", "7", ["7"]),
        ("tags", "", []),
        ("network.actor.hidden_dims", "64,32", [64, 32]),
        ("network.actor.hidden_dims", "256", [256]),
        ("env.wrappers", "clip_action,time_aware", ["clip_action", "time_aware"]),
        ("env.kwargs.gravity", "-9.8", -9.8),
        ("env.kwargs", "{continuous: true}", {"continuous": True}),
        ("env.normalize_obs", "TRUE", True),
        ("monitor.checks", "off", "off"),
        ("device", "cuda:1", "cuda:1"),
    ],
)
def test_values(path: str, text: str, value: Any) -> None:
    read = value_of(path, text, path)
    assert read == value
    assert type(read) is type(value)


def test_a_value_that_is_not_yaml_names_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"--hparams\.gamma"):
        value_of("hparams.gamma", "{a: [", "hparams.gamma")


def test_fields_reach_the_loader_as_they_were_typed() -> None:
    assert field_values(train("--algorithm.lr 1e-3 --total-timesteps 1e5").fields) == {
        "algorithm.lr": 1e-3,
        "total-timesteps": 100_000,
    }


def test_a_hyperparameter_has_the_type_of_the_algorithm_that_has_it() -> None:
    assert field_hint("hparams.baseline") is bool
    assert field_hint("hparams.num_epochs") is int


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("1,2,3", [1, 2, 3]), ("0..3", [0, 1, 2, 3]), ("5, 0..1", [5, 0, 1]), ("4..4", [4])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "1,,2", "3..1", "1,1", "0..2,2", "-1", "4294967296", "0..99999", "1.5", ".."]
)
def test_bad_seeds(text: str) -> None:
    with pytest.raises(UsageError, match="--seed"):
        parse_seeds(text)


def test_parts_of_a_network_by_their_plain_names() -> None:
    """The other fields of the section stay what the file says."""
    values = field_values(train("ppo/minigrid_memory --network.actor.memory lstm --network.critic.encoder mlp").fields)
    assert values == {"network.actor.memory.type": "lstm", "network.critic.encoder.type": "mlp"}
    memory = load_config("ppo/cartpole_no_velocity", values).network.actor.memory
    assert (memory.type, memory.size) == ("lstm", load_config("ppo/cartpole_no_velocity").network.actor.memory.size)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trian", "unknown command 'trian'; did you mean 'train'?"),
        ("config shw", "unknown command 'config shw'; did you mean 'show'?"),
        ("config", "'rl config' needs one of show, validate, migrate, import-zoo"),
        ("--verbose", "unknown flag '--verbose'"),
        ("train --total-timestep 5", "unknown flag '--total-timestep'; did you mean '--total-timesteps'?"),
        ("train --env.num-evs 3", "did you mean '--env.num-envs'?"),
        ("train --lr 1e-3", "did you mean '--hparams.learning-rate'?"),
        ("train --clip_coef 0.1", "unknown flag '--clip_coef'; did you mean '--hparams.clip-coef'?"),
        ("train --gama 0.1", "did you mean '--hparams.gamma'?"),
        ("train --qqqqqq 1", "unknown flag '--qqqqqq' (see 'rl train --help')"),
        ("train --network.actor 3", "'--network.actor' is a section; its fields are --network.actor.type"),
        ("train --seed", "--seed needs a value"),
        ("train --seed --debug", "--seed needs a value"),
        ("train --debug=yes", "--debug takes no value"),
        ("train -s 3", "unknown flag '-s'; flags start with two dashes"),
        ("train a.yaml b.yaml", "unexpected argument 'b.yaml'"),
        (
            "train a.yaml --env.normalize-obs maybe",
            "unexpected argument 'maybe'; --env.normalize-obs takes true or false",
        ),
        ("eval", "'rl eval' needs RUN"),
        ("eval runs/x --episods 3", "unknown flag '--episods'; did you mean '--episodes'?"),
        ("eval runs/x --hparams.gamma 3", "unknown flag '--hparams.gamma'"),
        ("config validate", "'rl config validate' needs FILE..."),
    ],
)
def test_refusals(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_line(line)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-3", "ten", "1.5", "1e-1"])
def test_options_that_count(value: str) -> None:
    with pytest.raises(UsageError, match="--episodes"):
        parse_words(EVAL, ["latest", f"--episodes={value}"])


def test_numbers_of_options() -> None:
    parsed = parse_words(EVAL, ["latest", "--episodes", "1_000", "--seed=1e3"])
    assert (parsed.episodes, parsed.seed, parsed.num_envs) == (1000, 1000, None)


def test_an_option_with_an_optional_value() -> None:
    assert parse_words(EVAL, ["latest"]).video is False
    assert parse_words(EVAL, ["latest", "--video"]).video is True
    assert parse_words(EVAL, ["latest", "--video", "--json"]).video is True
    assert parse_words(EVAL, ["latest", "--video", "here"]).video == "here"


def test_positional_arguments_go_to_the_fields_of_the_record() -> None:
    tagged = parse_words(TAG, ["latest", "keep", "--remove", "old, older", "paper"])
    assert (tagged.target, tagged.tags, tagged.remove) == ("latest", ("keep", "paper"), ("old", "older"))
    assert parse_words(DIFF, ["a", "b"]).targets == ("a", "b")
    with pytest.raises(UsageError, match=r"'rl diff' needs RUN\|GROUP"):
        parse_words(DIFF, ["a"])
    with pytest.raises(UsageError, match="unexpected argument 'c'"):
        parse_words(DIFF, ["a", "b", "c"])


def test_a_record_of_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        train("--debug").debug = False  # type: ignore[misc]
