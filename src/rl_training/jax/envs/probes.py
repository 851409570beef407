"""The probe environments of `rl_training.envs.probes.control` in JAX: tiny problems with known solutions (`PROBES`).

The goal probes have no twin here, because hindsight replay exists only in the host lane.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from rl_training.jax.envs.base import box, integers
from rl_training.jax.types import Array, Obs
from rl_training.types import (
    ACTION_MASK,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
)

Step = tuple[Any, Array, Array, Array]


def _step(state: Any, reward: Array, terminated: Array | bool, truncated: Array | bool = False) -> Step:
    """One step with its flags broadcast to the shape of the rewards."""
    reward = jnp.asarray(reward, jnp.float32)
    return state, reward, jnp.broadcast_to(terminated, reward.shape), jnp.broadcast_to(truncated, reward.shape)


def _signs(key: Array, n: int) -> Array:
    return jnp.where(jax.random.bernoulli(key, shape=(n,)), 1.0, -1.0)


# -- episodes of one step ---------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    value: Array
    """The single number in the observation."""


class ConstantReward:
    """The reward is always 1."""

    max_episode_steps: int | None = None
    observation_space: SpaceSpec = box(-1.0, 1.0, (1,))
    action_space: SpaceSpec = DiscreteSpec(2)

    def init(self, key: Array, n: int) -> Seen:
        return Seen(jnp.zeros(n))

    def obs(self, state: Seen) -> Obs:
        return state.value[:, None]

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, jnp.ones_like(state.value), True)


class RewardIsObs(ConstantReward):
    """The reward is the observation, -1 or 1."""

    def init(self, key: Array, n: int) -> Seen:
        return Seen(_signs(key, n))

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, state.value, True)


class TwoArms(ConstantReward):
    """The reward is the action."""

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, action, True)


class ObsTimesAction(RewardIsObs):
    """Action 1 is correct if the observation is 1, action 0 if it is -1."""

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, state.value * (2.0 * action - 1.0), True)


class Combination(ConstantReward):
    """The reward is the fraction of choices that match `target`."""

    def __init__(self, target: tuple[int, ...] = (1, 2), nvec: tuple[int, ...] | None = (2, 3)) -> None:
        self.target = tuple(target)
        self.action_space = MultiBinarySpec(len(target)) if nvec is None else MultiDiscreteSpec(tuple(nvec))

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, jnp.mean(action == jnp.array(self.target), axis=-1), True)


class MaskedArms(ConstantReward):
    """Arms that pay 0, 0.5 and 1; in half of the episodes the mask forbids the best. Taking it then gives NaN."""

    observation_space = DictSpec({"obs": box(-1.0, 1.0, (1,)), ACTION_MASK: MultiBinarySpec(3)})
    action_space = DiscreteSpec(3)

    def init(self, key: Array, n: int) -> Seen:
        return Seen(jax.random.bernoulli(key, shape=(n,)).astype(jnp.int8))

    def obs(self, state: Seen) -> Obs:
        allowed = jnp.ones_like(state.value)
        mask = jnp.stack([allowed, allowed, state.value], axis=-1)
        return {"obs": jnp.zeros((len(mask), 1)), ACTION_MASK: mask}

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        forbidden = (action == 2) & (state.value == 0)
        return _step(state, jnp.where(forbidden, jnp.nan, 0.5 * action), True)


class Parts(NamedTuple):
    colour: Array
    sign: Array


class DictObs:
    """The correct one of four actions, 2 x colour + (sign > 0), depends on both parts of the observation."""

    max_episode_steps = None
    observation_space = DictSpec({"colour": DiscreteSpec(2), "sign": box(-1.0, 1.0, (1,))})
    action_space = DiscreteSpec(4)

    def init(self, key: Array, n: int) -> Parts:
        colour_key, sign_key = jax.random.split(key)
        return Parts(integers(colour_key, n, 2), _signs(sign_key, n))

    def obs(self, state: Parts) -> Obs:
        return {"colour": state.colour, "sign": state.sign[:, None]}

    def step(self, state: Parts, action: Array, key: Array) -> Step:
        return _step(state, action == 2 * state.colour + (state.sign > 0), True)


class HiddenCue:
    """Reward = the cue, plus 1 for the action that matches it; the cue is an observation of its own."""

    max_episode_steps = None

    def __init__(self, key: str = "cue", continuous: bool = False) -> None:
        self.key, self.continuous = key, continuous
        self.observation_space = DictSpec({name: box(-1.0, 1.0, (1,)) for name in (key, "obs")})
        self.action_space: SpaceSpec = box(-1.0, 1.0, (1,)) if continuous else DiscreteSpec(2)

    def init(self, key: Array, n: int) -> Seen:
        return Seen(_signs(key, n))

    def obs(self, state: Seen) -> Obs:
        return {self.key: state.value[:, None], "obs": jnp.zeros((len(state.value), 1))}

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        cue = state.value
        match = 0.5 + 0.5 * action[:, 0] * cue if self.continuous else action == (cue > 0)
        return _step(state, cue + match, True)


class Target(ConstantReward):
    """The best action is half the observation; the reward is minus the squared distance to it."""

    action_space = box(-1.0, 1.0, (1,))

    def init(self, key: Array, n: int) -> Seen:
        return Seen(jax.random.uniform(key, (n,), minval=-1.0, maxval=1.0))

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, -((action[:, 0] - 0.5 * state.value) ** 2), True)


# -- episodes of several steps ----------------------------------------------------------------------------------------


class OneState(ConstantReward):
    """The reward is 1 at every step; only the time limit ends an episode."""

    max_episode_steps = 8

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        return _step(state, jnp.ones_like(state.value), False)


class LinearQuadratic(ConstantReward):
    """x' = x + u, reward -(x^2 + u^2), from x in [-1, 1]."""

    max_episode_steps = 32
    observation_space = box(-math.inf, math.inf, (1,))
    action_space = box(-2.0, 2.0, (1,))

    def init(self, key: Array, n: int) -> Seen:
        return Seen(jax.random.uniform(key, (n,), minval=-1.0, maxval=1.0))

    def step(self, state: Seen, action: Array, key: Array) -> Step:
        x, u = state.value, action[:, 0]
        return _step(Seen(x + u), -(x**2 + u**2), False)


class Place(NamedTuple):
    number: Array


class Chain:
    """`length` states in a row, whatever the action; reward 1 on leaving the last. The observation is one-hot."""

    max_episode_steps = None
    action_space = DiscreteSpec(2)

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.observation_space = box(0.0, 1.0, (length,))

    def init(self, key: Array, n: int) -> Place:
        return Place(jnp.zeros(n, jnp.int32))

    def obs(self, state: Place) -> Array:
        return jax.nn.one_hot(state.number, self.length)

    def step(self, state: Place, action: Array, key: Array) -> Step:
        ended = state.number == self.length - 1
        return _step(Place(jnp.minimum(state.number + 1, self.length - 1)), ended, ended)


class Counting:
    """The observation counts 0, 1, 2, 3; the reward is the new count; the episode ends at 3, as `end` says."""

    max_episode_steps = None
    observation_space = box(0.0, 3.0, (1,))
    action_space = DiscreteSpec(2)

    def __init__(self, end: Literal["terminated", "truncated"] = "terminated") -> None:
        if end not in ("terminated", "truncated"):
            raise ConfigError(f"env.kwargs: end must be 'terminated' or 'truncated', not {end!r}")
        self.terminates = end == "terminated"

    def init(self, key: Array, n: int) -> Place:
        return Place(jnp.zeros(n, jnp.int32))

    def obs(self, state: Place) -> Array:
        return state.number[:, None].astype(jnp.float32)

    def step(self, state: Place, action: Array, key: Array) -> Step:
        count = state.number + 1
        ended = count == 3
        return _step(Place(count), count, ended & self.terminates, ended & (not self.terminates))


class StaySwitch:
    """Two states without an end: staying (action 0) gives 1 in the first and 2 in the second, switching gives 0."""

    max_episode_steps = 32
    observation_space = box(0.0, 1.0, (2,))
    action_space = DiscreteSpec(2)

    def init(self, key: Array, n: int) -> Place:
        return Place(integers(key, n, 2))

    def obs(self, state: Place) -> Array:
        return jax.nn.one_hot(state.number, 2)

    def step(self, state: Place, action: Array, key: Array) -> Step:
        stays = action == 0
        return _step(Place(jnp.where(stays, state.number, 1 - state.number)), stays * (1.0 + state.number), False)


class Remembered(NamedTuple):
    cue: Array
    time: Array


class CueMemory:
    """A cue (-1 or 1), `blanks` empty observations, then a question: reward 1 for the action of the cue."""

    max_episode_steps = None
    observation_space = box(-1.0, 1.0, (2,))
    action_space = DiscreteSpec(2)

    def __init__(self, blanks: int = 10) -> None:
        self.blanks = blanks

    def init(self, key: Array, n: int) -> Remembered:
        return Remembered(integers(key, n, 2), jnp.zeros(n, jnp.int32))

    def obs(self, state: Remembered) -> Array:
        cue = jnp.where(state.time == 0, 2.0 * state.cue - 1.0, 0.0)
        return jnp.stack([cue, jnp.where(state.time > self.blanks, 1.0, 0.0)], axis=-1)

    def step(self, state: Remembered, action: Array, key: Array) -> Step:
        ended = state.time == self.blanks + 1
        return _step(Remembered(state.cue, state.time + 1), ended & (action == state.cue), ended)
