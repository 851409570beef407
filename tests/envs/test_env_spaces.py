"""Space conversion: every kind of space to a plain one and back, values included; plain ones are left alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import TrainConfig
from rl_training.envs import make_env, make_vector_env, space_spec
from rl_training.envs.spaces import convert_action_space, convert_observation_space, convert_spaces
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec, EnvError, MultiBinarySpec, MultiDiscreteSpec

UNIT = spaces.Box(0, 1, (2,), np.float32)


class Echo(gym.Env[Any, Any]):
    """Random observations of a space; remembers its actions."""

    def __init__(self, observation_space: spaces.Space[Any] = UNIT, action_space: Any = None) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.actions.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


PLAIN = [
    UNIT,
    spaces.Box(0, 255, (3, 4, 4), np.uint8),
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
]


@pytest.mark.parametrize("space", PLAIN, ids=str)
def test_plain_spaces_get_no_wrapper(space: Any) -> None:
    env = Echo(space, space)
    assert convert_spaces(env) is env
    flat = Echo(spaces.Dict({"a": space, "b": UNIT}))
    assert convert_spaces(flat) is flat


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.Discrete(3), DiscreteSpec(3)),
        (UNIT, BoxSpec(np.zeros(2, np.float32), np.ones(2, np.float32), np.dtype(np.float32))),
        (spaces.MultiDiscrete([2, 3]), MultiDiscreteSpec((2, 3))),
        (spaces.MultiBinary(4), MultiBinarySpec(4)),
        (spaces.Dict({"a": spaces.Discrete(2), "b/c": spaces.MultiBinary(1)}),
         DictSpec({"a": DiscreteSpec(2), "b/c": MultiBinarySpec(1)})),
    ],
)  # fmt: skip
def test_records(space: Any, spec: Any) -> None:
    assert space_spec(space) == spec


def test_spaces_that_were_not_converted_have_no_record() -> None:
    for space in (spaces.Discrete(3, start=1), spaces.MultiBinary([2, 2]), spaces.Tuple([UNIT])):
        with pytest.raises(EnvError, match="build the environment with make_env"):
            space_spec(space)


# -- observations -----------------------------------------------------------------------------------------------------


def convert(space: Any, value: Any) -> tuple[Any, Any]:
    plain, function = convert_observation_space(space)
    assert function is not None
    converted = function(value)
    assert plain.contains(converted), f"{converted!r} is not in {plain}"
    return plain, converted


def test_discrete_observations_become_zero_based() -> None:
    plain, value = convert(spaces.Discrete(5, start=-2), np.int64(2))
    assert plain == spaces.Discrete(5)
    assert value == 4


def test_flat_vectors() -> None:
    plain, value = convert(spaces.MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8))
    assert plain == spaces.MultiBinary(4)
    assert value.tolist() == [1, 0, 0, 1]
    plain, value = convert(spaces.MultiDiscrete([[2, 3], [4, 5]]), np.array([[1, 2], [3, 4]]))
    assert plain == spaces.MultiDiscrete([2, 3, 4, 5])
    assert value.tolist() == [1, 2, 3, 4]
    plain, value = convert(spaces.MultiDiscrete([2, 3], start=[1, 10]), np.array([1, 12]))
    assert plain == spaces.MultiDiscrete([2, 3])
    assert value.tolist() == [0, 2]
    plain, value = convert(spaces.Box(-1.0, 2.0, (), np.float32), np.float32(0.5))
    assert plain.shape == (1,)
    assert value.tolist() == [0.5]


def test_nested_observations_become_one_flat_dict() -> None:
    space = spaces.Dict(
        {
            "arm": spaces.Dict({"angle": UNIT, "touch": spaces.Discrete(2, start=1)}),
            "goals": spaces.Tuple([spaces.Discrete(3), UNIT]),
        }
    )
    value = {"arm": {"angle": np.ones(2, np.float32), "touch": np.int64(2)}, "goals": (np.int64(2), np.zeros(2))}
    plain, flat = convert_observation_space(space)
    assert flat is not None
    assert sorted(plain.spaces) == ["arm/angle", "arm/touch", "goals/0", "goals/1"]  # type: ignore[attr-defined]
    converted = flat(value)
    assert {key: np.asarray(item).tolist() for key, item in converted.items()} == {
        "arm/angle": [1.0, 1.0],
        "arm/touch": 1,
        "goals/0": 2,
        "goals/1": [0.0, 0.0],
    }
    assert isinstance(space_spec(plain), DictSpec)


def test_colliding_keys_are_refused() -> None:
    with pytest.raises(EnvError, match="collide"):
        convert_observation_space(spaces.Dict({"a/b": UNIT, "a": spaces.Dict({"b": UNIT})}))


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(UNIT), spaces.Dict({"t": spaces.Text(5)})])
def test_spaces_that_cannot_be_converted(space: Any) -> None:
    with pytest.raises(EnvError, match=r"cannot convert the space .*: .+env\.wrappers"):
        convert_observation_space(space)


def test_an_empty_dict_is_refused() -> None:
    with pytest.raises(EnvError, match="is empty"):
        convert_observation_space(spaces.Dict({}))


def test_blackjack_as_a_vector() -> None:
    envs = make_vector_env(TrainConfig(env_id="Blackjack-v1"), 3)
    obs, _ = envs.reset()
    assert {key: (value.shape, value.dtype) for key, value in obs.items()} == {
        key: ((3,), np.dtype(np.int64)) for key in "012"
    }
    assert space_spec(envs.single_observation_space) == DictSpec(
        {"0": DiscreteSpec(32), "1": DiscreteSpec(11), "2": DiscreteSpec(2)}
    )
    obs, _, _, _, infos = envs.step(np.zeros(3, np.int64))
    assert {key: int(value) for key, value in infos["final_obs"][0].items()}.keys() == {"0", "1", "2"}


# -- actions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "plain", "action", "executed"),
    [
        (spaces.Discrete(3, start=5), spaces.Discrete(3), 2, 7),
        (spaces.MultiDiscrete([[2, 3]]), spaces.MultiDiscrete([2, 3]), [1, 2], [[1, 2]]),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), spaces.MultiDiscrete([2, 3]), [1, 2], [5, 2]),
        (spaces.MultiBinary([2, 1]), spaces.MultiBinary(2), [1, 0], [[1], [0]]),
        (spaces.Box(-1, 1, (), np.float32), spaces.Box(-1, 1, (1,), np.float32), [0.5], 0.5),
    ],
)
def test_leaf_actions(space: Any, plain: Any, action: Any, executed: Any) -> None:
    echo = Echo(action_space=space)
    env = make_env(lambda: echo)
    assert env.action_space == plain
    env.reset()
    env.step(np.array(action))
    np.testing.assert_array_equal(echo.actions[0], executed)


def test_discrete_actions_of_a_dict_become_one_multi_discrete() -> None:
    space = spaces.Dict(
        {
            "buttons": spaces.MultiBinary(2),
            "move": spaces.Discrete(3, start=1),
            "tools": spaces.Tuple([spaces.Discrete(4), spaces.MultiDiscrete([2, 5])]),
        }
    )
    echo = Echo(action_space=space)
    env = make_env(lambda: echo)
    assert env.action_space == spaces.MultiDiscrete([2, 2, 3, 4, 2, 5])
    env.reset()
    env.step(np.array([1, 0, 2, 3, 1, 4]))
    action = echo.actions[0]
    assert action["buttons"].tolist() == [1, 0]
    assert action["move"] == 3
    assert action["tools"][0] == 3
    assert action["tools"][1].tolist() == [1, 4]


def test_boxes_of_a_tuple_become_one_box() -> None:
    space = spaces.Tuple([spaces.Box(-1, 1, (2, 1), np.float32), spaces.Box(0, 5, (1,), np.float64)])
    echo = Echo(action_space=space)
    env = make_env(lambda: echo)
    assert env.action_space == spaces.Box(np.array([-1.0, -1, 0]), np.array([1.0, 1, 5]), dtype=np.float64)
    env.reset()
    env.step(np.array([0.25, -1.0, 4.0]))
    first, second = echo.actions[0]
    assert (first.tolist(), first.dtype) == ([[0.25], [-1.0]], np.float32)
    assert (second.tolist(), second.dtype) == ([4.0], np.float64)


def test_mixed_actions_are_refused_in_words() -> None:
    with pytest.raises(EnvError, match="all discrete or all continuous, not a mixture"):
        convert_action_space(spaces.Dict({"a": UNIT, "b": spaces.Discrete(2)}))
    with pytest.raises(EnvError, match="cannot convert the action space"):
        convert_action_space(spaces.Tuple([]))
