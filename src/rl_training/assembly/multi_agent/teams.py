"""From the config of a run with several agents to its team: one algorithm for each policy, with its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_training.algorithms.multi_agent.batches import RowView
from rl_training.algorithms.multi_agent.team import Member, TeamAlgorithm, TeamReplay
from rl_training.build_context import BuildContext
from rl_training.config.schema import TrainConfig
from rl_training.envs.multi_agent.grouping import teams_of
from rl_training.hparams.base import AlgorithmSpec, CentralCritic
from rl_training.numerics.agents import row_space, sharing
from rl_training.registry import did_you_mean
from rl_training.seeding import Streams
from rl_training.training.contract import ReplayTerms, burn_in, inspected, replay_terms, rollout_length
from rl_training.types import Algorithm, Array, ConfigError, JointSpec

Learnt = Mapping[str, tuple[AlgorithmSpec, Any]]
"""Algorithm and hyperparameters of each policy."""
Build = Callable[[str, AlgorithmSpec, Any, BuildContext], Algorithm]
"""Builds one algorithm, given its name."""


def check_names(cfg: TrainConfig, joint: JointSpec) -> None:
    """Refuse a section for a policy that plays nobody."""
    for name in cfg.policies:
        if name not in joint.policies:
            known, near = ", ".join(joint.policies), did_you_mean(name, joint.policies)
            raise ConfigError(f"policies: '{name}' plays no agent of '{cfg.env_id}'{near} (policies are {known})")


def build_team(
    cfg: TrainConfig, spec: AlgorithmSpec, learnt: Learnt, ctx: BuildContext, joint: JointSpec, build: Build
) -> TeamAlgorithm:
    """An algorithm for every policy of the environment; ConfigError where they cannot learn side by side."""
    check_kinds(cfg, spec, learnt)
    shared = shared_rewards(cfg, joint)
    members, terms = {}, {}
    for name, (own_spec, own) in learnt.items():
        view = row_view(cfg, name, own_spec, own, joint, shared)
        algorithm = build(own_spec.name, own_spec, own, member_context(ctx, own_spec, view))
        members[name] = Member(algorithm, view, inspected(algorithm), own_spec.whole_teams, burn_in(own))
        if own_spec.kind == "off_policy":
            terms[name] = replay_terms(algorithm, own)
    return TeamAlgorithm(joint, members, team_replay(members, terms) if terms else None)


def check_kinds(cfg: TrainConfig, spec: AlgorithmSpec, learnt: Learnt) -> None:
    """Refuse policies that one loop cannot serve: all learn from rollouts of one length, or all from replay."""
    hparams = cfg.hparams
    for name, (own_spec, own) in learnt.items():
        if own_spec.kind not in (spec.kind, "static") or own_spec.kind == "offline":
            raise ConfigError(
                f"policies.{name}: '{own_spec.name}' is {own_spec.kind.replace('_', '-')} and the run's '{spec.name}' "
                f"{spec.kind.replace('_', '-')}; all policies of a run learn from rollouts, or all from replay"
            )
        if own_spec.kind == "on_policy" and rollout_length(own) != rollout_length(hparams):
            raise ConfigError(
                f"policies.{name}.hparams.num_steps {rollout_length(own)} differs from the run's "
                f"{rollout_length(hparams)}: all policies learn from the same rollouts"
            )


def shared_rewards(cfg: TrainConfig, joint: JointSpec) -> Array | None:
    """The matrix that turns own rewards into those of teams; None where agents learn from their own."""
    kind = cfg.env.agents.reward
    if kind == "own":
        return None
    agents = [agent for played in joint.policies.values() for agent in played.agents]
    return sharing(agents, teams_of(agents, cfg.env.agents, cfg.env_id), kind)


def row_view(
    cfg: TrainConfig, name: str, spec: AlgorithmSpec, hparams: Any, joint: JointSpec, shared: Array | None
) -> RowView:
    """The rows of one policy; ConfigError where its algorithm cannot learn from them."""
    state = isinstance(hparams, CentralCritic) and hparams.sees_state
    if state and joint.state == "none":
        raise ConfigError(
            f"policy '{name}' ('{spec.name}') learns with the state of all agents, and env.agents.state is none; set "
            f"it to auto, env or concat, or take {'vdn' if spec.whole_teams else 'ippo'}, which learns without it"
        )
    view = RowView(joint, name, cfg.env.agents.ids == "one_hot" and joint.policies[name].count > 1, state, shared)
    if spec.whole_teams and shared is None:
        raise ConfigError(
            f"'{spec.name}' learns one value for a team; set env.agents.reward: team_mean or team_sum, which is what "
            "the agents earn together"
        )
    if spec.whole_teams and not view.is_one_team:
        raise ConfigError(f"'{spec.name}' learns one value for the agents of policy '{name}': they must be in one team")
    return view


def member_context(ctx: BuildContext, spec: AlgorithmSpec, view: RowView) -> BuildContext:
    """What the algorithm of one policy is told: its agents are rows. Each of several policies has its own streams."""
    played = view.joint.policies[view.policy]
    space = row_space(view.joint, view.policy, ids=view.ids, state=view.state)
    refusal = spec.supports(space, played.action_space)
    if refusal is not None:
        raise ConfigError(f"algorithm '{spec.name}' does not fit the agents of policy '{view.policy}': {refusal}")
    several = len(view.joint.policies) > 1
    return replace(
        ctx,
        observation_space=space,
        action_space=played.action_space,
        num_envs=ctx.num_envs * played.count,
        num_agents=played.count,
        streams=Streams(ctx.streams.seed, f"{view.policy}/" if several else ""),
    )


def team_replay(members: dict[str, Member], terms: dict[str, ReplayTerms]) -> TeamReplay:
    """How a team learns from replay; ConfigError where its policies ask for different things."""
    first = next(iter(terms))
    for name, own in terms.items():
        if own.options.n_step > 1 or own.options.prioritized:
            raise ConfigError(
                "transitions of several agents are drawn uniformly and learnt from one step at a time; set "
                "hparams.n_step: 1 and hparams.prioritized: false"
            )
        if own.schedule != terms[first].schedule or length_of(own) != length_of(terms[first]):
            raise ConfigError(
                f"policies.{name} learns at another rhythm than '{first}': batch_size, learning_starts, "
                "updates_per_step and sequence_length are the same for all policies, which draw the same transitions"
            )
    warmup = {name: terms[name].warmup if name in terms else m.algorithm.policy for name, m in members.items()}
    sequences = {name: own.options.sequences for name, own in terms.items()}
    return TeamReplay(terms[first].schedule, warmup, terms[first].updates_per_learn, sequences)


def length_of(terms: ReplayTerms) -> int | None:
    """Steps of the sequences that are drawn; None for single transitions."""
    return None if terms.options.sequences is None else terms.options.sequences.length
