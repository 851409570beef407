"""From names to opponents: a rule, or the policy of another run. And the league of a run, as it was saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_training.checkpointing.manager import Checkpoint, CheckpointManager
from rl_training.envs.games.players import GraphPlayer, Player, PolicyPlayer, RulePlayer
from rl_training.registry import did_you_mean, rules
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import Spaces, describe, fits
from rl_training.training.league.callback import graph_of
from rl_training.training.league.league import Member, ranked
from rl_training.training.league.matches import Against
from rl_training.types import ConfigError, Policy, RunError

LoadPolicy = Callable[[str], tuple[Policy, Spaces]]
"""(run) -> its policy, with the spaces that it was trained on."""


def player_of(policy: Policy, *, greedy: bool = False) -> Player:
    """A policy as a player: in NumPy where it has a graph, else as it is."""
    graph = graph_of(policy)
    return PolicyPlayer(policy, greedy) if graph is None else GraphPlayer(graph, greedy)


def opponent_of(name: str, spaces: Spaces, load: LoadPolicy) -> Against:
    """The opponent of this name; its moves are sampled where it is a policy, so that no two games are alike."""
    if rules.is_rule(name):
        player = RulePlayer(name)
        rules.get(name)
        return Against(name, player)
    try:
        policy, own = load(name)
    except RunError as error:
        raise ConfigError(
            f"opponent '{name}' is neither a rule ({', '.join(rules.names())}, rule:package.module:function) nor a "
            f"run: {error}{did_you_mean(name, rules.names())}"
        ) from error
    if not (fits(own[0], spaces[0], bounds=False) and fits(own[1], spaces[1], bounds=True)):
        raise ConfigError(
            f"opponent '{name}' plays another game: it observes {describe(own[0])} and acts in {describe(own[1])}, "
            f"this run {describe(spaces[0])} and {describe(spaces[1])}"
        )
    return Against(name, player_of(policy))


def league_table(run: RunDir, checkpoint: str | int = "latest") -> dict[str, Any]:
    """Learner and members of a saved league, strongest first, with what the learner did against each."""
    saved = CheckpointManager(run.path).load(checkpoint)
    if "league" not in saved.parts:
        raise ConfigError(f"run '{run.path.name}' has no league: its environment is no game")
    return table_of(run, saved)


def table_of(run: RunDir, saved: Checkpoint) -> dict[str, Any]:
    """The table of a checkpoint whose part "league" was loaded."""
    state = saved.parts["league"]
    members = [Member(**one) for one in state["members"]]
    retired = [Member(**one) for one in state["retired"]]
    return {"run": str(run.path), "env_steps": saved.step, "members": ranked(float(state["rating"]), members, retired)}
