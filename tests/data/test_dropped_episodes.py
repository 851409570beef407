"""A run that goes on with environments which start anew: no window, sequence, goal or frame reaches over the gap.

Observations are numbers: 0, 1, 2, ... in the episode that is dropped, 100, 101, ... in the one that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rl_training.data import FrameReplayBuffer, HindsightReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from rl_training.types import VectorStep

NUM_ENVS, GAMMA = 2, 0.5
STACK = 3


def plain(values: Any) -> Any:
    return np.asarray(values, np.float32)[:, None]


def goals(values: Any) -> Any:
    return {name: plain(values) for name in ("observation", "achieved_goal", "desired_goal")}


def frames(values: Any) -> Any:
    """A stack of the last numbers, which do not reach back behind an episode's first."""
    values = np.asarray(values)[:, None]
    first = values // 100 * 100
    return np.maximum(values + np.arange(1 - STACK, 1), first)[..., None].astype(np.uint8)


def steps(buffer: ReplayBuffer, first: int, count: int, make: Callable[[Any], Any]) -> None:
    """`count` steps of an episode in every environment, all of which go on. The reward is the number seen."""
    no = np.zeros(NUM_ENVS, bool)
    for number in range(first, first + count):
        seen = np.full(NUM_ENVS, number)
        rewards, is_first = seen.astype(np.float32), np.full(NUM_ENVS, number == first)
        buffer.store(VectorStep(make(seen), np.zeros(NUM_ENVS), rewards, no, no, is_first, ~no, make(seen + 1)))


def hindsight(achieved: Any, desired: Any, info: Any) -> Any:
    return np.where((achieved == desired).all(axis=1), 1.0, 0.0)


BUFFERS: dict[str, tuple[Callable[..., ReplayBuffer], Callable[[Any], Any]]] = {
    "replay": (lambda size, **k: ReplayBuffer(size, (1,), (), num_envs=NUM_ENVS, **k), plain),
    "prioritized": (lambda size, **k: PrioritizedReplayBuffer(size, (1,), (), num_envs=NUM_ENVS, **k), plain),
    "frames": (lambda size, **k: FrameReplayBuffer(size, (STACK, 1), (), num_envs=NUM_ENVS, **k), frames),
    "her": (
        lambda size, **k: HindsightReplayBuffer(
            size, dict.fromkeys(goals([0]), (1,)), (), num_envs=NUM_ENVS, compute_reward=hindsight, **k
        ),
        goals,
    ),
}


def number_of(obs: Any) -> Any:
    """The number that an observation shows."""
    leaf = obs["observation"] if isinstance(obs, dict) else obs
    return leaf.reshape(len(leaf), -1)[:, -1].astype(int)


def cut_buffer(kind: str, *, resumed: int = 1, size: int = 64, **keywords: Any) -> ReplayBuffer:
    """Four steps of one episode, then `resumed` resumes of a run that cannot continue it, then four of another."""
    build, make = BUFFERS[kind]
    buffer = build(size, rng=np.random.default_rng(1), **keywords)
    steps(buffer, 0, 4, make)
    for _ in range(resumed):
        saved, buffer = buffer.state_dict(), build(size, rng=np.random.default_rng(2), **keywords)
        buffer.load_state_dict(saved)
        buffer.drop_open_episodes()
    steps(buffer, 100, 4, make)
    return buffer


@pytest.mark.parametrize("resumed", [1, 2])
@pytest.mark.parametrize("kind", BUFFERS)
def test_no_window_reaches_over_the_gap(kind: str, resumed: int) -> None:
    buffer = cut_buffer(kind, resumed=resumed, n_step=3, gamma=GAMMA)
    found: dict[int, tuple[float, float, int]] = {}
    batch = buffer.sample(400)
    first, after = number_of(batch["obs"]), number_of(batch["next_obs"])
    for obs, reward, discount, following in zip(first, batch["rewards"], batch["discounts"], after, strict=True):
        found[int(obs)] = (float(reward), float(discount), int(following))
    assert not batch["terminated"].any()
    dropped = {0: (0.125, 3), 1: (0.125, 4), 2: (0.25, 4), 3: (0.5, 4)}  # ends behind its last row
    newest = {100: (0.125, 103), 101: (0.125, 104)}  # 102 and 103 wait for what follows
    assert {obs: (discount, after) for obs, (_, discount, after) in found.items()} == dropped | newest
    if kind != "her":
        assert found[2][0] == 2 + GAMMA * 3
        assert found[3][0] == 3.0
    assert len(buffer) == 6 * NUM_ENVS


@pytest.mark.parametrize("kind", BUFFERS)
def test_single_transitions_are_what_they_were(kind: str) -> None:
    buffer = cut_buffer(kind)
    batch = buffer.sample(400)
    pairs = set(zip(number_of(batch["obs"]).tolist(), number_of(batch["next_obs"]).tolist(), strict=True))
    assert pairs == {(n, n + 1) for n in (*range(4), *range(100, 104))}
    assert len(buffer) == 8 * NUM_ENVS


@pytest.mark.parametrize("kind", ["replay", "prioritized", "frames"])
def test_sequences_say_where_the_next_episode_starts(kind: str) -> None:
    batch = cut_buffer(kind).sample_sequences(200, 5)
    flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in batch.items()}
    numbers = np.where(batch["valid"], number_of(flat["obs"]).reshape(batch["valid"].shape), -1)
    assert ((numbers == 0) | (numbers == 100)).tolist() == batch["is_first"].tolist()
    over = (numbers[:, :-1] == 3) & (numbers[:, 1:] == 100)
    assert not over.any()
    assert (~batch["valid"]).any(axis=1).any()


def test_goals_come_from_the_episode_itself() -> None:
    """The dropped episode is over: what it reached is a goal. The next one is open, and keeps its own."""
    buffer = cut_buffer("her", num_goals=1000)
    batch = buffer.sample(500)
    seen, wanted = number_of(batch["obs"]), batch["obs"]["desired_goal"][:, 0].astype(int)
    old = seen < 100
    assert set(wanted[old].tolist()) <= {0, 1, 2, 3, 4}
    assert (wanted[old] > seen[old]).mean() > 0.9
    assert (wanted[~old] == seen[~old]).all()


@pytest.mark.parametrize("kind", BUFFERS)
def test_the_gap_survives_the_next_checkpoint_and_the_ring(kind: str) -> None:
    """It is a row like any other: saved, and in time overwritten."""
    build, make = BUFFERS[kind]
    buffer = cut_buffer(kind, size=9 * NUM_ENVS, n_step=2, gamma=GAMMA)
    again = build(9 * NUM_ENVS, n_step=2, gamma=GAMMA)
    again.load_state_dict(buffer.state_dict())
    before, after = buffer.sample(50), again.sample(50)
    for name in ("obs", "next_obs"):
        assert number_of(before[name]).tolist() == number_of(after[name]).tolist()
    assert before["rewards"].tolist() == after["rewards"].tolist()
    for first in range(104, 200, 4):
        steps(again, first, 4, make)
    assert len(again) == 8 * NUM_ENVS  # the newest rows wait
    assert not again.skipped.any()


def test_an_empty_buffer_has_nothing_to_cut() -> None:
    buffer = ReplayBuffer(8, (1,), (), num_envs=NUM_ENVS)
    buffer.drop_open_episodes()
    assert buffer.state_dict()["rows"].stop == 0
