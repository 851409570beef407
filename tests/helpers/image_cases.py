"""Environments of one step with images: the bright side tells the right action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

SIZE = 12


class BrightSide(gym.Env[Any, Any]):
    """A 3 x 12 x 12 image, bright on the left or on the right: reward 1 for action 0 or 1, -1 for the other.

    `continuous` takes a Box action, whose sign counts; `named` puts a number and an action mask beside the image.
    Episodes have `steps` steps, each with an image of its own.
    """

    def __init__(self, continuous: bool = False, named: bool = False, steps: int = 1) -> None:
        image = gym.spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)
        parts = {
            "image": image,
            "speed": gym.spaces.Box(-1.0, 1.0, (1,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (3,), np.int8),
        }
        self.named, self.continuous, self.steps = named, continuous, steps
        self.observation_space = gym.spaces.Dict(parts) if named else image
        discrete = gym.spaces.Discrete(3 if named else 2)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else discrete

    def observation(self) -> Any:
        self.right = int(self.np_random.integers(2))
        image = self.np_random.integers(0, 60, (3, SIZE, SIZE), np.uint8)
        half = slice(SIZE // 2, None) if self.right else slice(SIZE // 2)
        image[:, :, half] += 120
        if not self.named:
            return image
        return {"image": image, "speed": np.zeros(1, np.float32), "action_mask": np.int8([1, 1, 0])}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        sign = 2 * self.right - 1
        reward = float(action[0]) * sign if self.continuous else float((2 * int(action) - 1) * sign)
        self.time += 1
        return self.observation(), reward, self.time >= self.steps, False, {}


class BrightSideGrid(BrightSide):
    """`BrightSide` with every kind of observation, each with and without a mask that forbids a third action.

    `seen` is vector (the mean brightness of both halves), image, or dict (both of them).
    """

    def __init__(self, seen: str, masked: bool) -> None:
        super().__init__(steps=3)
        image = self.observation_space
        parts = {"vector": gym.spaces.Box(0.0, 255.0, (2,), np.float32), "image": image}
        self.parts = list(parts) if seen == "dict" else [seen]
        self.masked, self.action_space = masked, gym.spaces.Discrete(3 if masked else 2)
        mask = {"action_mask": gym.spaces.Box(0, 1, (3,), np.int8)} if masked else {}
        named = gym.spaces.Dict({name: parts[name] for name in self.parts} | mask)
        self.observation_space = named if len(named) > 1 else parts[seen]

    def observation(self) -> Any:
        image = super().observation()
        halves = np.array([half.mean() for half in np.split(image, 2, axis=2)], np.float32)
        values = {"vector": halves, "image": image}
        if not isinstance(self.observation_space, gym.spaces.Dict):
            return values[self.parts[0]]
        mask = {"action_mask": np.array([1, 1, 0], np.int8)} if self.masked else {}
        return {name: values[name] for name in self.parts} | mask


KINDS: dict[str, dict[str, Any]] = {
    "TestImages/Discrete-v0": {},
    "TestImages/Box-v0": {"continuous": True, "steps": 3},
    "TestImages/Dict-v0": {"named": True, "steps": 3},
}
GRID: dict[str, dict[str, Any]] = {
    f"TestImages/Grid-{seen}{'-masked' if masked else ''}-v0": {"seen": seen, "masked": masked}
    for seen in ("vector", "image", "dict")
    for masked in (False, True)
}
for cases, entry in ((KINDS, BrightSide), (GRID, BrightSideGrid)):
    for name, kwargs in cases.items():
        if name not in gym.registry:
            gym.register(name, entry, kwargs=kwargs)
