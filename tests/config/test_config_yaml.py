"""Reading and writing YAML and JSON: the types of scalars, what is refused, no code execution, bounded memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training.config import yaml_reader as config_yaml
from rl_training.config.yaml_reader import (
    MAX_DEPTH,
    MAX_SIZE,
    dump_mapping,
    parse_yaml,
    plain_copy,
    read_document,
    read_yaml,
)
from rl_training.types import ConfigError

PARSERS = [config_yaml.PARSER, yaml.SafeLoader]


@pytest.fixture(params=PARSERS, ids=lambda parser: parser.__name__)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each test runs with libyaml's parser and with PyYAML's own, which is used where libyaml is missing."""
    monkeypatch.setattr(config_yaml, "PARSER", request.param)
    return request.param


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000_000", 1_000_000),
        ("012", 12),
        ("0x1F", 31),
        ("0o17", 15),
        ("+7", 7),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("off", "off"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        ("nan", "nan"),
        ("CartPole-v1", "CartPole-v1"),
        ("'3e-4'", "3e-4"),
        ('"5"', "5"),
    ],
)
def test_scalars_follow_yaml_1_2(parser: Any, text: str, value: Any) -> None:
    read = read_yaml(f"x: {text}")["x"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system ['touch hacked']", "text:1: tag"),
        ("a: !!binary aGVsbG8=", "tags are not allowed"),
        ("a: !mine {b: 1}", "tags are not allowed"),
        ("a: .nan", "text:1: .nan is not a finite number"),
        ("a: 1\nb: -.inf", "text:2: -.inf is not a finite number"),
        ("a: 1e999", "1e999 is not a finite number"),
        ("a: 18446744073709551616", "too large"),
        ("a: " + "9" * 5000, "a number of 5000 characters is too long"),
        ("a: &x [*x]", "alias 'x' of an anchor that is not complete before it"),
        ("a: *nowhere", "nowhere"),
        ("a: 1\n---\nb: 2", "text:2: a second document"),
        ("- 1", "expected a mapping"),
        ("just text", "expected a mapping"),
        ("1: 2", "key 1 is not text; put it in quotes"),
        ("? [a]\n: 2", "is not text"),
        ("a: [1, 2", "not valid YAML"),
        ("a: b: c", "text:1: not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("a: '\ud800'", "not valid Unicode"),
        ('a: "\\uD800"', "nicode"),
        ('a: "\\UFFFFFFFF"', "not valid YAML"),
        ("<<: 3", "'<<' takes a mapping"),
    ],
)
def test_what_is_refused(parser: Any, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_yaml(text)
    assert message in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_duplicate_keys_are_all_refused_with_their_lines(parser: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml("seed: 1\nenv:\n  num_envs: 2\n  num_envs: 3\nseed: 2\n", "my.yaml")
    assert str(caught.value).splitlines() == [
        "my.yaml:4: duplicate key 'num_envs', first on line 3",
        "my.yaml:5: duplicate key 'seed', first on line 1",
    ]


def alias_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        alias_bomb(20),
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        "\n".join(" " * depth + "a:" for depth in range(500)),
        "a: &a '" + "x" * 10_000 + "'\nb: [" + "*a, " * 5000 + "]",
        "a: [" + "1, " * 300_000 + "]",
        "a: " + "x" * MAX_SIZE,
        "#" * (MAX_SIZE + 1),
    ],
    ids=["bomb", "lists", "maps", "sequences", "keys", "indented", "text-bomb", "long", "text", "comment"],
)
def test_bounds(parser: Any, text: str) -> None:
    start = time.process_time()
    with pytest.raises(ConfigError, match=r"too large|levels deep|not valid YAML"):
        read_yaml(text)
    assert time.process_time() - start < 10


def test_depth_limit_is_exact(parser: Any) -> None:
    inner = MAX_DEPTH - 2  # the top mapping and the innermost scalar are levels too
    assert read_yaml("a: " + "[" * inner + "1" + "]" * inner)
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
        read_yaml("a: " + "[" * (inner + 1) + "1" + "]" * (inner + 1))


def test_anchors_are_copied_and_merged(parser: Any) -> None:
    tree = read_yaml("a: &a {x: 1, y: [2]}\nb: *a\nc: {<<: *a, x: 3}\nd: {<<: [{x: 5}, *a]}")
    assert tree["b"] == {"x": 1, "y": [2]}
    assert tree["c"] == {"x": 3, "y": [2]}
    assert tree["d"] == {"x": 5, "y": [2]}
    assert tree["b"]["y"] is not tree["a"]["y"]


def test_lines_of_keys(parser: Any) -> None:
    document = parse_yaml("# header\nseed: 1\nenv:\n  num_envs: 2\n", "my.yaml")
    assert document.lines == {("seed",): 2, ("env",): 3, ("env", "num_envs"): 4}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff"])
def test_an_empty_file_is_an_empty_mapping(text: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text(text)
    assert read_yaml(path) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"\xff\xfe\x00", "not a text file in UTF-8"), (b"#" * (MAX_SIZE + 1), "too large")],
    ids=["binary", "huge"],
)
def test_unreadable_files(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        read_yaml(path)


def test_special_files_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", tmp_path, Path(os.devnull)):
        with pytest.raises(ConfigError, match="not a regular file"):
            read_yaml(path)


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n\t"seed": 1, "name": "\\ud83d\\ude00", "hparams": {"gamma": 9e-1}}')
    assert read_yaml(path) == {"seed": 1, "name": "\U0001f600", "hparams": {"gamma": 0.9}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ('{"a": -Infinity}', "-Infinity is not a finite number"),
        ('{"a": 1e999}', "inf is not a finite number"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
        ('{"a": "\\ud800"}', "not valid Unicode"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "levels deep"),
        ('{"a":\n 1,}', "config.json:2: not valid JSON"),
        ("[1]", "expected a mapping"),
    ],
)
def test_json_is_as_strict(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_document(path, "config.json")
    assert message in str(caught.value)


def test_plain_copy_normalises() -> None:
    value = {"path": Path("a/b"), "tuple": (1, 2), "int": np.int64(3), "float": np.float32(0.5)}
    copy = plain_copy(value, "here")
    assert copy == {"path": "a/b", "tuple": [1, 2], "int": 3, "float": 0.5}
    assert [type(item) for item in copy.values()] == [str, list, int, float]


def test_plain_copy_refuses() -> None:
    circle: list[Any] = []
    circle += [circle, circle]
    for bad in (object(), {1: 2}, float("nan"), 10**5000, {"a": b"bytes"}, {1, 2}, circle, "\udcff"):
        with pytest.raises(ConfigError, match=r"^here: "):
            plain_copy(bad, "here")


@pytest.mark.parametrize(
    "text",
    ["off", "yes", "3e-4", "1_0", "0o17", "12:30", "2024-01-01", "~", "", " a ", "a: b", "# a", "\x85\u2028", "é"],
)
def test_text_survives_writing(parser: Any, text: str) -> None:
    tree = {"x": text, "list": [text], "map": {text: text}}
    assert read_yaml(dump_mapping(tree)) == tree
    assert yaml.safe_load(dump_mapping(tree)) == tree, "readers of YAML 1.1 see the same text"


def test_written_form_is_easy_to_read() -> None:
    tree = {"lr": 3e-4, "eps": 1e-5, "dims": [64, 64], "parts": [{"name": "a"}], "none": None, "kwargs": {}}
    assert dump_mapping(tree) == (
        "lr: 0.0003\neps: 1.0e-05\ndims: [64, 64]\nparts:\n- name: a\nnone: null\nkwargs: {}\n"
    )
