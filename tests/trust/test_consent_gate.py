"""The gate itself: every path from a name to code, in a refusing scope."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import registry
from rl_training.config.fields import field_docs
from rl_training.config.monitor import AlertRuleConfig
from rl_training.config.schema import BackboneConfig, EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import make_env, make_vector_env, suites
from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.monitoring.alert_hooks import AlertHook
from rl_training.monitoring.alerts import user_rule
from rl_training.runs.foreign_code import ARGUMENTS, HARMLESS, NAMES, foreign_code
from rl_training.trust.consent import OWN, Consent, current, given_by_user, require, scope
from rl_training.types import BoxSpec, TrustError

NOBODY = Consent("none", "run 'x'")
NAME = "a_module_that_is_not_there:Part"


def jax_network() -> Any:
    from rl_training.jax.models.networks import backbone

    space = BoxSpec(np.zeros(4), np.ones(4), np.dtype("float32"))
    return backbone(space, BackboneConfig(type=NAME))


def optimizer() -> Any:
    from rl_training.models.optimization import FlatParameters, build_optimizer

    return build_optimizer(FlatParameters(torch.nn.Linear(2, 2)), OptimizerConfig(NAME), eps=1e-8)


def jax_optimizer() -> Any:
    from rl_training.jax.models.optimization import build_optimizer

    return build_optimizer(OptimizerConfig(NAME))


def jax_env() -> Any:
    from rl_training.jax.envs import make

    return make(NAME)


WAYS: dict[str, Callable[[], Any]] = {
    "import_attr": lambda: registry.import_attr(NAME, "part"),
    "import_plugins": lambda: registry.import_plugins(["a_module_that_is_not_there"]),
    **{
        f"{kind.kind} registry": (lambda kind=kind: kind.get(NAME))  # type: ignore[misc]
        for kind in (
            registry.algorithms,
            registry.networks,
            registry.environments,
            registry.wrappers,
            registry.buffers,
            registry.loggers,
            registry.callbacks,
            registry.optimizers,
            registry.dynamics,
        )
    },
    "environment": lambda: suites.find(NAME),
    "environment of a module": lambda: suites.find("a_module_that_is_not_there:Env-v0"),
    "environment of jax": jax_env,
    "network of jax": jax_network,
    "optimizer": optimizer,
    "optimizer of jax": jax_optimizer,
    "wrapper": lambda: make_env("CartPole-v1", EnvConfig(wrappers=(WrapperConfig(NAME),))),
    "vector environment": lambda: make_vector_env(TrainConfig(env_id=NAME)),
    "plugins of an environment": lambda: make_vector_env(TrainConfig(plugins=("a_module_that_is_not_there",))),
    "alert rule": lambda: user_rule(AlertRuleConfig(NAME)),
    "alert command": lambda: AlertHook(["true"]),
    "alert address": lambda: AlertHook(url="http://127.0.0.1:9"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_past_the_gate(way: str) -> None:
    with scope(NOBODY), pytest.raises(TrustError, match=r"run 'x' was not made here, .* add --trust-plugins"):
        WAYS[way]()


def test_a_thread_is_refused_while_an_untrusted_config_runs() -> None:
    caught: list[str] = []

    def look() -> None:
        try:
            require("part", "x")
        except TrustError as error:
            caught.append(str(error))

    def in_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with scope(NOBODY):
        in_thread()
    assert len(caught) == 1
    in_thread()
    with scope(OWN):
        in_thread()
    assert len(caught) == 1


def test_scopes_nest_and_end() -> None:
    assert current() == OWN
    with scope(NOBODY):
        with given_by_user():
            assert current() == NOBODY
        with scope(OWN):
            assert current() == OWN
        assert current() == NOBODY
    with given_by_user():
        assert current() == OWN
    assert current() == OWN


def test_worker_processes_run_under_the_consent_of_their_trainer(tmp_path: Path) -> None:
    cfg = TrainConfig(env_id="CartPole-v1")
    wrapped = replace(cfg.env, num_envs=1, vectorization="async", wrappers=(WrapperConfig(NAME),))
    with scope(NOBODY), pytest.raises(TrustError, match="wrapper a_module_that_is_not_there:Part"):
        make_vector_env(replace(cfg, env=wrapped))


def test_built_in_parts_are_there_for_everybody() -> None:
    parts = {
        registry.algorithms: ["ppo", "rl_training.hparams.ppo:SPEC"],
        registry.networks: ["mlp", "rl_training.models.backbones.mlp:MLP"],
        registry.wrappers: ["frame_stack", "rl_training.envs.wrappers:FrameStack", "gymnasium.wrappers:TimeLimit"],
        registry.buffers: ["replay"],
        registry.loggers: ["jsonl"],
        registry.optimizers: ["adam", "adamw", "rmsprop", "torch.optim:AdamW"],
    }
    with scope(NOBODY):
        for kind, names in parts.items():
            for name in names:
                assert kind.get(name) is not None
        make_env("RLProbe/Chain-v0").close()
        make_vector_env(TrainConfig(env_id="CartPole-v1", env=EnvConfig(num_envs=1, vectorization="native"))).close()
        for path in (
            "rl_training.registry:sys",
            "rl_training.monitoring.alert_hooks:subprocess",
            "gymnasium.wrappers:gym",
        ):
            with pytest.raises(TrustError):
                registry.wrappers.get(path)


def test_an_untrusted_config_cannot_use_names_that_this_process_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = registry.Registry("part", {"built-in": "rl_training.registry:Registry"})
    parts.register("mine")(dict)
    assert parts.is_foreign("mine")
    assert not parts.is_foreign("unknown")
    assert parts.get("mine") is dict
    with scope(NOBODY), pytest.raises(TrustError, match="part mine"):
        parts.get("mine")
    # those of an installed plugin package are allowed
    monkeypatch.setattr(registry, "_installed_packages", lambda: {__name__.split(".")[0]})
    with scope(NOBODY):
        assert parts.get("mine") is dict


def test_gymnasium_ids_are_built_in_by_what_they_build(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.envs.registration import registry as ids

    specs = {
        "Mine-v0": EnvSpec("Mine-v0", entry_point="gymnasium_evil.envs:Env"),
        "Near-v0": EnvSpec("Near-v0", entry_point="gymnasium.envs.toy_text_evil:Env"),
        "Compat-v0": EnvSpec("Compat-v0", entry_point="shimmy:GymV26CompatibilityV0"),
        "Vector-v0": EnvSpec(
            "Vector-v0", entry_point="gymnasium.envs.toy_text:CliffWalkingEnv", vector_entry_point="evil:Env"
        ),
    }
    for name, spec in specs.items():
        monkeypatch.setitem(ids, name, spec)
        with scope(NOBODY), pytest.raises(TrustError, match=f"environment {name}"):
            suites.find(name)
        assert isinstance(suites.find(name), gym.envs.registration.EnvSpec)
    with scope(NOBODY):
        assert suites.is_built_in(suites.find_spec("CartPole-v1"))


# -- what a parsed config asks for ------------------------------------------------------------------------------------


def test_built_in_configs_ask_for_nothing() -> None:
    for algo in registry.ALGORITHMS:
        assert foreign_code(TrainConfig(algo=algo)) == []
    cfg = TrainConfig(env=EnvConfig(wrappers=(WrapperConfig("time_limit", {"max_episode_steps": 5}),)))
    assert foreign_code(replace(cfg, name="a:b", output_dir="/tmp/x:y", tags=("x:y",))) == []
    frozen = EnvConfig(kwargs={"map_name": "4x4", "is_slippery": False, "desc": ["SF", "HG"]})
    assert foreign_code(TrainConfig(env_id="FrozenLake-v1", env=frozen)) == []


def test_every_preset_asks_for_nothing() -> None:
    from rl_training.config.loading import load_config, preset_names

    assert {name: found for name in preset_names() if (found := foreign_code(load_config(name)))} == {}


def test_an_environment_that_the_user_brings_is_not_asked_for() -> None:
    cfg = TrainConfig(env_id="my.module:Env")
    assert foreign_code(cfg) == ["env_id my.module:Env"]
    assert foreign_code(cfg, env_given=True) == []


def test_a_text_in_a_field_that_is_not_classified_counts_as_code() -> None:
    @dataclass(frozen=True)
    class Later:
        optimizer: str = "adam"
        names: tuple[str, ...] = ()

    cfg = TrainConfig()
    object.__setattr__(cfg, "hparams", Later())
    assert foreign_code(cfg) == []
    object.__setattr__(cfg, "hparams", Later("torch.optim.SGD", ("x",)))
    assert foreign_code(cfg) == ["hparams.optimizer torch.optim.SGD", "hparams.names.* x"]


def test_an_optimiser_of_your_own_is_code_and_a_built_in_one_is_not() -> None:
    def asked(name: str, **kwargs: Any) -> list[str]:
        return foreign_code(TrainConfig(hparams=PPOConfig(optimizer=OptimizerConfig(name, kwargs))))

    assert asked("adamw", weight_decay=0.1) == asked("rmsprop") == asked("adam") == []
    assert asked("my.module:Lion") == ["hparams.optimizer.type my.module:Lion"]
    assert asked("torch.optim:SGD") == ["hparams.optimizer.type torch.optim:SGD"]
    assert asked("adamw", foreach="my:m") == ["hparams.optimizer.kwargs.** my:m"]


def test_the_classified_fields_exist() -> None:
    paths = {path for algo in ("ppo", "dreamer") for path in field_docs(algo)}
    for place in [*HARMLESS, *NAMES, *ARGUMENTS]:
        start = ".".join(place).split(".*")[0].removesuffix(".**").split(".**")[0]
        assert any(path == start or path.startswith(f"{start}.") for path in paths), place
