"""Invalid environments, networks and algorithms of users are refused by name, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig
from rl_training.hparams.base import AlgorithmSpec
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.hparams.reinforce import ReinforceConfig
from rl_training.jax.algorithms.dqn import HYPER as DQN_HYPER
from rl_training.jax.algorithms.dqn import dqn
from rl_training.jax.algorithms.reinforce import HYPER, reinforce  # noqa: F401  HYPER is looked up beside the functions
from rl_training.jax.checks import check_env
from rl_training.jax.envs.base import box
from rl_training.jax.models.networks import Network, backbone, mlp
from rl_training.registry import algorithms
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

# -- environments -----------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    place: Any
    steps: Any


class Walk:
    """A valid environment; the tests replace one of its functions."""

    observation_space: Any = box(-9.0, 9.0, (2,))
    action_space: Any = DiscreteSpec(2)
    max_episode_steps: int | None = None

    def init(self, key: Any, n: int) -> Any:
        return Line(jnp.zeros(n), jnp.zeros(n, jnp.int32))

    def obs(self, state: Any) -> Any:
        return jnp.stack([state.place, 1.0 * state.steps], axis=1)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        place = state.place + 2.0 * action - 1.0
        return Line(place, state.steps + 1), place, jnp.abs(place) > 5.0, jnp.zeros(len(place), bool)


def stepped(**changes: Callable[[Any], Any]) -> Callable[..., Any]:
    """A step function with some of its results replaced."""

    def step(self: Walk, state: Any, action: Any, key: Any) -> Any:
        names = ("state", "rewards", "terminated", "truncated")
        results = dict(zip(names, Walk.step(self, state, action, key), strict=True))
        return tuple(changes.get(name, lambda x: x)(value) for name, value in results.items())

    return step


WRONG_ENVS: dict[str, tuple[dict[str, Any], str]] = {
    "a state without rows": (
        {"init": lambda self, key, n: Line(jnp.zeros(n), jnp.zeros((), jnp.int32))},
        r"Walk: init\(key, n\) made a state\.steps of shape \(\) for n = 3; every array of a state has n rows",
    ),
    "observations of another shape": (
        {"obs": lambda self, state: state.place},
        r"Walk: obs\(state\) must be floats of shape \(3, 2\) for 3 environments, not float32\[3\]",
    ),
    "observations of another kind": (
        {"obs": lambda self, state: jnp.stack([state.steps, state.steps], axis=1)},
        r"must be floats of shape \(3, 2\) for 3 environments, not int32\[3, 2\]",
    ),
    "no dict": ({"observation_space": DictSpec({"a": box(0.0, 1.0, (2,))})}, r"obs\(state\) has no dict; .* has a"),
    "other keys": (
        {
            "observation_space": DictSpec({"a": box(0.0, 1.0, (2,))}),
            "obs": lambda self, state: {"b": Walk.obs(self, state)},
        },
        "has the keys b; observation_space has a",
    ),
    "three results": (
        {"step": lambda self, state, action, key: Walk.step(self, state, action, key)[:3]},
        r"step must return \(state, rewards, terminated, truncated\)",
    ),
    "a reward for all": (
        {"step": stepped(rewards=jnp.sum)},
        r"step: rewards must be floats of shape \(3,\) for 3 environments, not float32\[\]",
    ),
    "rewards that are flags": ({"step": stepped(rewards=lambda x: x > 0)}, "rewards must be floats .* not bool"),
    "a Python number": ({"step": stepped(truncated=lambda x: False)}, "truncated must be bools of shape"),
    "flags that are numbers": (
        {"step": stepped(terminated=lambda x: 1.0 * x)},
        r"terminated must be bools of shape \(3,\) for 3 environments, not float32\[3\]",
    ),
    "a state that changes its dtype": (
        {"step": stepped(state=lambda x: x._replace(steps=1.0 * x.steps))},
        r"step made state\.steps float32\[3\] of int32\[3\]; shape and dtype must stay",
    ),
    "a state that grows": (
        {"step": stepped(state=lambda x: (x, x.place))},
        r"step returned a state without state\.place, .* with a new state\[0\]\.place.*; it must keep its form",
    ),
    "actions by name": ({"action_space": DictSpec({"a": DiscreteSpec(2)})}, "Dict action space"),
}


@pytest.mark.parametrize("case", WRONG_ENVS)
def test_an_environment_that_does_not_fit_is_refused(case: str) -> None:
    changes, message = WRONG_ENVS[case]
    with pytest.raises(ConfigError, match=message):
        check_env(type("Walk", (Walk,), changes)(), "Walk")


def test_an_environment_that_fits_is_taken() -> None:
    check_env(Walk(), "Walk")


class Flat(Walk):
    """Named by a config."""

    def obs(self, state: Any) -> Any:
        return state.place


def test_it_is_refused_when_a_run_is_built() -> None:
    cfg = parse_config({"algo": "ppo", "backend": "jax", "env_id": f"{__name__}:Flat"})
    with pytest.raises(ConfigError, match=rf"environment '{__name__}:Flat': obs\(state\) must be floats of shape"):
        build_trainer(cfg)


# -- networks ---------------------------------------------------------------------------------------------------------

SPACE = BoxSpec(np.full(4, -1.0, "f"), np.full(4, 1.0, "f"), np.dtype("f"))


def plain(space: Any, config: Any) -> Network:
    return mlp(space, config)


def wider_than_it_says(space: Any, config: Any) -> Network:
    return mlp(space, config)._replace(out_features=7)


def of_lists(space: Any, config: Any) -> Network:
    return mlp(space, config)._replace(init=lambda rng: [1.0])


def with_a_wide_memory(space: Any, config: Any) -> Network:
    return mlp(space, config)._replace(step=lambda params, memory, seen: jnp.concatenate([memory, seen], axis=1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wider_than_it_says, r"apply\(params, obs\) must be floats of shape \(3, 7\) .* not float32\[3, 16\]"),
        (of_lists, r"init\(rng\) must return a dict of NumPy arrays by name"),
        (with_a_wide_memory, r"step\(params, memory, features\) must be floats of shape \(3, 16\)"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(function: Any, message: str) -> None:
    config = BackboneConfig(type=f"{__name__}:{function.__name__}", hidden_dims=(16,))
    with pytest.raises(ConfigError, match=message):
        backbone(SPACE, config)
    assert backbone(SPACE, BackboneConfig(type=f"{__name__}:plain", hidden_dims=(16,))).out_features == 16


# -- algorithms -------------------------------------------------------------------------------------------------------


def altered(build: Any, **functions: Callable[[Any], Any]) -> Any:
    """An algorithm with some of its functions replaced."""

    def made(ctx: Any, hp: Any) -> Any:
        algorithm = build(ctx, hp)
        return algorithm._replace(**{name: change(getattr(algorithm, name)) for name, change in functions.items()})

    return made


def after(change: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function with its result changed."""
    return lambda function: lambda *args: change(*function(*args))


def halved(state: Any, metrics: Any) -> Any:
    return state._replace(params=jax.tree.map(lambda x: x.astype(jnp.float16), state.params)), metrics


a_metric_per_row = altered(reinforce, learn=after(lambda state, metrics: (state, {"loss": jnp.zeros(3)})))
half_precision = altered(reinforce, learn=after(halved))
half_precision_replay = altered(dqn, learn=after(halved))
column_of_actions = altered(reinforce, act=after(lambda actions, carry, extras: (actions[:, None], carry, extras)))
a_dict_as_state = altered(reinforce, init=lambda init: lambda rng, hyper: init(rng, hyper)._asdict())
nothing_at_all = altered(reinforce)


def not_an_algorithm(ctx: Any, hp: Any) -> Any:
    return {}


def of_one(ctx: Any) -> Any:
    return {}


def spec(name: str, hparams: Any = ReinforceConfig) -> AlgorithmSpec:
    kind: Any = "off_policy" if issubclass(hparams, OffPolicyHparams) else "on_policy"
    return AlgorithmSpec("mine", kind, hparams, functional=f"{__name__}:{name}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_metric_per_row", r"learn returned metric 'loss' of shape \(3,\); a metric is one number"),
        ("half_precision", r"learn or observe made state\.params.* float16.* of float32.*; shape and dtype must stay"),
        ("column_of_actions", r"act returned actions of shape \(4, 1\); 4 environments take \(4,\)"),
        ("a_dict_as_state", "init must return a NamedTuple with the fields params, normalizer, hyper"),
        ("not_an_algorithm", "made a dict; it must make an rl_training.jax.types.JaxAlgorithm"),
        ("of_one", r"is called with \(ctx, hparams\) and does not take that"),
        ("missing", "has no 'missing'"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_refused_when_a_run_is_built(name: str, message: str) -> None:
    cfg = parse_config({"algo": "reinforce", "backend": "jax", "env_id": "CartPole-v1"})
    with algorithms.override("reinforce", spec(name)), pytest.raises(ConfigError, match=message):
        build_trainer(cfg)


def test_one_that_learns_from_replay_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.HYPER", DQN_HYPER)
    cfg = parse_config({"algo": "dqn", "backend": "jax", "env_id": "CartPole-v1"})
    mine = spec("half_precision_replay", type(cfg.hparams))
    with algorithms.override("dqn", mine), pytest.raises(ConfigError, match=r"learn made state\.params.* float16"):
        build_trainer(cfg)


def test_hyperparameters_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = parse_config({"algo": "reinforce", "backend": "jax", "env_id": "CartPole-v1"})
    monkeypatch.setattr(f"{__name__}.HYPER", ("gama",))
    message = "HYPER names 'gama', which is no hyperparameter; did you mean 'gamma'"
    with algorithms.override("reinforce", spec("nothing_at_all")), pytest.raises(ConfigError, match=message):
        build_trainer(cfg)
