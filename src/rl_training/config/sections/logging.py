"""The section `logging`: logs, displays, videos and recorded transitions."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_training.config.sections.base import SECTION, PartConfig
from rl_training.hparams.base import MAX_COUNT, check_range


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases; off by default, offline without a key."""

    __pydantic_config__ = SECTION

    enabled: bool = False
    """Send metrics to Weights & Biases."""
    project: str = "rl-training"
    """Project of the run."""
    entity: str | None = None
    """Team or user; null takes your default."""
    tags: tuple[str, ...] = ()
    """Tags of the run."""


@dataclass(frozen=True)
class LoggingConfig:
    """Logs and displays. JSONL is always written."""

    __pydantic_config__ = SECTION

    terminal: bool = True
    """Progress bar on a terminal, plain lines elsewhere."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """Weights & Biases."""
    log_frequency: int = 0
    """Env steps between metric rows; 0 writes one per update of the policy."""
    info_keys: tuple[str, ...] = ()
    """Keys of numbers in the `info` of an episode's last step to log as `rollout/info/<key>`."""
    trace: bool = False
    """Write every transition to logs/trace.jsonl (large; for debugging)."""
    record: bool = False
    """Keep every transition as a dataset in the run's folder `dataset/`, for offline algorithms; host lane only."""
    video_frequency: int = 0
    """Env steps between videos of an evaluation episode; 0 records none."""
    sinks: tuple[PartConfig, ...] = ()
    """Further loggers: `jsonl`, `console`, or your own by registered name or dotted path."""

    def __post_init__(self) -> None:
        check_range(self, "log_frequency", low=0, high=MAX_COUNT)
        check_range(self, "video_frequency", low=0, high=MAX_COUNT)
