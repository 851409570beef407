"""`LeagueCallback`: between two rollouts, games are rated, snapshots join, and the environments get their opponents."""

from __future__ import annotations

from typing import Any, cast

from rl_training.envs.games.seat import GameResult
from rl_training.export.graph import HasGraph, PolicyGraph
from rl_training.training.callbacks import Callback
from rl_training.training.host import HostTrainer
from rl_training.training.league.league import League
from rl_training.training.loop import Report, Trainer
from rl_training.types import Metrics, Policy, StateDict, crossed


def graph_of(policy: Policy) -> PolicyGraph | None:
    """What a policy computes, as opponents need it; None where it is not made of the package's networks."""
    return policy.graph() if isinstance(policy, HasGraph) else None


class LeagueCallback(Callback):
    """All environments get the same opponents at the same moments, in this process or in workers: the same run."""

    def __init__(self, league: League) -> None:
        self.league = league
        self.sent: frozenset[str] = frozenset()
        """Members whose players the environments have."""

    def on_start(self, trainer: Trainer) -> None:
        self.sent = frozenset()
        self.send(trainer)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        league, cfg = self.league, self.league.cfg
        finished: tuple[list[GameResult], ...] = vector_of(trainer).call("take_results")
        games = [game for results in finished for game in results]
        league.record(games)
        report.metrics.update(metrics_of(league, games))
        before, after = report.before.env_steps, report.after.env_steps
        due = cfg.snapshot_frequency > 0 and crossed(before, after, cfg.snapshot_frequency)
        if due or league.wants_early_snapshot():
            graph = graph_of(trainer.algorithm.policy)
            assert graph is not None, "checked when the run was built"
            league.add(graph, after)
        self.send(trainer)

    def send(self, trainer: Trainer) -> None:
        """Tell the environments whom to draw from."""
        latest = graph_of(trainer.algorithm.policy) if self.league.cfg.latest > 0 else None
        lineup = self.league.lineup(latest, self.sent)
        vector_of(trainer).call("set_lineup", lineup)
        self.sent = frozenset(name for name in lineup.chances if name in self.league.members)

    def state_dict(self) -> StateDict:
        return self.league.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.league.load_state_dict(state)


def vector_of(trainer: Trainer) -> Any:
    """The vector environment that a run trains on."""
    return cast(HostTrainer, trainer).collector.env


def metrics_of(league: League, games: list[GameResult]) -> Metrics:
    """Rating and size of the league, and how the games of this rollout ended."""
    found: Metrics = {"league/rating": league.rating, "league/members": len(league.members)}
    if league.score is not None:
        found["league/score"] = league.score
    if games:
        for name, score in (("win_rate", 1.0), ("draw_rate", 0.5), ("loss_rate", 0.0)):
            found[f"rollout/{name}"] = sum(game.score == score for game in games) / len(games)
    return found
