"""The nouns and contracts that every layer shares: NumPy and the standard library only.

Shapes use fixed letters everywhere: T time, N environments, B batch, A actions.
Nothing above `envs/` sees `gymnasium.spaces`; the environment factory turns them into the small records below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Obs = Array | dict[str, Array]
"""(N, ...) arrays. Nested and Tuple spaces are flat "a/b" keys; a lone array is an unnamed observation."""
Carry = dict[str, Array]
"""What a policy remembers between steps, rows per environment; `{}` when it remembers nothing."""
Batch = dict[str, Any]
"""What an algorithm learns from. A rollout: obs actions rewards terminated truncated is_first valid (T, N, ...),
final_obs (K, ...) with final_index (K,) into the flat T*N rows that ended an episode, last_obs (N, ...),
initial_carry, and whatever `ActResult.extras` the policy gave; with `env.overlap` also acting_policy."""
Metrics = dict[str, Any]
"""Flat names to scalars; tensors are allowed, only the logger calls `float()`."""
StateDict = dict[str, Any]
"""Nested dicts with str keys of NumPy arrays and JSON scalars (None, bool, int, float, str, lists of them)."""

ACTION_MASK = "action_mask"
"""Reserved observation key: 1 where an action is allowed. Encoders and normalisers skip it; policies read it."""
ACTING_POLICY = "acting_policy"
"""Key of a rollout that an earlier policy collected (`env.overlap`): the state of that policy, as its `state_dict` gave
it. Log-probabilities of the actions are to be taken from it."""
CRITIC_STATE = "critic_state"
"""Reserved observation key that only critics see: what training knows and acting must do without."""
AGENT_ID = "agent_id"
"""Reserved observation key: the number of an agent among those that its policy plays."""
REWARD = "reward"
"""Reserved key of a carry: where a policy has it, whoever steps the environments writes there what the last step was
rewarded with, before the next action is asked for."""
RESTART_INFO = "worker_restart"
"""Info key that a vector environment sets on the rows whose worker died and was restarted during the step: these rows
hold no transition."""


class RLTrainingError(Exception):
    """Base of every error a user is meant to read; the CLI prints it without a traceback."""


class ConfigError(RLTrainingError, ValueError):
    """A config, a flag or a combination of them that cannot run. A ValueError too, so that pydantic collects it."""


class TrustError(ConfigError):
    """A stored config asks for code, a command or an address that the user has not agreed to on this machine."""


class CheckpointError(RLTrainingError):
    """A checkpoint that cannot be written, is damaged, or does not fit the run."""


class RunError(RLTrainingError):
    """A run directory that is missing, locked, or not a run at all."""


class EnvError(RLTrainingError):
    """An environment that cannot be built or breaks the Gymnasium contract."""


class ObservationError(RLTrainingError, ValueError):
    """An observation that does not belong to the space that the policy was trained on."""


class NonFiniteError(RLTrainingError):
    """A NaN or Inf in a run; the message names the tensor, and so does `name`."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class LostRankError(RLTrainingError):
    """Another process of a data-parallel run has ended in the middle of an exchange."""


class FollowedError(RLTrainingError):
    """An error that the first process of a data-parallel run reports, raised in the others, which end silently."""


# -- spaces -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiscreteSpec:
    """Actions or observations 0 .. n-1."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)


MAX_CODES = 32
"""Bytes with upper bounds below this are codes of kinds of things, where they are an image."""


class Codes(NamedTuple):
    """The features of an image of codes, one-hot and flattened: feature k is `scale[k]` where the number at
    `positions[k]` of the flat image is `values[k]`, else 0."""

    positions: Array
    values: Array
    scale: Array
    """The root of how many codes there are, so that features have a mean square of 1, for which first weights are
    drawn. Of 1029 features of a 7 x 7 view 147 are not 0; as plain ones they would hardly move a hidden unit."""


@dataclass(frozen=True, eq=False)
class BoxSpec:
    """Real arrays within `low` and `high` (same shape as the space; infinite where unbounded)."""

    low: Array
    high: Array
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    @cached_property
    def is_wide(self) -> bool:
        """Whether the bounds are so far apart that high - low overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.is_bounded and not np.isfinite(self.high - self.low).all()

    @cached_property
    def codes(self) -> Codes | None:
        """How an image of codes is one-hot encoded where it is flattened; None for all other boxes.

        Bytes in three axes, or four with stacked frames, whose upper bounds are small are codes, as MiniGrid's are:
        object 6 is not a little brighter than object 5.
        """
        if self.dtype != np.uint8 or len(self.shape) not in (3, 4) or self.high.max() >= MAX_CODES:
            return None
        counts = self.high.reshape(-1).astype(np.int64) + 1
        values = np.concatenate([np.arange(count, dtype=np.uint8) for count in counts])
        scale = np.sqrt(counts.astype(np.float32))
        return Codes(np.repeat(np.arange(len(counts)), counts), values, np.repeat(scale, counts))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoxSpec)
            and self.dtype == other.dtype
            and np.array_equal(self.low, other.low)
            and np.array_equal(self.high, other.high)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class MultiDiscreteSpec:
    """Several discrete choices at once: `nvec[i]` options for choice i (flattened)."""

    nvec: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)


@dataclass(frozen=True)
class MultiBinarySpec:
    """n independent on/off switches (flattened)."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int8)


@dataclass(frozen=True)
class DictSpec:
    """Named leaves; nested Dict and Tuple spaces arrive here already flattened to "a/b" keys."""

    spaces: Mapping[str, LeafSpec]


LeafSpec = DiscreteSpec | BoxSpec | MultiDiscreteSpec | MultiBinarySpec
SpaceSpec = LeafSpec | DictSpec


@dataclass(frozen=True)
class PlayedAgents:
    """The agents of an environment that one policy plays, and the spaces of each of them."""

    agents: tuple[str, ...]
    observation_space: SpaceSpec
    action_space: LeafSpec

    @property
    def count(self) -> int:
        return len(self.agents)


@dataclass(frozen=True)
class JointSpec(DictSpec):
    """What all agents of an environment observe, side by side; `numerics/agents.py` says under which keys."""

    policies: Mapping[str, PlayedAgents]
    """Who plays whom, by the name of the policy."""
    state: Literal["none", "env", "concat"]
    """What centralised critics see: nothing, the environment's own state, or all observations side by side."""


# -- contracts --------------------------------------------------------------------------------------------------------


@runtime_checkable
class Stateful(Protocol):
    """Every part with state. A checkpoint is a dict of these."""

    def state_dict(self) -> StateDict: ...
    def load_state_dict(self, state: StateDict, /) -> None: ...


@runtime_checkable
class FollowsEpisodes(Protocol):
    """A part that remembers something about the episodes in progress."""

    def drop_open_episodes(self) -> None:
        """Forget the episodes in progress: the run is resumed with environments that cannot continue them, so all of
        them start a new episode. Nothing from before may be joined to what comes."""


@runtime_checkable
class StartsAfresh(Protocol):
    """A part that a checkpoint may lack: a run that was saved without it resumes with a new one."""

    may_start_afresh: bool


@dataclass(slots=True)
class ActResult:
    """One decision for N environments: `actions` is what is stored, `env_actions` what the environment receives."""

    actions: Array
    env_actions: Array
    carry: Carry = field(default_factory=dict)
    extras: dict[str, Array] = field(default_factory=dict)


class Policy(Stateful, Protocol):
    """What acts: evaluated, exported, broadcast. Holds the observation normaliser, so it takes raw observations.

    The caller owns the randomness: training, evaluation and a user's notebook each pass their own generator.
    `is_first[i]` says that row i starts an episode; the policy then forgets what `carry` holds for that row.
    """

    def initial_carry(self, num_envs: int) -> Carry: ...
    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult: ...


PARTS = "parts"
"""Key of a batch of a run with `training.shards`: the batches of the shards of this process, in place of columns."""


@dataclass(slots=True)
class UpdateResult:
    """What an update returns: metrics for the log and, for prioritised replay, new priorities of its rows."""

    metrics: Metrics
    priorities: Array | None = None


class Algorithm(Stateful, Protocol):
    """Two verbs: the policy acts, `update` learns. `observe` moves normaliser statistics between rollouts or blocks.

    This is all that a class must have. What an algorithm may say beyond it (when to learn from replay, what to inspect)
    is in `training/contract.py`, with the defaults for a class that says nothing.
    """

    @property
    def policy(self) -> Policy: ...
    def update(self, batch: Batch) -> UpdateResult: ...
    def observe(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class VectorStep:
    """One step of N environments as the collector saw it, autoreset already undone.

    `next_obs` is the true successor: the final observation where an episode ended, never the first of the next one.
    Rows where `valid` is False are not transitions: the reset steps of NEXT_STEP environments, or steps whose worker
    was lost (those are `truncated` too, since nothing that follows belongs to what came before).
    The arrays may be reused by the environment; a sink copies what it keeps.
    """

    obs: Obs
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    is_first: Array
    valid: Array
    next_obs: Obs
    extras: dict[str, Array] = field(default_factory=dict)
    env_actions: Array | None = None
    """What the environment received, where that is not `actions`; for those who record, not for learning."""


class TransitionSink(Protocol):
    """Where the collector puts what it saw: a rollout buffer, a replay buffer, a class of your own."""

    def begin(self, obs: Obs, carry: Carry) -> None: ...
    def store(self, step: VectorStep) -> None: ...


@dataclass(frozen=True, slots=True)
class Dream:
    """What a world model foresees: it sees `context` observations of an episode, then only the actions that follow.

    Images are floats in 0..1, (..., height, width, channels); everything else is in the units of the environment, one
    number per feature, one-hot where discrete.
    """

    predicted: dict[str, Array]
    """Observations (S, T, ...) of S samples of the future, by key; a lone observation is called "obs"."""
    rewards: Array
    """Predicted rewards (S, T) of arriving at each step."""
    continues: Array
    """Predicted probabilities (S, T) that the episode goes on, times the discount that the model learnt with."""
    context: int
    """Steps at the start that the model saw; predictions of them are reconstructions."""
    true: dict[str, Array]
    """What was really observed, (T, ...) by key; shorter where the future is unknown."""
    images: tuple[str, ...] = ()
    """Keys that are images."""

    def until(self, steps: int) -> Dream:
        """The first `steps` steps of it."""
        return replace(
            self,
            predicted={name: value[:, :steps] for name, value in self.predicted.items()},
            rewards=self.rewards[:, :steps],
            continues=self.continues[:, :steps],
            true={name: value[:steps] for name, value in self.true.items()},
        )


@runtime_checkable
class JudgesEpisodes(Protocol):
    """A policy that evaluations rate by something else than rewards: a model of the environment by its predictions."""

    def judge(self, obs: Obs, actions: Array) -> dict[str, float]:
        """Numbers that an evaluation records of an episode of T + 1 observations and T actions, as the environment took
        them. `score` stands in place of the return; any of them may be NaN."""


@dataclass(slots=True)
class Progress:
    """How far a run is, over all environments. Live: algorithms read it, only the trainer writes it."""

    env_steps: int = 0
    updates: int = 0
    episodes: int = 0
    axis: Literal["env_steps", "updates"] = "env_steps"
    """The counter that budget, frequencies and checkpoints of the run go by: offline runs step no environment."""

    @property
    def position(self) -> int:
        """How far the run is on its axis."""
        return self.env_steps if self.axis == "env_steps" else self.updates

    def advance(self, *, env_steps: int = 0, updates: int = 0, episodes: int = 0) -> None:
        self.env_steps += env_steps
        self.updates += updates
        self.episodes += episodes

    def copy(self) -> Progress:
        return Progress(self.env_steps, self.updates, self.episodes, self.axis)

    def state_dict(self) -> StateDict:
        return {"env_steps": self.env_steps, "updates": self.updates, "episodes": self.episodes}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.env_steps = int(state["env_steps"])
        self.updates = int(state["updates"])
        self.episodes = int(state["episodes"])


def crossed(before: int, after: int, every: int) -> bool:
    """True if a multiple of `every` lies in (before, after]. `every` <= 0 means never.

    >>> crossed(9_000, 11_048, 10_000), crossed(10_000, 12_048, 10_000)
    (True, False)
    """
    return every > 0 and after // every > before // every
