"""What a game must have: PettingZoo's AEC interface, in which one agent acts at a time.

A class of yours needs these members and no base class. An agent that has ended gets one last turn, in which it takes
the action None and leaves `agents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rl_training.envs.spaces import Space
from rl_training.types import EnvError


class TurnTaking(Protocol):
    """Agents that act one after the other."""

    possible_agents: Sequence[str]
    agents: Sequence[str]
    agent_selection: str
    metadata: Mapping[str, Any]

    def observation_space(self, agent: str, /) -> Space: ...
    def action_space(self, agent: str, /) -> Space: ...
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None: ...
    def step(self, action: Any, /) -> None: ...
    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What the agent whose turn it is observes, its reward since its last turn, whether it has ended, its info."""


def is_aec(env: Any) -> bool:
    """Whether an object has PettingZoo's AEC interface."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "last", None))


def has_turns(env: Any) -> bool:
    """Whether the agents of an AEC environment take turns: it does not say that they could as well act together."""
    return is_aec(env) and not env.metadata.get("is_parallelizable", False)


def check_turns(env: Any, name: str) -> TurnTaking:
    """The environment as a game; EnvError where its agents do not take turns."""
    if not is_aec(env):
        raise EnvError(
            f"environment '{name}' is no game: it has neither possible_agents nor last(), PettingZoo's AEC interface"
        )
    if not has_turns(env):
        raise EnvError(
            f"environment '{name}' has no turns: its agents act at the same time (metadata is_parallelizable), so "
            "there is no seat to take; train its agents as a team, without a league"
        )
    game: TurnTaking = env
    return game
