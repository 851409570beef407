"""Probe environments: tiny problems whose answers are known, so that a learner can be held to numbers.

Each isolates one thing an implementation can get wrong. `PROBES` says for every id what a correct learner must find.
The ids are ordinary Gymnasium ids, registered when `rl_training.envs` is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import registry

from rl_training.envs.goal_probes import BitFlip, PointReach, goal_obs
from rl_training.types import Array, EnvError

Step = tuple[Any, float, bool, bool, dict[str, Any]]
Reset = tuple[Any, dict[str, Any]]


def _vector(*values: float) -> Array:
    return np.array(values, np.float32)


def _one_hot(index: int, size: int) -> Array:
    vector = np.zeros(size, np.float32)
    vector[index] = 1.0
    return vector


def _real(size: int, bound: float = 1.0) -> spaces.Box:
    return spaces.Box(-bound, bound, (size,), np.float32)


# -- values -----------------------------------------------------------------------------------------------------------


class ConstantReward(gym.Env[Any, Any]):
    """One step, reward 1."""

    def __init__(self) -> None:
        self.observation_space = _real(1)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        return _vector(0), {}

    def step(self, action: Any) -> Step:
        return _vector(0), 1.0, True, False, {}


class RewardIsObs(ConstantReward):
    """One step, reward = the observation, which is -1 or 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return _vector(self.sign), {}

    def step(self, action: Any) -> Step:
        return _vector(self.sign), self.sign, True, False, {}


class Chain(gym.Env[Any, Any]):
    """`length` states in a row, whatever the action; reward 1 on leaving the last. The observation is one-hot."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.position = 0
        return _one_hot(0, self.length), {}

    def step(self, action: Any) -> Step:
        ended = self.position == self.length - 1
        self.position = min(self.position + 1, self.length - 1)
        return _one_hot(self.position, self.length), float(ended), ended, False, {}


class OneState(ConstantReward):
    """One state, reward 1 for ever; only a time limit ends an episode."""

    def step(self, action: Any) -> Step:
        return _vector(0), 1.0, False, False, {}


class Counting(gym.Env[Any, Any]):
    """The observation counts 0, 1, 2, 3; the reward is the new count; the episode ends at 3, as `end` says."""

    def __init__(self, end: Literal["terminated", "truncated"] = "terminated") -> None:
        if end not in ("terminated", "truncated"):
            raise EnvError(f"end must be 'terminated' or 'truncated', not {end!r}")
        self.end = end
        self.observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.count = 0
        return _vector(0), {"count": 0}

    def step(self, action: Any) -> Step:
        self.count += 1
        ended = self.count == 3
        flags = (ended, False) if self.end == "terminated" else (False, ended)
        return _vector(self.count), float(self.count), *flags, {"count": self.count}


# -- discrete control -------------------------------------------------------------------------------------------------


class TwoArms(ConstantReward):
    """One step, reward = the action, 0 or 1."""

    def step(self, action: Any) -> Step:
        return _vector(0), float(action), True, False, {}


class ObsTimesAction(RewardIsObs):
    """One step: action 1 is right where the observation is 1, action 0 where it is -1. Reward 1 or -1."""

    def step(self, action: Any) -> Step:
        return _vector(self.sign), self.sign * (2.0 * float(action) - 1.0), True, False, {}


class StaySwitch(gym.Env[Any, Any]):
    """Two states for ever: staying (action 0) gives 1 in the first and 2 in the second, switching gives nothing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2))
        return _one_hot(self.state, 2), {}

    def step(self, action: Any) -> Step:
        reward = 0.0 if action else 1.0 + self.state
        self.state = 1 - self.state if action else self.state
        return _one_hot(self.state, 2), reward, False, False, {}


class CueMemory(gym.Env[Any, Any]):
    """A cue (-1 or 1), `blanks` empty observations, then a question: reward 1 for the action of the cue.

    The observation is (cue, question). Without memory no policy gets more than 0.5 on average.
    """

    def __init__(self, blanks: int = 10) -> None:
        self.blanks = blanks
        self.observation_space = _real(2)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.cue = int(self.np_random.integers(2))
        self.time = 0
        return _vector(2 * self.cue - 1, 0), {}

    def step(self, action: Any) -> Step:
        ended = self.time == self.blanks + 1
        self.time += 1
        reward = float(ended and int(action) == self.cue)
        return _vector(0, float(self.time > self.blanks)), reward, ended, False, {}


class MaskedArms(gym.Env[Any, Any]):
    """One step, three arms that pay 0, 0.5 and 1; in half of the episodes the best is forbidden. Only the mask says so.

    Taking a forbidden action is an error of the learner, and raised as one.
    """

    def __init__(self) -> None:
        self.observation_space = _real(1)
        self.action_space = spaces.Discrete(3)

    def action_masks(self) -> Array:
        return np.array([1, 1, self.best_allowed], np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.best_allowed = int(self.np_random.integers(2))
        return _vector(0), {}

    def step(self, action: Any) -> Step:
        if not self.action_masks()[action]:
            raise EnvError(f"the masked action {action} was taken")
        return _vector(0), 0.5 * float(action), True, False, {}


class Combination(ConstantReward):
    """One step, several choices at once: the reward is the share of them that match `target`."""

    def __init__(self, target: tuple[int, ...] = (1, 2), nvec: tuple[int, ...] | None = (2, 3)) -> None:
        super().__init__()
        self.target = np.array(target)
        self.action_space = spaces.MultiBinary(len(target)) if nvec is None else spaces.MultiDiscrete(list(nvec))

    def step(self, action: Any) -> Step:
        return _vector(0), float(np.mean(np.asarray(action) == self.target)), True, False, {}


class DictObs(gym.Env[Any, Any]):
    """One step, four actions; the right one, 2 x colour + (sign > 0), needs both parts of the observation."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"colour": spaces.Discrete(2), "sign": _real(1)})
        self.action_space = spaces.Discrete(4)

    def _obs(self) -> dict[str, Any]:
        return {"colour": np.int64(self.colour), "sign": _vector(self.sign)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.colour = int(self.np_random.integers(2))
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        return self._obs(), float(int(action) == 2 * self.colour + (self.sign > 0)), True, False, {}


# -- continuous control -----------------------------------------------------------------------------------------------


class Target(gym.Env[Any, Any]):
    """One step: the best action is half the observation; reward = minus the squared distance to it."""

    def __init__(self) -> None:
        self.observation_space = _real(1)
        self.action_space = _real(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.obs = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.obs.copy(), {}

    def step(self, action: Any) -> Step:
        return self.obs.copy(), -float((action[0] - 0.5 * self.obs[0]) ** 2), True, False, {}


class LinearQuadratic(gym.Env[Any, Any]):
    """x' = x + u, reward -(x^2 + u^2), from x in [-1, 1], until a time limit."""

    def __init__(self) -> None:
        self.observation_space = _real(1, np.inf)
        self.action_space = _real(1, 2.0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(-1.0, 1.0))
        return _vector(self.x), {}

    def step(self, action: Any) -> Step:
        u = float(action[0])
        reward = -(self.x**2 + u**2)
        self.x += u
        return _vector(self.x), reward, False, False, {}


# -- the answers ------------------------------------------------------------------------------------------------------

Known = tuple[tuple[Any, Any], ...]
"""Pairs of a single observation, as the environment gives it, and what is known there."""


@dataclass(frozen=True)
class Probe:
    """One probe and what a correct learner finds in it, for the best policy at discount `gamma`."""

    id: str
    env: type[gym.Env[Any, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    gamma: float = 0.9
    values: Known = ()
    """V of these observations."""
    q_values: Known = ()
    """Q of these observations, one number per action."""
    best_actions: Known = ()
    """The action to take in these observations."""
    action_probabilities: tuple[float, ...] = ()
    """With the entropy temperature `temperature`, the best stochastic policy."""
    temperature: float = 0.0
    best_return: float | None = None
    """Mean undiscounted return of the best policy; None where it depends on the start."""
    needs_memory: bool = False

    @property
    def about(self) -> str:
        return (self.env.__doc__ or "").strip().splitlines()[0]


def _stay_switch(id: str, limit: int) -> Probe:
    first, second = _one_hot(0, 2), _one_hot(1, 2)
    return Probe(
        id,
        StaySwitch,
        max_episode_steps=limit,
        values=((first, 18.0), (second, 20.0)),
        q_values=((first, (17.2, 18.0)), (second, (20.0, 16.2))),
        best_actions=((first, 1), (second, 0)),
    )


def _bits_to_flip(count: int) -> dict[str, Array]:
    """Fifteen bits of which the first `count` are wrong."""
    goal = np.zeros(15, np.float32)
    goal[:count] = 1.0
    return goal_obs(np.zeros_like(goal), goal)


LQR_GAIN = 0.588403
"""u = -LQR_GAIN x is optimal at gamma 0.9, and V(x) = -(1 + LQR_GAIN) x^2."""

ARM = _vector(0)
PLUS, MINUS = _vector(1), _vector(-1)
_ALL = (
    Probe("RLProbe/ConstantReward-v0", ConstantReward, values=((ARM, 1.0),), best_return=1.0),
    Probe("RLProbe/RewardIsObs-v0", RewardIsObs, values=((PLUS, 1.0), (MINUS, -1.0)), best_return=0.0),
    Probe(
        "RLProbe/TwoSteps-v0",
        Chain,
        {"length": 2},
        values=((_one_hot(0, 2), 0.9), (_one_hot(1, 2), 1.0)),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/Chain-v0",
        Chain,
        {"length": 5},
        values=tuple((_one_hot(i, 5), 0.9 ** (4 - i)) for i in range(5)),
        best_return=1.0,
    ),
    Probe("RLProbe/OneState-v0", OneState, max_episode_steps=8, values=((ARM, 10.0),), best_return=8.0),
    Probe(
        "RLProbe/Counting-v0",
        Counting,
        values=((_vector(0), 1 + 0.9 * 2 + 0.81 * 3), (_vector(1), 2 + 0.9 * 3), (_vector(2), 3.0)),
        best_return=6.0,
    ),
    Probe(
        "RLProbe/TwoArms-v0",
        TwoArms,
        values=((ARM, 1.0),),
        q_values=((ARM, (0.0, 1.0)),),
        best_actions=((ARM, 1),),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/SoftBandit-v0",
        TwoArms,
        q_values=((ARM, (0.0, 1.0)),),
        action_probabilities=(0.119203, 0.880797),
        temperature=0.5,
    ),
    Probe(
        "RLProbe/ObsTimesAction-v0",
        ObsTimesAction,
        values=((PLUS, 1.0), (MINUS, 1.0)),
        q_values=((PLUS, (-1.0, 1.0)), (MINUS, (1.0, -1.0))),
        best_actions=((PLUS, 1), (MINUS, 0)),
        best_return=1.0,
    ),
    _stay_switch("RLProbe/StaySwitch-v0", 32),
    Probe("RLProbe/CueMemory-v0", CueMemory, best_return=1.0, needs_memory=True),
    Probe("RLProbe/MaskedArms-v0", MaskedArms, best_return=0.75),
    Probe(
        "RLProbe/MultiDiscrete-v0",
        Combination,
        {"target": (1, 2), "nvec": (2, 3)},
        values=((ARM, 1.0),),
        best_actions=((ARM, (1, 2)),),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/MultiBinary-v0",
        Combination,
        {"target": (1, 0, 1), "nvec": None},
        values=((ARM, 1.0),),
        best_actions=((ARM, (1, 0, 1)),),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/DictObs-v0",
        DictObs,
        best_actions=tuple(
            ({"colour": np.int64(colour), "sign": _vector(sign)}, 2 * colour + (sign > 0))
            for colour in (0, 1)
            for sign in (-1, 1)
        ),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/Target-v0",
        Target,
        values=tuple((_vector(x), 0.0) for x in (-1.0, 0.0, 1.0)),
        best_actions=tuple((_vector(x), _vector(0.5 * x)) for x in (-1.0, 0.0, 1.0)),
        best_return=0.0,
    ),
    Probe(
        "RLProbe/LQR-v0",
        LinearQuadratic,
        max_episode_steps=32,
        values=tuple((_vector(x), -(1 + LQR_GAIN) * x**2) for x in (-1.0, 0.0, 0.5)),
        best_actions=tuple((_vector(x), _vector(-LQR_GAIN * x)) for x in (-1.0, 0.0, 0.5)),
    ),
    Probe(
        "RLProbe/BitFlip-v0",
        BitFlip,
        max_episode_steps=15,
        values=((_bits_to_flip(1), 0.0), (_bits_to_flip(2), -1.0), (_bits_to_flip(3), -1.9)),
        best_actions=((_bits_to_flip(1), 0),),
    ),
    Probe("RLProbe/PointReach-v0", PointReach, max_episode_steps=50),
)
PROBES: dict[str, Probe] = {probe.id: probe for probe in _ALL}


def register_probes() -> None:
    """Make the probes known to Gymnasium; calling it again changes nothing."""
    for probe in _ALL:
        if probe.id not in registry:
            gym.register(
                probe.id,
                f"{probe.env.__module__}:{probe.env.__name__}",
                max_episode_steps=probe.max_episode_steps,
                kwargs=dict(probe.kwargs),
            )
