"""The datasets of the offline learning tables, recorded once per machine: `recorded(task, folder)`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from offline_tasks import GREEDY, TASKS

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.envs import space_spec
from rl_training.eval import evaluate, record, record_replay
from rl_training.system.json_lines import read_rows
from rl_training.training.offline.recording import Amount, Behaviour

ROWS = {"pendulum": 5_000, "hopper": 100_000}
SAMPLED = Behaviour(stochastic=True)
"""As in D4RL."""
LAYERS = {"hidden_dims": [64, 64], "activation": "relu"}
TEACHERS: dict[str, dict[str, Any]] = {
    "pendulum": {
        "algo": "sac",
        "env_id": "Pendulum-v1",
        "seed": 0,
        "env": {"num_envs": 1},
        "network": {"actor": LAYERS, "critic": LAYERS},
        "hparams": {"learning_rate": 1e-3},
        "checkpoint": {"keep_last": 30},
        "training": {"total_timesteps": 10_000, "eval_frequency": 500, "checkpoint_frequency": 500},
    },
    "hopper": {
        "algo": "sac",
        "env_id": "Hopper-v5",
        "seed": 0,
        "backend": "jax",
        "env": {"num_envs": 1},
        "hparams": {"learning_starts": 10_000},
        "buffer": {"size": ROWS["hopper"]},
        "checkpoint": {"keep_last": 100},
        "training": {"total_timesteps": 300_000, "eval_frequency": 5_000, "checkpoint_frequency": 5_000},
    },
}
"""The SAC runs whose policies and replay rows are recorded."""


def recorded(task: str, folder: Path) -> dict[str, Path]:
    """The sets of a task by name, those that are missing recorded now."""
    names = (*TASKS[task].sets, *(GREEDY if task == "pendulum" else ()))
    found = {name: folder / task / name for name in names}
    if not all((path / "dataset.json").exists() for path in found.values()):
        (folder / task).mkdir(parents=True, exist_ok=True)
        for name, data in MAKERS[task](folder / task).items():
            if not (found[name] / "dataset.json").exists():
                write_native(data, found[name])
    return found


def teacher(task: str, folder: Path) -> Path:
    """The finished SAC run of a task."""
    done = folder / "teacher.json"
    if done.exists():
        return Path(json.loads(done.read_text()))
    run = train({**TEACHERS[task], "output_dir": str(folder / "runs")}).run_dir
    done.write_text(json.dumps(str(run)))
    return run


def with_ends(data: Dataset, low: float, high: float, said: str) -> Dataset:
    """The dataset with the returns that count as 0 and as 100."""
    return replace(data, info=replace(data.info, ref_min=low, ref_max=high, reference=said))


def pendulum(folder: Path) -> dict[str, Dataset]:
    """Random actions, SAC halfway, its replay rows 1,000 steps later, and its last policy, also without sampling."""
    run, amount = teacher("pendulum", folder), Amount(steps=ROWS["pendulum"])
    expert = record(run, amount, how=SAMPLED)
    low, high = expert.info.ref_min, expert.info.ref_max
    assert low is not None
    assert high is not None
    steps = CheckpointManager(run).steps()
    means = {step: evaluate(run, checkpoint=step, episodes=20)["return_mean"] for step in steps}
    medium = next((step for step in steps if means[step] >= low + 0.5 * (high - low)), steps[-1])
    later = next((step for step in steps if step >= medium + 1000), steps[-1])
    parts = {
        "random": record(None, amount, random_env="Pendulum-v1"),
        "medium": record(run, amount, checkpoint=medium, how=SAMPLED, reference_episodes=0),
        "medium-replay": record_replay(run, checkpoint=later, reference_episodes=0),
        "expert": expert,
        "medium-greedy": record(run, amount, checkpoint=medium, reference_episodes=0),
        "expert-greedy": record(run, amount, reference_episodes=0),
    }
    said = expert.info.reference
    return {name: with_ends(data, low, high, said) for name, data in parts.items()}


def hopper(folder: Path) -> dict[str, Dataset]:
    """SAC at a third of its own best evaluation, and the ring of its replay rows once it is full; 100 is that best
    policy, judged by episodes of its own."""
    run, amount = teacher("hopper", folder), Amount(steps=ROWS["hopper"])
    returns = {int(row["env_steps"]): row["return_mean"] for row in read_rows(run / "logs" / "evals.jsonl")}
    kept = [step for step in CheckpointManager(run).steps() if step in returns]
    best = max(kept, key=lambda step: float(returns[step]))
    medium = next(step for step in kept if returns[step] >= returns[best] / 3)
    full = next(step for step in kept if step >= max(medium, ROWS["hopper"]))
    ends = record(run, Amount(episodes=1), checkpoint=best).info
    assert ends.ref_min is not None
    assert ends.ref_max is not None
    parts = {
        "medium": record(run, amount, checkpoint=medium, how=SAMPLED, reference_episodes=0),
        "medium-replay": record_replay(run, checkpoint=full, reference_episodes=0),
    }
    return {name: with_ends(data, ends.ref_min, ends.ref_max, ends.reference) for name, data in parts.items()}


def mixed_cartpole(folder: Path | None = None) -> dict[str, Dataset]:
    """4,500 rows of a player that mostly does the opposite of a good rule, and 1,500 of one that mostly follows it."""
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    episodes: list[Steps] = []
    for right, steps in ((0.3, 4500), (0.8, 1500)):
        played = 0
        while played < steps:
            episodes.append(followed_rule(env, rng, right, seed=len(episodes)))
            played += len(episodes[-1].rewards)
    env.close()
    info = DatasetInfo("CartPole-v1", spaces, ref_min=22.0, ref_max=500.0, reference="random actions, and the limit")
    return {"mixed": joined(info, episodes)}


def followed_rule(env: Any, rng: np.random.Generator, right: float, seed: int) -> Steps:
    """One episode of a player that follows the rule with probability `right`."""
    obs, _ = env.reset(seed=seed)
    seen: list[Any] = [obs]
    actions: list[int] = []
    ended = False
    while not ended and len(actions) < 500:
        good = int(obs[2] + 0.3 * obs[3] > 0)
        actions.append(good if rng.random() < right else 1 - good)
        obs, _, ended, _, _ = env.step(actions[-1])
        seen.append(obs)
    last = np.arange(len(actions)) == len(actions) - 1
    return Steps(np.array(seen), np.array(actions), np.ones(len(actions)), last & ended, last & (not ended))


MAKERS = {"pendulum": pendulum, "hopper": hopper, "cartpole": mixed_cartpole}
