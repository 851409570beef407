"""The host's table for a chunk: updates as the rule floor(after x ratio) - floor(before x ratio) has them, exactly."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.jax.training.timetable import MAX_ROLLOUTS, WORD, schedule_of, timetable


def algorithm_with(schedule: ReplaySchedule | None, length: int = 32, updates_per_learn: int = 1) -> Any:
    return SimpleNamespace(replay=schedule, rollout_length=length, updates_per_learn=updates_per_learn, sequences=None)


def owed_by_table(algorithm: Any, num_envs: int, env_steps: int, count: int) -> list[int]:
    """Updates of every vector step of a chunk, in the arithmetic of the program: differences of 32-bit words."""
    learns = timetable(algorithm, num_envs, env_steps, count).learns[:count]
    assert learns.dtype == np.uint32
    return (learns[:, 1:] - learns[:, :-1]).reshape(-1).tolist()


def test_one_update_in_2048_steps_is_4882_in_ten_million() -> None:
    schedule = ReplaySchedule(batch_size=32, learning_starts=0, updates_per_step=1 / 2048)
    algorithm, done = algorithm_with(schedule, length=256), 0
    for begin in range(0, 10_000_000, 256 * MAX_ROLLOUTS):
        done += sum(owed_by_table(algorithm, 1, begin, MAX_ROLLOUTS)[: max(10_000_000 - begin, 0)])
    assert done == 4882


def random_ratio(rng: np.random.Generator) -> float:
    """Decimals, parts and any float, from 1e-6 to 64."""
    number = float(np.exp(rng.uniform(np.log(1e-6), np.log(64.0))))
    return [number, float(f"{number:.3g}"), 1.0 / max(1, round(1.0 / number))][rng.integers(3)]


@pytest.mark.parametrize("seed", range(40))
def test_the_table_is_the_rule_of_the_host_lane_for_any_ratio_and_any_age(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratio, num_envs, count = random_ratio(rng), int(rng.integers(1, 300)), int(rng.integers(2, 6))
    length, age = int(rng.integers(1, 100)), int(2 ** rng.uniform(0, 53))
    schedule = ReplaySchedule(32, int(rng.integers(2) * rng.integers(20_000)), ratio)
    algorithm = algorithm_with(schedule, length, int(rng.integers(1, 4)))
    rule = schedule_of(algorithm)
    assert rule is not None
    for begin in (0, age - age % (num_envs * length), WORD - WORD % (num_envs * length)):
        ends = begin + num_envs * np.arange(1, length * count + 1)
        owed = [rule.owed(int(end) - num_envs, int(end)) for end in ends]
        assert owed_by_table(algorithm, num_envs, begin, count) == owed
        cut = count // 2  # where a chunk ends changes nothing
        later = owed_by_table(algorithm, num_envs, begin + cut * num_envs * length, count - cut)
        assert owed_by_table(algorithm, num_envs, begin, cut) + later == owed


@pytest.mark.parametrize(("ratio", "steps", "updates"), [(0.3, 10, 3), (1 / 49, 49, 1), (1e-6, 10**6, 1), (0.7, 10, 7)])
def test_a_ratio_is_the_fraction_that_was_meant(ratio: float, steps: int, updates: int) -> None:
    """49 x (1 / 49) is 0.9999999999999999 in floats."""
    schedule = ReplaySchedule(batch_size=32, learning_starts=0, updates_per_step=ratio)
    assert [schedule.owed(0, steps - 1), schedule.owed(0, steps)] == [updates - 1, updates]
    assert schedule.done(steps * 10**12) == updates * 10**12


def test_counts_are_floor_of_the_product_in_fractions() -> None:
    schedule = ReplaySchedule(batch_size=32, learning_starts=0, updates_per_step=63.7)
    assert schedule.done(2**53) == 2**53 * Fraction(637, 10) // 1


def test_the_delayed_actor_learns_from_as_many_batches_less_often() -> None:
    schedule = ReplaySchedule(batch_size=32, learning_starts=0, updates_per_step=1.0)
    algorithm = algorithm_with(schedule, length=6, updates_per_learn=2)
    assert timetable(algorithm, 1, 0, 1).learns[0].tolist() == [0, 0, 1, 1, 2, 2, 3]
    grouped = schedule_of(algorithm)
    assert grouped is not None
    assert (grouped.batch_size, grouped.rate) == (64, Fraction(1, 2))


def test_env_steps_of_schedules_go_on_behind_32_bits() -> None:
    on_policy = timetable(algorithm_with(None, length=128), 4, 3 * WORD, 2)
    assert on_policy.env_steps[:2].tolist() == [[np.float32(3 * WORD)], [np.float32(3 * WORD + 512)]]
    assert on_policy.learns == ()
