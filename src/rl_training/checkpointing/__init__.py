"""Checkpoints: atomic, checksummed, incremental, without pickle."""

from rl_training.checkpointing.manager import CheckpointManager

__all__ = ["CheckpointManager"]
