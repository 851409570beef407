"""A person in a seat: the board in the terminal, moves from the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.games.board import BoardGame
from rl_training.envs.games.players import Player, mask_of, only, without_mask
from rl_training.envs.games.seat import RESULT, Seat, seat_of
from rl_training.seeding import episode_seed
from rl_training.types import ConfigError

VERDICTS = {1.0: "you win", 0.5: "a draw", 0.0: "you lose"}
QUIT = ("q", "quit", "exit")

Ask = Callable[[str], str | None]
"""(prompt) -> what was typed; None at the end of the input."""
Tell = Callable[[str], None]


def games_of_a_person(
    env: gym.Env[Any, Any], player: Player, where: str | None, games: int, seed: int, ask: Ask, tell: Tell
) -> list[float]:
    """Games of a person against one player, in the seat that is named or in another one each time."""
    seat = seat_of(env)
    if seat is None:
        raise ConfigError("there are no turns in this environment, so a person cannot play; rl enjoy shows the agent")
    agents = seat.agents
    names = {**{str(number): name for number, name in enumerate(agents)}, **{name: name for name in agents}}
    if where is not None and where not in names:
        raise ConfigError(f"no seat '{where}'; seats are {', '.join(agents)}, or their numbers from 0")
    seat.set_lineup(only(player, "agent"))
    scores: list[float] = []
    for game in range(games):
        seat.sit_only((agents[game % len(agents)] if where is None else names[where],))
        score = play_person(seat, episode_seed(seed, game), ask, tell)
        if score is None:
            break
        scores.append(score)
    return scores


def play_person(seat: Seat, seed: int, ask: Ask, tell: Tell) -> float | None:
    """One game of a person in this seat; the score, or None where the person has left."""
    obs, _ = seat.reset(seed=seed)
    tell(f"you are {seat.seat}{mark_of(seat)}")
    seen = 0
    while True:
        seen = tell_moves(seat, seen, tell)
        tell(board_of(seat, obs))
        move = asked_move(seat, obs, ask, tell)
        if move is None:
            return None
        obs, reward, terminated, truncated, info = seat.step(move)
        if terminated or truncated:
            tell_moves(seat, seen, tell)
            tell(board_of(seat, obs))
            score = float(info.get(RESULT, 0.5))
            tell(f"{VERDICTS[score]} (reward {reward:g})")
            return score


def tell_moves(seat: Seat, seen: int, tell: Tell) -> int:
    """Say what the others have played since; returns the number of their moves."""
    for agent, move in seat.moves[seen:]:
        tell(f"{agent} plays {move}")
    return len(seat.moves)


def mark_of(seat: Seat) -> str:
    """The mark of the person's pieces, where the game has a board."""
    game: Any = seat.game
    return f" ({'XO'[seat.agents.index(seat.seat)]})" if isinstance(game, BoardGame) else ""


def board_of(seat: Seat, obs: Any) -> str:
    """The game as text: its board, its own drawing in letters, or what the person observes."""
    game: Any = seat.game
    if isinstance(game, BoardGame):
        return game.text()
    if seat.render_mode == "ansi":
        return str(seat.render())
    return str(without_mask(obs))


def asked_move(seat: Seat, obs: Any, ask: Ask, tell: Tell) -> int | None:
    """A legal move; None where the person leaves."""
    mask = mask_of(obs)
    count = int(seat.action_space.n)  # type: ignore[attr-defined]
    legal = list(range(count)) if mask is None else np.flatnonzero(mask).tolist()
    while True:
        typed = ask("your move (q leaves): ")
        if typed is None or typed.strip().lower() in QUIT:
            return None
        if typed.strip().isdecimal() and int(typed) in legal:
            return int(typed)
        tell(f"possible: {' '.join(map(str, legal))}")
