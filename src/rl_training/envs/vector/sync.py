"""Environments stepped one after the other in this process: the default, and the fastest for cheap environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.envs.episode_log import EpisodeLog, check_num_envs
from rl_training.types import Array, EnvError, StateDict


class ResumableSyncVectorEnv(SyncVectorEnv[Any, Any]):
    """Gymnasium's SyncVectorEnv in SAME_STEP mode that can be saved, with its info layout and a faster step.

    Every array it returns is new, final observations included, even if an environment reuses its own: arrays that a
    caller keeps are never overwritten.
    """

    envs: list[EpisodeLog]  # type: ignore[assignment]

    def __init__(self, env_fns: Sequence[Callable[[], EpisodeLog]]) -> None:
        try:
            super().__init__(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
        except RuntimeError as error:
            raise EnvError(f"the spaces of the environments differ, they must be the same: {error}") from error
        space = self.single_observation_space
        self._leaves = (
            {key: ((self.num_envs, *(leaf.shape or ())), leaf.dtype) for key, leaf in space.spaces.items()}
            if isinstance(space, spaces.Dict)
            else None
        )
        self._batch_shape = (self.num_envs, *(space.shape or ()))

    @property
    def exact(self) -> bool:
        """Whether a resumed run continues every environment bit for bit."""
        return all(env.exact for env in self.envs)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        num_envs = self.num_envs
        if len(actions) != num_envs:
            raise ValueError(f"{len(actions)} actions for {num_envs} environments")
        rewards = np.empty(num_envs)
        terminated = np.empty(num_envs, np.bool_)
        truncated = np.empty(num_envs, np.bool_)
        infos: dict[str, Any] = {}
        batch = self._env_obs
        for i, env in enumerate(self.envs):
            obs, rewards[i], ended, cut, info = env.step(actions[i])
            terminated[i] = ended
            truncated[i] = cut
            if ended or cut:
                # copied before the reset, which may write into the same array
                infos = self._add_info(infos, {"final_obs": self._copy(obs), "final_info": info}, i)
                obs, info = env.reset()
            if info:
                infos = self._add_info(infos, info, i)
            batch[i] = obs
        return self._stack(batch), rewards, terminated, truncated, infos

    def _stack(self, batch: list[Any]) -> Any:
        """The observations of all environments as new arrays of the space's dtype."""
        if self._leaves is None:
            stacked = np.empty(self._batch_shape, self.single_observation_space.dtype)
            for i, obs in enumerate(batch):
                stacked[i] = obs
            return stacked
        arrays = {key: np.empty(shape, dtype) for key, (shape, dtype) in self._leaves.items()}
        for key, array in arrays.items():
            for i, obs in enumerate(batch):
                array[i] = obs[key]
        return arrays

    def _copy(self, obs: Any) -> Any:
        if self._leaves is None:
            return np.array(obs, self.single_observation_space.dtype)
        return {key: np.array(obs[key], dtype) for key, (_, dtype) in self._leaves.items()}

    def state_dict(self) -> StateDict:
        """The state of every environment; see `EpisodeLog`."""
        return {"num_envs": self.num_envs, "envs": {str(i): env.state_dict() for i, env in enumerate(self.envs)}}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore a state; the next `reset()` continues the open episodes."""
        check_num_envs(state, self.num_envs)
        for i, env in enumerate(self.envs):
            env.load_state_dict(state["envs"][str(i)])
