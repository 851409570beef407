"""What a run will cost, before it starts: parameters, arithmetic, memory, disk, numbers of updates and evaluations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psutil

from rl_training.assembly.buffers import memory_bytes
from rl_training.assembly.build import build_trainer
from rl_training.assembly.remote import inline_pool, remote_cost
from rl_training.config.schema import TrainConfig, builtin_spec
from rl_training.data.frame_buffer import FrameReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.storage import array_bytes, arrays, layout, row_bytes
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.images import is_image
from rl_training.training.loop import Trainer
from rl_training.types import SpaceSpec, crossed

BYTES_PER_METRIC = 30
"""Size of a number with its name, in metrics.jsonl and the TensorBoard file together, roughly."""
METRICS_PER_ROW = 25
PER_ROLLOUT = ("update_mflop", "carry_bytes")
"""What networks cost in proportion to the number of environments."""
FEW_ENVS = 32
"""Environments with which a run with runners is built to be looked at."""
SEGMENT_COPIES = 2
"""Checkpoints share the rows of a replay buffer; each row is stored twice."""


def plan(cfg: TrainConfig) -> dict[str, Any]:
    """Build the run without starting it and count. Nothing is written, and no cluster is needed."""
    trainer = build_trainer(to_inspect(cfg), to_run=False, make_pool=inline_pool)
    try:
        state = trainer.state_dict()
        offline = trainer.progress.axis == "updates"
        rollout = trainer.num_steps * (1 if offline else cfg.env.num_envs)
        obs_row, action_row = (row_bytes(*layout(space)) for space in trainer.spaces)
        resident = int(psutil.Process().memory_info().rss)  # the process as built: libraries, network, environments
        schedule = trainer.schedule
        buffer = trainer.parts().get("buffer")
        replay_bytes = memory_bytes(buffer)
        frames = image_bytes(buffer, trainer.spaces[0], rollout)
        arithmetic = cost_of_networks(cfg, trainer)
        sent = cost_of_collection(cfg, trainer)
        ahead_bytes = bytes_ahead(trainer, rollout * (obs_row + action_row + 8)) if cfg.env.overlap else 0
    finally:
        trainer.close()
    training = cfg.training
    updates = -(-training.budget // rollout)
    env_steps = 0 if offline else training.budget if schedule else updates * rollout
    evaluations = times(updates, rollout, training.eval_steps) + training.eval_at_start
    checkpoint = array_bytes(state) + ahead_bytes
    length = training.budget if offline else env_steps
    forever = length // cfg.checkpoint.keep_every if cfg.checkpoint.keep_every else 0
    kept = cfg.checkpoint.keep_last + int(cfg.checkpoint.keep_best) + forever
    rows = times(updates, rollout, cfg.logging.log_frequency) if cfg.logging.log_frequency else updates
    log_bytes = rows * METRICS_PER_ROW * BYTES_PER_METRIC
    parameters = sum(int(array.size) for array in arrays(state["policy"].get("network", state["policy"])))
    return {
        "parameters": parameters,
        **arithmetic,
        "env_steps": env_steps,
        "updates": training.budget if offline else schedule.owed(0, env_steps) if schedule else updates,
        **({"updates_per_step": float(f"{float(schedule.updates_per_step):.6g}")} if schedule else {}),
        "evaluations": evaluations if training.num_eval_episodes else 0,
        "checkpoints": 1 + times(updates, rollout, training.checkpoint_frequency),
        **({"exchange_bytes": 4 * parameters * training.shards} if training.shards > 1 else {}),
        "buffer_bytes": (replay_bytes or rollout * (obs_row + action_row + 8)) + ahead_bytes,
        **({"image_bytes": frames} if frames else {}),
        **sent,
        "memory_bytes": resident + 2 * checkpoint + (replay_bytes or rollout * (3 * obs_row + 2 * action_row + 60)),
        "log_bytes": log_bytes,
        "disk_bytes": kept * checkpoint + SEGMENT_COPIES * replay_bytes + log_bytes,
    }


def to_inspect(cfg: TrainConfig) -> TrainConfig:
    """A config that builds the same parts. With runners and rollouts it has fewer environments: to plan a run for a
    large machine must not take the memory of one."""
    spec = builtin_spec(cfg.algo)
    is_large = cfg.env.collector != "local" and cfg.env.num_envs > FEW_ENVS
    if not is_large or spec is None or spec.kind != "on_policy" or cfg.buffer.size is not None:
        return cfg
    return replace(cfg, env=replace(cfg.env, num_envs=FEW_ENVS, runners=None))


def cost_of_networks(cfg: TrainConfig, trainer: Trainer) -> dict[str, Any]:
    """Arithmetic and carries of the networks; with backend jax nothing is counted."""
    if cfg.backend != "torch":
        return {}
    from rl_training.assembly.network_cost import network_cost

    built = to_inspect(cfg).env.num_envs
    found = network_cost(trainer.algorithm, trainer.spaces, built, trainer.num_steps)
    share = cfg.env.num_envs / built
    return {name: value * share if name in PER_ROLLOUT and share != 1 else value for name, value in found.items()}


def cost_of_collection(cfg: TrainConfig, trainer: Trainer) -> dict[str, Any]:
    """What goes to runners and back; nothing where the run steps its environments itself."""
    return {} if cfg.env.collector == "local" else remote_cost(cfg, trainer)


def image_bytes(buffer: Any, space: SpaceSpec, rollout: int) -> int:
    """Bytes of the images in the buffer: each frame once, both observations of a transition, or those of a rollout."""
    row = sum(row_bytes(*layout(leaf)) for leaf in observation_leaves(space).values() if is_image(leaf))
    if isinstance(buffer, FrameReplayBuffer):
        return int(buffer.frames.nbytes)
    return row * (2 * buffer.capacity if isinstance(buffer, ReplayBuffer) else rollout)


def bytes_ahead(trainer: Trainer, rollout_bytes: int) -> int:
    """What `env.overlap` holds besides: a second rollout, or a block with the next observations too, and the state of
    the policy that acted."""
    steps = rollout_bytes if trainer.schedule is None else 2 * rollout_bytes
    return steps + array_bytes(trainer.parts()["policy"].state_dict())


def times(updates: int, rollout: int, every: int) -> int:
    """The number of train steps that cross a multiple of `every` env steps; the last step always counts."""
    total = updates * rollout
    crossings = min(updates, total // every) if every else 0
    return crossings if crossed(total - rollout, total, every) else crossings + 1
