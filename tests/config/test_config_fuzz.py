"""For any input the only exception is ConfigError, in bounded time; accepted configs survive a round trip."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_training.config.aliases import ALIASES
from rl_training.config.fields import field_docs
from rl_training.config.loading import (
    config_sha256,
    config_to_mapping,
    dump_yaml,
    load_config,
    parse_config,
    parse_override_value,
    read_yaml,
)
from rl_training.config.schema import TrainConfig
from rl_training.types import ConfigError

CPU_SECONDS = 5.0
examples = settings(
    deadline=None, max_examples=60, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def config_or_error(make: Callable[[], Any]) -> Any:
    """The result, or None after a ConfigError; any other exception and any long wait fail the test."""
    start = time.process_time()
    try:
        return make()
    except ConfigError:
        return None
    finally:
        assert time.process_time() - start < CPU_SECONDS


# -- anything at all --------------------------------------------------------------------------------------------------

yaml_like = st.text(st.sampled_from("abc: -[]{}&*!?|>%@`#'\"\n\t ,.0123456789e~<\x00\x85\u2028é"), max_size=80)


@examples
@given(st.one_of(st.text(max_size=200), yaml_like))
def test_any_text(text: str) -> None:
    tree = config_or_error(lambda: read_yaml(text))
    if tree is not None:
        config_or_error(lambda: parse_config(tree))


@examples
@given(st.one_of(st.text(max_size=100), yaml_like), st.sampled_from([None, "name", "tags", "hparams.lr", "x.y"]))
def test_any_flag(text: str, key: str | None) -> None:
    config_or_error(lambda: parse_override_value(text, key))


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([10**400, -(2**64), "gym"]),
)
known_words = sorted({part for path in [*field_docs("ppo"), *ALIASES] for part in path.split(".") if part})
keys = st.one_of(st.sampled_from(known_words), st.sampled_from([*field_docs("ppo")]), st.text(max_size=6))
json_like = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=25,
)


@examples
@given(st.dictionaries(keys, json_like, max_size=6), st.dictionaries(keys, json_like, max_size=3))
def test_any_tree(tree: dict[str, Any], overrides: dict[str, Any]) -> None:
    before = copy.deepcopy(tree)
    cfg = config_or_error(lambda: parse_config(tree, overrides))
    assert repr(tree) == repr(before), "the input is left alone"
    if cfg is not None:
        assert parse_config(read_yaml(dump_yaml(cfg))) == cfg


# -- valid configs, damaged -------------------------------------------------------------------------------------------

VALID = config_to_mapping(load_config("ppo/cartpole", {"env.wrappers": ["a:B"], "env.kwargs": {"x": [1, {"y": 2}]}}))


def paths_of(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        below = [found for key, value in tree.items() for found in paths_of(value, (*path, key))]
    elif isinstance(tree, list):
        below = [found for i, value in enumerate(tree) for found in paths_of(value, (*path, i))]
    else:
        below = []
    return [path, *below] if path else below


@examples
@given(
    st.lists(
        st.tuples(st.sampled_from(paths_of(VALID)), st.sampled_from("sdr"), json_like, keys), min_size=1, max_size=4
    )
)
def test_mutations_of_a_valid_config(mutations: list[tuple[tuple[Any, ...], str, Any, str]]) -> None:
    """Values set, deleted, and keys renamed anywhere in a valid tree."""
    tree = copy.deepcopy(VALID)
    for path, action, value, name in mutations:
        here: Any = tree
        for part in path[:-1]:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                here = None
        if not isinstance(here, dict) or path[-1] not in here:
            continue
        old = here.pop(path[-1])
        if action == "s":
            here[path[-1]] = value
        elif action == "r":
            here[name] = old
    cfg = config_or_error(lambda: parse_config(tree))
    if cfg is not None:
        assert parse_config(read_yaml(dump_yaml(cfg))) == cfg


# -- valid configs ----------------------------------------------------------------------------------------------------

text = st.text(max_size=12)
unit = st.floats(0, 1)
rate = st.one_of(
    unit,
    st.integers(0, 3),
    st.fixed_dictionaries({"type": st.sampled_from(["linear", "cosine"]), "start": unit, "end": unit}),
    st.fixed_dictionaries({"type": st.just("exponential"), "start": st.floats(0.1, 1), "end": st.floats(0.1, 1)}),
)
plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), text
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=8,
)
kwargs = st.dictionaries(text, plain, max_size=3)
part = st.one_of(
    text.filter(lambda name: name != "gym").map(lambda name: f"{name}:X"),
    st.fixed_dictionaries({"name": text.map(lambda name: f"m:{name}")}, optional={"kwargs": kwargs}),
)
body = st.fixed_dictionaries(
    {},
    optional={
        "type": text.map(lambda name: f"m:{name}"),
        "hidden_dims": st.lists(st.integers(1, 512), max_size=3),
        "activation": st.sampled_from(["tanh", "relu", "identity"]),
        "layer_norm": st.booleans(),
        "kwargs": kwargs,
    },
)
common = {
    "env_id": text,
    "seed": st.integers(0, 2**32 - 1),
    "name": st.one_of(st.none(), text),
    "tags": st.lists(text, max_size=3),
    "device": st.sampled_from(["cpu", "cuda", "cuda:3", "auto", "mps"]),
    "plugins": st.lists(text, max_size=2),
    "env": st.fixed_dictionaries(
        {},
        optional={
            "num_envs": st.integers(1, 64),
            "vectorization": st.sampled_from(["sync", "async", "native"]),
            "step_timeout": st.floats(0.1, 100),
            "wrappers": st.lists(part, max_size=3),
            "kwargs": kwargs,
            "max_episode_steps": st.one_of(st.none(), st.integers(1, 10**15)),
        },
    ),
    "network": st.fixed_dictionaries({}, optional={"actor": body, "critic": body, "shared": st.booleans()}),
    "training": st.fixed_dictionaries(
        {}, optional={"total_timesteps": st.integers(1, 10**15), "stop_at_return": st.floats(-1e9, 1e9)}
    ),
    "logging": st.fixed_dictionaries(
        {},
        optional={
            "wandb": st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "tags": st.lists(text, max_size=2)}),
            "sinks": st.lists(part, max_size=2),
        },
    ),
    "callbacks": st.lists(part, max_size=2),
}
ppo_hparams = st.fixed_dictionaries(
    {},
    optional={
        "num_steps": st.integers(4, 4096),
        "learning_rate": rate,
        "gamma": unit,
        "ent_coef": rate,
        "max_grad_norm": st.one_of(st.none(), st.floats(0.01, 10)),
        "normalize_advantage": st.booleans(),
        "num_epochs": st.integers(1, 20),
        "target_kl": st.one_of(st.none(), st.floats(1e-6, 1)),
    },
)
valid_trees = st.one_of(
    st.fixed_dictionaries({"algo": st.just("ppo")}, optional={**common, "hparams": ppo_hparams}),
    st.fixed_dictionaries({"algo": st.just("constant")}, optional=common),
    st.fixed_dictionaries({"algo": text.map(lambda name: f"mod:{name}")}, optional={**common, "hparams": kwargs}),
)


@examples
@given(valid_trees)
def test_object_to_yaml_to_object_is_the_identity(tree: dict[str, Any]) -> None:
    cfg = parse_config(tree)
    assert isinstance(cfg, TrainConfig)
    again = parse_config(read_yaml(dump_yaml(cfg)))
    assert again == cfg
    assert dump_yaml(again) == dump_yaml(cfg)
    assert config_sha256(again) == config_sha256(cfg)
