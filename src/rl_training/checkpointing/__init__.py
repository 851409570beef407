"""Checkpoints: atomic, checksummed, incremental, without pickle."""

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.checkpointing.manager import CheckpointManager

__all__ = ["CheckpointManager"]

__getattr__ = lazily(
    __name__,
    {
        "CheckpointManager": "manager",
    },
)
