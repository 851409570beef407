"""The wrapper `atari`: what a learner sees of a game, what is told apart from it, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import make_env
from rl_training.envs.preprocessing.atari import Atari, AtariOptions, NoopDraws, emulator_seed
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES, LEARNING_REWARD, LIFE_LOST
from rl_training.types import ConfigError, EnvError


class Emulator:
    """Frame t shows the byte t, or what `shows` says; rewards, lives and the end are scripts of the frame."""

    def __init__(self, *, shows: Any = None, rewards: Any = None, lives: Any = None, ends: int = 10**6) -> None:
        self.shows = shows or (lambda t: t % 256)
        self.rewards = rewards or (lambda t: 0)
        self.lives_at = lives or (lambda t: 3)
        self.ends = ends
        self.frame = 0
        self.settings: dict[str, int] = {"max_num_frames_per_episode": 0}
        self.pressed: list[str] = []
        self.resets = 0

    def getScreenDims(self) -> tuple[int, int]:
        return (10, 8)

    def getScreenGrayscale(self, buffer: Any) -> None:
        buffer[...] = self.shows(self.frame)

    def getInt(self, name: str) -> int:
        return self.settings[name]

    def setInt(self, name: str, value: int) -> None:
        self.settings[name] = value

    def act(self, action: Any) -> int:
        self.frame += 1
        self.pressed.append(action.name)
        return int(self.rewards(self.frame))

    def game_over(self) -> bool:
        return self.frame >= self.ends

    def lives(self) -> int:
        return int(self.lives_at(self.frame))

    def reset_game(self) -> None:
        self.frame = 0
        self.resets += 1


class Game(gym.Env[Any, Any]):
    """What the wrapper uses of ALE's environment."""

    def __init__(self, ale: Emulator, frameskip: int = 1) -> None:
        self.ale = ale
        self._frameskip = frameskip
        self.loads = 0
        self.observation_space = spaces.Box(0, 255, (10, 8, 3), np.uint8)
        self.action_space = spaces.Discrete(3)

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE", "UP"]

    def load_game(self) -> None:
        self.loads += 1


Game.__module__ = "ale_py.env"


def play(emulator: Emulator, steps: int, **options: Any) -> list[tuple[Any, Any, Any, Any, dict[str, Any]]]:
    """`steps` steps of a game that starts at frame 0, newest images as one byte."""
    plain = {"size": 4, "noop_max": 0, "fire": False, **options}
    env = Atari(Game(emulator), **plain)
    env.reset(seed=0)
    return [env.step(2) for _ in range(steps)]


class TestImages:
    def test_the_maximum_of_the_last_two_frames_alone(self) -> None:
        bytes_of = {1: 90, 2: 80, 3: 10, 4: 20, 5: 99, 6: 7, 7: 6, 8: 5}
        steps = play(Emulator(shows=lambda t: bytes_of.get(t, 0)), 2)
        assert [int(obs[-1, 0, 0]) for obs, *_ in steps] == [20, 6]

    def test_a_stack_starts_black_and_slides(self) -> None:
        env = Atari(Game(Emulator(shows=lambda t: t + 1)), size=4, noop_max=0, fire=False)
        first, _ = env.reset(seed=0)
        assert first[:, 0, 0].tolist() == [0, 0, 0, 1]
        stacks = [env.step(0)[0] for _ in range(5)]
        assert [stack[:, 0, 0].tolist() for stack in stacks[:3]] == [[0, 0, 1, 5], [0, 1, 5, 9], [1, 5, 9, 13]]
        assert first[:, 0, 0].tolist() == [0, 0, 0, 1]  # every observation is an array of its own

    def test_the_shape_is_the_space(self) -> None:
        assert AtariOptions().space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
        assert AtariOptions(size=32, stack=2, grayscale=False).space.shape == (2, 32, 32, 3)


class TestSignals:
    def test_rewards_are_raw_and_clipped_for_the_learner_after_they_are_summed(self) -> None:
        (one,) = play(Emulator(rewards=lambda t: 1), 1)
        assert one[1] == 4.0
        assert one[4][LEARNING_REWARD] == 1.0
        (mixed,) = play(Emulator(rewards=lambda t: [0, 5, -5, -3, 1][t]), 1)
        assert (mixed[1], mixed[4][LEARNING_REWARD]) == (-2.0, -1.0)
        (small,) = play(Emulator(rewards=lambda t: t == 2), 1)
        assert small[1] == 1.0
        assert LEARNING_REWARD not in small[4]
        (unclipped,) = play(Emulator(rewards=lambda t: 1), 1, clip_reward=False)
        assert LEARNING_REWARD not in unclipped[4]

    def test_a_lost_life_is_told_and_the_game_goes_on(self) -> None:
        emulator = Emulator(lives=lambda t: 3 - (t >= 6) - (t >= 7))
        steps = play(emulator, 3)
        assert [info.get(LIFE_LOST, False) for *_, info in steps] == [False, True, False]
        assert not any(terminated or truncated for _, _, terminated, truncated, _ in steps)
        assert emulator.resets == 1
        assert [info["lives"] for *_, info in steps] == [3, 1, 1]

    def test_the_last_life_is_the_end_of_the_game_and_no_signal(self) -> None:
        steps = play(Emulator(lives=lambda t: 0 if t >= 6 else 1, ends=6), 2)
        assert [terminated for _, _, terminated, _, _ in steps] == [False, True]
        assert all(LIFE_LOST not in info for *_, info in steps)

    def test_it_can_be_left_out(self) -> None:
        (step,) = play(Emulator(lives=lambda t: 3 - (t >= 2)), 1, life_loss="none")
        assert LIFE_LOST not in step[4]

    def test_frames_are_counted(self) -> None:
        steps = play(Emulator(ends=6), 2)
        assert [info[ENV_FRAMES] for *_, info in steps] == [4, 2]


class TestEnds:
    def test_a_game_is_truncated_after_so_many_frames(self) -> None:
        emulator = Emulator()
        env = Atari(TimeLimit(Game(emulator), 6), size=4, noop_max=5, fire=True)
        env.reset(seed=1)
        assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]

    def test_ales_own_limit_is_taken_over(self) -> None:
        emulator = Emulator()
        emulator.settings["max_num_frames_per_episode"] = 4
        env = Atari(Game(emulator), size=4)
        assert (env.max_frames, emulator.settings["max_num_frames_per_episode"]) == (4, 0)
        env.reset(seed=1)
        assert env.step(0)[3]


class TestStarts:
    def test_fire_comes_first_and_no_ops_after_it(self) -> None:
        for seed in range(20):
            emulator = Emulator()
            env = Atari(Game(emulator), size=4, noop_max=6)
            env.reset(seed=seed)
            draw = NoopDraws(emulator_seed(seed), 6).draw()
            assert emulator.pressed == ["FIRE"] + ["NOOP"] * max(draw - 1, 0)

    def test_without_fire(self) -> None:
        emulator = Emulator()
        Atari(Game(emulator), size=4, noop_max=6, fire=False).reset(seed=4)
        assert emulator.pressed == ["NOOP"] * NoopDraws(emulator_seed(4), 6).draw()

    def test_the_rom_is_loaded_for_a_seed_alone(self) -> None:
        game = Game(Emulator())
        env = Atari(game, size=4)
        env.reset(seed=1)
        env.reset()
        assert game.loads == 1
        env.reset(seed=1)
        assert game.loads == 2

    def test_the_first_reset_without_a_seed_is_random(self) -> None:
        first, second = Emulator(), Emulator()
        for emulator in (first, second):
            Atari(Game(emulator), size=4).reset()
        assert first.settings["random_seed"] != second.settings["random_seed"]

    def test_draws_are_uniform_and_those_of_the_standard_library(self) -> None:
        # std::mt19937(5), std::uniform_int_distribution<>(0, 29), as ALE's vector environment has been seen to draw
        draws = NoopDraws(5, 30)
        assert [draws.draw() for _ in range(2)] == [6, 1]
        counts = np.bincount([draws.draw() for _ in range(30_000)], minlength=30)
        assert abs(counts - 1000).max() < 150

    def test_seeds_of_the_emulator_are_those_of_ale_where_they_are_positive(self) -> None:
        for seed in range(200):
            theirs = int(np.random.SeedSequence(seed).generate_state(2)[1].astype(np.int32))
            ours = emulator_seed(seed)
            assert ours > 0
            assert ours == theirs or theirs <= 0
        assert len({emulator_seed(seed) for seed in range(200)}) == 200


class TestRefusals:
    def built(self, env_id: str, kwargs: dict[str, Any] | None = None, **section: Any) -> Any:
        wrappers = section.pop("wrappers", (WrapperConfig("atari", section.pop("options", {})),))
        return make_env(env_id, EnvConfig(kwargs=kwargs or {}, wrappers=wrappers, **section))

    def test_frames_skipped_twice(self) -> None:
        cure = r"set env\.kwargs: \{frameskip: 1\}"
        with pytest.raises(ConfigError, match=rf"'ALE/Pong-v5' skips 4 frames itself .*{cure}"):
            self.built("ALE/Pong-v5")
        with pytest.raises(ConfigError, match=rf"skips a random number of frames, \(2, 5\), .*{cure}"):
            self.built("ALE/Pong-v5", {"frameskip": (2, 5)})

    def test_two_ways_to_stack(self) -> None:
        with pytest.raises(ConfigError, match=r"env\.frame_stack: .* set its kwargs: \{stack: 3\}"):
            self.built("PongNoFrameskip-v4", frame_stack=3)

    def test_other_environments_and_wrappers_inside(self) -> None:
        with pytest.raises(EnvError, match="wrapper 'atari' is for ALE's games"):
            self.built("CartPole-v1")
        with pytest.raises(ConfigError, match="put it first, once"):
            self.built("PongNoFrameskip-v4", wrappers=(WrapperConfig("clip_reward"), WrapperConfig("atari")))
        with pytest.raises(EnvError, match="neither continuous actions nor sound"):
            self.built("PongNoFrameskip-v4", {"continuous": True})

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"frame_skip": 0}, "frame_skip must be a whole number from 1 on, not 0"),
            ({"stack": 2.5}, "stack must be a whole number from 1 on"),
            ({"noop_max": -1}, "noop_max must be a whole number from 0 on"),
            ({"fire": "yes"}, "fire must be true or false, not 'yes'"),
            ({"life_loss": "episode"}, "life_loss must be signal or none, not 'episode'"),
            ({"frameskip": 4}, "takes no 'frameskip'; did you mean 'frame_skip'"),
        ],
    )
    def test_options(self, options: dict[str, Any], why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            self.built("PongNoFrameskip-v4", options=options)


class TestGames:
    def test_ids_without_frameskip_work_as_they_are(self) -> None:
        env = make_env("PongNoFrameskip-v4", EnvConfig(wrappers=(WrapperConfig("atari"),)))
        assert env.observation_space == AtariOptions().space
        assert env.observation_space.contains(env.reset()[0])

    def test_the_score_of_an_evaluation_is_raw(self) -> None:
        cfg = EnvConfig(wrappers=(WrapperConfig("atari", {"stack": 1, "size": 16}),))
        env = make_env("SpaceInvadersNoFrameskip-v4", cfg, training=False)
        env.reset(seed=0)
        rng, rewards, ended, lost = np.random.default_rng(0), [], False, 0
        while not ended:
            _, reward, terminated, truncated, info = env.step(rng.integers(6))
            rewards.append(float(reward))
            lost += LIFE_LOST in info
            ended = terminated or truncated
        assert max(rewards) >= 5.0  # points of the game
        assert lost == 2  # the game went on after two of the three lives

    def test_a_film_shows_the_screen_at_its_own_speed(self) -> None:
        env = make_env("PongNoFrameskip-v4", EnvConfig(wrappers=(WrapperConfig("atari"),)), render_mode="rgb_array")
        env.reset()
        frame: Any = env.render()
        assert (frame.shape, frame.dtype) == ((210, 160, 3), np.uint8)
        assert env.metadata["render_fps"] == 15
