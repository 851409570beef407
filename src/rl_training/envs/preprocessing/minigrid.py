"""MiniGrid and BabyAI: observations that networks can read. The wrapper `minigrid` of `env.wrappers`.

What the environments give is an image of codes (what, which colour, in which state), the agent's direction, and a
mission in words. The codes get bounds of their own, so that encoders one-hot them (11 + 6 + 4 channels) instead of
taking them for brightness. A mission that never changes is dropped; others become a row of word numbers.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.suites import Env
from rl_training.types import Array, EnvError

CODES = (10, 5, 3)
"""The largest code of each channel: object, colour, state (a door's, or the agent's direction)."""
WORDS = (
    *("a", "after", "and", "at", "ball", "behind", "blue", "box", "door", "end", "fetch", "front", "get", "go", "goal"),
    *("green", "grey", "in", "is", "it", "key", "left", "must", "near", "next", "object", "of", "on", "open", "pick"),
    *("purple", "put", "red", "right", "room", "square", "the", "then", "to", "toggle", "up", "use", "you", "your"),
    *("yellow", "avoid", "lava", "through", "opening", "traverse", "rooms", "unlock", "matching", "hallway", "reach"),
)
"""What missions are made of; word k is number k + 1, and 0 fills up."""
MAX_WORDS = 32


class MiniGrid(gym.Wrapper[Any, Any, Any, Any]):
    """A Dict of `image` and `direction`, and `mission` where it varies.

    `view`: partial is what the agent sees (7 x 7 codes), full the whole grid with the agent in it. `mission`: auto
    drops one that never changes, words keeps it as up to `max_words` numbers, drop leaves it out.
    """

    def __init__(
        self,
        env: Env,
        *,
        view: Literal["partial", "full"] = "partial",
        mission: Literal["auto", "words", "drop"] = "auto",
        max_words: int = MAX_WORDS,
    ) -> None:
        if not isinstance(env.observation_space, spaces.Dict) or "mission" not in env.observation_space.spaces:
            raise EnvError(f"wrapper 'minigrid' is for MiniGrid and BabyAI, not for {env}")
        if view not in ("partial", "full"):
            raise EnvError(f"wrapper 'minigrid': view is partial or full, not {view!r}")
        if mission not in ("auto", "words", "drop"):
            raise EnvError(f"wrapper 'minigrid': mission is auto, words or drop, not {mission!r}")
        if view == "full":
            from minigrid.wrappers import FullyObsWrapper

            env = FullyObsWrapper(env)  # type: ignore[no-untyped-call]
        super().__init__(env)
        given = env.observation_space
        assert isinstance(given, spaces.Dict)
        shape = given["image"].shape
        assert shape is not None
        high = np.broadcast_to(np.array(CODES, np.uint8), shape)
        self.max_words = max_words
        self.keeps_mission = mission == "words" or (mission == "auto" and varies(given["mission"]))
        leaves: dict[str, spaces.Space[Any]] = {
            "image": spaces.Box(np.zeros(shape, np.uint8), high, dtype=np.uint8),
            "direction": spaces.Discrete(4),
        }
        if self.keeps_mission:
            leaves["mission"] = spaces.MultiDiscrete([len(WORDS) + 1] * max_words)
        self.observation_space = spaces.Dict(leaves)

    def convert(self, obs: dict[str, Any]) -> dict[str, Any]:
        """What the environment saw, as the space of this wrapper has it."""
        seen = {"image": obs["image"], "direction": np.int64(obs["direction"])}
        return {**seen, "mission": word_numbers(obs["mission"], self.max_words)} if self.keeps_mission else seen

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.convert(obs), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(int(action))
        return self.convert(obs), reward, terminated, truncated, info


def varies(mission: Any) -> bool:
    """Whether a mission space holds more than one mission: BabyAI's do, and those with words to fill in."""
    return type(mission).__name__ != "MissionSpace" or bool(mission.ordered_placeholders)


def word_numbers(mission: str, max_words: int) -> Array:
    """The numbers of a mission's words, filled up with 0."""
    words = mission.lower().replace(",", " ").replace(".", " ").split()
    if len(words) > max_words:
        raise EnvError(
            f"the mission '{mission}' has {len(words)} words, more than {max_words}; "
            "set max_words in the kwargs of wrapper 'minigrid'"
        )
    unknown = [word for word in words if word not in NUMBERS]
    if unknown:
        raise EnvError(f"the mission '{mission}' has words that are not known: {', '.join(unknown)}; use mission: drop")
    numbers = np.zeros(max_words, np.int64)
    numbers[: len(words)] = [NUMBERS[word] for word in words]
    return numbers


NUMBERS = {word: number for number, word in enumerate(WORDS, 1)}
