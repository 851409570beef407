"""The section of a config that is about games: whom the learner plays against."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.hparams.base import MAX_COUNT, STRICT, check_range
from rl_training.types import ConfigError

MAX_SIZE = 10_000
"""Largest number of snapshots in a league."""


@dataclass(frozen=True)
class LeagueConfig:
    """Opponents of a game: rules, the learner itself, and earlier selves of it."""

    __pydantic_config__ = STRICT

    opponents: tuple[str, ...] = ("random",)
    """Opponents that are there from the start: random, perfect_tictactoe, careless_tictactoe, connect_four_lookahead,
    or a function of yours as "rule:package.module:function"."""
    latest: float = 0.5
    """Probability that an opponent is the policy as it was after the last rollout; the others share the rest."""
    snapshot_frequency: int = 20_000
    """Env steps between two snapshots of the policy that join the league; 0 takes none."""
    snapshot_score: float | None = None
    """Take a snapshot early where the score (wins + draws / 2) of the games since the last one, those against the
    latest policy left out, reaches this in 100 games; null waits for snapshot_frequency."""
    size: int = 20
    """Snapshots in the league; the oldest one leaves when there are more."""
    priority: float = 2.0
    """Opponents are drawn in proportion to (1 - score)^priority of the learner's recent score against each; 0 draws all
    alike."""
    eval_opponent: str = "random"
    """Opponent of evaluations: a rule, so that scores can be compared over time."""

    def __post_init__(self) -> None:
        check_range(self, "latest", low=0.0, high=1.0)
        check_range(self, "snapshot_frequency", low=0, high=MAX_COUNT)
        check_range(self, "snapshot_score", low=0.0, high=1.0)
        check_range(self, "size", low=1, high=MAX_SIZE)
        check_range(self, "priority", low=0.0, high=100.0)
        if len(set(self.opponents)) != len(self.opponents):
            raise ConfigError("league.opponents has a name twice")
        if not self.opponents and self.latest < 1.0:
            raise ConfigError(
                "league.opponents is empty and league.latest below 1, so that nobody is there at the start; name an "
                "opponent, such as random, or set league.latest: 1"
            )
