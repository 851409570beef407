"""Hindsight: goals of the same episode's future, rewards computed anew, nothing taken from an open episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay_cases import Episodes, Transition

from rl_training.algorithms.random import RandomAgent, RandomConfig
from rl_training.build_context import BuildContext
from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.data import HindsightReplayBuffer, Priorities
from rl_training.data.storage import layout
from rl_training.envs import make_vector_env
from rl_training.envs.probes.goals import BitFlip
from rl_training.envs.spaces import space_spec
from rl_training.training.collector import Collector
from rl_training.types import ConfigError, VectorStep

SHAPES = {"observation": (1,), "achieved_goal": (1,), "desired_goal": (1,)}
OWN_GOAL = -1.0


def reward(achieved: Any, desired: Any, info: dict[str, Any]) -> Any:
    assert info == {}
    return np.where(achieved[:, 0] == desired[:, 0], 0.0, -1.0)


def terminated(achieved: Any, desired: Any, info: dict[str, Any]) -> Any:
    return achieved[:, 0] == desired[:, 0]


def as_goals(step: VectorStep) -> VectorStep:
    """What is reached is the number of the observation; what is wanted is reached never."""

    def goals(obs: Any) -> dict[str, Any]:
        return {"observation": obs, "achieved_goal": obs, "desired_goal": np.full_like(obs, OWN_GOAL)}

    step.obs, step.next_obs = goals(step.obs), goals(step.next_obs)
    return step


def build(capacity: int, **keywords: Any) -> HindsightReplayBuffer:
    keywords = {"compute_reward": reward, "rng": np.random.default_rng(3), **keywords}
    return HindsightReplayBuffer(capacity, SHAPES, (), **keywords)


def futures(episodes: Episodes, oldest: int) -> dict[int, set[int]]:
    """By the slow way: what each row's episode reached from there on; nothing for rows of open episodes."""
    found: dict[int, set[int]] = {}
    for env in range(episodes.num_envs):
        open_rows: list[Transition] = []
        numbers = [g for g in range(len(episodes.rows)) if g % episodes.num_envs == env]
        for g in numbers:
            row = episodes.rows[g]
            if row is not None and g >= oldest:
                open_rows.append(row)
            if row is None or row.terminated or row.truncated:
                for i, one in enumerate(open_rows):
                    found[one.obs] = {later.next_obs for later in open_rows[i:]}
                open_rows = []
        found.update({one.obs: set() for one in open_rows})
    return found


@pytest.mark.parametrize(("next_step", "lost"), [(False, 0.0), (True, 0.0), (False, 0.1)])
@pytest.mark.parametrize("prioritized", [False, True])
def test_goals_come_from_the_future_of_the_same_episode(next_step: bool, lost: float, prioritized: bool) -> None:
    """Every goal that may come does come, and no other, through several rounds of the ring."""
    episodes = Episodes(3, seed=7, next_step=next_step, lost=lost)
    buffer = build(40, num_envs=3, priorities=Priorities() if prioritized else None)
    for number in range(60):
        buffer.store(as_goals(episodes.step()))
        if number % 7 or not len(buffer):
            continue
        expected = futures(episodes, max(0, len(episodes.rows) - 40))
        seen: dict[int, set[int]] = {obs: set() for obs in expected}
        for _ in range(60):
            batch = buffer.sample(64)
            goal, other = batch["obs"]["desired_goal"][:, 0], batch["next_obs"]["desired_goal"][:, 0]
            np.testing.assert_array_equal(goal, other)
            relabelled = goal != OWN_GOAL
            reached = batch["next_obs"]["achieved_goal"][:, 0] == goal
            np.testing.assert_array_equal(batch["rewards"][relabelled], np.where(reached[relabelled], 0.0, -1.0))
            for obs, wanted in zip(batch["actions"][relabelled], goal[relabelled], strict=True):
                seen[int(obs)].add(int(wanted))
        assert seen == expected


def test_the_share_of_relabelled_transitions() -> None:
    episodes = Episodes(1, seed=0)
    buffer, plain = build(200, num_goals=4), build(200, num_goals=0)
    for _ in range(150):
        step = as_goals(episodes.step())
        buffer.store(step)
        plain.store(step)
    goals = buffer.sample(20_000)["obs"]["desired_goal"][:, 0]
    finished = sum(bool(later) for later in futures(episodes, 0).values())
    assert np.mean(goals != OWN_GOAL) == pytest.approx(0.8 * finished / 150, abs=0.01)
    batch = plain.sample(500)
    assert (batch["obs"]["desired_goal"] == OWN_GOAL).all()
    rewards = {row.obs: row.reward for row in episodes.rows if row is not None}
    np.testing.assert_array_equal(batch["rewards"], [np.float32(rewards[int(obs)]) for obs in batch["actions"]])


def episode(buffer: HindsightReplayBuffer, ended: str) -> None:
    """Observations 0, 1, 2, 3 with rewards -10, ended as asked."""
    for t in range(3):
        obs, after = ({key: [float(n)] for key in SHAPES} | {"desired_goal": [OWN_GOAL]} for n in (t, t + 1))
        last = t == 2
        buffer.add(obs, t, -10.0, after, last and ended == "terminated", truncated=last and ended == "truncated")


@pytest.mark.parametrize("ended", ["terminated", "truncated"])
def test_terminated_follows_the_new_goal_where_the_environment_says_how(ended: str) -> None:
    buffer = build(8, compute_terminated=terminated, num_goals=10**9)
    episode(buffer, ended)
    batch = buffer.sample(300)
    goal, reached = batch["obs"]["desired_goal"][:, 0], batch["next_obs"]["achieved_goal"][:, 0]
    np.testing.assert_array_equal(batch["terminated"], goal == reached)
    np.testing.assert_array_equal(batch["truncated"], np.zeros(300))  # the last row's own future is its own end
    keeps = build(8, num_goals=10**9)
    episode(keeps, ended)
    batch = keeps.sample(300)
    np.testing.assert_array_equal(batch[ended], batch["actions"] == 2)


def test_a_row_that_ended_but_no_longer_reaches_its_goal_was_cut_off() -> None:
    buffer = build(8, compute_terminated=lambda achieved, desired, info: np.zeros(len(achieved)), num_goals=10**9)
    episode(buffer, "terminated")
    batch = buffer.sample(100)
    assert not batch["terminated"].any()
    np.testing.assert_array_equal(batch["truncated"], batch["actions"] == 2)


def test_n_step_rewards_are_those_of_the_new_goal() -> None:
    """Goal 2 from row 0, gamma .5: -1 at row 0, 0 at row 1 where it is reached and the window ends."""
    buffer = build(8, compute_terminated=terminated, num_goals=10**9, n_step=3, gamma=0.5)
    episode(buffer, "truncated")
    batch = buffer.sample(400)
    goal, start = batch["obs"]["desired_goal"][:, 0], batch["actions"]
    steps = goal - start
    np.testing.assert_allclose(batch["rewards"], [{1: 0.0, 2: -1.0, 3: -1.5}[n] for n in steps])
    np.testing.assert_allclose(batch["discounts"], 0.5**steps)
    np.testing.assert_array_equal(batch["next_obs"]["observation"][:, 0], goal)
    assert batch["terminated"].all()
    assert set(zip(start.tolist(), goal.tolist(), strict=True)) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}


def test_a_resumed_buffer_goes_on_bit_for_bit() -> None:
    episodes = Episodes(2, seed=5)
    straight = build(50, num_envs=2, n_step=2, gamma=0.9)
    for _ in range(6):
        for _ in range(13):
            straight.store(as_goals(episodes.step()))
        resumed = build(50, num_envs=2, n_step=2, gamma=0.9)
        resumed.load_state_dict(straight.state_dict())
        one, other = straight.sample(32), resumed.sample(32)
        for name in one:
            left, right = ([tree] if not isinstance(tree, dict) else tree.values() for tree in (one[name], other[name]))
            assert [leaf.tobytes() for leaf in left] == [leaf.tobytes() for leaf in right], name


def test_a_collector_fills_it_from_a_goal_environment() -> None:
    cfg = TrainConfig(env_id="RLProbe/BitFlip-v0", env=EnvConfig(num_envs=4, kwargs={"num_bits": 6}))
    envs = make_vector_env(cfg)
    observation_space, action_space = space_spec(envs.single_observation_space), space_spec(envs.single_action_space)
    agent = RandomAgent(BuildContext(observation_space, action_space, num_envs=4), RandomConfig())
    (obs_shape, obs_dtype), (action_shape, action_dtype) = layout(observation_space), layout(action_space)
    env = envs.envs[0].unwrapped  # type: ignore[attr-defined]
    assert isinstance(env, BitFlip)
    buffer = HindsightReplayBuffer(
        2000,
        obs_shape,
        action_shape,
        obs_dtype=obs_dtype,
        action_dtype=action_dtype,
        num_envs=4,
        compute_reward=env.compute_reward,
        compute_terminated=env.compute_terminated,
        gamma=0.98,
    )
    Collector(envs, agent, np.random.default_rng(0)).collect(300, buffer)
    envs.close()
    batch = buffer.sample(2000)
    after = batch["next_obs"]
    reached = (after["achieved_goal"] == after["desired_goal"]).all(axis=1)
    np.testing.assert_array_equal(batch["rewards"], reached - 1.0)
    np.testing.assert_array_equal(batch["terminated"], reached)
    assert 0.1 < reached.mean() < 0.5  # a random policy alone reaches far less
    flipped = (batch["obs"]["observation"] != after["observation"]).argmax(axis=1)
    np.testing.assert_array_equal(flipped, batch["actions"])


def test_what_does_not_fit_is_refused() -> None:
    for shapes in ((3,), {"observation": (3,)}):
        with pytest.raises(ConfigError, match="keys observation, achieved_goal and desired_goal"):
            HindsightReplayBuffer(8, shapes, (), compute_reward=reward)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"achieved_goal \(2,\) cannot take the place"):
        HindsightReplayBuffer(8, {**SHAPES, "achieved_goal": (2,)}, (), compute_reward=reward)
    with pytest.raises(ConfigError, match="num_goals"):
        build(8, num_goals=-1)
    buffer = build(8, compute_reward=lambda achieved, desired, info: 0.0, num_goals=10**9)
    episode(buffer, "terminated")
    with pytest.raises(ValueError, match="must work on arrays of goals"):
        buffer.sample(4)
