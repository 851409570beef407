"""The read-only views of the registries."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rl_training.registry import (
    ALGORITHM_REGISTRY,
    ENVIRONMENT_REGISTRY,
    NETWORK_REGISTRY,
    algorithms,
    networks,
)


def test_views_show_what_is_registered() -> None:
    assert set(ALGORITHM_REGISTRY) >= {"ppo", "dqn", "sac"}
    assert ALGORITHM_REGISTRY["ppo"] is algorithms.get("ppo")
    assert ALGORITHM_REGISTRY["ppo"].name == "ppo"
    assert "mlp" in NETWORK_REGISTRY
    assert "RLJax/Catch-v0" in ENVIRONMENT_REGISTRY
    assert len(NETWORK_REGISTRY) == len(networks.names())
    assert "ppo" in repr(ALGORITHM_REGISTRY)


def test_a_part_registered_later_is_seen() -> None:
    with networks.override("mine", object):
        assert NETWORK_REGISTRY["mine"] is object
    assert "mine" not in NETWORK_REGISTRY


def test_views_cannot_be_written_and_know_no_other_names() -> None:
    assert isinstance(ALGORITHM_REGISTRY, Mapping)
    with pytest.raises(TypeError):
        ALGORITHM_REGISTRY["mine"] = object  # type: ignore[index]
    with pytest.raises(KeyError, match="did you mean 'ppo'"):
        ALGORITHM_REGISTRY["pppo"]
    assert ALGORITHM_REGISTRY.get("pppo") is None
    assert 3 not in ALGORITHM_REGISTRY
    assert "json:loads" not in ALGORITHM_REGISTRY, "a dotted path is a config's business"
