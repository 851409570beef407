"""Atari: the preprocessing of the literature as one wrapper, `atari` of `env.wrappers`.

The wrapper drives the emulator frame by frame, in the order and with the random draws of ALE's own vector environment,
so that `env.vectorization: native` (see `atari_native`) gives the same bits. Rewards stay raw; what the learner is to
see instead is in the infos (see `step_infos`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES, LEARNING_REWARD, LIFE_LOST
from rl_training.envs.suites import Env
from rl_training.registry import check_kwargs
from rl_training.types import ConfigError, EnvError

NAME = "atari"
FRAME_RATE = 60
"""Frames per second of the console."""


@dataclass(frozen=True)
class AtariOptions:
    """The kwargs of the wrapper."""

    frame_skip: int = 4
    """Frames for which an action is held; the last two are merged by their maximum."""
    noop_max: int = 30
    """A game starts after 0 to noop_max - 1 random frames without an action, that of `fire` included."""
    size: int = 84
    """Height and width of the image; each pixel is the mean of the area it covers."""
    stack: int = 4
    """Images in an observation, oldest first; before the first of a game they are black."""
    clip_reward: bool = True
    """Let the learner see rewards within -1 and 1, clipped after they are summed over a skip."""
    life_loss: Literal["signal", "none"] = "signal"
    """signal: a lost life is a termination to the learner, and the game goes on; none: the learner is not told."""
    fire: bool = True
    """Press FIRE for the first frame of a game, where the game has that action."""
    grayscale: bool = True
    """Grey images (stack, size, size), or colours (stack, size, size, 3)."""

    def __post_init__(self) -> None:
        for name, least in (("frame_skip", 1), ("noop_max", 0), ("size", 1), ("stack", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"wrapper 'atari': {name} must be a whole number from {least} on, not {value!r}")
        for name in ("clip_reward", "fire", "grayscale"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"wrapper 'atari': {name} must be true or false, not {getattr(self, name)!r}")
        if self.life_loss not in ("signal", "none"):
            raise ConfigError(f"wrapper 'atari': life_loss must be signal or none, not {self.life_loss!r}")

    @classmethod
    def read(cls, kwargs: Mapping[str, Any]) -> AtariOptions:
        """Options from the kwargs of a config."""
        check_kwargs(cls, kwargs, "wrapper 'atari'", "env.wrappers")
        return cls(**kwargs)

    @property
    def space(self) -> spaces.Box:
        """The observations."""
        image = (self.size, self.size) if self.grayscale else (self.size, self.size, 3)
        return spaces.Box(0, 255, (self.stack, *image), np.uint8)


def atari_entry(cfg: EnvConfig) -> WrapperConfig | None:
    """The entry `atari` of `env.wrappers`, refused where the rest of the section does not go with it."""
    entry = next((wrapper for wrapper in cfg.wrappers if wrapper.name == NAME), None)
    if entry is None:
        return None
    if cfg.wrappers[0] is not entry or sum(wrapper.name == NAME for wrapper in cfg.wrappers) > 1:
        raise ConfigError("env.wrappers: 'atari' drives the emulator itself; put it first, once")
    if cfg.frame_stack > 1:
        raise ConfigError(
            "env.frame_stack: wrapper 'atari' stacks images itself; remove env.frame_stack and set its kwargs: "
            f"{{stack: {cfg.frame_stack}}}"
        )
    return entry


def check_frameskip(name: str, frameskip: Any, frame_skip: int) -> None:
    """Refuse a game that skips frames inside the emulator and again in the wrapper."""
    if frameskip != 1:
        skips = f"{frameskip} frames" if isinstance(frameskip, int) else f"a random number of frames, {frameskip},"
        raise ConfigError(
            f"environment '{name}' skips {skips} itself and wrapper 'atari' {frame_skip} of those; "
            "set env.kwargs: {frameskip: 1}"
        )


# -- random starts ----------------------------------------------------------------------------------------------------


def emulator_seed(seed: int) -> int:
    """The seed of the emulator for a seed of a reset: positive, because ALE takes others for "no seed".

    It is the one that ALE's own Gymnasium environment derives (the second word of the seed sequence), where that is
    positive as an int32; else the next word that is.
    """
    count = 2
    while True:
        words = np.random.SeedSequence(seed).generate_state(count).astype(np.int32)
        positive = words[1:][words[1:] > 0]
        if len(positive):
            return int(positive[0])
        count += 8


class NoopDraws:
    """The numbers of no-ops that ALE's vector environment draws: a Mersenne twister, scaled by Lemire's method.

    This is `std::uniform_int_distribution` of GCC's library (from version 11), with which ALE's Linux wheels are built.
    """

    def __init__(self, seed: int, noop_max: int) -> None:
        self.noop_max = max(noop_max, 1)
        self.words = np.random.RandomState(seed)  # the generator and the seeding of std::mt19937

    def draw(self) -> int:
        """0 to noop_max - 1."""
        while True:
            product = int.from_bytes(self.words.bytes(4), "little") * self.noop_max
            if product % 2**32 >= 2**32 % self.noop_max:
                return product >> 32


# -- the wrapper ------------------------------------------------------------------------------------------------------


class Atari(gym.Wrapper[Any, Any, Any, Any]):
    """Images of a game for a learner; see `AtariOptions` for the kwargs.

    Around ALE's environment alone: a time limit (`env.max_episode_steps`, in frames) is the only wrapper it may find.
    """

    def __init__(self, env: Env, **options: Any) -> None:
        super().__init__(env)
        self.options = AtariOptions.read(options)
        self.game = _game_of(env)
        self.ale: Any = self.game.ale
        check_frameskip(env.spec.id if env.spec else str(env), self.game._frameskip, self.options.frame_skip)
        self.max_frames = _max_frames(env, self.ale)
        # counted here, from the end of the random start on, as the vector environment does
        self.ale.setInt("max_num_frames_per_episode", 0)
        from ale_py import Action

        names = self.game.get_action_meanings()
        self.actions = [getattr(Action, name) for name in names]
        self.noop, self.fire = Action.NOOP, Action.FIRE
        self.presses_fire = self.options.fire and "FIRE" in names
        self.observation_space = self.options.space
        self.metadata = {**env.metadata, "render_fps": FRAME_RATE / self.options.frame_skip}
        screen = self.ale.getScreenDims() if self.options.grayscale else (*self.ale.getScreenDims(), 3)
        self._raw = np.zeros((2, *screen), np.uint8)
        self._stack = np.zeros(self.observation_space.shape, np.uint8)
        self._noops: NoopDraws | None = None
        self._elapsed = 0
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        ale = self.ale
        if seed is not None or self._noops is None:
            derived = emulator_seed(np.random.SeedSequence().entropy if seed is None else seed)  # type: ignore[arg-type]
            ale.setInt("random_seed", derived)
            self.game.load_game()
            self._noops = NoopDraws(derived, self.options.noop_max)
        ale.reset_game()
        if self.presses_fire:
            ale.act(self.fire)
        for _ in range(self._noops.draw() - self.presses_fire):
            ale.act(self.noop)
            if ale.game_over():
                ale.reset_game()
        self._raw[1] = 0
        self._see(0)
        self._stack = np.zeros_like(self._stack)
        self._push()
        self._elapsed = 0
        self._lives = ale.lives()
        return self._stack, {"lives": self._lives}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        ale, pressed, before = self.ale, self.actions[int(action)], self._elapsed
        reward = 0
        for left in range(self.options.frame_skip - 1, -1, -1):
            reward += ale.act(pressed)
            self._elapsed += 1
            terminated = ale.game_over()
            if terminated or self._elapsed >= self.max_frames:
                break  # the image of an end is what was seen before it, as in ALE
            if left < 2:
                self._see(left)
        self._push()
        lives = ale.lives()
        info = {"lives": lives, ENV_FRAMES: self._elapsed - before}
        if self.options.clip_reward and abs(reward) > 1:
            info[LEARNING_REWARD] = 1.0 if reward > 0 else -1.0
        if self.options.life_loss == "signal" and 0 < lives < self._lives and not terminated:
            info[LIFE_LOST] = True
        self._lives = lives
        truncated = self._elapsed >= self.max_frames and not terminated
        return self._stack, float(reward), terminated, truncated, info

    def _see(self, which: int) -> None:
        """The screen into one of the two raw images."""
        if self.options.grayscale:
            self.ale.getScreenGrayscale(self._raw[which])
        else:
            self.ale.getScreenRGB(self._raw[which])

    def _push(self) -> None:
        """The maximum of the two raw images, made small, into a new stack."""
        import cv2

        newest, size = self._raw[0], self.options.size
        np.maximum(newest, self._raw[1], out=newest)
        stack = np.empty_like(self._stack)
        stack[:-1] = self._stack[1:]
        if newest.shape[:2] == (size, size):
            stack[-1] = newest
        else:
            cv2.resize(newest, (size, size), dst=stack[-1], interpolation=cv2.INTER_AREA)
        self._stack = stack


def _layers(env: Env) -> list[Any]:
    """The environment itself and what Gymnasium put around it by itself, outermost first."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], TimeLimit | OrderEnforcing | PassiveEnvChecker):
        layers.append(layers[-1].env)
    return layers


def _game_of(env: Env) -> Any:
    """ALE's environment, on which the wrapper must stand directly."""
    game = _layers(env)[-1]
    if type(game).__module__ != "ale_py.env":
        raise EnvError(
            "wrapper 'atari' is for ALE's games, such as ALE/Pong-v5 or PongNoFrameskip-v4, and must be the innermost, "
            f"not around {env}"
        )
    if not isinstance(game.action_space, spaces.Discrete) or isinstance(game.observation_space, spaces.Dict):
        raise EnvError("wrapper 'atari' takes neither continuous actions nor sound; leave them out of env.kwargs")
    return game


def _max_frames(env: Env, ale: Any) -> int | float:
    """Frames after which a game is truncated: the smaller of ALE's limit and `env.max_episode_steps`."""
    limits = [layer._max_episode_steps for layer in _layers(env) if isinstance(layer, TimeLimit)]
    limits.append(ale.getInt("max_num_frames_per_episode"))
    return min((limit for limit in limits if limit > 0), default=float("inf"))
