"""Matches: a policy against one opponent from every seat, with wins, draws, losses and their intervals.

Nothing of a match reaches a league: its environments are those of evaluations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.games.players import GraphPlayer, Player, only
from rl_training.envs.games.seat import RESULT, seat_of, seats_of
from rl_training.envs.games.solution import best_response
from rl_training.envs.games.tictactoe import TicTacToe
from rl_training.export.graph import HasGraph
from rl_training.numerics.ratings import wilson_interval
from rl_training.seeding import episode_seed
from rl_training.training.evaluation import EnvMaker, EvalResult, evaluate_policy
from rl_training.types import Array, ConfigError, Policy


@dataclass(frozen=True)
class Tally:
    """Results of games, as the policy sees them."""

    wins: int
    draws: int
    losses: int

    @classmethod
    def of(cls, scores: Array) -> Tally:
        """From scores of 1, 0.5 and 0."""
        return cls(*(int((scores == score).sum()) for score in (1.0, 0.5, 0.0)))

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    def record(self) -> dict[str, Any]:
        """Counts, the score, and rates with their 95 % Wilson intervals."""
        return {
            "games": self.games,
            "wins": self.wins,
            "draws": self.draws,
            "losses": self.losses,
            "score": (self.wins + self.draws / 2) / max(self.games, 1),
            "win_interval": list(wilson_interval(self.wins, self.games)),
            "draw_interval": list(wilson_interval(self.draws, self.games)),
            "loss_interval": list(wilson_interval(self.losses, self.games)),
        }


@dataclass(frozen=True)
class Against:
    """The opponent of a match, in all seats but the policy's."""

    name: str
    player: Player


@dataclass(frozen=True)
class Games:
    """How many games are played, and how."""

    episodes: int
    seed: int
    deterministic: bool = True
    num_envs: int | None = None
    record: bool = False

    def shares(self, seats: int) -> Iterator[tuple[int, int]]:
        """(number of the first game, number of games) of each seat: the same for all, up to one."""
        first = 0
        for seat in range(seats):
            count = self.episodes // seats + (seat < self.episodes % seats)
            yield first, count
            first += count


class Scorer(gym.Wrapper[Any, Any, Any, Any]):
    """Writes the score of each game into `book`, under the seed that it was started from."""

    def __init__(self, env: gym.Env[Any, Any], book: dict[int, float]) -> None:
        super().__init__(env)
        self.book = book
        self.episode_seed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None, "evaluations start every episode from a seed"
        self.episode_seed = seed
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(action)
        if RESULT in result[4]:
            self.book[self.episode_seed] = float(result[4][RESULT])
        elif result[3]:
            self.book[self.episode_seed] = 0.5  # cut off by a time limit: nobody has won
        return result


def play_match(
    policy: Policy, make_env: EnvMaker, against: Against, games: Games, env_id: str
) -> tuple[EvalResult, dict[str, Any]]:
    """Play from every seat; returns the episodes, and the record of wins, draws and losses."""
    first_env = make_env(0)
    seats, seat = seats_of(first_env.metadata), seat_of(first_env)
    is_tictactoe = seat is not None and isinstance(seat.game, TicTacToe)
    first_env.close()
    if not seats:
        raise ConfigError(f"environment '{env_id}' has no turns, so there is no opponent to play against")
    results, scores = [], []
    for name, (first, count) in zip(seats, games.shares(len(seats)), strict=True):
        if count:
            result, score = from_seat(policy, make_env, against, games, name, (first, count))
            results.append(result)
            scores.append((name, score))
    record: dict[str, Any] = {
        "opponent": against.name,
        **Tally.of(np.concatenate([score for _, score in scores])).record(),
        "seats": {name: Tally.of(score).record() for name, score in scores},
    }
    if is_tictactoe:
        record |= exploitability(policy, deterministic=games.deterministic)
    together = results[0]
    for later in results[1:]:
        together = together.followed_by(later)
    return together, record


def from_seat(
    policy: Policy, make_env: EnvMaker, against: Against, games: Games, name: str, share: tuple[int, int]
) -> tuple[EvalResult, Array]:
    """The episodes from one seat, and the score of each."""
    book: dict[int, float] = {}

    def make(index: int) -> gym.Env[Any, Any]:
        env = make_env(index)
        seat = seat_of(env)
        assert seat is not None, "all environments are the same game"
        seat.sit_only((name,))
        seat.set_lineup(only(against.player, against.name))
        return Scorer(env, book)

    first, count = share
    result = evaluate_policy(
        policy,
        make,
        episodes=count,
        seed=games.seed,
        first=first,
        deterministic=games.deterministic,
        num_envs=games.num_envs,
        record=games.record and first == 0,
    )
    return result, np.array([book[episode_seed(games.seed, first + k)] for k in range(count)])


def exploitability(policy: Policy, *, deterministic: bool) -> dict[str, Any]:
    """What the best response to a policy for tic-tac-toe earns; empty where its probabilities are not known."""
    graph = policy.graph() if isinstance(policy, HasGraph) else None
    if not deterministic and graph is None:
        return {}

    def chances(obs: dict[str, Array]) -> Array:
        count = len(obs["observation"])
        if graph is not None and not deterministic:
            logits = GraphPlayer(graph).outputs(obs)["logits"].astype(np.float64)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            shares: Array = weights / weights.sum(1, keepdims=True)
            return shares
        rng, first = np.random.default_rng(0), np.ones(count, bool)
        result = policy.act(obs, policy.initial_carry(count), first, rng, deterministic=True)
        return np.eye(9)[result.env_actions]

    found = best_response(chances)
    return {
        "exploitability": found.exploitability,
        "best_response": {"moving_first": found.moving_first, "moving_second": found.moving_second},
    }
