"""What the offline algorithms share beside `off_policy.py`: transitions do not come in sequences, so no memory."""

from __future__ import annotations

from rl_training.algorithms.off_policy import OffPolicyAlgorithm
from rl_training.types import ConfigError


def refuse_memory(algorithm: OffPolicyAlgorithm, name: str) -> None:
    """ConfigError where a network has memory."""
    if algorithm.remembers:
        raise ConfigError(f"'{name}' learns from single transitions, so its networks have no memory: memory: none")
