"""What a run on a game has beside others: a league, and opponents in its evaluations."""

from __future__ import annotations

from typing import Any

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.config.schema import TrainConfig
from rl_training.envs.games.players import RulePlayer, only
from rl_training.envs.games.rules import misfit
from rl_training.envs.games.seat import seat_of, seats_of
from rl_training.registry import rules
from rl_training.training.host import HostTrainer
from rl_training.training.league.callback import LeagueCallback, graph_of
from rl_training.training.league.league import League
from rl_training.training.loop import Trainer
from rl_training.types import ConfigError


def check_game(cfg: TrainConfig, metadata: Any) -> bool:
    """Whether an environment with this metadata is a game; ConfigError where the config does not fit it."""
    if not seats_of(metadata):
        if cfg.league != LeagueConfig():
            raise ConfigError(
                f"league is for games, and environment '{cfg.env_id}' has no turns: remove the section, or take a game "
                "such as RLGame/TicTacToe-v0"
            )
        return False
    unused = {
        "env.wrappers": bool(cfg.env.wrappers),
        "env.frame_stack": cfg.env.frame_stack > 1,
        "env.overlap": cfg.env.overlap,
        "env.collector: ray": cfg.env.collector != "local",
        "env.worker_restart": cfg.env.worker_restart,
        "training.shards": cfg.training.shards > 1,
    }
    if used := [name for name, is_used in unused.items() if is_used]:
        raise ConfigError(
            f"environment '{cfg.env_id}' is a game, whose opponents see what the learner sees and change between "
            f"rollouts: {', '.join(used)} cannot be used"
        )
    if cfg.policies or cfg.env.agents != AgentsConfig():
        raise ConfigError(
            f"environment '{cfg.env_id}' is a game, in which one policy plays every seat: policies and env.agents are "
            "for agents that act at the same time; opponents are named in league"
        )
    for name in (*cfg.league.opponents, cfg.league.eval_opponent):
        rules.get(name)
    return True


def check_rules(cfg: TrainConfig, space: Any) -> None:
    """Refuse built-in rules that cannot play a game with these observations."""
    named = dict.fromkeys(cfg.league.opponents, "opponents")
    if cfg.training.num_eval_episodes:
        named = {cfg.league.eval_opponent: "eval_opponent", **named}
    for name, field in named.items():
        if (why := misfit(name, space)) is not None:
            raise ConfigError(
                f"league.{field}: '{name}' cannot play '{cfg.env_id}': it {why}; name another rule, or one of yours as "
                "'rule:package.module:function'"
            )


def build_league(cfg: TrainConfig, trainer: Trainer) -> LeagueCallback | None:
    """The league of a run, None where it plays no game; ConfigError where its policy cannot play against itself."""
    if not isinstance(trainer, HostTrainer) or cfg.env.collector != "local":  # games are refused elsewhere
        return None
    if not seats_of(trainer.collector.env.metadata):
        return None
    league = cfg.league
    check_rules(cfg, trainer.collector.env.single_observation_space)
    graph = graph_of(trainer.algorithm.policy)
    if graph is None and (league.latest > 0 or league.snapshot_frequency > 0 or league.snapshot_score is not None):
        raise ConfigError(
            f"this policy of '{cfg.algo}' cannot play against itself: NumPy computes opponents, and only of the "
            "package's own mlp, cnn, gru and lstm networks; set league.latest: 0 and league.snapshot_frequency: 0"
        )
    return LeagueCallback(League(league, graph))


def with_eval_opponent(env: Any, cfg: TrainConfig) -> Any:
    """An evaluation environment; a game gets the opponent that evaluations are played against."""
    if (seat := seat_of(env)) is not None:
        seat.set_lineup(only(RulePlayer(cfg.league.eval_opponent), cfg.league.eval_opponent))
    return env
