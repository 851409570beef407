"""The wrappers that suites need: MiniGrid's codes and missions, repeated actions, images."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.cli import main
from rl_training.config import EnvConfig, WrapperConfig
from rl_training.config.loading import parse_config
from rl_training.envs import make_env, replay_is_exact, space_spec
from rl_training.envs.preprocessing.action_repeat import ActionRepeat
from rl_training.envs.preprocessing.minigrid import WORDS, word_numbers
from rl_training.envs.preprocessing.pixels import resized
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES
from rl_training.envs.probes import RepeatPrevious
from rl_training.numerics.images import image_layout
from rl_training.types import BoxSpec, DictSpec, EnvError


def wrapped(env_id: str, name: str, **kwargs: Any) -> gym.Env[Any, Any]:
    return make_env(env_id, EnvConfig(wrappers=(WrapperConfig(name, kwargs),)), seed=0)


class TestMiniGrid:
    def test_codes_are_bounded_and_a_fixed_mission_is_dropped(self) -> None:
        env = wrapped("MiniGrid-DoorKey-5x5-v0", "minigrid")
        space = space_spec(env.observation_space)
        assert isinstance(space, DictSpec)
        assert set(space.spaces) == {"image", "direction"}
        image = space.spaces["image"]
        assert isinstance(image, BoxSpec)
        assert image_layout(image).codes == (11, 6, 4)
        assert image_layout(image).channels == 21
        obs, _ = env.reset()
        for _ in range(100):
            assert env.observation_space.contains(obs)
            obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                obs, _ = env.reset()

    def test_missions_that_vary_are_words(self) -> None:
        env = wrapped("BabyAI-GoToLocal-v0", "minigrid", max_words=8)
        obs, _ = env.reset(seed=0)
        words = [WORDS[number - 1] for number in obs["mission"] if number]
        assert words[:3] == ["go", "to", "the"]
        assert env.observation_space.contains(obs)

    def test_the_whole_grid(self) -> None:
        env = wrapped("MiniGrid-DoorKey-5x5-v0", "minigrid", view="full")
        obs, _ = env.reset()
        assert obs["image"].shape == (5, 5, 3)
        assert env.observation_space.contains(obs)

    def test_what_does_not_fit_is_said(self) -> None:
        with pytest.raises(EnvError, match="has 3 words, more than 2"):
            word_numbers("go to goal", 2)
        with pytest.raises(EnvError, match="not known: zebra"):
            word_numbers("go to zebra", 8)
        with pytest.raises(EnvError, match="is for MiniGrid and BabyAI"):
            wrapped("CartPole-v1", "minigrid")
        with pytest.raises(EnvError, match="view is partial or full"):
            wrapped("MiniGrid-DoorKey-5x5-v0", "minigrid", view="half")

    def test_it_resumes_exactly(self) -> None:
        assert replay_is_exact(lambda: wrapped("MiniGrid-DoorKey-5x5-v0", "minigrid"))


class TestNestedSpelling:
    @pytest.mark.parametrize(
        ("env_id", "wrapper", "kwargs", "space"),
        [
            ("CartPole-v1", "gym", {}, (4,)),
            ("ALE/Pong-v5", "atari", {"frameskip": 1}, (4, 84, 84)),
            ("dm_control/cheetah-run-v0", "dm_control", {}, (17,)),
            ("MiniGrid-Empty-5x5-v0", "minigrid", {}, {"image": (7, 7, 3), "direction": ()}),
        ],
    )
    def test_environment_wrapper_names_a_suite(self, env_id: str, wrapper: str, kwargs: Any, space: Any) -> None:
        cfg = parse_config({"environment": {"name": env_id, "wrapper": wrapper, "kwargs": kwargs}})
        env = make_env(cfg.env_id, cfg.env)
        obs, _ = env.reset()
        shapes = {key: np.shape(leaf) for key, leaf in obs.items()} if isinstance(obs, dict) else obs.shape
        assert shapes == space

    def test_rl_envs_lists_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["envs", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert {"atari", "dm_control", "minigrid", "pixels"} <= set(listed["wrappers"])


class Ramp(gym.Env[Any, Any]):
    """Rewards 1, 2, 3, ...; ends after `length` steps."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.observation_space = spaces.Box(0, 100, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(1, self.time, np.float32), float(self.time), self.time == self.length, False, {"time": self.time}


class TestActionRepeat:
    def test_rewards_are_summed_and_it_stops_at_the_end(self) -> None:
        env = ActionRepeat(Ramp(5), 2)
        env.reset()
        assert [env.step(0)[1:3] for _ in range(3)] == [(3.0, False), (7.0, False), (5.0, True)]

    def test_steps_of_the_environment_are_told(self) -> None:
        env = ActionRepeat(Ramp(5), 3)
        env.reset()
        infos = [env.step(0)[4] for _ in range(2)]
        assert [info[ENV_FRAMES] for info in infos] == [3, 2]
        assert [info["time"] for info in infos] == [3, 5]

    def test_zero_times_are_refused(self) -> None:
        with pytest.raises(EnvError, match="at least 1"):
            ActionRepeat(Ramp(), 0)


def test_a_pixel_is_the_mean_of_the_area_it_covers() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(4, 4, 1).repeat(3, axis=2)
    assert resized(image, 2)[..., 0].tolist() == [[3, 5], [11, 13]]  # 2.5, 4.5, 10.5 and 12.5, rounded


class TestRepeatPrevious:
    def test_a_perfect_memory_scores_1(self) -> None:
        env = RepeatPrevious(k=4)
        obs, _ = env.reset(seed=3)
        seen, total, ended = [obs], 0.0, False
        while not ended:
            answer = seen[-5] if len(seen) > 4 else 0
            obs, reward, ended, _, _ = env.step(answer)
            seen.append(obs)
            total += reward
        assert total == pytest.approx(1.0)

    def test_guessing_scores_about_minus_a_half(self) -> None:
        env, totals = RepeatPrevious(k=4), []
        for seed in range(200):
            env.reset(seed=seed)
            total, ended = 0.0, False
            while not ended:
                _, reward, ended, _, _ = env.step(0)
                total += reward
            totals.append(total)
        assert np.mean(totals) == pytest.approx(-0.5, abs=0.05)
