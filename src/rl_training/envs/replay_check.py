"""Conformance test: an environment that is interrupted and replayed in a fresh copy continues bit for bit.

The comparison at resume sees only the last observation and reward, so a hidden difference can pass it. This test keeps
stepping both copies and compares every bit; run it once for each environment family, or for your own environment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.envs.episode_log import EpisodeLog, as_arrays, same_bits
from rl_training.envs.masks import with_action_mask
from rl_training.envs.spaces import JointActions, Space, convert_spaces, gym_space
from rl_training.envs.suites import Env, make_replayable, reseed_steps_of, strategy_of
from rl_training.numerics.agents import joined_actions, leaf_key
from rl_training.types import ACTION_MASK, EnvError


def replay_is_exact(env_fn: Callable[[], Env], *, cuts: int = 4, steps: int = 200, seed: int = 0) -> bool:
    """Whether a replay at each of `cuts` random points, at most `steps` steps apart, continues bit for bit."""
    return replay_difference(env_fn, cuts=cuts, steps=steps, seed=seed) is None


def replay_difference(env_fn: Callable[[], Env], *, cuts: int = 4, steps: int = 200, seed: int = 0) -> str | None:
    """The first difference between an environment and its replay in a fresh copy; None if there is none.

    The actions are random and the cuts are spread over consecutive episodes, because state that survives a reset shows
    only after several.
    """
    rng = np.random.default_rng(seed)
    live = as_logged(env_fn())
    try:
        if not live.exact:
            return "it declares resume_strategy 'restart'"
        obs, _ = live.reset()
        for cut in range(cuts):
            for _ in range(int(rng.integers(1, steps))):
                obs, *_ = advance(live, sample_action(live.action_space, rng, obs))
            fresh = as_logged(env_fn())
            try:
                difference, obs = _compare(live, fresh, obs, rng, steps)
            finally:
                fresh.close()
            if difference is not None:
                return f"cut {cut + 1} of {cuts}: {difference}"
    finally:
        live.close()
    return None


def _compare(
    live: EpisodeLog, fresh: EpisodeLog, obs: Any, rng: np.random.Generator, steps: int
) -> tuple[str | None, Any]:
    fresh.load_state_dict(copy.deepcopy(live.state_dict()))
    at = live.episode_steps
    try:
        fresh.reset()
    except EnvError as error:
        return str(error), obs
    for step in range(steps):
        action = sample_action(live.action_space, rng, obs)
        obs, *rest = advance(live, action)
        other, *other_rest = advance(fresh, action)
        if not same_bits(as_arrays(obs), as_arrays(other)):
            return f"replayed to step {at} of an episode, the observation differs {step + 1} steps later", obs
        if rest != other_rest:
            return f"replayed to step {at} of an episode, reward or end differ {step + 1} steps later", obs
    return None, obs


def as_logged(env: Env) -> EpisodeLog:
    """Wrap `env` as the factory does, unless it was built there."""
    if isinstance(env, EpisodeLog):
        return env
    env = with_action_mask(convert_spaces(make_replayable(env)))
    return EpisodeLog(env, strategy=strategy_of(env), reseed_steps=reseed_steps_of(env))


def advance(env: EpisodeLog, action: Any) -> tuple[Any, float, bool, bool]:
    """One step with autoreset: at the end of an episode, `obs` is the first one of the next episode."""
    obs, reward, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        obs, _ = env.reset()
    return obs, float(reward), bool(terminated), bool(truncated)


def sample_action(space: Space, rng: np.random.Generator, obs: Any = None) -> Any:
    """A random action of a converted space, allowed by the mask in `obs` if there is one."""
    if isinstance(space, JointActions):
        return sample_joint_action(space, rng, obs)
    mask = obs[ACTION_MASK] if isinstance(obs, dict) and ACTION_MASK in obs else None
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n) if mask is None else rng.choice(np.flatnonzero(mask))
    if isinstance(space, spaces.MultiDiscrete):
        if mask is None:
            return rng.integers(space.nvec)
        parts = np.split(np.asarray(mask), np.cumsum(space.nvec)[:-1])
        return np.array([rng.choice(np.flatnonzero(part)) for part in parts])
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=space.shape, dtype=np.int8)
    assert isinstance(space, spaces.Box)
    if space.is_bounded():
        return rng.uniform(space.low, space.high).astype(space.dtype)
    return np.clip(rng.standard_normal(space.shape), space.low, space.high).astype(space.dtype)


def sample_joint_action(space: JointActions, rng: np.random.Generator, obs: Any = None) -> Any:
    """Random actions of several agents, each allowed by its own mask."""
    rows = {}
    for name, played in space.joint.policies.items():
        own, masks = gym_space(played.action_space), (obs or {}).get(leaf_key(name, ACTION_MASK))
        seen = [
            None if masks is None else {ACTION_MASK: mask} for mask in (masks if masks is not None else played.agents)
        ]
        rows[name] = np.stack([np.asarray(sample_action(own, rng, row)) for row in seen])
    return joined_actions(rows, space.joint)[0]
