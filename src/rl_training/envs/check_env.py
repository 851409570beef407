"""`check_env`: finds every problem of an environment in one pass, and says for each what to change.

Errors break learning or an exact resume; warnings are good to know. It is for authors of environments; training does
not need it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.config.schema import EnvConfig
from rl_training.envs.episode_log import as_arrays, same_bits
from rl_training.envs.factory import EnvThunk, build_base
from rl_training.envs.masks import with_action_mask
from rl_training.envs.replay_check import replay_difference, sample_action
from rl_training.envs.spaces import Space, convert_action_space, convert_spaces
from rl_training.envs.suites import Env, make_replayable, strategy_of
from rl_training.system.error_text import describe
from rl_training.types import ACTION_MASK, EnvError, RLTrainingError

STEPS = 200
"""Number of steps in one pass over an environment."""


@dataclass
class EnvReport:
    """Findings of `check_env`, each once."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors

    def error(self, text: str) -> None:
        if text not in self.errors:
            self.errors.append(text)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def raise_for_errors(self) -> None:
        """Raise an EnvError with all errors, if there are any."""
        if self.errors:
            raise EnvError("the environment has problems:\n" + "\n".join(f"  - {text}" for text in self.errors))

    def __str__(self) -> str:
        lines = [f"error: {text}" for text in self.errors] + [f"warning: {text}" for text in self.warnings]
        return "\n".join(lines) or "no problems found"


class _TooBrokenError(Exception):
    """Ends the check early; the report says why."""


def check_env(env: str | Callable[..., Any] | Env, cfg: EnvConfig | None = None, *, seed: int = 0) -> EnvReport:
    """Check an environment: an id, a class or function, or an instance (which is stepped and not closed).

    Checks the spaces, the types and values that reset and step return, determinism under a seed, the exactness of a
    replay and rendering. `print(check_env("my_package.my_module:MyEnv"))`, or `.raise_for_errors()` in a test.
    """
    report = EnvReport()
    cfg = cfg or EnvConfig()
    with suppress(_TooBrokenError):
        if isinstance(env, gym.Env):
            _check(env, report, seed)
        else:
            _check_source(env, cfg, report, seed)
    return report


def _check_source(env: str | Callable[..., Any], cfg: EnvConfig, report: EnvReport, seed: int) -> None:
    first = _attempt(report, "building it", lambda: make_replayable(build_base(env, cfg, None)))
    try:
        _check(first, report, seed)
    finally:
        first.close()
    if report.ok:
        _check_replay(EnvThunk(env, cfg, seed), report)
    _check_render(env, first, cfg, report)


def _attempt(report: EnvReport, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RLTrainingError as error:
        report.error(str(error))
    except Exception as error:
        report.error(f"{what} raised {describe(error)}")
    raise _TooBrokenError


def _check(env: Env, report: EnvReport, seed: int) -> None:
    _check_spaces(env, report)
    _check_signature(env, report)
    trace = _play(env, report, seed)
    _check_end(env, trace, report)
    if not report.ok:
        return
    again = _play(env, report, seed)
    difference = _first_difference(trace, again)
    if difference is not None and strategy_of(env) == "replay":
        report.error(
            f"the same seed and actions do not give the same episode: {difference}. Draw every random number from "
            "self.np_random after super().reset(seed=seed), and initialise every variable in reset(). (If it cannot be "
            "made deterministic, declare `resume_strategy = 'restart'` on the class)"
        )


# -- before the first step --------------------------------------------------------------------------------------------


def _check_spaces(env: Env, report: EnvReport) -> None:
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            report.error(f"{name} is {space!r}; set it to a gymnasium space in __init__")
    if not report.ok:
        raise _TooBrokenError
    _attempt(report, "converting its spaces", lambda: with_action_mask(convert_spaces(env)))
    if isinstance(env.action_space, spaces.Box) and not env.action_space.is_bounded():
        report.warn("the action space has no bounds; actions cannot be rescaled to it, give it finite low and high")
    if strategy_of(env) == "restart":
        report.warn("open episodes are dropped when a run resumes (resume_strategy 'restart')")


def _check_signature(env: Env, report: EnvReport) -> None:
    parameters = inspect.signature(env.reset).parameters
    any_keyword = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    missing = [name for name in ("seed", "options") if name not in parameters and not any_keyword]
    if missing:
        report.error(f"reset() takes no {' and no '.join(missing)}; write reset(self, *, seed=None, options=None)")
        raise _TooBrokenError


# -- stepping ---------------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    """Everything that one pass returned, as independent copies."""

    rows: list[Any] = field(default_factory=list)
    episodes: int = 0


def _play(env: Env, report: EnvReport, seed: int) -> _Trace:
    """Step `env` with seeded random actions; problems go into the report."""
    rng = np.random.default_rng(seed)
    plain_space, to_env = convert_action_space(env.action_space)
    trace = _Trace()
    obs = _reset(env, report, seed, trace)
    for step in range(STEPS):
        plain = sample_action(plain_space, rng, _mask_of(env, obs, report))
        action = plain if to_env is None else to_env(plain)
        given, held, before = copy.deepcopy(action), obs, as_arrays(obs)
        result = _attempt(report, f"step({action!r})", partial(env.step, action))
        obs, reward, terminated, truncated, info = _unpack_step(result, report)
        if not same_bits(as_arrays(action), as_arrays(given)):
            report.warn("step() writes into the action it is given; copy it first")
        if not same_bits(as_arrays(held), before):
            report.warn("the same array is returned every step; rl_training copies it, but other code may not")
        _check_obs(env.observation_space, obs, "step()", report)
        _check_outcome(reward, terminated, truncated, info, report)
        if not report.ok:
            raise _TooBrokenError
        trace.rows.append((as_arrays(obs), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            trace.episodes += 1
            obs = _reset(env, report, seed + step + 1, trace)
    return trace


def _reset(env: Env, report: EnvReport, seed: int, trace: _Trace) -> Any:
    result = _attempt(report, "reset()", lambda: env.reset(seed=seed))
    if not (isinstance(result, tuple) and len(result) == 2):
        report.error(f"reset() returns {_shape_of(result)}; it must return (observation, info)")
        raise _TooBrokenError
    obs, info = result
    if not isinstance(info, dict):
        report.error(f"the info of reset() is a {type(info).__name__}; it must be a dict")
    _check_obs(env.observation_space, obs, "reset()", report)
    if not report.ok:
        raise _TooBrokenError
    trace.rows.append((as_arrays(obs),))
    return obs


def _shape_of(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"


def _unpack_step(result: Any, report: EnvReport) -> tuple[Any, Any, Any, Any, Any]:
    if isinstance(result, tuple) and len(result) == 5:
        return result
    old = " (four values with one `done` are the old gym API)" if isinstance(result, tuple) and len(result) == 4 else ""
    report.error(
        f"step() returns {_shape_of(result)}{old}; it must return (observation, reward, terminated, truncated, info)"
    )
    raise _TooBrokenError


def _check_outcome(reward: Any, terminated: Any, truncated: Any, info: Any, report: EnvReport) -> None:
    if np.ndim(reward) != 0 or not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray):
        report.error(f"the reward is {reward!r}; it must be a single number, float(reward)")
    elif not np.isfinite(float(reward)):
        report.error(f"the reward is {float(reward)}")
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            report.error(f"{name} is a {type(value).__name__} ({value!r}); it must be a bool")
    if not isinstance(info, dict):
        report.error(f"the info of step() is a {type(info).__name__}; it must be a dict")


def _mask_of(env: Env, obs: Any, report: EnvReport) -> Any:
    """The current action mask, in the form that `sample_action` takes; None if the environment has none."""
    if env.has_wrapper_attr("action_masks"):
        mask = np.asarray(env.get_wrapper_attr("action_masks")(), np.int8).reshape(-1)
    elif isinstance(obs, dict) and ACTION_MASK in obs:
        mask = np.asarray(obs[ACTION_MASK], np.int8).reshape(-1)
    else:
        return None
    if not mask.any():
        report.error("the action mask forbids every action, although the episode has not ended")
        raise _TooBrokenError
    return {ACTION_MASK: mask}


# -- observations -----------------------------------------------------------------------------------------------------


def _check_obs(space: Space, obs: Any, where: str, report: EnvReport, key: str = "") -> None:
    """EnvReport why `obs` is not in `space`, leaf by leaf."""
    name = f"the observation of {where}" + (f" at '{key}'" if key else "")
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, dict) or obs.keys() != space.spaces.keys():
            have = sorted(map(str, obs)) if isinstance(obs, dict) else type(obs).__name__
            report.error(f"{name} is {have}; its space has the keys {sorted(space.spaces)}")
            return
        for part, inner in space.spaces.items():
            _check_obs(inner, obs[part], where, report, f"{key}/{part}".strip("/"))
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
            report.error(f"{name} is {_shape_of(obs)}; its space is a tuple of {len(space.spaces)}")
            return
        for i, inner in enumerate(space.spaces):
            _check_obs(inner, obs[i], where, report, f"{key}/{i}".strip("/"))
    elif isinstance(space, spaces.Box):
        _check_box(space, obs, name, report)
    elif not space.contains(obs):
        report.error(f"{name} is {obs!r}, outside its space {space}")


def _check_box(space: spaces.Box, obs: Any, name: str, report: EnvReport) -> None:
    if not isinstance(obs, np.ndarray | np.generic):
        report.error(f"{name} is a {type(obs).__name__}; it must be a NumPy array of {space.dtype}")
        return
    obs = np.asarray(obs)
    if obs.shape != space.shape:
        report.error(f"{name} has shape {obs.shape}, its space {space.shape}")
        return
    if obs.dtype != space.dtype:
        report.error(f"{name} is {obs.dtype}, its space {space.dtype}; end with .astype(np.{space.dtype})")
    if obs.dtype.kind == "f" and not np.isfinite(obs).all():
        report.error(f"{name} holds NaN or Inf")
    elif (obs < space.low).any() or (obs > space.high).any():
        report.error(f"{name} is outside the bounds of its space (from {obs.min()} to {obs.max()}): {space}")


# -- after the passes -------------------------------------------------------------------------------------------------


def _check_end(env: Env, trace: _Trace, report: EnvReport) -> None:
    if trace.episodes == 0 and not _has_time_limit(env):
        report.warn(f"no episode ended in {STEPS} steps and there is no time limit; set env.max_episode_steps")


def _has_time_limit(env: Env) -> bool:
    return env.has_wrapper_attr("_max_episode_steps")


def _first_difference(trace: _Trace, again: _Trace) -> str | None:
    for i, (row, other) in enumerate(zip(trace.rows, again.rows, strict=False)):
        if len(row) != len(other):
            return f"a different episode length at row {i}"
        if not same_bits(row[0], other[0]):
            return f"a different observation at row {i}" if i else "a different first observation"
        if row[1:] != other[1:]:
            return f"a different reward or end at row {i}"
    return None


def _check_replay(thunk: EnvThunk, report: EnvReport) -> None:
    wrapped = _attempt(report, "wrapping it", thunk)
    wrapped.close()
    if not wrapped.exact:
        return
    difference = _attempt(report, "replaying it", lambda: replay_difference(thunk, cuts=3, steps=STEPS // 2))
    if difference is not None:
        report.error(
            "an episode replayed in a fresh copy continues differently, so a run cannot be resumed exactly: "
            f"{difference}. Some state survives reset(); initialise it there, or declare `resume_strategy = 'restart'` "
            "on the class"
        )


def _check_render(env: str | Callable[..., Any], first: Env, cfg: EnvConfig, report: EnvReport) -> None:
    if "rgb_array" not in (first.metadata or {}).get("render_modes", ()):
        report.warn("no render mode 'rgb_array' in metadata['render_modes']: there will be no videos")
        return
    try:
        rendered = EnvThunk(env, cfg, render_mode="rgb_array")()
        rendered.reset()
        frame = rendered.render()
        rendered.close()
    except Exception as error:
        report.warn(f"rendering failed, there will be no videos: {describe(error)}")
        return
    if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8):
        report.error(f"render() gives {_shape_of(frame)}; rgb_array is a (height, width, 3) array of uint8")
