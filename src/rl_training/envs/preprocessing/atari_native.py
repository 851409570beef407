"""Atari on ALE's own vector environment: the wrapper `atari` translated, in threads and without Python per frame.

Observations, raw rewards, ends and what the learner is told are those of the wrapper path (`atari`), bit for bit,
resets and their seeds included; only the speed differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rl_training.config.schema import EnvConfig
from rl_training.envs.episode_log import as_arrays, check_num_envs, same_bits
from rl_training.envs.preprocessing.atari import AtariOptions, atari_entry, check_frameskip, emulator_seed
from rl_training.envs.preprocessing.step_infos import ENV_FRAMES, LEARNING_REWARD, LIFE_LOST
from rl_training.envs.suites import suite_of
from rl_training.envs.vector.native_log import NativeLog
from rl_training.seeding import reset_seed
from rl_training.types import Array, ConfigError, EnvError, StateDict

TRANSLATED = ("repeat_action_probability", "full_action_space")
"""Arguments of ALE's environment that its vector environment takes by the same name."""
NO_LIMIT = 2**31 - 1


class NativeAtari(VectorWrapper):
    """ALE's vector environment in SAME_STEP mode, with the seeds, infos and resume of the wrapper path."""

    exact = True
    """A resumed run continues every game bit for bit, by replay."""

    def __init__(self, env: VectorEnv[Any, Any, Any], options: AtariOptions, *, seed: int, reseed_steps: int) -> None:
        super().__init__(env)
        self.options = options
        self.seed = seed
        self.reseed_steps = reseed_steps
        self.reset_counts = np.zeros(self.num_envs, np.int64)
        self._log = NativeLog(self.num_envs, (), np.dtype(np.int64))
        self._raw: dict[str, Array] = {}
        self._obs: Any = None
        self._pending: StateDict | None = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Without seeds, those of the run's stream; after `load_state_dict` the open games go on."""
        pending, self._pending = self._pending, None
        if pending is not None and seed is None and not options:
            self._replay(pending)
        else:
            rows = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])
            self._reset(rows, self._stream_seeds(rows) if seed is None else _given_seeds(seed, rows))
        return self._obs, _present({"lives": self._raw["lives"]}, np.ones(self.num_envs, bool))

    def _stream_seeds(self, rows: Array) -> Array:
        """The seeds of the next resets of some sub-environments."""
        indices = np.flatnonzero(rows)
        seeds = [reset_seed(self.seed, int(i), int(self.reset_counts[i])) for i in indices]
        self.reset_counts[indices] += 1
        return np.array(seeds, np.int64)

    def _reset(self, rows: Array, seeds: Array) -> None:
        self._log.begin(rows, seeds)
        self._seeded(rows, seeds)

    def _seeded(self, rows: Array, seeds: Array) -> None:
        """Reset the emulators of some rows with seeds; the others are as they were."""
        emulators = np.array([emulator_seed(int(seed)) for seed in seeds])
        mask = None if rows.all() else {"reset_mask": rows}
        self._obs, self._raw = self.env.reset(seed=emulators, options=mask)  # type: ignore[arg-type]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = np.asarray(actions, np.int64)
        before = self._raw
        obs, rewards, terminated, truncated, raw = self.env.step(actions)
        self._log.append(actions)
        self._obs, self._raw = obs, raw
        ended = terminated | truncated
        rewards = rewards.astype(np.float64)
        infos = self._infos(before, raw, rewards, ended)
        if ended.any():
            due = ended & (self._log.lengths >= self.reseed_steps)
            self.reset_counts[ended & ~due] += 1
            if due.any():
                self._reset(due, self._stream_seeds(due))
            infos["lives"] = self._raw["lives"]
        return self._obs, rewards, terminated, truncated, infos

    def _infos(self, before: dict[str, Array], raw: dict[str, Array], rewards: Array, ended: Array) -> dict[str, Any]:
        """In the layout of Gymnasium; where a game ended, those of its last step are in `final_info`."""
        # the count of frames goes on over the reset behind an end, which took those of the new game so far
        frames = raw["frame_number"] - before["frame_number"] - np.where(ended, raw["episode_frame_number"], 0)
        infos = _present({"lives": raw["lives"]}, np.ones(self.num_envs, bool))
        infos |= self._step_infos(rewards, frames, ~ended)
        if self.options.life_loss == "signal":
            lost = (raw["lives"] < before["lives"]) & (raw["lives"] > 0) & ~ended
            if lost.any():
                infos |= _present({LIFE_LOST: lost}, lost)
        if ended.any():
            final_info = self._step_infos(rewards, frames, ended)
            infos |= _present({"final_obs": raw["final_obs"], "final_info": final_info}, ended)
        return infos

    def _step_infos(self, rewards: Array, frames: Array, rows: Array) -> dict[str, Any]:
        infos = _present({ENV_FRAMES: np.where(rows, frames, 0)}, rows)
        large = (np.abs(rewards) > 1) & rows
        if self.options.clip_reward and large.any():
            infos |= _present({LEARNING_REWARD: np.where(large, np.sign(rewards), 0.0)}, large)
        return infos

    # -- resume -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """What an identical vector environment needs to replay every game to the same state."""
        if self._pending is not None:
            return self._pending
        state: StateDict = {
            "num_envs": self.num_envs,
            "strategy": "replay",
            "reset_counts": self.reset_counts.copy(),
            "open": self._obs is not None,
        }
        if state["open"]:
            state |= {"log": self._log.state_dict(), "obs": as_arrays(self._obs)}
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Takes effect at the next `reset()`, which replays the log and compares the observations."""
        check_num_envs(state, self.num_envs)
        self.reset_counts = np.array(state["reset_counts"])
        self._pending = dict(state) if state["open"] else None

    def _replay(self, state: StateDict) -> None:
        self._log.load_state_dict(state["log"])

        def step(actions: Array) -> None:
            self._obs, *_, self._raw = self.env.step(actions)

        self._log.replay(self._seeded, step)
        for row, (now, saved) in enumerate(zip(self._obs, state["obs"], strict=True)):
            if not same_bits(now, saved):
                raise EnvError(
                    f"environment {row} of {self.env} cannot continue its open game exactly: replayed from seed "
                    f"{self._log.seeds[row]} over {self._log.lengths[row]} steps, the observation differs. The version "
                    "of ALE, or one of its arguments, changed"
                )


def _given_seeds(seed: int | Sequence[int], rows: Array) -> Array:
    """A seed for each of the rows that are reset; a single seed s gives s, s + 1, and so on."""
    count = int(np.count_nonzero(rows))
    return np.arange(seed, seed + count) if isinstance(seed, int) else np.asarray(seed, np.int64)


def _present(infos: dict[str, Any], rows: Array) -> dict[str, Any]:
    """Infos with the mask that says which rows have them."""
    return {**infos, **{f"_{key}": rows for key in infos}}


# -- building ---------------------------------------------------------------------------------------------------------


def make_native_atari(source: EnvSpec, cfg: EnvConfig, num_envs: int, seed: int) -> NativeAtari:
    """ALE's vector environment for a game, or a ConfigError that says what to use instead."""
    entry = atari_entry(cfg)
    if entry is None:
        raise ConfigError(
            f"environment '{source.id}': with env.vectorization: native the preprocessing is that of wrapper 'atari'; "
            "set env.wrappers: [atari]"
        )
    if len(cfg.wrappers) > 1:
        raise ConfigError(
            f"env.wrappers: ALE's vector environment takes no wrapper but 'atari', not '{cfg.wrappers[1].name}'; "
            "set env.vectorization to sync or async"
        )
    options = AtariOptions.read(entry.kwargs)
    from ale_py.vector_env import AtariVectorEnv

    metadata = dict(VectorEnv.metadata)
    env = AtariVectorEnv(
        num_envs=num_envs,
        **translated(source, cfg, options),
        num_threads=cfg.num_workers or 0,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    # its constructor writes into the dictionary of the class, which all vector environments share
    env.metadata = dict(env.metadata)
    VectorEnv.metadata.clear()
    VectorEnv.metadata.update(metadata)
    suite = suite_of(source)
    return NativeAtari(env, options, seed=seed, reseed_steps=suite.reseed_steps if suite else 0)


def translated(source: EnvSpec, cfg: EnvConfig, options: AtariOptions) -> dict[str, Any]:
    """The arguments of ALE's vector environment for those of a game and of the wrapper."""
    kwargs = {**source.kwargs, **cfg.kwargs}
    check_frameskip(source.id, kwargs.pop("frameskip", 4), options.frame_skip)
    game, limit = kwargs.pop("game"), kwargs.pop("max_num_frames_per_episode", None)
    for key in kwargs:
        if key not in TRANSLATED:
            raise ConfigError(
                f"env.kwargs: ALE's vector environment takes no '{key}'; set env.vectorization to sync or async"
            )
    return {
        "game": game,
        **kwargs,
        "max_num_frames_per_episode": min(cfg.max_episode_steps or NO_LIMIT, limit or NO_LIMIT),
        "img_height": options.size,
        "img_width": options.size,
        "grayscale": options.grayscale,
        "stack_num": options.stack,
        "frameskip": options.frame_skip,
        "noop_max": options.noop_max,
        "use_fire_reset": options.fire,
        "reward_clipping": False,
    }
