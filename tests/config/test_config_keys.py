"""The alias table, and how layers are converted to canonical keys and merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.config.aliases import ALIASES, canonical_key, document_layer, merge, override_layer
from rl_training.config.fields import field_docs
from rl_training.config.yaml_reader import Document, parse_yaml
from rl_training.registry import algorithms


@pytest.mark.parametrize(
    ("spelt", "canonical"),
    [
        ("experiment.seed", "seed"),
        ("experiment.name", "name"),
        ("experiment.device", "device"),
        ("algorithm", "algo"),
        ("algorithm.name", "algo"),
        ("algorithm.lr", "hparams.learning_rate"),
        ("algorithm.hparams.lr", "hparams.learning_rate"),
        ("algorithm.clip_ratio", "hparams.clip_coef"),
        ("algorithm.value_coef", "hparams.vf_coef"),
        ("algorithm.entropy_coef", "hparams.ent_coef"),
        ("algorithm.gae_lambda", "hparams.gae_lambda"),
        ("hparams.lr", "hparams.learning_rate"),
        ("hparams.lr.start", "hparams.learning_rate.start"),
        ("hparams.clip-ratio", "hparams.clip_coef"),
        ("environment", "env_id"),
        ("environment.name", "env_id"),
        ("environment.wrapper", "env.wrappers"),
        ("environment.normalize_obs", "env.normalize_obs"),
        ("env.num-envs", "env.num_envs"),
        ("env", "env_id"),
        ("num-envs", "env.num_envs"),
        ("total_timesteps", "training.total_timesteps"),
        ("stop-at-return", "training.stop_at_return"),
        ("experiment.num_envs", "env.num_envs"),
        ("env.kwargs.render-mode", "env.kwargs.render-mode"),
        ("network.actor.kwargs.a-b", "network.actor.kwargs.a-b"),
        ("no.such-key", "no.such_key"),
        ("", ""),
    ],
)
def test_canonical_key(spelt: str, canonical: str) -> None:
    assert canonical_key(spelt) == canonical


def test_names_of_an_own_algorithm_are_left_alone() -> None:
    assert canonical_key("algorithm.lr", own_hparams=True) == "hparams.lr"
    assert canonical_key("hparams.my-key", own_hparams=True) == "hparams.my-key"
    assert canonical_key("algorithm.name", own_hparams=True) == "algo"
    assert canonical_key("environment.num-envs", own_hparams=True) == "env.num_envs"


words = st.sampled_from(
    sorted({part for alias in ALIASES for part in alias.split(".") if part} | {"kwargs", "a-b", "x"})
)


@given(st.lists(words, min_size=1, max_size=6).map(".".join), st.booleans())
def test_the_table_is_idempotent(key: str, own: bool) -> None:
    once = canonical_key(key, own_hparams=own)
    assert canonical_key(once, own_hparams=own) == once


@given(st.text(max_size=60))
def test_any_text_is_a_key(key: str) -> None:
    once = canonical_key(key)
    assert canonical_key(once) == once


def test_no_field_is_hidden_by_an_alias() -> None:
    for algo in algorithms.names():
        for path in field_docs(algo):
            assert canonical_key(path) == path


def test_every_alias_leads_to_a_field() -> None:
    fields = set(field_docs("ppo"))
    for alias, target in ALIASES.items():
        if not alias.endswith("."):
            assert canonical_key(target) in fields


def test_a_layer_remembers_places_and_spellings() -> None:
    layer = document_layer(parse_yaml("algorithm:\n  lr: 1\nenv:\n  num-envs: 2\n", "f.yaml"), own_hparams=False)
    assert layer.tree == {"hparams": {"learning_rate": 1}, "env": {"num_envs": 2}}
    origin = layer.origins["hparams", "learning_rate"]
    assert (origin.place, origin.spelt) == ("f.yaml:2", "algorithm.lr")
    assert layer.origins["env", "num_envs"].spelt == "env.num-envs"


@pytest.mark.parametrize(
    "tree",
    [
        {"algorithm": {"lr": 1}, "hparams": {"learning_rate": 1}},
        {"env": {"num_envs": 1}, "num_envs": 1},
        {"env": {"num_envs": 1, "num-envs": 1}},
        {"algo": "ppo", "algorithm": {"name": "ppo"}},
        {"seed": 1, "experiment": {"seed": 1}},
        {"hparams": {"lr": 1}, "hparams.learning_rate": 1},
        {"hparams": {"lr": {"type": "linear"}, "learning_rate": 1}},
        {"hparams": {"learning_rate": 1, "lr": {"type": "linear"}}},
        {"env.kwargs.a": 1, "env": {"kwargs": {"a": 1}}},
    ],
)
def test_a_key_given_twice_is_a_problem(tree: dict[str, object]) -> None:
    assert len(document_layer(Document(tree, "f"), own_hparams=False).problems) == 1
    assert len(override_layer(tree, own_hparams=False).problems) == 1


def test_two_spellings_of_one_section_may_share_it() -> None:
    layer = document_layer(
        Document({"env": {"num_envs": 1}, "environment": {"normalize_obs": True}}, "f"), own_hparams=False
    )
    assert (layer.tree, layer.problems) == ({"env": {"num_envs": 1, "normalize_obs": True}}, [])


def test_sections_with_nothing_in_them_are_not_given() -> None:
    tree = {"hparams": None, "experiment": None, "algorithm": None, "env": None, "network": {"actor": None}}
    assert document_layer(Document(tree, "f"), own_hparams=False).tree == {}


def test_free_keys_are_not_taken_apart() -> None:
    tree = {
        "env": {"kwargs": {"a.b": 1, "c-d": {"e.f": 2}}},
        "algorithm": {"name": "m:A", "x.y-z": 3, "hparams": {"lr": 4}},
    }
    assert document_layer(Document(tree, "f"), own_hparams=True).tree == {
        "env": {"kwargs": {"a.b": 1, "c-d": {"e.f": 2}}},
        "algo": "m:A",
        "hparams": {"x.y-z": 3, "lr": 4},
    }


def test_mappings_merge_and_lists_replace() -> None:
    below = document_layer(Document({"env": {"num_envs": 1, "wrappers": ["a", "b"]}}, "f"), own_hparams=False)
    above = override_layer({"env.wrappers": ["c"], "env.frame-stack": 2}, own_hparams=False)
    layer = merge([below, above])
    assert layer.tree == {"env": {"num_envs": 1, "wrappers": ["c"], "frame_stack": 2}}
    assert layer.origins["env", "frame_stack"].place == "--env.frame-stack"
    assert layer.origins["env", "num_envs"].place == "f"
