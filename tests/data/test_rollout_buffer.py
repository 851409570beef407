"""The rollout buffer filled by hand: attributes, torch tensors, and the GAE numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.types import VectorStep


def filled(dones: list[float], truncated: list[bool], device: str | None = None) -> RolloutBuffer:
    buffer = RolloutBuffer(num_steps=3, num_envs=1, obs_shape=(4,), action_shape=(), device=device)
    buffer.rewards[:] = torch.tensor([[1.0], [2.0], [3.0]])
    buffer.values = torch.tensor([[0.5], [1.0], [1.5]], requires_grad=True)
    buffer.dones[:] = torch.tensor(dones).reshape(3, 1)
    buffer.truncated = np.array(truncated).reshape(3, 1)
    return buffer


@pytest.mark.parametrize("device", [None, "cpu"])
def test_advantages_with_truncation(device: str | None) -> None:
    buffer = filled([0.0, 0.0, 0.0], [False, True, False], device)
    next_values = torch.tensor([[1.0], [4.0], [2.0]])
    buffer.compute_returns_and_advantages(last_value=2.0, gamma=0.9, gae_lambda=0.8, next_values=next_values)
    np.testing.assert_allclose(np.asarray(buffer.advantages)[:, 0], [4.712, 4.6, 3.3], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(buffer.returns)[:, 0], [5.212, 5.6, 4.8], rtol=1e-5)


@pytest.mark.parametrize("last_value", [2.0, np.array([2.0]), torch.tensor([[2.0]]), torch.tensor([2.0])])
def test_advantages_with_termination_and_shifted_values(last_value: object) -> None:
    buffer = filled([0.0, 1.0, 0.0], [False, False, False])
    buffer.compute_returns_and_advantages(last_value=last_value, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(buffer.advantages[:, 0], [2.12, 1.0, 3.3], rtol=1e-5)
    np.testing.assert_allclose(buffer.returns[:, 0], [2.62, 2.0, 4.8], rtol=1e-5)


def test_last_values_belong_to_their_environments() -> None:
    buffer = RolloutBuffer(num_steps=1, num_envs=3, obs_shape=(), action_shape=())
    buffer.compute_returns_and_advantages(last_value=[1.0, 2.0, 3.0], gamma=0.5, gae_lambda=1.0)
    np.testing.assert_array_equal(buffer.returns, [[0.5, 1.0, 1.5]])
    with pytest.raises(ValueError, match="broadcast"):
        buffer.compute_returns_and_advantages(last_value=[1.0, 2.0], gamma=0.5, gae_lambda=1.0)


def test_shapes_and_types() -> None:
    buffer = RolloutBuffer(5, 2, {"image": (3, 3), "speed": ()}, 2, obs_dtype={"image": np.uint8, "speed": np.float32})
    assert buffer.obs["image"].shape == (5, 2, 3, 3)
    assert buffer.obs["image"].dtype == np.uint8
    assert buffer.obs["speed"].shape == (5, 2)
    assert buffer.actions.shape == (5, 2, 2)
    for name in ("logprobs", "values", "advantages", "returns", "rewards"):
        assert getattr(buffer, name).shape == (5, 2)
        assert getattr(buffer, name).dtype == np.float32
    assert buffer.dones.dtype == buffer.truncated.dtype == np.bool_
    assert not buffer.truncated.any()
    buffer.obs = {"image": torch.full((5, 2, 3, 3), 7), "speed": np.arange(10).reshape(5, 2)}
    assert (buffer.obs["image"] == 7).all()
    assert buffer.obs["speed"][4, 1] == 9


def test_assigning_copies_and_never_broadcasts_a_wrong_length() -> None:
    buffer = RolloutBuffer(3, 2, (4,), ())
    storage, rewards = buffer.rewards, np.ones((3, 2))
    buffer.rewards = rewards
    rewards[:] = 5
    assert buffer.rewards is storage
    assert (buffer.rewards == 1).all()
    with pytest.raises(ValueError, match="broadcast"):
        buffer.rewards = np.ones(3)


def test_arrays_that_nobody_asks_for_are_not_made() -> None:
    buffer = RolloutBuffer(3, 2, (4,), ())
    assert "advantages" not in buffer._arrays
    assert buffer.advantages.shape == (3, 2)
    assert "advantages" in buffer._arrays


def test_torch_storage_only_where_a_device_is_given() -> None:
    assert isinstance(RolloutBuffer(3, 2, (4,), ()).obs, np.ndarray)
    buffer = RolloutBuffer(3, 2, (4,), (), device="cpu", action_dtype=np.int64)
    assert isinstance(buffer.obs, torch.Tensor)
    no = np.zeros(2, np.bool_)
    for t in range(3):
        obs = np.full((2, 4), t, np.float32)
        buffer.store(VectorStep(obs, np.array([t, -t]), np.ones(2), no, ~no, no, ~no, obs + 1, {"mu": np.full(2, 0.5)}))
    batch = buffer.as_batch()
    for name in ("obs", "actions", "rewards", "terminated", "truncated", "final_obs", "final_index", "last_obs", "mu"):
        assert isinstance(batch[name], torch.Tensor), name
    assert batch["actions"].tolist() == [[0, 0], [1, -1], [2, -2]]
    assert batch["final_obs"][:, 0].tolist() == [1, 1, 2, 2, 3, 3]
    assert batch["final_index"].tolist() == [0, 1, 2, 3, 4, 5]


def test_minibatches_visit_every_transition_once() -> None:
    buffer = RolloutBuffer(4, 3, (2,), (), rng=np.random.default_rng(0))
    buffer.returns = np.arange(12).reshape(4, 3)
    buffer.obs = np.repeat(np.arange(12), 2).reshape(4, 3, 2)
    seen = list(buffer.minibatches(5))
    assert [len(rows["returns"]) for rows in seen] == [5, 5, 2]
    returns = np.concatenate([rows["returns"] for rows in seen])
    assert sorted(returns) == list(range(12))
    assert list(returns) != list(range(12))
    np.testing.assert_array_equal(np.concatenate([rows["obs"][:, 1] for rows in seen]), returns)
    again = RolloutBuffer(4, 3, (2,), (), rng=np.random.default_rng(0))
    again.returns = buffer.returns
    np.testing.assert_array_equal(np.concatenate([rows["returns"] for rows in again.minibatches(5)]), returns)
