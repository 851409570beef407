"""What a run will cost, before it starts: parameters, memory, disk, and how often things will happen."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.config import TrainConfig
from rl_training.data.storage import layout, row_bytes
from rl_training.envs import space_spec
from rl_training.trainer import build_trainer
from rl_training.types import StateDict

BYTES_PER_METRIC = 30
"""A number with its name in metrics.jsonl and in the TensorBoard file together, roughly."""
METRICS_PER_ROW = 25


def plan(cfg: TrainConfig) -> dict[str, Any]:
    """Build the run without starting it and count. Nothing is written."""
    trainer = build_trainer(cfg)
    try:
        state = trainer.state_dict()
        buffer = trainer.buffer
        rollout = trainer.num_steps * cfg.env.num_envs
        env = trainer.collector.env
        obs_row = row_bytes(*layout(space_spec(env.single_observation_space)))
        action_row = row_bytes(*layout(space_spec(env.single_action_space)))
    finally:
        trainer.close()
    training = cfg.training
    updates = -(-training.total_timesteps // rollout)
    env_steps = updates * rollout
    evaluations = times(env_steps, training.eval_frequency) if training.num_eval_episodes else 0
    checkpoint = array_bytes(state)
    kept = (
        cfg.checkpoint.keep_last + int(cfg.checkpoint.keep_best) + times_or_zero(env_steps, cfg.checkpoint.keep_every)
    )
    rows = updates if cfg.logging.log_frequency == 0 else times(env_steps, cfg.logging.log_frequency)
    parameters = sum(int(array.size) for array in arrays(state["policy"].get("network", state["policy"])))
    return {
        "parameters": parameters,
        "env_steps": env_steps,
        "updates": updates,
        "evaluations": evaluations,
        "checkpoints": 1 + times(env_steps, training.checkpoint_frequency),
        "buffer_bytes": buffer.num_steps * buffer.num_envs * (obs_row + action_row + 8),
        "memory_bytes": 3 * checkpoint + buffer.num_steps * buffer.num_envs * (2 * obs_row + action_row + 40),
        "disk_bytes": kept * checkpoint + rows * METRICS_PER_ROW * BYTES_PER_METRIC,
    }


def times(total: int, every: int) -> int:
    """How often something happens that happens every `every` steps and at the end."""
    return 1 if every == 0 else -(-total // every)


def times_or_zero(total: int, every: int) -> int:
    return 0 if every == 0 else total // every


def arrays(state: Any) -> list[np.ndarray[Any, Any]]:
    """Every array below a state."""
    if isinstance(state, dict):
        return [array for value in state.values() for array in arrays(value)]
    return [state] if isinstance(state, np.ndarray) else []


def array_bytes(state: StateDict | dict[str, StateDict]) -> int:
    return sum(int(array.nbytes) for array in arrays(state))
