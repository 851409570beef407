"""The guard by itself: what it looks at, what it names, and what it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.guards import Guard, Held, gradient_suspects, is_finite, leaves, part_suspects, search, total_last
from rl_training.types import NonFiniteError, Progress

BAD = [math.nan, math.inf, -math.inf]


def rollout(num_steps: int = 4, num_envs: int = 3, **given: Any) -> dict[str, Any]:
    batch = {
        "obs": {"position": np.zeros((num_steps, num_envs, 2), np.float32), "light": np.zeros((num_steps, num_envs))},
        "actions": np.zeros((num_steps, num_envs, 1), np.float32),
        "rewards": np.zeros((num_steps, num_envs), np.float32),
        "terminated": np.zeros((num_steps, num_envs), bool),
        "final_obs": {"position": np.zeros((2, 2), np.float32), "light": np.zeros(2)},
        "final_index": np.array([4, 11]),  # step 1 of environment 1, step 3 of environment 2
        "last_obs": {"position": np.zeros((num_envs, 2), np.float32), "light": np.zeros(num_envs)},
        "initial_carry": {"hidden": np.zeros((num_envs, 5), np.float32)},
        "logprobs": np.zeros((num_steps, num_envs), np.float32),
    }
    return batch | given


def name_of(guard: Guard, batch: dict[str, Any]) -> str:
    with pytest.raises(NonFiniteError) as caught:
        guard.check_batch(batch)
    assert caught.value.name in str(caught.value)
    return caught.value.name


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("path", "index", "name"),
    [
        (("obs", "position"), (2, 1, 1), "obs/position at step 2 of environment 1"),
        (("obs", "light"), (0, 2), "obs/light at step 0 of environment 2"),
        (("actions",), (3, 0, 0), "actions at step 3 of environment 0"),
        (("rewards",), (1, 2), "rewards at step 1 of environment 2"),
        (("final_obs", "position"), (1, 0), "final_obs/position at step 3 of environment 2"),
        (("final_obs", "light"), (0,), "final_obs/light at step 1 of environment 1"),
        (("last_obs", "position"), (2, 1), "last_obs/position of environment 2"),
        (("initial_carry", "hidden"), (1, 4), "initial_carry/hidden of environment 1"),
        (("logprobs",), (2, 2), "logprobs at step 2 of environment 2"),
    ],
)
def test_a_rollout_names_tensor_step_and_environment(path: tuple[str, ...], index: Any, name: str, value: float):
    batch = rollout()
    target: Any = batch
    for key in path:
        target = target[key]
    target[index] = value
    assert name_of(Guard(), batch) == name


def test_what_came_first_is_named_whatever_it_spoilt_later():
    batch = rollout()
    batch["obs"]["light"][2:, 1] = np.nan
    batch["rewards"][1, 1] = np.nan
    batch["actions"][1, 1] = np.nan
    assert name_of(Guard(), batch) == "actions at step 1 of environment 1"
    batch["obs"]["position"][1, 1] = np.nan
    assert name_of(Guard(), batch) == "obs/position at step 1 of environment 1"
    late = rollout()
    late["last_obs"]["light"][0] = np.nan
    late["final_obs"]["light"][1] = np.nan
    assert name_of(Guard(), late) == "final_obs/light at step 3 of environment 2"


def test_rows_of_a_replay_batch_have_no_time():
    batch = {"obs": np.zeros((5, 3)), "rewards": np.array([0.0, 0.0, 0.0, np.inf, 0.0])}
    assert name_of(Guard(), batch) == "rewards in row 3"


def test_finite_extremes_pass():
    huge = np.full((4, 3), np.finfo(np.float32).max)
    Guard().check_batch(rollout(rewards=huge))
    assert is_finite(torch.full((1000,), torch.finfo(torch.float32).max))
    assert is_finite(torch.full((10,), 6e4, dtype=torch.float16))
    assert is_finite(np.zeros(0, np.float32))
    assert is_finite(np.array([2**62]))
    assert is_finite(torch.tensor([2**62]))
    assert is_finite(torch.zeros(3, dtype=torch.bool))
    assert not is_finite(torch.tensor([1.0, math.inf, -math.inf], dtype=torch.bfloat16))


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_bad_number_is_seen_in_every_layout(dtype: Any, value: float):
    """Also among numbers whose squares overflow, in views with strides, and in tensors of the same memory."""
    for filling in (0.0, 1.0, np.finfo(dtype).max):
        array = np.full((3, 4, 5), filling, dtype)
        views = {"whole": array, "transposed": array.T, "strided": array[::2, 1:, 3], "row": array[2, 1]}
        assert all(map(is_finite, views.values()))
        assert all(is_finite(torch.from_numpy(view)) for view in views.values())
        array[2, 1, 3] = value
        assert not any(map(is_finite, views.values()))
        assert not any(is_finite(torch.from_numpy(view)) for view in views.values())
    assert not is_finite(np.array(value, dtype))
    assert is_finite(torch.ones(2, 3, requires_grad=True))


def test_actions_are_named_or_what_they_were_made_from():
    class Policy:
        def __init__(self, weight: float = 0.0) -> None:
            self.weight = weight

        def state_dict(self) -> dict[str, Any]:
            return {"network": {"mean.weight": np.full((2, 2), self.weight)}}

    def named(obs: Any, carry: Any, policy: Any) -> str:
        actions = np.array([[0.0], [np.nan]], np.float32)
        with pytest.raises(NonFiniteError) as caught:
            Guard().check_actions(actions, 7, obs, carry, policy)
        return caught.value.name

    fine, bad = np.zeros((2, 3)), np.array([[0.0] * 3, [0.0, 0.0, np.nan]])
    assert named(fine, {}, Policy()) == "actions at step 7 of environment 1"
    assert named(bad, {}, Policy()) == "obs at step 7 of environment 1"
    assert named({"camera": bad}, {}, Policy()) == "obs/camera at step 7 of environment 1"
    assert named(fine, {"noise": bad}, Policy()) == "carry/noise at step 7 of environment 1"
    assert named(fine, {}, Policy(np.nan)) == "parameter mean.weight"
    Guard().check_actions(np.array([1, 0]), 0, bad, {}, Policy())  # integers: the rollout's own check sees the rest


def test_gradients_are_searched_only_after_a_hit():
    def suspects() -> Any:
        asked.append(1)
        return [("optimizer/", {"mean": np.zeros(2)}), ("gradient of ", {"a": np.zeros(2), "b": np.array([1, np.inf])})]

    asked: list[int] = []
    guard = Guard(progress=Progress(env_steps=256, updates=8))
    guard.check_gradients(torch.tensor(3.0), suspects)
    assert asked == []
    with pytest.raises(NonFiniteError, match="gradient of b is inf in update 9, which began at env step 256") as caught:
        guard.check_gradients(torch.tensor(math.nan), suspects)
    assert caught.value.name == "gradient of b"
    with pytest.raises(NonFiniteError, match="gradient norm is inf"):  # every gradient finite: their squares overflow
        guard.check_gradients(torch.tensor(math.inf), lambda: [("gradient of ", {"a": np.array([1e30])})])


def nothing() -> Any:
    return []


no_suspects = nothing


def test_an_update_is_judged_by_its_metrics_then_by_what_is_watched():
    guard, before = Guard(), Progress(env_steps=64, updates=2)
    fine = {
        "train/loss": torch.tensor(1.0),
        "train/epochs": 4,
        "rollout/info/x": math.nan,
        "eval/return_min": math.inf,
    }
    guard.check_update(fine, lambda: [torch.ones(3), np.ones(3)], no_suspects, before)
    guard.check_update(fine, nothing, no_suspects, before)  # an algorithm that lists nothing
    bad = {"train/loss": math.nan, "train/policy_loss": 1.0, "train/value_loss": torch.tensor(math.nan)}
    with pytest.raises(NonFiniteError, match="train/value_loss is nan in update 3, which began at env step 64"):
        guard.check_update(bad, nothing, no_suspects, before)
    watched = [torch.ones(3), torch.tensor([math.inf])]
    with pytest.raises(NonFiniteError, match="parameter w is inf"):
        guard.check_update(fine, lambda: watched, lambda: [("parameter ", {"w": np.array(np.inf)})], before)
    with pytest.raises(NonFiniteError, match="number 1 of what watched"):
        guard.check_update(fine, lambda: [torch.ones(3), np.array([np.nan])], no_suspects, before)


def test_full_searches_the_state_after_every_update_and_off_never_looks():
    def state() -> Any:
        return [("parameter ", {"w": np.array(np.nan)})]

    before = Progress()
    Guard("cheap").check_update({}, nothing, state, before)
    with pytest.raises(NonFiniteError, match="parameter w"):
        Guard("full").check_update({}, nothing, state, before)
    off = Guard("off")
    off.check_update({"train/loss": math.nan}, lambda: [np.array([np.nan])], state, before)
    off.check_batch(rollout(rewards=np.full((4, 3), np.nan)))
    off.check_state(state())
    off.check_gradients(torch.tensor(math.nan), state)
    assert off.seconds == 0.0


def test_gradients_wait_for_the_end_of_the_update_where_looking_stalls_the_device():
    assert [Guard(level).every_step("cpu") for level in ("off", "cheap", "full")] == [False, True, True]
    assert [Guard(level).every_step("cuda:0") for level in ("off", "cheap", "full")] == [False, False, True]


def test_state_is_named_as_a_user_knows_it():
    state = {
        "policy": {"network": {"actor.layers.0.weight": np.zeros(2)}, "normalizer": {"obs": {"mean": np.zeros(2)}}},
        "algorithm": {"optimizer": {"steps": 3, "square": {"actor.layers.0.bias": np.zeros(2)}}, "temperature": 0.5},
        "collector": {"returns": np.zeros(2), "carry": {}},
        "env": {"envs": {"0": {"obs": np.zeros(4), "reward": 1.0}}},
    }
    names = [prefix + path for prefix, tree in part_suspects(state) for path, _ in leaves(tree, "")]
    assert names == [
        "optimizer/square/actor.layers.0.bias",
        "temperature",
        "parameter actor.layers.0.weight",
        "normalizer/obs/mean",
        "collector/returns",
        "env/envs/0/obs",
        "env/envs/0/reward",
    ]
    state["env"]["envs"]["0"]["reward"] = math.nan
    guard = Guard(progress=Progress(env_steps=32, updates=4))
    with pytest.raises(NonFiniteError, match="env/envs/0/reward is nan at env step 32, after update 4: the env"):
        guard.check_state(part_suspects(state))


def test_a_bad_gradient_is_searched_for_from_cause_to_effect():
    def tree(name: str) -> Any:
        return {name: np.full(2, np.nan)}

    alone = Held(
        optimizers={"": tree("mean")},
        parameters={"": tree("actor.bias")},
        gradients={"": tree("actor.bias")},
        losses={"loss": math.nan, "policy_loss": math.nan},
        normalizer=tree("obs"),
        reward_normalizer={"statistics": tree("mean"), "open_returns": np.full(2, np.nan)},
    )
    assert [prefix + path for prefix, held in gradient_suspects(alone) for path, _ in leaves(held, "")] == [
        "optimizer/mean",
        "reward_normalizer/open_returns",
        "reward_normalizer/statistics/mean",
        "normalizer/obs",
        "parameter actor.bias",
        "train/policy_loss",
        "train/loss",
        "gradient of actor.bias",
    ]
    several = Held(
        optimizers={"q": tree("mean")},
        parameters={"q": tree("bias"), "actor": tree("bias")},
        gradients={"q": tree("bias")},
        losses={},
        targets={"q": tree("bias")},
        batch={"indices": np.full(2, np.nan), **tree("rewards")},
    )
    assert [prefix + path for prefix, held in gradient_suspects(several) for path, _ in leaves(held, "")] == [
        "sampled rewards",
        "optimizer/q/mean",
        "parameter q.bias",
        "parameter actor.bias",
        "target q.bias",
        "gradient of q.bias",
    ]


def test_numbers_in_lists_and_scalars_are_seen():
    assert search([("history/", {"losses": [1.0, math.nan]})]).name == "history/losses/1"  # type: ignore[union-attr]
    assert search([("scale", np.float32("inf"))]).name == "scale"  # type: ignore[union-attr]
    assert search([("text", "nan"), ("none", None), ("count", 3), ("flag", True)]) is None


def test_a_sum_is_named_only_if_its_terms_are_fine():
    assert list(total_last({"loss": 1, "policy_loss": 2, "kl": 3})) == ["policy_loss", "kl", "loss"]


def test_the_guard_counts_its_own_time():
    guard = Guard()
    guard.check_batch(rollout())
    first = guard.seconds
    assert first > 0.0
    guard.check_batch(rollout())
    assert guard.seconds > first
