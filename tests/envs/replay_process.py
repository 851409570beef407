"""Record an environment's episodes in one process, replay them in another.

    python replay_process.py FOLDER ENV_ID ...

prints {id: difference or null} as JSON. The state is saved and loaded as in a real run, through a checkpoint on disk.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.schema import EnvConfig, WrapperConfig
from rl_training.envs import EpisodeLog, make_env
from rl_training.envs.episode_log import as_arrays
from rl_training.envs.replay_check import advance, sample_action
from rl_training.types import EnvError

SEED = 3
WRAPPERS = {"MiniGrid": "minigrid", "NoFrameskip": "atari"}
"""What an id that contains this is wrapped in."""


def build(env_id: str) -> EpisodeLog:
    """The environment as a run builds it; "bare:ID" leaves out `make_replayable`."""
    if env_id.startswith("bare:"):
        return EpisodeLog(gym.make(env_id.removeprefix("bare:"), disable_env_checker=True), seed=SEED)
    wrappers = tuple(WrapperConfig(name) for start, name in WRAPPERS.items() if start in env_id)
    env = make_env(env_id, EnvConfig(wrappers=wrappers), seed=SEED)
    assert isinstance(env, EpisodeLog)
    return env


def record(folder: Path, env_id: str, *, cuts: int, steps: int, seed: int = 0) -> None:
    """Random episodes, cut `cuts` times: the state at each cut, and the results of the next `steps` steps."""
    rng = np.random.default_rng(seed)
    manager = CheckpointManager(place(folder, env_id), keep_last=cuts)
    env = build(env_id)
    obs, _ = env.reset()
    for cut in range(cuts):
        for _ in range(int(rng.integers(1, steps))):
            obs, *_ = advance(env, sample_action(env.action_space, rng, obs))
        state = env.state_dict()
        actions, digests = [], []
        for _ in range(steps):
            action = sample_action(env.action_space, rng, obs)
            obs, *rest = advance(env, action)
            actions.append(action)
            digests.append(digest(obs, *rest))
        manager.save({"env": state, "future": {"actions": np.array(actions), "digests": digests}}, step=cut)
    env.close()


def replay(folder: Path, env_id: str) -> str | None:
    """The first difference between the recording and a new environment from the last cut on; None if there is none."""
    manager = CheckpointManager(place(folder, env_id))
    for cut in reversed(manager.steps()):
        parts = manager.load(cut).parts
        env = build(env_id)
        env.load_state_dict(parts["env"])
        try:
            env.reset()
        except EnvError as error:
            return f"cut {cut}: {error}"
        at = env.episode_steps
        future = parts["future"]
        for step, (action, expected) in enumerate(zip(future["actions"], future["digests"], strict=True), 1):
            if digest(*advance(env, action)) != expected:
                return f"cut {cut}, at step {at} of an episode: something differs {step} steps later"
        env.close()
    return None


def digest(obs: Any, reward: float, terminated: bool, truncated: bool) -> str:
    """Hash of everything a step returned."""
    found = hashlib.sha256(f"{reward.hex()} {terminated} {truncated}".encode())

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                found.update(key.encode())
                add(value[key])
        else:
            found.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())

    add(as_arrays(obs))
    return found.hexdigest()


def place(folder: Path, env_id: str) -> Path:
    return folder / re.sub(r"\W", "-", env_id)


if __name__ == "__main__":
    print(json.dumps({env_id: replay(Path(sys.argv[1]), env_id) for env_id in sys.argv[2:]}))
