"""A JaxAlgorithm as an `Algorithm`: the same pure functions for ordinary Gymnasium environments.

The collector, buffers and trainers are those of the torch backend; only `learn` and `act` run in JAX. The compiled lane
uses the same object for everything except learning: it holds the state and the policy and saves them in checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.base import AlgorithmSpec
from rl_training.hparams.off_policy import ReplaySchedule, SequenceOptions
from rl_training.jax.dreaming import Dreams
from rl_training.jax.models.networks import runs_in_numpy
from rl_training.jax.numerics.normalization import RewardStatistics
from rl_training.jax.policy import DreamingPolicy, JaxPolicy
from rl_training.jax.programs.sharing import fingerprint, shape_of, shared
from rl_training.jax.pytrees import restored, tree_state
from rl_training.jax.traced_hparams import hyper_leaves
from rl_training.jax.training.driver import root_key, root_words
from rl_training.jax.training.timetable import WORD, schedule_of
from rl_training.jax.types import JaxAlgorithm
from rl_training.registry import check_call, did_you_mean, import_own
from rl_training.types import Array, Batch, ConfigError, Dream, Obs, StateDict, UpdateResult

NOT_ALGORITHM = ("params", "normalizer", "hyper")
"""Fields of a state that are saved with the policy or follow from the config, so not with the algorithm."""


SAMPLED = (
    *("obs", "actions", "rewards", "next_obs", "terminated", "discounts"),
    *("next_actions", "next_known", "returns_to_go"),
)
"""Columns of a replay batch that `learn` uses."""
IN_SEQUENCES = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "is_first", "valid", "carry")
"""The same where it learns from sequences."""
NOT_DENSE = ("valid", "final_obs", "final_index", "last_obs")
"""Columns of the collector's rollout that a rollout of the compiled lane does not have."""
TRANSITIONS = np.ones(1, bool)
"""Default for batches without `valid`: all rows are transitions."""


class HostAlgorithm:
    """A JAX agent on the host: pure functions, their current state, and the methods that the trainers call."""

    policy_type: type[JaxPolicy] = JaxPolicy

    def __init__(self, ctx: BuildContext, functions: JaxAlgorithm, state: Any, description: str) -> None:
        self.functions = functions
        self.description = description
        """Fingerprint of everything that determines `functions`; equal functions have equal fingerprints."""
        self.state = state
        self.progress = ctx.progress
        self.seed = ctx.streams.seed
        self.key, self._key_words = root_key(self.seed), root_words(self.seed)
        self.updates_per_learn = functions.updates_per_learn
        networks = ((ctx.actor_space, ctx.network.actor), (ctx.observation_space, ctx.network.critic))
        in_numpy = functions.in_numpy
        if in_numpy is None:
            in_numpy = all(runs_in_numpy(space, network) for space, network in networks)
        self.policy = self.policy_type(self, ctx, in_numpy=in_numpy)
        self._learn = jax.jit(partial(numbered, functions.learn), donate_argnums=0)
        self._observe = jax.jit(functions.observe, donate_argnums=0)

    def update(self, batch: Batch) -> UpdateResult:
        if self.sequences is None and not batch.get("valid", TRANSITIONS).all():
            raise ConfigError(
                "the environment gave steps that are no transitions (autoreset NEXT_STEP, a lost worker, agents that "
                "are gone), which backend jax cannot learn from; use env.vectorization: sync, or backend: torch"
            )
        env_steps, updates = self.progress.position, self.progress.updates
        words = self._key_words if updates < WORD else root_words(self.seed, updates)
        counts = np.float32(env_steps), np.uint32(updates % WORD)
        self.state, metrics = self._learn(self.state, dense(batch), *counts, words)
        return UpdateResult({name: float(value) for name, value in metrics.items()})

    @property
    def schedule(self) -> ReplaySchedule | None:
        """When an off-policy trainer calls `update`, and with which batch size."""
        return schedule_of(self.functions)

    @property
    def sequences(self) -> SequenceOptions | None:
        """What the replay buffer is told, where `update` learns from sequences."""
        return self.functions.sequences

    def observe(self, batch: Batch) -> None:
        self.state = self._observe(self.state, dense(batch))

    def drop_open_episodes(self) -> None:
        """Reset the running returns of the reward normaliser."""
        normalizer = self.state._asdict().get("reward_normalizer")
        if isinstance(normalizer, RewardStatistics):
            fresh = normalizer._replace(open_returns=np.zeros_like(normalizer.open_returns))
            self.state = self.state._replace(reward_normalizer=fresh)

    def watched(self) -> Iterator[Array]:
        """The arrays that the NaN guard checks after each update."""
        for leaf in jax.tree.leaves(self.state):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                yield np.asarray(leaf)

    def state_dict(self) -> StateDict:
        return {name: tree_state(part) for name, part in self._parts().items()}

    def load_state_dict(self, state: StateDict, /) -> None:
        parts = {name: restored(part, state[name], name) for name, part in self._parts().items()}
        self.state = self.state._replace(**parts)

    def named(self, fields: dict[str, Any]) -> dict[str, StateDict]:
        """The fields of a state under their names in checkpoints and error messages."""
        policy = {"network": tree_state(fields["params"]), "normalizer": tree_state(fields["normalizer"])}
        rest = {name: tree_state(part) for name, part in fields.items() if name not in NOT_ALGORITHM}
        return {"algorithm": rest, "policy": policy}

    def _parts(self) -> dict[str, Any]:
        elsewhere = (*NOT_ALGORITHM, *self.functions.policy_fields)
        return {name: part for name, part in self.state._asdict().items() if name not in elsewhere}


class DreamingAgent(HostAlgorithm):
    """An agent with a world model, which shows what it foresees."""

    policy_type = DreamingPolicy
    policy: DreamingPolicy

    @property
    def dreams(self) -> Dreams:
        """The predictions of the model."""
        return self.policy.dreams

    def dream(self, batch: Batch, context: int, rng: np.random.Generator, samples: int = 16) -> Dream:
        """Open-loop prediction of one replayed sequence: it is seen for `context` steps, then imagined."""
        return self.dreams.of_rows(self.state.params.model, dense(batch), context, rng, samples)

    def open_loop_errors(self, batch: Batch, context: int, rng: np.random.Generator) -> dict[int, float]:
        """Errors of open-loop predictions of replayed sequences, by the number of steps ahead."""
        return self.dreams.errors(self.state.params.model, dense(batch), context, rng)


def numbered(learn: Any, state: Any, batch: Batch, env_steps: Any, updates: Any, words: Any) -> Any:
    """`learn` with the key of an update, made here because outside of a compiled function that takes half a
    millisecond."""
    return learn(state, batch, env_steps, jax.random.fold_in(jax.random.wrap_key_data(words), updates))


def build_agent(ctx: BuildContext, spec: AlgorithmSpec, hparams: Any) -> HostAlgorithm:
    """The agent of a spec, whose `functional` names a function (ctx, hparams) -> JaxAlgorithm. A tuple HYPER in its
    module names the hyperparameters that are leaves of the state; all others are compiled into the program."""
    assert spec.functional is not None, "refused by the assembly"
    what = f"algorithm '{spec.functional}'"
    build: Callable[[BuildContext, Any], JaxAlgorithm] = import_own(spec.functional, "algorithm")
    names: tuple[str, ...] = getattr(import_module(spec.functional.partition(":")[0]), "HYPER", ())
    for name in names:
        if not hasattr(hparams, name):
            near = did_you_mean(name, getattr(hparams, "__dataclass_fields__", ()))
            raise ConfigError(f"{what}: HYPER names '{name}', which is no hyperparameter{near}")
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    spaces = ctx.observation_space, ctx.action_space
    axis = () if ctx.progress.axis == "env_steps" else (ctx.progress.axis,)
    agents = () if ctx.num_agents == 1 else (ctx.num_agents,)
    switches = (ctx.normalize_obs, ctx.normalize_reward, *axis, *agents)
    key = fingerprint(spec.functional, shape_of(hparams, names), spaces, ctx.num_envs, ctx.network, switches)
    functions = shared(key, lambda: build(ctx, hparams))
    if not isinstance(functions, JaxAlgorithm):
        raise ConfigError(
            f"{what} made a {type(functions).__name__}; it must make an rl_training.jax.types.JaxAlgorithm"
        )
    state = functions.init(ctx.streams("init"), hyper_leaves(hparams, names, ctx.total_timesteps))
    for field in NOT_ALGORITHM:
        if field not in getattr(state, "_fields", ()):
            raise ConfigError(f"{what}: init must return a NamedTuple with the fields {', '.join(NOT_ALGORITHM)}")
    kind = HostAlgorithm if functions.foresight is None else DreamingAgent
    return kind(ctx, functions, state, key)


def dense(batch: Batch) -> Batch:
    """A collector's rollout in the format of the compiled lane, with the true next observation of every row."""
    if "final_index" not in batch:  # a replay batch
        names = IN_SEQUENCES if "is_first" in batch else SAMPLED
        return {name: batch[name] for name in names if name in batch}
    index = batch["final_index"]

    def following(rows: Array, last: Array, final: Array) -> Array:
        shifted = np.concatenate([rows[1:], last[None]])
        shifted.reshape(-1, *rows.shape[2:])[index] = final
        return shifted

    next_obs: Obs = jax.tree.map(following, batch["obs"], batch["last_obs"], batch["final_obs"])
    columns = {name: column for name, column in batch.items() if name not in NOT_DENSE}
    return {**columns, "rewards": batch["rewards"].astype(np.float32), "next_obs": next_obs}
