"""`PROBES`: every probe environment with its known optimal values, actions and returns.

The ids are ordinary Gymnasium ids, registered when `rl_training.envs` is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import registry

from rl_training.envs.probes.catch import Catch
from rl_training.envs.probes.control import (
    Chain,
    Combination,
    ConstantReward,
    Counting,
    DictObs,
    HiddenCue,
    LinearQuadratic,
    MaskedArms,
    ObsTimesAction,
    OneState,
    RewardIsObs,
    StaySwitch,
    Target,
    TwoArms,
    one_hot,
    vector,
)
from rl_training.envs.probes.exploration import DeepSea
from rl_training.envs.probes.goals import BitFlip, PointReach, goal_obs
from rl_training.envs.probes.memory import CueMemory, RepeatPrevious
from rl_training.types import Array

Known = tuple[tuple[Any, Any], ...]
"""Pairs of a single observation, as the environment returns it, and the known quantity there."""


@dataclass(frozen=True)
class Probe:
    """One probe environment and its known optimal solution at discount `gamma`."""

    id: str
    env: type[gym.Env[Any, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    gamma: float = 0.9
    values: Known = ()
    """Optimal V at these observations."""
    q_values: Known = ()
    """Optimal Q at these observations, one number per action."""
    best_actions: Known = ()
    """Optimal action at these observations."""
    action_probabilities: tuple[float, ...] = ()
    """Optimal stochastic policy at the entropy temperature `temperature`."""
    temperature: float = 0.0
    best_return: float | None = None
    """Mean undiscounted return of the optimal policy; None if it depends on the initial state."""
    needs_memory: bool = False

    @property
    def about(self) -> str:
        return (self.env.__doc__ or "").strip().splitlines()[0]


def _stay_switch(id: str, limit: int) -> Probe:
    first, second = one_hot(0, 2), one_hot(1, 2)
    return Probe(
        id,
        StaySwitch,
        max_episode_steps=limit,
        values=((first, 18.0), (second, 20.0)),
        q_values=((first, (17.2, 18.0)), (second, (20.0, 16.2))),
        best_actions=((first, 1), (second, 0)),
    )


def _bits_to_flip(count: int) -> dict[str, Array]:
    """Observation of fifteen bits, of which the first `count` differ from the goal."""
    goal = np.zeros(15, np.float32)
    goal[:count] = 1.0
    return goal_obs(np.zeros_like(goal), goal)


LQR_GAIN = 0.588403
"""u = -LQR_GAIN x is optimal at gamma 0.9, and V(x) = -(1 + LQR_GAIN) x^2."""

ARM = vector(0)
PLUS, MINUS = vector(1), vector(-1)
_ALL = (
    Probe("RLProbe/ConstantReward-v0", ConstantReward, values=((ARM, 1.0),), best_return=1.0),
    Probe("RLProbe/RewardIsObs-v0", RewardIsObs, values=((PLUS, 1.0), (MINUS, -1.0)), best_return=0.0),
    Probe(
        "RLProbe/TwoSteps-v0",
        Chain,
        {"length": 2},
        values=((one_hot(0, 2), 0.9), (one_hot(1, 2), 1.0)),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/Chain-v0",
        Chain,
        {"length": 5},
        values=tuple((one_hot(i, 5), 0.9 ** (4 - i)) for i in range(5)),
        best_return=1.0,
    ),
    Probe("RLProbe/OneState-v0", OneState, max_episode_steps=8, values=((ARM, 10.0),), best_return=8.0),
    Probe(
        "RLProbe/Counting-v0",
        Counting,
        values=((vector(0), 1 + 0.9 * 2 + 0.81 * 3), (vector(1), 2 + 0.9 * 3), (vector(2), 3.0)),
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
    Probe("RLProbe/RepeatPrevious-v0", RepeatPrevious, best_return=1.0, needs_memory=True),
    Probe("RLProbe/Catch-v0", Catch, best_return=1.0),
    Probe("RLProbe/DeepSea-v0", DeepSea, best_return=0.99),
    Probe(
        "RLProbe/HiddenCue-v0",
        HiddenCue,
        q_values=tuple(({"obs": ARM, "cue": vector(cue)}, (cue + (cue < 0), cue + (cue > 0))) for cue in (-1, 1)),
        best_actions=tuple(({"obs": ARM, "cue": vector(cue)}, int(cue > 0)) for cue in (-1, 1)),
    ),
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
            ({"colour": np.int64(colour), "sign": vector(sign)}, 2 * colour + (sign > 0))
            for colour in (0, 1)
            for sign in (-1, 1)
        ),
        best_return=1.0,
    ),
    Probe(
        "RLProbe/Target-v0",
        Target,
        values=tuple((vector(x), 0.0) for x in (-1.0, 0.0, 1.0)),
        best_actions=tuple((vector(x), vector(0.5 * x)) for x in (-1.0, 0.0, 1.0)),
        best_return=0.0,
    ),
    Probe(
        "RLProbe/LQR-v0",
        LinearQuadratic,
        max_episode_steps=32,
        values=tuple((vector(x), -(1 + LQR_GAIN) * x**2) for x in (-1.0, 0.0, 0.5)),
        best_actions=tuple((vector(x), vector(-LQR_GAIN * x)) for x in (-1.0, 0.0, 0.5)),
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
    """Register the probes with Gymnasium; idempotent."""
    for probe in _ALL:
        if probe.id not in registry:
            gym.register(
                probe.id,
                f"{probe.env.__module__}:{probe.env.__name__}",
                max_episode_steps=probe.max_episode_steps,
                kwargs=dict(probe.kwargs),
            )
