"""The driver of the compiled lane: alternates between collecting a rollout and learning from it, in one XLA program.

The scan over steps contains only what is sequential: noise, the initial states of new episodes and the keys of the
environment are drawn for a whole rollout at once, and the algorithm computes values and log-probabilities in bulk. A
chunk is a number of such rollouts in one call; the number is an argument, so one program serves all. Counts that exceed
32 bits, and whatever depends on them, come from the host with each chunk (`timetable.py`).

Randomness is a function of the root key and the number of the rollout. There is no generator state to save.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.checks import check_actions, check_metrics, check_unchanged
from rl_training.jax.data.replay_buffer import Ring, empty_ring, sample, store
from rl_training.jax.data.sequences import sample_sequences, sequence_columns
from rl_training.jax.models.distributions import draw
from rl_training.jax.monitoring.faults import Faults, faults_of
from rl_training.jax.programs.disk_cache import Program
from rl_training.jax.training.batched_runs import BatchedRuns
from rl_training.jax.training.timetable import MAX_ROLLOUTS, WORD, Timetable, timetable
from rl_training.jax.types import Batch, JaxAlgorithm, JaxEnv, Metrics
from rl_training.numerics.encoding import in_dtype
from rl_training.seeding import stream
from rl_training.types import BoxSpec, SpaceSpec


class Loop(NamedTuple):
    """Everything carried from one rollout to the next: the state of the whole run, as a pytree."""

    learner: Any
    env: Any
    carry: Any
    is_first: Any
    key: Any
    rollouts: Any
    """Rollouts done so far, modulo 2^32; the higher bits are in `root_key`."""
    replay: Any = ()
    """The replay buffer of an off-policy algorithm."""


class Record(NamedTuple):
    """What a chunk returns to the host, with one row per rollout; only the first `count` rows are used."""

    metrics: Metrics
    rewards: Any
    terminated: Any
    truncated: Any
    updates: Any
    """Number of updates in each rollout; if it is 0, the metrics are meaningless."""
    faults: Faults


class Driver(NamedTuple):
    """The two programs of a run."""

    prepare: Callable[[Any, Any], None]
    """(learner state, root key): start compiling both programs in the background; returns at once."""
    start: Callable[[Any, Any], Loop]
    """(learner state, root key) -> the loop before its first rollout."""
    chunk: Callable[[Loop, Any, Timetable], tuple[Loop, Record]]
    """(loop, number of rollouts, their timetable) -> the loop after them and a record. The input loop is donated: do
    not touch it afterwards."""
    together: BatchedRuns | None = None
    """Set if several runs share one program; a chunk may then be shorter than requested."""


def make_driver(
    algorithm: JaxAlgorithm,
    env: JaxEnv,
    num_envs: int,
    replay_size: int = 0,
    description: str | None = None,
    runs_per_program: int = 1,
) -> Driver:
    """The programs of a run, compiled on first use. They depend only on sizes and switches, not on numeric
    hyperparameters.

    `num_envs` counts rows: where agents are rows (`envs/teams.py`), there are several for each environment.
    `replay_size` is the capacity of the replay buffer in transitions. With a `description` of everything that
    determines the programs they are stored on disk (`programs/disk_cache.py`). `runs_per_program` runs share one
    vmapped program (`batched_runs.py`).
    """
    iterate = jax.jit(partial(iteration, algorithm, env, num_envs))  # jitted so that eval_shape and the loop trace once

    def start(learner: Any, key: Any) -> Loop:
        state = env.init(jax.random.fold_in(key, 0), num_envs)
        first, none = jnp.ones(num_envs, bool), jnp.zeros((), jnp.uint32)
        loop = Loop(learner, state, algorithm.initial_carry(num_envs), first, key, none)
        if algorithm.replay is None:
            return loop
        row = jax.eval_shape(partial(first_row, algorithm, env, num_envs), loop)
        extras = sequence_columns(algorithm.sequences)
        return loop._replace(replay=empty_ring(row, max(replay_size // num_envs, 1) * num_envs, extras))

    def chunk(loop: Loop, count: Any, times: Timetable) -> tuple[Loop, Record]:
        after, shapes = jax.eval_shape(iterate, loop, jax.tree.map(lambda table: table[0], times))
        check_unchanged(loop.learner, after.learner, "learn or observe", "state")
        check_metrics(shapes.metrics)
        empty = jax.tree.map(lambda x: jnp.zeros((MAX_ROLLOUTS, *x.shape), x.dtype), shapes)

        def body(i: Any, carried: tuple[Loop, Record]) -> tuple[Loop, Record]:
            loop, row = iterate(carried[0], jax.tree.map(lambda table: table[i], times))
            return loop, jax.tree.map(lambda rows, new: rows.at[i].set(new), carried[1], row)

        carried: tuple[Loop, Record] = jax.lax.fori_loop(0, count, body, (loop, empty))
        return carried

    first = Program(start, description)
    if runs_per_program > 1:
        together = BatchedRuns(chunk, runs_per_program, description)
        return Driver(first.prepare, first, together.chunk, together)
    advance = Program(chunk, description, donate_argnums=0)

    def prepare(learner: Any, key: Any) -> None:
        first.prepare(learner, key)
        loop = jax.eval_shape(first.jitted, learner, key)
        advance.prepare(loop, np.int32(0), timetable(algorithm, num_envs, env_steps=0, count=1))

    return Driver(prepare, first, advance)


def iteration(algorithm: JaxAlgorithm, env: JaxEnv, num_envs: int, loop: Loop, times: Timetable) -> tuple[Loop, Record]:
    """One rollout and one learning phase; `times` is the row of the timetable for this rollout."""
    learn_key, *rollout_keys = split_for(jax.random.fold_in(loop.key, loop.rollouts + 1), algorithm.rollout_length)
    drawn = draws(algorithm, env, num_envs, rollout_keys)
    if algorithm.replay is None:
        env_steps = times.env_steps[0]
        policy = algorithm.policy(loop.learner, env_steps)
        loop, batch = rollout(algorithm, env, policy, loop, drawn)
        learner, metrics = algorithm.learn(loop.learner, batch, env_steps, learn_key)
        loop, updates = loop._replace(learner=learner), jnp.ones((), jnp.int32)
    else:
        loop, batch, metrics, updates = replay_block(algorithm, env, loop, times, drawn, learn_key)
    loop = loop._replace(learner=algorithm.observe(loop.learner, batch), rollouts=loop.rollouts + 1)
    faults = faults_of(batch, loop.learner)
    return loop, Record(metrics, batch["rewards"], batch["terminated"], batch["truncated"], updates, faults)


def draws(algorithm: JaxAlgorithm, env: JaxEnv, num_envs: int, keys: Any) -> tuple[Any, Any, Any]:
    """All random inputs of a rollout, (T, ...): the policy's noise, initial states of new episodes, step keys."""
    noise_key, reset_key, env_keys = keys
    grid = (algorithm.rollout_length, num_envs)
    fresh = jax.tree.map(lambda x: x.reshape(grid[0], -1, *x.shape[1:]), env.init(reset_key, grid[0] * grid[1]))
    return draw(algorithm.noise, noise_key, grid), fresh, env_keys


def rollout(algorithm: JaxAlgorithm, env: JaxEnv, policy: Any, loop: Loop, drawn: Any) -> tuple[Loop, Batch]:
    """`rollout_length` steps of every environment."""
    begin = (loop.env, loop.carry, loop.is_first)
    (state, carry, is_first), batch = jax.lax.scan(partial(env_step, algorithm, env, policy), begin, drawn)
    batch["initial_carry"] = loop.carry
    return loop._replace(env=state, carry=carry, is_first=is_first), batch


def env_step(
    algorithm: JaxAlgorithm, env: JaxEnv, policy: Any, where: tuple[Any, Any, Any], drawn: tuple[Any, Any, Any]
) -> tuple[Any, Batch]:
    """One step of every environment; ended episodes are reset in the same step."""
    (state, carry, is_first), (noise, fresh, step_key) = where, drawn
    obs = env.obs(state)
    actions, carry, extras = algorithm.act(policy, obs, carry, is_first, noise, False)
    check_actions(actions, len(is_first), env.action_space)
    state, rewards, terminated, truncated = env.step(state, to_env(algorithm, env.action_space, actions), step_key)
    ends = terminated | truncated
    row = {
        "obs": obs,
        "actions": actions,
        "rewards": rewards,
        "terminated": terminated,
        "truncated": truncated,
        "is_first": is_first,
        "next_obs": env.obs(state),
        **extras,
    }
    state = jax.tree.map(lambda new, old: jnp.where(rows_like(ends, old), new, old), fresh, state)
    return (state, carry, ends), row


# -- learning from replay ---------------------------------------------------------------------------------------------


def replay_block(
    algorithm: JaxAlgorithm, env: JaxEnv, loop: Loop, times: Timetable, drawn: Any, key: Any
) -> tuple[Loop, Batch, Metrics, Any]:
    """`rollout_length` steps of every environment, each followed by the updates due after it; metrics are means."""
    schedule = algorithm.replay
    assert schedule is not None
    learner_shapes = jax.eval_shape(lambda x: x, loop.learner)
    update = jax.jit(partial(update_from, algorithm, len(loop.is_first), key))
    after, metrics = jax.eval_shape(update, loop.replay, times.env_steps[0], learner_shapes, times.learns[0])
    check_unchanged(learner_shapes, after, "learn", "state")
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)

    def step(carried: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Batch]:
        (where, learner, ring, totals), (before, after, learns, owed, drawn) = carried, inputs
        where, row = env_step(algorithm, env, algorithm.policy(learner, before), where, drawn)
        ring = store(ring, row)

        def learn(i: Any, learnt: tuple[Any, Metrics]) -> tuple[Any, Metrics]:
            learner, metrics = update(ring, after, learnt[0], learns + i)
            return learner, jax.tree.map(jnp.add, learnt[1], metrics)

        learner, totals = jax.lax.fori_loop(np.uint32(0), owed, learn, (learner, totals))
        return (where, learner, ring, totals), {name: row[name] for name in BLOCK_FIELDS}

    carried = ((loop.env, loop.carry, loop.is_first), loop.learner, loop.replay, none)
    steps, done = times  # differences of counts modulo 2^32 are correct even if a count wraps around
    inputs = (steps[:-1], steps[1:], done[:-1], done[1:] - done[:-1], drawn)
    (where, learner, ring, totals), batch = jax.lax.scan(step, carried, inputs)
    learns = (done[-1] - done[0]).astype(jnp.int32)
    metrics = jax.tree.map(lambda total: total / jnp.maximum(learns, 1), totals)
    state, carry, is_first = where
    loop = loop._replace(env=state, carry=carry, is_first=is_first, learner=learner, replay=ring)
    return loop, batch, metrics, learns * algorithm.updates_per_learn


BLOCK_FIELDS = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
"""Columns that a block returns: for normaliser statistics, episode returns and the search for non-finite values."""


def update_from(
    algorithm: JaxAlgorithm, num_envs: int, key: Any, ring: Ring, env_steps: Any, learner: Any, number: Any
) -> tuple[Any, Metrics]:
    """Sample a batch from the replay buffer and call `learn` once."""
    schedule, sequences = algorithm.replay, algorithm.sequences
    assert schedule is not None
    sample_key, learn_key = jax.random.split(jax.random.fold_in(key, number))
    rows = schedule.batch_size * algorithm.updates_per_learn
    if sequences is not None:
        batch = sample_sequences(ring, sample_key, rows, sequences.length, num_envs=num_envs)
    else:
        gamma = learner.hyper["gamma"]
        batch = sample(ring, sample_key, rows, num_envs=num_envs, n_step=schedule.n_step, gamma=gamma)
    learner, metrics = algorithm.learn(learner, batch, env_steps, learn_key)
    return learner, metrics


def first_row(algorithm: JaxAlgorithm, env: JaxEnv, num_envs: int, loop: Loop) -> Batch:
    """One row of the replay buffer, to derive its shapes and dtypes."""
    keys = split_for(loop.key, algorithm.rollout_length)[1:]
    drawn = jax.tree.map(lambda x: x[0], draws(algorithm, env, num_envs, keys))
    policy = algorithm.policy(loop.learner, jnp.zeros(()))
    return env_step(algorithm, env, policy, (loop.env, loop.carry, loop.is_first), drawn)[1]


# -- small parts ------------------------------------------------------------------------------------------------------


def split_for(key: Any, length: int) -> tuple[Any, Any, Any, Any]:
    """Keys for learning, the policy's noise, new episodes and the environment steps (T,), from a single split: each use
    of the generator adds a third of a second to the compile time."""
    keys = jax.random.split(key, 3 + length)
    return keys[0], keys[1], keys[2], keys[3:]


def to_env(algorithm: JaxAlgorithm, space: SpaceSpec, actions: Any) -> Any:
    """Actions for the environment: Gaussian actions are clipped to the bounds, unit actions (-1..1) rescaled to them.
    The rollout stores the original actions."""
    if not isinstance(space, BoxSpec):
        return actions
    space = in_dtype(space, np.dtype(actions.dtype))
    low, high = space.low, space.high
    if algorithm.unit_actions and space.is_wide:
        actions = (0.5 - 0.5 * actions) * low + (0.5 + 0.5 * actions) * high
    elif algorithm.unit_actions:
        actions = low + 0.5 * (actions + 1.0) * (high - low)
    return jnp.clip(actions, low, high)


def rows_like(flags: Any, leaf: Any) -> Any:
    """(N,) flags reshaped to broadcast against `leaf` (N, ...). Agents of an environment are rows that end together and
    share one row of its state; the flag of the first of them counts."""
    agents = len(flags) // len(leaf)
    return (flags[::agents] if agents > 1 else flags).reshape(-1, *(1,) * (leaf.ndim - 1))


def root_key(seed: int, number: int = 0) -> Any:
    """The key from which rollout or update `number` derives its own by `fold_in(number modulo 2^32)`; it changes every
    2^32 numbers. The first is `jax.random.key(word)` of a word of the run's stream, made without compiling anything."""
    return jax.random.wrap_key_data(root_words(seed, number))


def root_words(seed: int, number: int = 0) -> Any:
    """The two words of `root_key`."""
    return np.array([number // WORD, stream(seed, "compiled").integers(WORD)], np.uint32)
