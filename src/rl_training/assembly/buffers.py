"""The buffer that a config or an algorithm asks for: rollouts, replay, and what both need to know of the spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from rl_training.assembly.environments import EnvFn, goal_function
from rl_training.config.schema import TrainConfig
from rl_training.data.n_step import check_n_step
from rl_training.data.priorities import Priorities
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.sequence import check_sequence_length
from rl_training.data.storage import check_rollout_memory, fit_capacity, layout, row_bytes
from rl_training.hparams.off_policy import ReplayOptions, ReplaySchedule, SequenceOptions
from rl_training.hparams.schedules import value_at
from rl_training.registry import buffers, check_call, check_methods
from rl_training.runs.spaces import Spaces
from rl_training.seeding import Streams
from rl_training.training.off_policy import Replay
from rl_training.types import BoxSpec, ConfigError, DictSpec, Progress

if TYPE_CHECKING:
    from rl_training.jax.types import JaxEnv

REPLAY_SIZE = 1_000_000
"""Transitions that a replay buffer holds where the config does not say."""
ROLLOUT_ROW = 24
"""Bytes of a row of a rollout besides observation and action: reward, ends, log-probability, value."""


def rollout_sizes(cfg: TrainConfig, spaces: Spaces, num_steps: int) -> dict[str, Any]:
    """The arguments of a RolloutBuffer for these spaces."""
    observation_space, action_space = spaces
    if isinstance(action_space, DictSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has a Dict action space, which no algorithm here can use")
    obs_shape, obs_dtype = layout(observation_space)
    return {
        "num_steps": num_steps,
        "num_envs": cfg.env.num_envs,
        "obs_shape": obs_shape,
        "action_shape": action_space.shape,
        "obs_dtype": obs_dtype,
        "action_dtype": action_space.dtype,
    }


def build_rollout_buffer(cfg: TrainConfig, spaces: Spaces, num_steps: int, *, count: int = 1) -> RolloutBuffer:
    """The buffer of an on-policy algorithm: the package's, or the class that `buffer.type` names; one of `count`."""
    sizes = rollout_sizes(cfg, spaces, num_steps)
    kind = buffers.get(cfg.buffer.type or "rollout")
    if not (isinstance(kind, type) and issubclass(kind, RolloutBuffer)):
        raise ConfigError(
            f"buffer.type '{cfg.buffer.type}' does not fit '{cfg.algo}', which learns from rollouts; "
            "derive it from rl_training.data.rollout_buffer.RolloutBuffer"
        )
    check_call(kind, f"buffer '{cfg.buffer.type}'", kwargs=sizes)
    obs_row, action_row = (row_bytes(*layout(space)) for space in spaces)
    check_rollout_memory(num_steps, cfg.env.num_envs, count * (obs_row + action_row + ROLLOUT_ROW))
    return kind(**sizes)


def build_replay(
    cfg: TrainConfig, spaces: Spaces, options: ReplayOptions, env_fn: EnvFn | None, shard: int = 0
) -> Replay:
    """The replay buffer that the config or the algorithm asks for; the sizes in `cfg` are those of the `shard`."""
    observation_space, action_space = spaces
    assert not isinstance(action_space, DictSpec), "refused by every algorithm"
    name = cfg.buffer.type or "replay"
    kind = buffers.get(name)
    obs_shape, obs_dtype = layout(observation_space)
    keywords: dict[str, Any] = {
        "obs_dtype": obs_dtype,
        "action_dtype": "float32" if isinstance(action_space, BoxSpec) else action_space.dtype,
        "num_envs": cfg.env.num_envs,
        "rng": Streams(cfg.seed)("buffer", shard),
        "n_step": options.n_step,
        "gamma": options.gamma,
        "on_memory": cfg.buffer.on_memory,
    }
    if name == "prioritized":
        keywords["alpha"] = options.alpha
    elif options.prioritized:
        keywords["priorities"] = Priorities(options.alpha)
    if options.sequences is not None:
        # sequences hold single steps, which the algorithm sums up itself
        keywords |= {"sequence_length": options.sequences.length, "carry": options.sequences.carry, "n_step": 1}
    if name == "her":
        keywords["compute_reward"] = goal_function(cfg, env_fn, "compute_reward", required=True)
        keywords["compute_terminated"] = goal_function(cfg, env_fn, "compute_terminated", required=False)
    sizes = {"capacity": cfg.buffer.size or REPLAY_SIZE, "obs_shape": obs_shape, "action_shape": action_space.shape}
    check_call(kind, f"buffer.type '{name}'", sizes, kwargs=keywords)
    buffer = kind(*sizes.values(), **keywords)
    what = f"buffer.type '{name}', from which '{cfg.algo}' is to learn,"
    check_methods(buffer, ("store", "sample", "__len__", "state_dict"), what, "derive it from data.ReplayBuffer")
    return cast(Replay, buffer)


def annealing(
    options: ReplayOptions, buffer: Replay, progress: Progress, total_timesteps: int
) -> Callable[[], None] | None:
    """What sets the importance-sampling exponent of a prioritised buffer to its present value; None where it has none
    or the algorithm does not ask for one."""
    priorities, beta = getattr(buffer, "priorities", None), options.beta
    if beta is None or not isinstance(priorities, Priorities):
        return None
    return lambda: priorities.anneal(value_at(beta, progress.env_steps / total_timesteps))


def compiled_replay_size(
    cfg: TrainConfig, env: JaxEnv, schedule: ReplaySchedule | None, sequences: SequenceOptions | None
) -> int:
    """Transitions that fit: what the config asks for, refused or made smaller where there is no memory for it."""
    if schedule is None:
        return 0
    obs_row, action_row = (row_bytes(*layout(space)) for space in (env.observation_space, env.action_space))
    row = 2 * obs_row + action_row + 6
    if sequences is not None:
        row += 1 + sum(row_bytes(shape, dtype) for shape, dtype in sequences.carry.values())
    size = fit_capacity(cfg.buffer.size or REPLAY_SIZE, row, on_memory=cfg.buffer.on_memory)
    check_n_step(schedule.n_step, None if schedule.n_step == 1 else 1.0, size, cfg.env.num_envs)
    if sequences is not None:
        check_sequence_length(sequences.length, size, cfg.env.num_envs)
    return size


def memory_bytes(buffer: Any) -> int:
    """Bytes that a replay buffer takes; 0 where a class of a user does not say."""
    return int(getattr(buffer, "memory_bytes", 0))
