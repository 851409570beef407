"""The games of the package, registered with Gymnasium: `RLGame/TicTacToe-v0`, `RLGame/ConnectFour-v0`."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.registration import registry

from rl_training.envs.games.connect_four import ConnectFour
from rl_training.envs.games.seat import Seat
from rl_training.envs.games.tictactoe import TicTacToe

GAMES = {"RLGame/TicTacToe-v0": "tictactoe", "RLGame/ConnectFour-v0": "connect_four"}
"""Ids, with the functions of this module that make the games."""


def tictactoe(render_mode: str | None = None) -> Seat:
    """A seat at a game of tic-tac-toe."""
    return Seat(TicTacToe(render_mode), "tictactoe")


def connect_four(render_mode: str | None = None) -> Seat:
    """A seat at a game of connect four."""
    return Seat(ConnectFour(render_mode), "connect_four")


def register_games() -> None:
    """Register the games with Gymnasium; idempotent."""
    for env_id, function in GAMES.items():
        if env_id not in registry:
            gym.register(env_id, f"{__name__}:{function}")
