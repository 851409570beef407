"""Agents side by side: the layout of joint observations and actions, and the rows of one policy in them.

An environment with several agents is one environment whose observation holds all of them: under `policy/leaf` what the
agents of a policy observe, (A, ...), under `policy:mark` what happened to them. The learner of a policy takes its part
out as rows, agent by agent: row n * A + a is agent a of environment n. Leading axes are (N,) for acting, (T, N) for
rollouts and (B,) or (B, L) for replay; an axis of agents always comes right behind them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from rl_training.numerics.encoding import encode_leaf_numpy, leaf_features
from rl_training.types import (
    ACTION_MASK,
    AGENT_ID,
    CRITIC_STATE,
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    JointSpec,
    LeafSpec,
    MultiDiscreteSpec,
    Obs,
    PlayedAgents,
    SpaceSpec,
)

ALIVE, FIRST, REWARD, ENDED = "alive", "first", "reward", "ended"
"""Marks of each agent: it is to act; it has not acted in this episode yet; what its last action gave; how it ended."""
TERMINATED, TRUNCATED = 1, 2
"""Values of the mark `ended`, beside 0; it is set in the observation that follows the agent's last action."""
TEAM_RETURN, POLICY_RETURN, AGENT_RETURN = "team_return", "policy_return/", "agent_return/"
"""Numbers of an episode that is over: the sum of all returns, the mean of each policy's agents, that of each agent."""
LONE = "obs"
"""Name of an observation that is not a Dict."""


# -- layout -----------------------------------------------------------------------------------------------------------


def leaf_key(policy: str, leaf: str) -> str:
    """Key of an observation of a policy's agents."""
    return f"{policy}/{leaf}"


def mark_key(policy: str, mark: str) -> str:
    """Key of a mark of a policy's agents."""
    return f"{policy}:{mark}"


def named_leaves(space: SpaceSpec) -> dict[str, LeafSpec]:
    """All leaves of an agent's observation by name, the action mask among them."""
    return dict(space.spaces) if isinstance(space, DictSpec) else {LONE: space}


def joint_spec(
    policies: Mapping[str, PlayedAgents], state: BoxSpec | None = None, *, concat: bool = False
) -> JointSpec:
    """The joint observation of the agents of `policies`, with the `state` that the environment gives, if any."""
    leaves: dict[str, LeafSpec] = {}
    for name, played in policies.items():
        for leaf, space in named_leaves(played.observation_space).items():
            leaves[leaf_key(name, leaf)] = side_by_side(space, played.count)
        for mark in (ALIVE, FIRST, ENDED):
            leaves[mark_key(name, mark)] = box((played.count,), 0, 2, np.int8)
        leaves[mark_key(name, REWARD)] = box((played.count,), -np.inf, np.inf, np.float64)
    if state is not None:
        leaves[CRITIC_STATE] = state
    return JointSpec(leaves, dict(policies), "env" if state is not None else "concat" if concat else "none")


def side_by_side(leaf: LeafSpec, count: int) -> BoxSpec:
    """The space of `count` values of a leaf at once."""
    if isinstance(leaf, BoxSpec):
        low, high = (np.broadcast_to(bound, (count, *leaf.shape)).copy() for bound in (leaf.low, leaf.high))
        return BoxSpec(low, high, leaf.dtype)
    if isinstance(leaf, DiscreteSpec):
        return box((count,), 0, leaf.n - 1, np.int64)
    if isinstance(leaf, MultiDiscreteSpec):
        high = np.broadcast_to(np.asarray(leaf.nvec, np.int64) - 1, (count, *leaf.shape)).copy()
        return BoxSpec(np.zeros_like(high), high, np.dtype(np.int64))
    return box((count, leaf.n), 0, 1, np.int8)


def box(shape: tuple[int, ...], low: float, high: float, dtype: type) -> BoxSpec:
    """A Box with the same bounds everywhere."""
    return BoxSpec(np.full(shape, low, dtype), np.full(shape, high, dtype), np.dtype(dtype))


def joint_actions(joint: JointSpec) -> BoxSpec:
    """The joint action: the actions of all agents behind one another, as numbers."""
    return box((sum(map(action_numbers, joint.policies.values())),), -np.inf, np.inf, np.float64)


def action_numbers(played: PlayedAgents) -> int:
    """How many numbers the actions of a policy's agents take in the joint action."""
    return played.count * math.prod(played.action_space.shape)


def action_slices(joint: JointSpec) -> dict[str, slice]:
    """Where in the joint action each policy's agents have theirs."""
    ends = np.cumsum([action_numbers(played) for played in joint.policies.values()]).tolist()
    return {name: slice(start, end) for name, start, end in zip(joint.policies, [0, *ends], ends, strict=False)}


# -- the rows of one policy -------------------------------------------------------------------------------------------


def fold(values: Array, lead: int) -> Array:
    """Join the last of `lead` leading axes with the axis of agents behind them.

    >>> fold(np.zeros((5, 2, 3, 7)), 2).shape
    (5, 6, 7)
    """
    shape = values.shape
    return values.reshape(*shape[: lead - 1], shape[lead - 1] * shape[lead], *shape[lead + 1 :])


def unfold(rows: Array, count: int) -> Array:
    """Rows (N * A, ...) as (N, A, ...)."""
    return rows.reshape(-1, count, *rows.shape[1:])


def row_space(joint: JointSpec, policy: str, *, ids: bool, state: bool) -> SpaceSpec:
    """What the learner of a policy sees of one agent: its observation, and on request its number and the state."""
    played = joint.policies[policy]
    if not ids and not state:
        return played.observation_space
    leaves = named_leaves(played.observation_space)
    if ids:
        leaves[AGENT_ID] = DiscreteSpec(played.count)
    if state:
        leaves[CRITIC_STATE] = state_space(joint)
    return DictSpec(leaves)


def state_space(joint: JointSpec) -> BoxSpec:
    """The space of what centralised critics see."""
    if joint.state == "env":
        return cast(BoxSpec, joint.spaces[CRITIC_STATE])
    size = sum(
        played.count * leaf_features(leaf)
        for played in joint.policies.values()
        for name, leaf in named_leaves(played.observation_space).items()
        if name != ACTION_MASK
    )
    return box((size,), -np.inf, np.inf, np.float32)


def state_of(joint: JointSpec, obs: Mapping[str, Array], lead: int) -> Array:
    """The state (..., S) in joint observations: as the environment gave it, or all observations behind one another."""
    if joint.state == "env":
        return obs[CRITIC_STATE]
    parts = []
    for name, played in joint.policies.items():
        for leaf, space in named_leaves(played.observation_space).items():
            if leaf != ACTION_MASK:
                values = obs[leaf_key(name, leaf)]
                encoded = encode_leaf_numpy(space, values.reshape(-1, *space.shape))
                parts.append(encoded.reshape(*values.shape[:lead], played.count * encoded.shape[1]))
    return np.concatenate(parts, axis=-1)


def row_obs(joint: JointSpec, policy: str, obs: Mapping[str, Array], lead: int, *, ids: bool, state: bool) -> Obs:
    """The rows of a policy's agents in joint observations, in the space that `row_space` describes."""
    played = joint.policies[policy]
    rows = {leaf: fold(obs[leaf_key(policy, leaf)], lead) for leaf in named_leaves(played.observation_space)}
    if not ids and not state:
        return rows if isinstance(played.observation_space, DictSpec) else rows[LONE]
    axes = obs[mark_key(policy, ALIVE)].shape
    if ids:
        rows[AGENT_ID] = fold(np.broadcast_to(np.arange(played.count), axes).copy(), lead)
    if state:
        seen = state_of(joint, obs, lead)[..., None, :]
        rows[CRITIC_STATE] = fold(np.repeat(seen, played.count, axis=-2), lead)
    return rows


def row_marks(policy: str, mark: str, obs: Mapping[str, Array], lead: int) -> Array:
    """A mark of a policy's agents, as rows."""
    return fold(obs[mark_key(policy, mark)], lead)


def row_actions(joint: JointSpec, policy: str, actions: Array, lead: int) -> Array:
    """The actions of a policy's agents in joint actions, as rows of their own space."""
    played = joint.policies[policy]
    own = actions[..., action_slices(joint)[policy]]
    shaped = own.reshape(*own.shape[:-1], played.count, *played.action_space.shape)
    return fold(shaped, lead).astype(played.action_space.dtype)


def joined_actions(rows: Mapping[str, Array], joint: JointSpec) -> Array:
    """Joint actions (N, D) from the rows (N * A, ...) of every policy."""
    parts = [rows[name].reshape(-1, action_numbers(played)) for name, played in joint.policies.items()]
    return np.concatenate(parts, axis=1, dtype=np.float64, casting="unsafe")


# -- rewards of teams -------------------------------------------------------------------------------------------------


def sharing(agents: Sequence[str], teams: Mapping[str, Sequence[str]], kind: str) -> Array:
    """The matrix (agents, agents) that turns own rewards into those of teams: the mean or the sum over a team.

    >>> sharing(["a", "b", "c"], {"left": ["a", "b"], "right": ["c"]}, "team_mean").tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    team_of = {agent: team for team, members in teams.items() for agent in members}
    same = np.array([[team_of[one] == team_of[other] for other in agents] for one in agents], np.float64)
    return cast(Array, same / same.sum(axis=1, keepdims=True) if kind == "team_mean" else same)


# -- episodes ---------------------------------------------------------------------------------------------------------


def episode_numbers(joint: JointSpec) -> list[str]:
    """Names of what is recorded of each episode beside its return; of policies only where there are several."""
    policies = [POLICY_RETURN + name for name in joint.policies] if len(joint.policies) > 1 else []
    agents = [AGENT_RETURN + agent for played in joint.policies.values() for agent in played.agents]
    return [TEAM_RETURN, *policies, *agents]


def acting_agents(joint: JointSpec, obs: Mapping[str, Array], valid: Array) -> int:
    """How many agents act in the environments that take a step."""
    return sum(int(np.count_nonzero(obs[mark_key(name, ALIVE)][valid])) for name in joint.policies)
