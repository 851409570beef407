"""Windows of replay rows as arrivals: the slots of the reference, a plain loop, and what a buffer samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.sequence import arrivals
from rl_training.types import VectorStep


def rows(first: Any, valid: Any = None, seed: int = 0) -> dict[str, Any]:
    """Row j has the observation 10 j, the next observation 10 j + 1, the action j and the reward j + 0.5."""
    first = np.atleast_2d(np.array(first, bool))
    valid = np.ones_like(first) if valid is None else np.atleast_2d(np.array(valid, bool))
    numbers = np.broadcast_to(np.arange(first.shape[1]), first.shape)
    rng = np.random.default_rng(seed)
    ends = np.roll(first | ~valid, -1, axis=1) & valid
    terminated = ends & (rng.random(first.shape) < 0.5)
    return {
        "obs": (10 * numbers)[..., None].astype(np.float32),
        "next_obs": (10 * numbers + 1)[..., None].astype(np.float32),
        "actions": numbers.copy(),
        "rewards": (numbers + 0.5).astype(np.float32),
        "terminated": terminated,
        "truncated": ends & ~terminated,
        "is_first": first & valid,
        "valid": valid,
    }


def by_loop(batch: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    """(observation, action, reward, is_first, is_last, is_terminal) of each arrival; the action of a start is None."""
    found = []
    for b, length in enumerate([batch["valid"].shape[1]] * len(batch["valid"])):
        steps: list[tuple[Any, ...]] = []
        for j in range(length):
            if not batch["valid"][b, j]:
                continue
            if batch["is_first"][b, j]:
                steps.append((float(batch["obs"][b, j, 0]), None, 0.0, True, False, False))
            terminated = bool(batch["terminated"][b, j])
            last = terminated or bool(batch["truncated"][b, j])
            arrived = (float(batch["next_obs"][b, j, 0]), int(batch["actions"][b, j]), float(batch["rewards"][b, j]))
            steps.append((*arrived, False, last, terminated))
        for t, step in enumerate(steps[: length - 1]):  # what nothing or a start follows is last
            if not step[3] and (t + 1 == len(steps) or steps[t + 1][3]):
                steps[t] = (*step[:4], True, step[5])
        found.append(steps[:length])
    return found


def listed(result: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    """The valid arrivals of a batch in the form of `by_loop`."""
    flags = ("is_first", "is_last", "is_terminal")
    return [
        [
            (
                float(result["obs"][b, t, 0]),
                None if result["is_first"][b, t] else int(result["actions"][b, t]),
                float(result["rewards"][b, t]),
                *(bool(result[flag][b, t]) for flag in flags),
            )
            for t in np.flatnonzero(result["valid"][b])
        ]
        for b in range(len(result["valid"]))
    ]


@pytest.mark.parametrize(
    ("first", "row", "reset"),
    [
        ((0, 0, 1, 0), (0, 1, 2, 2), (0, 0, 1, 0)),
        ((1, 0, 0, 0), (0, 0, 1, 2), (1, 0, 0, 0)),
        ((0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 0, 0)),
    ],
)
def test_the_slots_of_known_windows(first: Any, row: Any, reset: Any) -> None:
    result = arrivals(rows(first))
    assert result["actions"][0].tolist() == list(row)
    assert result["is_first"][0].tolist() == list(map(bool, reset))
    assert result["valid"].all()


@given(st.lists(st.sampled_from([(0, 1), (1, 1), (0, 0)]), min_size=1, max_size=24), st.integers(0, 99))
def test_equals_a_loop_over_rows(kinds: list[tuple[int, int]], seed: int) -> None:
    """Rows that start an episode, go on, or hold no transition, in any order a buffer can give: what follows a row
    without a transition starts an episode."""
    valid = np.array([kind[1] for kind in kinds], bool)
    first = np.array([kind[0] for kind in kinds], bool) & valid
    first[1:] |= valid[1:] & ~valid[:-1]
    batch = rows(first, valid, seed)
    result = arrivals(batch)
    assert listed(result) == by_loop(batch)
    empty = ~result["valid"]
    assert result["is_first"][empty].all(), "nothing is carried into places that no row fills"
    assert not result["rewards"][empty].any()
    assert not (result["is_last"] | result["is_terminal"])[empty].any()


def test_an_episode_that_was_broken_off_ends_there_without_a_termination() -> None:
    """Steps 0 to 4 of one episode, then a restart that loses it, then a new one: step 4 is last, so that no return
    reaches into the other episode."""
    buffer = ReplayBuffer(40, 1, (), num_envs=1, sequence_length=8, rng=np.random.default_rng(0))
    none, every = np.zeros(1, bool), np.ones(1, bool)
    for t in range(20):
        if t == 5:
            buffer.drop_open_episodes()
        obs = np.float32([[t]])
        following = obs + np.float32(0.5)
        buffer.store(VectorStep(obs, np.array([t]), np.float32([t]), none, none, none, every, following, {}))
    result = arrivals(buffer.sample(200))
    broken = result["valid"] & (result["obs"][..., 0] == 4.5)
    assert broken[:, :-1].any(), "some windows go on behind the break"
    seen_to_break = broken.copy()
    seen_to_break[:, -1] = False  # what follows the last place of a window is unknown
    np.testing.assert_array_equal(result["is_last"], seen_to_break)
    assert not result["is_terminal"].any()


def test_a_buffer_of_next_step_environments_gives_whole_episodes() -> None:
    """Episodes of three steps and a reset row, by termination and by a time limit in turn; dict observations."""
    buffer = ReplayBuffer(
        60, {"a": 1}, (), num_envs=1, sequence_length=12, carry={"h": (2, np.float32)}, rng=np.random.default_rng(0)
    )
    for t in range(40):
        ends, resets = np.array([t % 4 == 2]), np.array([t % 4 == 3])
        odd = np.array([(t // 4) % 2 == 1])
        obs = {"a": np.float32([[t]])}
        following = {"a": np.float32([[t + 0.5]])}
        carry = {"carry/h": np.full((1, 2), t, np.float32)}
        buffer.store(
            VectorStep(obs, np.array([t]), np.float32([t]), ends & ~odd, ends & odd, resets, ~resets, following, carry)
        )
    result = arrivals(buffer.sample(200))
    times = result["obs"]["a"][..., 0]
    for b in range(200):
        for t in np.flatnonzero(result["valid"][b]):
            time, first = times[b, t], result["is_first"][b, t]
            assert first == (time % 1 == 0)
            row = int(time)
            assert row % 4 == 0 if first else row % 4 < 3
            assert result["is_last"][b, t] == (not first and row % 4 == 2)
            assert result["is_terminal"][b, t] == (result["is_last"][b, t] and (row // 4) % 2 == 0)
            if t and not first:
                assert times[b, t - 1] == (time - 0.5 if row % 4 == 0 else time - 1)
        if not result["is_first"][b, 0]:
            assert result["carry"]["h"][b, 0] == int(times[b, 0]), "remembered after the observation before"
    assert result["is_first"].any()
    assert result["is_last"].any()
