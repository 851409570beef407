"""check_env names what is wrong: one broken environment per finding."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import check_env
from rl_training.types import EnvError


class Good(gym.Env[Any, Any]):
    """A correct environment; the broken ones below change one thing."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space: Any = spaces.Discrete(2)

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.obs(), 1.0, self.time == 5, False, {}

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8)


def test_a_good_environment_has_no_findings() -> None:
    report = check_env(Good)
    assert report.ok
    assert (report.errors, report.warnings) == ([], [])
    assert str(report) == "no problems found"
    report.raise_for_errors()


class OldApi(Good):
    def step(self, action: Any) -> Any:
        return self.obs(), 1.0, False, {}


class OldReset(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class NoSeed(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class WrongDtype(Good):
    def obs(self) -> Any:
        return super().obs().astype(np.float64)


class WrongShape(Good):
    def obs(self) -> Any:
        return super().obs()[:1]


class OutOfBounds(Good):
    def obs(self) -> Any:
        return super().obs() + np.float32(3)


class NotANumber(Good):
    def obs(self) -> Any:
        return super().obs() * np.float32(np.nan)


class ListObs(Good):
    def obs(self) -> Any:
        return [0.0, 0.0]


class WrongKeys(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)})

    def obs(self) -> Any:
        return {"a": np.int64(0)}


class WrongLeaf(WrongKeys):
    def obs(self) -> Any:
        return {"a": np.int64(0), "b": np.int64(5)}


class WrongTuple(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])

    def obs(self) -> Any:
        return (0,)


def outcome(**change: Any) -> type[Good]:
    class Changed(Good):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = super().step(action)
            values = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info}
            return tuple({**values, **change}.values())

    return Changed


class Raises(Good):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("oops")


class GlobalNoise(Good):
    noise = np.random.default_rng()

    def obs(self) -> Any:
        return self.noise.uniform(-1, 1, 2).astype(np.float32)


class Survivor(Good):
    """State that grows over resets and shows late: one instance is deterministic, a fresh copy differs."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.total = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.total = min(self.total + 1, 2)
        return super().reset(seed=seed)

    def obs(self) -> Any:
        return super().obs() * np.float32(0.5 if self.total > 1 and self.time == 4 else 1.0)

    time = 0


class NoSpace(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        del self.action_space


class TextSpace(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Text(4)


class BadPicture(Good):
    def render(self) -> Any:
        return [1]


class NoActionLeft(Good):
    def action_masks(self) -> Any:
        return np.zeros(2, np.int8)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (OldApi, "four values with one `done` are the old gym API"),
        (OldReset, "it must return (observation, info)"),
        (NoSeed, "reset() takes no seed and no options; write reset(self, *, seed=None, options=None)"),
        (WrongDtype, "is float64, its space float32; end with .astype(np.float32)"),
        (WrongShape, "has shape (1,), its space (2,)"),
        (OutOfBounds, "is outside the bounds of its space"),
        (NotANumber, "holds NaN or Inf"),
        (ListObs, "is a list; it must be a NumPy array of float32"),
        (WrongKeys, "is ['a']; its space has the keys ['a', 'b']"),
        (WrongLeaf, "at 'b' is np.int64(5), outside its space Discrete(2)"),
        (WrongTuple, "is a tuple of 1; its space is a tuple of 2"),
        (outcome(reward=np.ones(1)), "it must be a single number"),
        (outcome(reward="much"), "it must be a single number"),
        (outcome(reward=float("nan")), "the reward is nan"),
        (outcome(terminated=0), "terminated is a int (0); it must be a bool"),
        (outcome(truncated=None), "truncated is a NoneType"),
        (outcome(info=None), "the info of step() is a NoneType"),
        (Raises, "step(np.int64(1)) raised ZeroDivisionError: oops"),
        (GlobalNoise, "the same seed and actions do not give the same episode: a different first observation"),
        (Survivor, "the same seed and actions do not give the same episode"),
        (NoSpace, "action_space is None; set it to a gymnasium space"),
        (TextSpace, "cannot convert the space Text"),
        (BadPicture, "render() gives a list; rgb_array is a (height, width, 3) array of uint8"),
        (NoActionLeft, "the action mask forbids every action"),
        (lambda: 3, "made a builtins.int, not a gymnasium.Env"),
        ("CartPol-v1", "did you mean 'CartPole-v1'?"),
    ],
)
def test_one_finding(env: Any, message: str) -> None:
    report = check_env(env)
    assert not report.ok
    assert any(message in text for text in report.errors), report
    with pytest.raises(EnvError, match="the environment has problems"):
        report.raise_for_errors()


class SameArray(Good):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.kept = np.zeros(2, np.float32)
        return super().reset(seed=seed)

    def obs(self) -> Any:
        self.kept[:] = super().obs()
        return self.kept


class WritesAction(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        action *= 2
        return super().step(action)


class Unbounded(Good):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Endless(Good):
    def step(self, action: Any) -> Any:
        return self.obs(), 1.0, False, False, {}


class NoPictures(Good):
    metadata = {"render_modes": []}  # noqa: RUF012


class BrokenPictures(Good):
    def render(self) -> Any:
        raise RuntimeError("no display")


class Restarts(GlobalNoise):
    resume_strategy = "restart"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (SameArray, "the same array is returned every step"),
        (WritesAction, "step() writes into the action it is given"),
        (Unbounded, "the action space has no bounds"),
        (Endless, "no episode ended in 200 steps and there is no time limit; set env.max_episode_steps"),
        (NoPictures, "no render mode 'rgb_array'"),
        (BrokenPictures, "rendering failed, there will be no videos: RuntimeError: no display"),
        (Restarts, "open episodes are dropped when a run resumes"),
    ],
)
def test_one_warning(env: Any, message: str) -> None:
    report = check_env(env)
    assert report.errors == []
    assert len(report.warnings) == 1
    assert message in report.warnings[0]
    assert str(report).startswith("warning: ")


def test_an_instance_is_checked_too() -> None:
    assert check_env(Good()).ok
    assert check_env(gym.make("CartPole-v1", disable_env_checker=True)).ok
    assert not check_env(OutOfBounds()).ok


def test_a_config_is_taken_into_account() -> None:
    limited = EnvConfig(max_episode_steps=9, wrappers=(WrapperConfig("normalize_obs"),))
    assert check_env(Endless, limited).warnings == []


def test_a_difference_that_only_a_fresh_copy_shows() -> None:
    class Hidden(Good):
        """Depends on the number of instances made; a single instance is deterministic."""

        made = 0

        def __init__(self, render_mode: str | None = None) -> None:
            super().__init__(render_mode)
            Hidden.made += 1
            self.scale = np.float32(1 / Hidden.made)

        def obs(self) -> Any:
            return super().obs() * self.scale

    report = check_env(Hidden)
    assert any("an episode replayed in a fresh copy continues differently" in text for text in report.errors), report


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "BipedalWalker-v3"])
def test_known_environments_are_clean(env_id: str) -> None:
    assert check_env(env_id).errors == []
