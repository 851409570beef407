"""`BoardGame`: two players who put pieces on a board in turns, with PettingZoo's AEC interface and nothing but NumPy.

A subclass says which moves are legal, where a piece lands and who has won. Observations, masks, rewards and ends are
those of PettingZoo's classic games, turn by turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rl_training.envs.games.drawing import board_picture, board_text
from rl_training.envs.spaces import Space
from rl_training.types import ACTION_MASK, Array, EnvError


class BoardGame(ABC):
    """The rules of turns, rewards and ends; +1 for the winner, -1 for the loser, 0 for both where the board is full."""

    shape: ClassVar[tuple[int, int]]
    num_actions: ClassVar[int]
    names: ClassVar[tuple[str, str]]
    name: ClassVar[str]

    def __init__(self, render_mode: str | None = None) -> None:
        self.metadata = {
            "name": self.name,
            "render_modes": ["ansi", "rgb_array"],
            "render_fps": 2,
            "is_parallelizable": False,
        }
        if render_mode not in (None, "ansi", "rgb_array"):
            raise EnvError(f"{self.name} draws itself as 'ansi' or 'rgb_array', not as {render_mode!r}")
        self.render_mode = render_mode
        self.possible_agents = list(self.names)
        self.agents: list[str] = []
        self.agent_selection = self.names[0]
        planes = spaces.Box(0, 1, (*self.shape, 2), np.int8)
        self._observation_space = spaces.Dict(
            {"observation": planes, ACTION_MASK: spaces.Box(0, 1, (self.num_actions,), np.int8)}
        )
        self._action_space = spaces.Discrete(self.num_actions)
        self.planes = np.zeros((2, *self.shape), np.int8)
        """(player, row, column): 1 where the player has a piece."""

    # -- the rules of a game ------------------------------------------------------------------------------------------

    @abstractmethod
    def legal(self) -> Array:
        """(A,) int8: 1 for the moves that are possible on this board."""

    @abstractmethod
    def place(self, player: int, action: int) -> bool:
        """Put down a piece; whether the player has won by it."""

    def is_full(self) -> bool:
        return bool(self.planes.sum() == self.shape[0] * self.shape[1])

    # -- PettingZoo's interface ---------------------------------------------------------------------------------------

    def observation_space(self, agent: str, /) -> Space:
        return self._observation_space

    def action_space(self, agent: str, /) -> Space:
        return self._action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.planes[:] = 0
        self.agents = list(self.names)
        self.agent_selection = self.names[0]
        self.rewards: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self.terminations = dict.fromkeys(self.names, False)
        self.truncations = dict.fromkeys(self.names, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.names}
        self._is_over = False

    def observe(self, agent: str) -> dict[str, Array]:
        """The own pieces in the first plane, the other player's in the second."""
        own = self.names.index(agent)
        board = np.empty((*self.shape, 2), np.int8)
        board[..., 0], board[..., 1] = self.planes[own], self.planes[1 - own]
        mask = self.legal() if agent == self.agent_selection else np.zeros(self.num_actions, np.int8)
        return {"observation": board, ACTION_MASK: mask}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        # rewards come with the end alone, so what came since the last turn is what came at all
        obs = self.observe(agent) if observe else None
        return obs, self.rewards[agent], self.terminations[agent], False, self.infos[agent]

    def step(self, action: Any, /) -> None:
        agent = self.agent_selection
        player = self.names.index(agent)
        if self._is_over:
            self._leave(agent, action)
            return
        if not 0 <= int(action) < self.num_actions or not self.legal()[int(action)]:
            raise EnvError(f"{self.name}: {agent} cannot play {action}; the action mask says what is possible")
        has_won = self.place(player, int(action))
        other = self.names[1 - player]
        if has_won:
            self.rewards = {agent: 1.0, other: -1.0}
        if has_won or self.is_full():
            self._is_over = True
            self.terminations = dict.fromkeys(self.names, True)
        self.agent_selection = other

    def _leave(self, agent: str, action: Any) -> None:
        """The last turn of an agent whose game is over."""
        if action is not None:
            raise EnvError(f"{self.name}: the game is over, so {agent} can only take the action None")
        self.agents.remove(agent)
        if self.agents:
            self.agent_selection = self.agents[0]

    def render(self) -> Any:
        """The board as text or as a picture."""
        if self.render_mode == "rgb_array":
            return board_picture(self.planes)
        return self.text()

    def text(self) -> str:
        """The board for a terminal: X for the first player, O for the second, free squares as `label` says."""
        return board_text(self.planes, self.label)

    def label(self, row: int, column: int) -> str:
        """What a free square shows."""
        return "."
