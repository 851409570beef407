"""What some offline algorithms share beside `off_policy.py`: they learn from single transitions, so no memory."""

from __future__ import annotations

from rl_training.algorithms.off_policy import OffPolicyAlgorithm
from rl_training.types import ConfigError


def refuse_memory(algorithm: OffPolicyAlgorithm, name: str) -> None:
    """ConfigError where a network has memory."""
    if algorithm.remembers:
        raise ConfigError(
            f"'{name}' learns from single transitions, so its networks have no memory: set memory: none, or take bc, "
            "td3_bc, iql or awac"
        )
