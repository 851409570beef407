"""What one policy learns from, out of what was recorded of all agents: rollouts, transitions, sequences as rows.

Row n * A + a is agent a of environment n. A row is valid while its agent is there; an agent's life ends with its own
`ended` mark, whatever the others go on to do. What follows an action stands in the next observation: the reward, how
the agent ended, and its last observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rl_training.numerics.agents import (
    ALIVE,
    ENDED,
    FIRST,
    REWARD,
    TERMINATED,
    TRUNCATED,
    fold,
    mark_key,
    row_actions,
    row_marks,
    row_obs,
)
from rl_training.types import ACTING_POLICY, Array, Batch, JointSpec, Obs

Columns = dict[str, Array]


@dataclass(frozen=True)
class RowView:
    """The rows of one policy: whose they are, and what is shown beside the own observation."""

    joint: JointSpec
    policy: str
    ids: bool
    """Whether the agent's number is shown."""
    state: bool
    """Whether the state of the environment is shown, to critics."""
    sharing: Array | None = None
    """(agents, agents): turns own rewards of all agents, in the order of the policies, into those that are learnt
    from; None leaves them as they are."""

    @property
    def count(self) -> int:
        return self.joint.policies[self.policy].count

    @property
    def is_one_team(self) -> bool:
        """Whether all agents of the policy get the same reward."""
        if self.sharing is None:
            return self.count == 1
        own = self.sharing[self.start : self.start + self.count]
        return bool((own == own[0]).all())

    @property
    def start(self) -> int:
        """Number of the policy's first agent among all."""
        names = list(self.joint.policies)
        return sum(self.joint.policies[name].count for name in names[: names.index(self.policy)])

    def obs(self, joint_obs: Mapping[str, Array], lead: int) -> Obs:
        return row_obs(self.joint, self.policy, joint_obs, lead, ids=self.ids, state=self.state)

    def mark(self, name: str, joint_obs: Mapping[str, Array], lead: int) -> Array:
        return row_marks(self.policy, name, joint_obs, lead)

    def actions(self, actions: Array, lead: int) -> Array:
        return row_actions(self.joint, self.policy, actions, lead)

    def rewards(self, following: Mapping[str, Array], lead: int) -> Array:
        """What the agents learn from, given the observations that follow their actions."""
        if self.sharing is None:
            return self.mark(REWARD, following, lead).astype(np.float32)
        own = np.concatenate([following[mark_key(name, REWARD)] for name in self.joint.policies], axis=-1)
        shared = own @ self.sharing.T
        return fold(shared[..., self.start : self.start + self.count], lead).astype(np.float32)

    def repeated(self, values: Array, lead: int) -> Array:
        """A value of each environment for every agent in it."""
        return np.repeat(values, self.count, axis=lead - 1)


# -- rollouts ---------------------------------------------------------------------------------------------------------


def rollout_rows(view: RowView, batch: Batch) -> Batch:
    """A rollout of N environments (T, N) as that of N * A rows; see `types.Batch`."""
    obs = cast(Columns, batch["obs"])
    marks = {key: following_mark(batch, key) for key in obs if key.endswith((f":{REWARD}", f":{ENDED}"))}
    ended = view.mark(ENDED, marks, 2)
    there = view.repeated(batch["valid"], 2)
    valid = view.mark(ALIVE, obs, 2).astype(bool) & there
    terminated = (ended == TERMINATED) & valid
    truncated = ((ended == TRUNCATED) & valid) | (view.repeated(batch["truncated"], 2) & ~there)
    index = np.flatnonzero((terminated | truncated) & valid)
    rows: Batch = {
        "obs": view.obs(obs, 2),
        "actions": view.actions(batch["actions"], 2),
        "rewards": view.rewards(marks, 2),
        "terminated": terminated,
        "truncated": truncated,
        "is_first": view.mark(FIRST, obs, 2).astype(bool) | view.repeated(batch["is_first"], 2),
        "valid": valid,
        "final_obs": final_rows(view, batch, index),
        "final_index": index,
        "last_obs": view.obs(batch["last_obs"], 1),
        "initial_carry": own_carry(view.policy, batch["initial_carry"]),
        **own_extras(view.policy, batch, 2),
    }
    if ACTING_POLICY in batch:
        rows[ACTING_POLICY] = batch[ACTING_POLICY][view.policy]
    return rows


def following_mark(batch: Batch, key: str) -> Array:
    """A mark (T, N, A) of the observations that follow each row."""
    following = np.concatenate([batch["obs"][key][1:], batch["last_obs"][key][None]])
    flat = following.reshape(-1, *following.shape[2:])
    flat[batch["final_index"]] = batch["final_obs"][key]
    return following


def final_rows(view: RowView, batch: Batch, index: Array) -> Obs:
    """The last observations of agents whose lives end with the rows at `index`, flat in T * N * A."""
    steps, agent = np.divmod(index, view.count)
    joint_index, place = np.unique(steps, return_inverse=True)
    gathered = {key: following_rows(batch, key, joint_index) for key in batch["obs"]}
    rows, picked = view.obs(gathered, 1), place * view.count + agent
    return {name: leaf[picked] for name, leaf in rows.items()} if isinstance(rows, dict) else rows[picked]


def following_rows(batch: Batch, key: str, index: Array) -> Array:
    """What follows the joint rows at `index`, flat in T * N: the next row, or what came after the last or final one."""
    leaf: Array = batch["obs"][key]
    num_steps, num_envs = leaf.shape[:2]
    flat = leaf.reshape(-1, *leaf.shape[2:])
    found: Array = flat[np.minimum(index + num_envs, num_steps * num_envs - 1)]
    last = index >= (num_steps - 1) * num_envs
    found[last] = batch["last_obs"][key][index[last] % num_envs]
    place = {int(row): k for k, row in enumerate(batch["final_index"])}
    for i, row in enumerate(index.tolist()):
        if row in place:
            found[i] = batch["final_obs"][key][place[row]]
    return found


# -- replay -----------------------------------------------------------------------------------------------------------


def transition_rows(view: RowView, batch: Batch) -> Batch:
    """Transitions (B, ...) of all agents as those of single ones; rows of agents that are gone are left out."""
    rows = all_transition_rows(view, batch)
    valid = rows.pop("valid")
    rows.pop("next_valid")
    if valid.all():
        return rows
    return {name: taken(column, valid) for name, column in rows.items()}


def all_transition_rows(view: RowView, batch: Batch) -> Batch:
    """Transitions (B, ...) as rows of all agents, side by side; `valid` and `next_valid` say who is there before and
    after the step."""
    obs, following = cast(Columns, batch["obs"]), cast(Columns, batch["next_obs"])
    ended = view.mark(ENDED, following, 1)
    return {
        "obs": view.obs(obs, 1),
        "actions": view.actions(batch["actions"], 1),
        "rewards": view.rewards(following, 1),
        "next_obs": view.obs(following, 1),
        "terminated": ended == TERMINATED,
        "truncated": ended == TRUNCATED,
        "valid": view.mark(ALIVE, obs, 1).astype(bool),
        "next_valid": view.mark(ALIVE, following, 1).astype(bool),
    }


def sequence_rows(view: RowView, batch: Batch) -> Batch:
    """Sequences (B, L, ...) of all agents as (B * A, L, ...) of single ones; rows of agents that are gone are not
    valid."""
    in_time = {name: {key: leaf.swapaxes(0, 1) for key, leaf in batch[name].items()} for name in ("obs", "next_obs")}
    obs, following = in_time["obs"], in_time["next_obs"]
    ended = view.mark(ENDED, following, 2)
    valid = view.mark(ALIVE, obs, 2).astype(bool) & view.repeated(batch["valid"].T, 2)
    rows = {
        "obs": view.obs(obs, 2),
        "actions": view.actions(batch["actions"].swapaxes(0, 1), 2),
        "rewards": view.rewards(following, 2),
        "next_obs": view.obs(following, 2),
        "terminated": (ended == TERMINATED) & valid,
        "truncated": (ended == TRUNCATED) & valid,
        "is_first": (view.mark(FIRST, obs, 2).astype(bool) | view.repeated(batch["is_first"].T, 2)) & valid,
        "valid": valid,
    }
    carry = {"carry": own_carry(view.policy, batch["carry"])} if "carry" in batch else {}
    return {name: batch_major(column) for name, column in rows.items()} | carry


def team_sequence_rows(view: RowView, batch: Batch) -> Batch:
    """Sequences as rows of all agents, side by side: valid where the environment took a step."""
    rows = sequence_rows(view, batch)
    following = {key: leaf.swapaxes(0, 1) for key, leaf in batch["next_obs"].items()}
    there_next = batch_major(view.mark(ALIVE, following, 2).astype(bool))
    valid = np.repeat(batch["valid"], view.count, axis=0)
    return {**rows, "there": rows["valid"], "next_valid": there_next, "valid": valid}


def team_columns(batch: Batch, burn_in: int | None) -> Columns:
    """Who is there before and after each step, and who was cut off by it, of rows of whole teams: transitions, or with
    a `burn_in` the steps of sequences behind it, in the order of time."""
    if burn_in is None:
        return {"there": batch["valid"], "there_next": batch["next_valid"], "truncated": batch["truncated"]}
    valid = in_time(batch["valid"][:, burn_in:])
    names = {"there": "there", "there_next": "next_valid", "truncated": "truncated"}
    return {name: in_time(batch[source][:, burn_in:])[valid] for name, source in names.items()}


def in_time(column: Array) -> Array:
    """(N, T, ...) to (T * N, ...)."""
    return np.ascontiguousarray(column.swapaxes(0, 1)).reshape(-1, *column.shape[2:])


def batch_major(column: Any) -> Any:
    """(L, B, ...) to (B, L, ...), for arrays and dicts of them."""
    if isinstance(column, dict):
        return {name: batch_major(leaf) for name, leaf in column.items()}
    return np.ascontiguousarray(column.swapaxes(0, 1))


def taken(column: Any, valid: Array) -> Any:
    """The valid rows of an array, or of a dict of arrays."""
    return {name: leaf[valid] for name, leaf in column.items()} if isinstance(column, dict) else column[valid]


# -- what policies remember and record --------------------------------------------------------------------------------

STORED = "carry/"
"""Prefix of extras that a replay buffer keeps as the memory before a step."""


def own_carry(policy: str, carry: Mapping[str, Array]) -> Columns:
    """The memory (N * A, ...) of a policy's agents out of that of all, (N, A, ...)."""
    prefix = f"{policy}/"
    return {name.removeprefix(prefix): fold(value, 1) for name, value in carry.items() if name.startswith(prefix)}


def own_extras(policy: str, batch: Batch, lead: int) -> Columns:
    """What a policy recorded with its actions, as rows."""
    prefix = f"{policy}/"
    return {name.removeprefix(prefix): fold(value, lead) for name, value in batch.items() if name.startswith(prefix)}


def extra_name(policy: str, name: str) -> str:
    """Name of a policy's extra among those of all: stored memories keep their prefix, which the buffer looks for."""
    return f"{STORED}{policy}/{name.removeprefix(STORED)}" if name.startswith(STORED) else f"{policy}/{name}"
