"""Action masks from a method, info or a Dict key end in the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import make_env, make_vector_env, space_spec
from rl_training.types import DictSpec, DiscreteSpec, EnvError, MultiBinarySpec

MASKED = EnvConfig(wrappers=(WrapperConfig("action_mask"),))


class Masked(gym.Env[Any, Any]):
    """Forbids one action after the other; the mask is given by a method, in info or in the observation."""

    def __init__(self, where: str = "method", actions: Any = None, size: int = 3) -> None:
        self.where = where
        self.size = size
        self.action_space = spaces.Discrete(3) if actions is None else actions
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)
        if where == "key":
            self.observation_space = spaces.Dict(
                {"board": self.observation_space, "action_mask": spaces.Box(0, 1, (size,), np.int8)}
            )
        if where == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        mask = np.ones(self.size, bool)
        mask[self.time % self.size] = False
        return mask

    def _out(self) -> Any:
        obs = np.array([self.time], np.float32)
        info = {"action_mask": self.mask()} if self.where == "info" else {}
        return ({"board": obs, "action_mask": self.mask().astype(np.int8)} if self.where == "key" else obs), info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._out()

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, info = self._out()
        return obs, 0.0, False, False, info


@pytest.mark.parametrize(
    ("where", "cfg", "name"),
    [("method", EnvConfig(), "obs"), ("info", MASKED, "obs"), ("key", EnvConfig(), "board"), ("method", MASKED, "obs")],
)
def test_the_mask_of_this_very_observation(where: str, cfg: EnvConfig, name: str) -> None:
    env = make_env(lambda: Masked(where), cfg)
    assert env.observation_space[name].shape == (1,)  # type: ignore[index]
    assert env.observation_space["action_mask"] == spaces.MultiBinary(3)  # type: ignore[index]
    seen = [env.reset()[0], *(env.step(0)[0] for _ in range(3))]
    assert [obs["action_mask"].tolist() for obs in seen] == [[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1]]
    assert [obs[name].tolist() for obs in seen] == [[0.0], [1.0], [2.0], [3.0]]
    assert all(env.observation_space.contains(obs) for obs in seen)


def test_taxi_by_wrapper_name() -> None:
    env = make_env("Taxi-v4", MASKED)
    obs, info = env.reset(seed=0)
    assert obs["action_mask"].tolist() == info["action_mask"].tolist()
    assert space_spec(env.observation_space) == DictSpec({"obs": DiscreteSpec(500), "action_mask": MultiBinarySpec(6)})


def test_a_multi_discrete_mask_has_one_entry_per_choice() -> None:
    env = make_env(lambda: Masked(actions=spaces.MultiDiscrete([2, 3]), size=5))
    assert env.reset()[0]["action_mask"].shape == (5,)


def test_masks_reach_final_observations() -> None:
    envs = make_vector_env(TrainConfig(env_id="RLProbe/MaskedArms-v0"), 2)
    envs.reset()
    obs, *_, infos = envs.step(np.zeros(2, np.int64))
    assert obs["action_mask"].shape == (2, 3)
    assert infos["final_obs"][0]["action_mask"].tolist()[:2] == [1, 1]


def test_wrong_masks_are_refused() -> None:
    with pytest.raises(EnvError, match="a mask of 4 entries for 3 choices"):
        make_env(lambda: Masked(size=4)).reset()
    with pytest.raises(EnvError, match=r"has shape \(4,\) for 3 choices"):
        make_env(lambda: Masked("key", size=4))
    with pytest.raises(EnvError, match="need Discrete or MultiDiscrete actions, not Box"):
        make_env(lambda: Masked(actions=spaces.Box(-1, 1, (3,))))
    with pytest.raises(EnvError, match=r"no 'action_mask' in the info .*info has: nothing"):
        make_env("CartPole-v1", MASKED).reset()
    with pytest.raises(EnvError, match="hold 'action_mask' already"):
        make_env(lambda: Masked("key"), MASKED)
    with pytest.raises(EnvError, match=r"has no method action_masks\(\)"):
        make_env("CartPole-v1", EnvConfig(wrappers=(WrapperConfig("action_mask", {"source": "method"}),)))
    with pytest.raises(EnvError, match="source must be auto, info or method"):
        make_env("CartPole-v1", EnvConfig(wrappers=(WrapperConfig("action_mask", {"source": "mind"}),)))
