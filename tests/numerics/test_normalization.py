"""Running statistics equal those of all the data at once, and resume bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.normalization import ObsNormalizer, RewardNormalizer, RunningMeanStd
from rl_training.types import BoxSpec, CheckpointError, DictSpec, DiscreteSpec


def box(*shape: int, dtype: type = np.float32) -> BoxSpec:
    return BoxSpec(np.zeros(shape, dtype), np.ones(shape, dtype), np.dtype(dtype))


# -- RunningMeanStd ---------------------------------------------------------------------------------------------------


def test_running_variance_far_from_zero_equals_the_batch_variance() -> None:
    data = np.random.default_rng(0).normal(1e5, 1.0, 60_000)
    statistics = RunningMeanStd()
    for rows in np.split(data, 600):
        statistics.update(rows)
    assert abs(statistics.var - data.var()) < 1e-6
    assert abs(statistics.mean - data.mean()) < 1e-6
    assert statistics.count == 60_000


def test_batches_of_any_size_give_the_same_statistics() -> None:
    data = np.random.default_rng(1).normal(3.0, 2.0, (500, 3))
    for cuts in ([], [1, 2, 3], [250], list(range(1, 500)), [0, 0, 499]):
        statistics = RunningMeanStd((3,))
        for rows in np.split(data, cuts):
            statistics.update(rows)
        np.testing.assert_allclose(statistics.mean, data.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(statistics.var, data.var(axis=0), rtol=1e-12)


def test_the_first_batch_is_not_diluted() -> None:
    statistics = RunningMeanStd()
    assert (statistics.count, float(statistics.mean), float(statistics.var)) == (0, 0.0, 1.0)
    statistics.update([10.0, 14.0])
    assert (statistics.count, float(statistics.mean), float(statistics.var)) == (2, 12.0, 4.0)
    np.testing.assert_allclose(statistics.normalize([10.0, 14.0, 1e9]), [-1.0, 1.0, 10.0], atol=1e-8)


def test_before_any_data_only_the_clip_applies() -> None:
    np.testing.assert_array_equal(RunningMeanStd().normalize([0.1, -3.0, 50.0]), [0.1, -3.0, 10.0])


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\)"):
        RunningMeanStd((3,)).update(np.zeros((5, 2)))
    with pytest.raises(CheckpointError, match="another observation space"):
        RunningMeanStd((3,)).load_state_dict(RunningMeanStd((2,)).state_dict())


def test_statistics_go_on_bit_for_bit_after_a_round_trip() -> None:
    rng = np.random.default_rng(2)
    straight, resumed = RunningMeanStd((4,)), RunningMeanStd((4,))
    for _ in range(5):
        straight.update(rng.normal(7, 3, (32, 4)))
    state = straight.state_dict()
    resumed.load_state_dict(state)
    more = rng.normal(7, 3, (32, 4))
    straight.update(more)
    resumed.update(more)
    assert straight.mean.tobytes() == resumed.mean.tobytes()
    assert straight.var.tobytes() == resumed.var.tobytes()
    assert state["count"] == 160  # a state is a copy: it did not change


# -- ObsNormalizer ----------------------------------------------------------------------------------------------------


def test_observations_come_out_standardised_as_float32() -> None:
    normalizer = ObsNormalizer(box(2, dtype=np.float64))
    obs = np.random.default_rng(0).normal([100.0, -5.0], [1.0, 20.0], (8, 16, 2))
    normalizer.update(obs)
    result = normalizer(obs)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert result.shape == obs.shape
    np.testing.assert_allclose(result.reshape(-1, 2).mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(result.reshape(-1, 2).std(axis=0), 1.0, atol=1e-5)
    np.testing.assert_array_equal(normalizer(obs[0]), result[0])


def test_rows_that_are_no_transitions_do_not_count() -> None:
    normalizer = ObsNormalizer(box(1))
    normalizer.update(np.array([[[1.0]], [[1e9]], [[3.0]]]), np.array([[True], [False], [True]]))
    np.testing.assert_allclose(normalizer(np.array([[1.0], [3.0]])), [[-1.0], [1.0]], atol=1e-6)


def test_only_real_valued_keys_are_touched() -> None:
    space = DictSpec(
        {
            "state": box(2),
            "image": box(4, 4, dtype=np.uint8),
            "room": DiscreteSpec(3),
            "action_mask": box(2),
        }
    )
    obs = {
        "state": np.array([[1.0, 2.0], [3.0, 6.0]], np.float32),
        "image": np.full((2, 4, 4), 200, np.uint8),
        "room": np.array([0, 2]),
        "action_mask": np.array([[1, 0], [1, 1]], np.float32),
    }
    normalizer = ObsNormalizer(space)
    normalizer.update(obs)
    result = normalizer(obs)
    assert isinstance(result, dict)
    np.testing.assert_allclose(result["state"], [[-1.0, -1.0], [1.0, 1.0]], atol=1e-6)
    for untouched in ("image", "room", "action_mask"):
        assert result[untouched] is obs[untouched]
    assert list(normalizer.state_dict()) == ["state"]
    np.testing.assert_array_equal(obs["state"], [[1.0, 2.0], [3.0, 6.0]])


def test_a_disabled_normaliser_is_the_identity() -> None:
    normalizer = ObsNormalizer(box(2), enabled=False)
    obs = np.array([[1.0, 2e6]])
    normalizer.update(obs)
    assert normalizer(obs) is obs
    assert normalizer.state_dict() == {}


def test_before_any_data_observations_are_only_clipped() -> None:
    result = ObsNormalizer(box(2))(np.array([[0.1, 50.0]], np.float32))
    np.testing.assert_array_equal(result, np.array([[0.1, 10.0]], np.float32))


def test_an_observation_normaliser_resumes_to_the_bit() -> None:
    normalizer, other = ObsNormalizer(box(3)), ObsNormalizer(box(3))
    obs = np.random.default_rng(0).normal(5, 2, (64, 3)).astype(np.float32)
    normalizer.update(obs)
    other.load_state_dict(normalizer.state_dict())
    assert np.asarray(other(obs)).tobytes() == np.asarray(normalizer(obs)).tobytes()
    with pytest.raises(CheckpointError, match="normalize_obs"):
        other.load_state_dict({})


# -- RewardNormalizer -------------------------------------------------------------------------------------------------


def episodes_of_three(steps: int, num_envs: int = 1) -> np.ndarray:
    return np.broadcast_to((np.arange(steps) % 3 == 2)[:, None], (steps, num_envs))


def test_the_return_starts_anew_after_every_episode() -> None:
    normalizer = RewardNormalizer(0.5, 1)
    measured = normalizer.update(np.ones((6, 1)), episodes_of_three(6))
    expected = [1, 1.5, 1.75, 1, 1.5, 1.75]
    np.testing.assert_array_equal(measured[:, 0], expected)
    assert normalizer.statistics.count == 6
    np.testing.assert_allclose(normalizer.statistics.var, np.var(expected), rtol=1e-12)


def test_rewards_are_divided_by_the_std_and_not_shifted() -> None:
    normalizer = RewardNormalizer(0.5, 1)
    normalizer.update(np.ones((6, 1)), episodes_of_three(6))
    std = np.std([1, 1.5, 1.75])
    np.testing.assert_allclose(normalizer.scale([1.0, 0.0, -2.0]), [1 / std, 0.0, -2 / std], rtol=1e-6)
    assert normalizer.scale(np.ones((2, 3), np.float32)).dtype == np.float32
    np.testing.assert_array_equal(normalizer.scale([1e6, -1e6]), [10.0, -10.0])
    np.testing.assert_array_equal(RewardNormalizer(0.5, 1).scale([0.3, -20.0]), [0.3, -10.0])


def test_step_by_step_equals_rollout_by_rollout() -> None:
    rng = np.random.default_rng(0)
    rewards, ends = rng.normal(size=(40, 3)), rng.random((40, 3)) < 0.2
    whole = RewardNormalizer(0.9, 3).update(rewards, ends)
    single = RewardNormalizer(0.9, 3)
    rows = [single.update(rewards[t : t + 1], ends[t : t + 1]) for t in range(40)]
    np.testing.assert_array_equal(np.concatenate(rows), whole)


def test_reset_rows_are_not_measured() -> None:
    """The same episodes through a NEXT_STEP environment: a row that is not a transition follows every end."""
    rewards = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])[:, None]
    ends = np.array([0, 0, 1, 0, 0, 0, 1, 0], np.bool_)[:, None]
    valid = np.array([1, 1, 1, 0, 1, 1, 1, 0], np.bool_)[:, None]
    normalizer = RewardNormalizer(0.5, 1)
    measured = normalizer.update(rewards, ends, valid)
    np.testing.assert_array_equal(measured[valid], [1, 1.5, 1.75, 1, 1.5, 1.75])
    assert normalizer.statistics.count == 6


def test_a_reward_normaliser_resumes_inside_an_episode_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    rewards, ends = rng.normal(size=(50, 4)), rng.random((50, 4)) < 0.1
    straight, resumed = RewardNormalizer(0.99, 4), RewardNormalizer(0.99, 4)
    straight.update(rewards[:25], ends[:25])
    resumed.load_state_dict(straight.state_dict())
    straight.update(rewards[25:], ends[25:])
    resumed.update(rewards[25:], ends[25:])
    assert straight.scale(rewards).tobytes() == resumed.scale(rewards).tobytes()
    assert straight.open_returns.tobytes() == resumed.open_returns.tobytes()
    with pytest.raises(CheckpointError, match="num_envs"):
        RewardNormalizer(0.99, 5).load_state_dict(straight.state_dict())


def test_rewards_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="N = 2"):
        RewardNormalizer(0.9, 2).update(np.ones((5, 3)), np.zeros((5, 3)))
