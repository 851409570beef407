"""The layout of joint observations: what is put in for an agent is what its policy's rows have."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.agents import (
    acting_agents,
    episode_numbers,
    joined_actions,
    joint_spec,
    row_actions,
    row_obs,
    row_space,
    sharing,
    state_of,
)
from rl_training.runs.spaces import describe, fits, plain_space, space_of
from rl_training.types import AGENT_ID, CRITIC_STATE, BoxSpec, DictSpec, DiscreteSpec, MultiDiscreteSpec, PlayedAgents

POINT = BoxSpec(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32), np.dtype(np.float32))
HUNTERS = PlayedAgents(("h0", "h1"), DictSpec({"x": POINT, "kind": DiscreteSpec(3)}), DiscreteSpec(5))
PREY = PlayedAgents(("p0",), POINT, MultiDiscreteSpec((2, 3)))
JOINT = joint_spec({"hunters": HUNTERS, "prey": PREY}, concat=True)


def observed(*lead: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    obs = {key: np.zeros((*lead, *leaf.shape), leaf.dtype) for key, leaf in JOINT.spaces.items()}
    obs["hunters/x"] = rng.standard_normal((*lead, 2, 2)).astype(np.float32)
    obs["hunters/kind"] = rng.integers(3, size=(*lead, 2))
    obs["prey/obs"] = rng.standard_normal((*lead, 1, 2)).astype(np.float32)
    return obs


def test_rows_come_agent_by_agent() -> None:
    obs = observed(4, 5)
    rows = row_obs(JOINT, "hunters", obs, 2, ids=True, state=True)
    assert isinstance(rows, dict)
    assert rows["x"].shape == (4, 10, 2)
    np.testing.assert_array_equal(rows["x"][3, 2 * 2 + 1], obs["hunters/x"][3, 2, 1])
    np.testing.assert_array_equal(rows[AGENT_ID][0], [0, 1] * 5)
    state = rows[CRITIC_STATE]
    np.testing.assert_array_equal(state[1, 4], state[1, 5])
    np.testing.assert_array_equal(state[1, 4], state_of(JOINT, obs, 2)[1, 2])
    alone = row_obs(JOINT, "prey", obs, 2, ids=False, state=False)
    np.testing.assert_array_equal(alone, obs["prey/obs"][:, :, 0])


def test_the_state_is_all_observations_encoded_side_by_side() -> None:
    obs = observed(1)
    state = state_of(JOINT, obs, 1)[0]
    kinds = np.eye(3, dtype=np.float32)[obs["hunters/kind"][0]].reshape(-1)
    expected = np.concatenate([obs["hunters/x"][0].reshape(-1), kinds, obs["prey/obs"][0].reshape(-1)])
    np.testing.assert_array_equal(state, expected)
    space = row_space(JOINT, "prey", ids=False, state=True)
    assert isinstance(space, DictSpec)
    assert space.spaces[CRITIC_STATE].shape == state.shape


def test_joint_actions_go_there_and_back() -> None:
    rng = np.random.default_rng(1)
    rows = {"hunters": rng.integers(5, size=6), "prey": rng.integers(2, size=(3, 2))}
    actions = joined_actions(rows, JOINT)
    assert actions.shape == (3, 4)
    for name, own in rows.items():
        back = row_actions(JOINT, name, actions, 1)
        np.testing.assert_array_equal(back, own)
        assert back.dtype == np.int64


def test_rewards_are_shared_within_teams() -> None:
    own = np.array([1.0, 2.0, 6.0])
    teams = {"one": ["a", "c"], "other": ["b"]}
    np.testing.assert_allclose(sharing("abc", teams, "team_mean") @ own, [3.5, 2.0, 3.5])
    np.testing.assert_allclose(sharing("abc", teams, "team_sum") @ own, [7.0, 2.0, 7.0])


def test_only_agents_that_are_there_act() -> None:
    obs = observed(2)
    obs["hunters:alive"][:] = [[1, 0], [1, 1]]
    obs["prey:alive"][:] = 1
    assert acting_agents(JOINT, obs, np.array([True, True])) == 5
    assert acting_agents(JOINT, obs, np.array([True, False])) == 2


def test_episodes_name_policies_only_where_there_are_several() -> None:
    names = episode_numbers(JOINT)
    assert names == [
        "team_return",
        "policy_return/hunters",
        "policy_return/prey",
        *(f"agent_return/{a}" for a in ("h0", "h1", "p0")),
    ]
    assert episode_numbers(joint_spec({"all": HUNTERS}))[:2] == ["team_return", "agent_return/h0"]


@pytest.mark.parametrize("state", ["none", "concat", "env"])
def test_joint_spaces_are_recorded_as_json(state: str) -> None:
    own = POINT if state == "env" else None
    joint = joint_spec({"hunters": HUNTERS, "prey": PREY}, own, concat=state == "concat")
    assert joint.state == state
    back = space_of(plain_space(joint))
    assert back == joint
    assert fits(back, joint, bounds=False)
    other = joint_spec({"hunters": PREY, "prey": PREY})
    assert not fits(other, joint, bounds=False)
    assert "hunters: 2 x Dict(x: Box(2,) float32, kind: Discrete(3)) -> Discrete(5)" in describe(joint)
