"""The sections `buffer`, `dataset`, `training` and `checkpoint`: what is learnt from, how long, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.config.sections.base import SECTION
from rl_training.hparams.base import MAX_COUNT, check_range

AUTO_EVALUATIONS = 10
"""Number of evaluations of a run whose `training.eval_frequency` is auto."""


@dataclass(frozen=True)
class BufferConfig:
    """Storage of experience."""

    __pydantic_config__ = SECTION

    type: str | None = None
    """Registered name or dotted path; null takes the algorithm's default."""
    size: int | None = None
    """Capacity in transitions. On-policy: num_steps x num_envs, and num_steps follows from it."""
    on_memory: Literal["refuse", "shrink"] = "refuse"
    """What to do if it does not fit into memory."""

    def __post_init__(self) -> None:
        check_range(self, "size", low=1, high=MAX_COUNT)


@dataclass(frozen=True)
class DatasetConfig:
    """What an offline algorithm learns from."""

    __pydantic_config__ = SECTION

    path: str | None = None
    """A folder, an .npz file, or run:RUN[:STEP] for the replay rows of a run."""
    top_fraction: float = 1.0
    """Learn only from this fraction of the whole episodes, those of the highest return; 0.1 makes bc the 10% BC
    baseline."""
    reward: Literal["raw", "return_range"] | float = "raw"
    """raw; return_range divides by the range of the episodes' returns and multiplies by 1000; a number multiplies."""
    online_share: float | None = None
    """Go on in an environment, with this share of each batch from its steps; null steps none. --init-from sets 0.5."""

    def __post_init__(self) -> None:
        check_range(self, "top_fraction", low=0.0, high=1.0)
        check_range(self, "online_share", low=0.0, high=1.0)
        check_range(self, "top_fraction", low=0.0, above=True)
        if not isinstance(self.reward, str):
            check_range(self, "reward", low=0.0, above=True)


@dataclass(frozen=True)
class TrainingConfig:
    """Budget and frequencies; every frequency is in env steps over all environments, of an offline run in updates."""

    __pydantic_config__ = SECTION

    total_timesteps: int = 100_000
    """Env steps to train for; the last rollout is finished."""
    total_updates: int | None = None
    """Updates to train for, for offline algorithms, which step no environment (default there: 50,000)."""
    total_episodes: int | None = None
    """Also stop after this many finished episodes; null sets no such limit."""
    eval_frequency: int | Literal["auto"] = "auto"
    """Env steps between evaluations; auto is a tenth of the budget, at least one rollout; 0 only at the end."""
    eval_at_start: bool = True
    """Also evaluate before the first step: env step 0 in evals.jsonl. It is never the best and stops no run."""
    num_eval_episodes: int = 10
    """Episodes per evaluation; 0 turns evaluation off."""
    eval_lane: Literal["host", "compiled"] = "host"
    """host evaluates on the Gymnasium environment; compiled runs all episodes of a compiled run at once in JAX."""
    checkpoint_frequency: int = 25_000
    """Env steps between checkpoints; 0 saves only at the start and the end."""
    stop_at_return: float | None = None
    """Stop when the mean return over `stop_episodes` reaches this; null trains to the end."""
    stop_episodes: int = 100
    """Episodes that decide on `stop_at_return`; they are run once an evaluation of fewer episodes has reached it."""
    shards: int = 1
    """Parts of every batch, each with environments, replay and random streams of its own, whose gradients are summed in
    order; torchrun spreads them over processes, and any number of these that divides it gives the same bits (torch)."""
    runs_per_program: int = 1
    """Compiled runs of a group or sweep that one device advances in one vmapped program; on accelerators a group is
    spread over all devices."""
    num_threads: int = 1
    """Threads of torch and of NumPy's linear algebra; small networks are fastest with one. To reproduce a run bit for
    bit, use the same number."""

    def __post_init__(self) -> None:
        check_range(self, "total_timesteps", low=1, high=MAX_COUNT)
        check_range(self, "total_updates", low=1, high=MAX_COUNT)
        check_range(self, "total_episodes", low=1, high=MAX_COUNT)
        if self.eval_frequency != "auto":
            check_range(self, "eval_frequency", low=0, high=MAX_COUNT)
        check_range(self, "num_eval_episodes", low=0, high=MAX_COUNT)
        check_range(self, "checkpoint_frequency", low=0, high=MAX_COUNT)
        check_range(self, "stop_episodes", low=1, high=MAX_COUNT)
        check_range(self, "shards", low=1, high=1024)
        check_range(self, "runs_per_program", low=1, high=1024)
        check_range(self, "num_threads", low=1, high=1024)

    @property
    def eval_steps(self) -> int:
        """Env steps between evaluations as a number: `eval_frequency`, or a tenth of the budget rounded up."""
        return -(-self.budget // AUTO_EVALUATIONS) if self.eval_frequency == "auto" else self.eval_frequency

    @property
    def budget(self) -> int:
        """Env steps to train for, or updates where the run is offline."""
        return self.total_timesteps if self.total_updates is None else self.total_updates


@dataclass(frozen=True)
class CheckpointConfig:
    """Which checkpoints are kept. `latest` and at least one before it always are."""

    __pydantic_config__ = SECTION

    keep_last: int = 3
    """The newest n checkpoints are kept (at least 2)."""
    keep_best: bool = True
    """Keep the checkpoint with the best evaluation."""
    keep_every: int = 0
    """Also keep one checkpoint per this many env steps permanently; 0 keeps none."""

    def __post_init__(self) -> None:
        check_range(self, "keep_last", low=2, high=MAX_COUNT)
        check_range(self, "keep_every", low=0, high=MAX_COUNT)
