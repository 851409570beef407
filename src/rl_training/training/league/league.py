"""`League`: who the learner of a game has met, how strong they are, and the weights of its earlier selves.

Weights are rows of a log that a checkpoint writes once each (`checkpointing/row_log.py`), so members stay when the
checkpoints they were taken at are gone. Not here: environments, and when a snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.envs.games.players import LATEST, GraphPlayer, Lineup, Player, RulePlayer
from rl_training.envs.games.seat import GameResult
from rl_training.export.graph import PolicyGraph
from rl_training.numerics.ratings import ELO_START, draw_chances, elo_change
from rl_training.types import Array, StateDict

RECENT = 0.02
"""Weight of a game in the recent score against an opponent: about the last 50 count."""
EARLY_GAMES = 100
"""Games after which the score can call for an early snapshot."""


@dataclass
class Member:
    """An opponent with what is known about it. Scores are the learner's: wins + draws / 2."""

    name: str
    rating: float = ELO_START
    row: int | None = None
    """Number of its weights among all snapshots; None for a rule."""
    wins: int = 0
    draws: int = 0
    losses: int = 0
    """Games of the learner against it."""
    recent: float = 0.5
    """The learner's score, mostly of the last games."""

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    def record(self, score: float, change: float) -> None:
        """Count a game of the learner against it, after which the learner's rating has moved by `change`."""
        self.rating -= change
        self.recent += RECENT * (score - self.recent)
        self.wins += score == 1.0
        self.draws += score == 0.5
        self.losses += score == 0.0


def ranked(rating: float, members: Sequence[Member], retired: Sequence[Member]) -> list[dict[str, Any]]:
    """The learner and everybody it has met, strongest first; `left` marks snapshots that are not drawn any more."""
    rows: list[dict[str, Any]] = [{"name": "learner", "rating": rating}]
    for member, left in [(one, False) for one in members] + [(one, True) for one in retired]:
        score = (member.wins + member.draws / 2) / member.games if member.games else None
        rows.append({**asdict(member), "games": member.games, "score": score, "left": left})
    return sorted(rows, key=lambda row: -float(row["rating"]))


def constants_of(graph: PolicyGraph) -> dict[str, Array]:
    """The arrays of a graph: its weights, and whole numbers such as shapes."""
    return {name: np.asarray(value) for name, value in graph.constants.items()}


class League:
    """The members, the ratings and the draws. `graph` is a policy of the run: snapshots differ from it in constants."""

    def __init__(self, cfg: LeagueConfig, graph: PolicyGraph | None) -> None:
        self.cfg = cfg
        self.graph = graph
        self.members = {name: Member(name) for name in cfg.opponents}
        self.retired: list[Member] = []
        """Members that have left, oldest first: their weights are gone, their ratings stay."""
        self.rating = ELO_START
        """Rating of the learner."""
        self.since = [0, 0.0]
        """Rated games since the last snapshot, and their scores."""
        self.taken = 0
        """Snapshots so far."""
        arrays = {} if graph is None else constants_of(graph)
        self.columns = {name: np.zeros((cfg.size, *array.shape), array.dtype) for name, array in arrays.items()}
        self._identity = LogIdentity()

    # -- games --------------------------------------------------------------------------------------------------------

    def record(self, games: Iterable[GameResult]) -> None:
        """Move ratings and scores by finished games; those against the learner's own latest policy say nothing."""
        for game in games:
            for name, score in game.against:
                if name != LATEST:
                    self._record(self.members[name], score)

    def _record(self, member: Member, score: float) -> None:
        change = elo_change(self.rating, member.rating, score)
        self.rating += change
        member.record(score, change)
        self.since = [self.since[0] + 1, self.since[1] + score]

    @property
    def score(self) -> float | None:
        """Mean score of the rated games since the last snapshot; None before the first."""
        games, total = self.since
        return total / games if games else None

    def wants_early_snapshot(self) -> bool:
        """Whether the learner beats its opponents so often that it is time for a new one."""
        goal, score = self.cfg.snapshot_score, self.score
        return goal is not None and score is not None and self.since[0] >= EARLY_GAMES and score >= goal

    # -- members ------------------------------------------------------------------------------------------------------

    def add(self, graph: PolicyGraph, env_steps: int) -> Member:
        """The policy of this graph becomes a member, with the learner's rating; the oldest snapshot may leave."""
        if self.taken >= self.cfg.size:
            oldest = next(member for member in self.members.values() if member.row is not None)
            self.retired.append(self.members.pop(oldest.name))
        row = self.taken
        for name, array in constants_of(graph).items():
            self.columns[name][row % self.cfg.size] = array
        member = Member(f"snapshot:{env_steps}", self.rating, row)
        self.members[member.name] = member
        self.taken += 1
        self.since = [0, 0.0]
        return member

    def player(self, member: Member) -> Player:
        """The member as a player."""
        if member.row is None:
            return RulePlayer(member.name)
        assert self.graph is not None, "snapshots are taken of policies with a graph"
        place = member.row % self.cfg.size
        constants = {name: column[place].copy() for name, column in self.columns.items()}
        return GraphPlayer(self.graph._replace(constants=constants))

    def chances(self) -> dict[str, float]:
        """Probability that each opponent is drawn, the latest policy first."""
        latest = self.cfg.latest
        found = {LATEST: latest} if latest > 0 else {}
        if latest < 1:
            shares = draw_chances([member.recent for member in self.members.values()], self.cfg.priority)
            found |= {name: (1 - latest) * float(share) for name, share in zip(self.members, shares, strict=True)}
        return found

    def lineup(self, latest: PolicyGraph | None, known: Mapping[str, Any] | frozenset[str] = frozenset()) -> Lineup:
        """Opponents for the next rollout; players that are `known` already are not sent again."""
        chances = self.chances()
        players = {
            name: self.player(member) for name, member in self.members.items() if name in chances and name not in known
        }
        if LATEST in chances:
            assert latest is not None, "the latest policy plays by its graph"
            players[LATEST] = GraphPlayer(latest)
        return Lineup(chances, players)

    # -- results ------------------------------------------------------------------------------------------------------

    def table(self) -> list[dict[str, Any]]:
        """All members and the learner, strongest first."""
        return ranked(self.rating, list(self.members.values()), self.retired)

    def state_dict(self) -> StateDict:
        start = max(0, self.taken - self.cfg.size)
        weights = {"weights": RowLog(self.columns, start, self.taken, self._identity)} if self.columns else {}
        return {
            "rating": self.rating,
            "since": list(self.since),
            "taken": self.taken,
            "members": [asdict(member) for member in self.members.values()],
            "retired": [asdict(member) for member in self.retired],
            **weights,
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        self.rating, self.taken = float(state["rating"]), int(state["taken"])
        self.since = [int(state["since"][0]), float(state["since"][1])]
        self.members = {str(saved["name"]): Member(**saved) for saved in state["members"]}
        self.retired = [Member(**saved) for saved in state["retired"]]
        if self.columns:
            self._identity = state["weights"].copy_into(self.columns)
