"""From a rollout to targets: bootstrapping at truncation, invalid rows, recomputed log-probabilities, schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.algorithms.ppo import PPO, Coefficients, PPOConfig
from rl_training.build_context import BuildContext
from rl_training.hparams.schedules import Schedule
from rl_training.numerics.returns import explained_variance
from rl_training.seeding import Streams
from rl_training.types import Batch, BoxSpec, DiscreteSpec, Progress

OBS = BoxSpec(np.full(1, -10, np.float32), np.full(1, 10, np.float32), np.dtype(np.float32))


def algorithm(hp: PPOConfig | None = None, **context: object) -> PPO:
    ctx = BuildContext(OBS, DiscreteSpec(2), streams=Streams(0), **context)  # type: ignore[arg-type]
    return PPO(ctx, hp or PPOConfig())


def with_values(ppo: PPO, values: dict[float, float]) -> None:
    """Make the critic answer from a table."""

    def answer(obs: torch.Tensor) -> torch.Tensor:
        return torch.tensor([values[round(float(x), 3)] for x in obs[:, 0]])

    ppo.network.values = answer  # type: ignore[method-assign, assignment]
    ppo.network.forward = lambda obs, actions: (torch.zeros(len(obs)), torch.zeros(len(obs)), answer(obs))  # type: ignore[method-assign]


def rollout(obs: list[float], rewards: list[float], **given: object) -> Batch:
    steps = len(obs)
    batch: Batch = {
        "obs": np.float32(obs).reshape(steps, 1, 1),
        "actions": np.zeros((steps, 1), np.int64),
        "rewards": np.float32(rewards).reshape(steps, 1),
        "terminated": np.zeros((steps, 1), bool),
        "truncated": np.zeros((steps, 1), bool),
        "is_first": np.zeros((steps, 1), bool),
        "valid": np.ones((steps, 1), bool),
        "final_obs": np.zeros((0, 1), np.float32),
        "final_index": np.zeros(0, np.int64),
        "last_obs": np.float32([[9.0]]),
        "initial_carry": {},
    }
    return batch | given


TABLE = {0.0: 0.5, 1.0: 1.0, 2.0: 1.5, 7.0: 4.0, 9.0: 2.0}


def test_the_value_of_a_truncated_final_observation_enters_the_advantages():
    ppo = algorithm(PPOConfig(gamma=0.9, gae_lambda=0.8))
    with_values(ppo, TABLE)
    ends = np.array([[False], [True], [False]])
    final = {"final_obs": np.float32([[7.0]]), "final_index": np.array([1])}
    truncated = ppo.prepare(rollout([0, 1, 2], [1, 2, 3], truncated=ends, **final))
    assert truncated.advantages.tolist() == pytest.approx([4.712, 4.6, 3.3], abs=1e-5)
    assert truncated.returns.tolist() == pytest.approx([5.212, 5.6, 4.8], abs=1e-5)
    terminated = ppo.prepare(rollout([0, 1, 2], [1, 2, 3], terminated=ends, **final))
    assert terminated.advantages.tolist() == pytest.approx([2.12, 1.0, 3.3], abs=1e-5)


def test_reset_rows_are_no_transitions():
    ppo = algorithm(PPOConfig(gamma=0.9, gae_lambda=0.8))
    with_values(ppo, TABLE)
    plain = ppo.prepare(
        rollout(
            [0, 1, 2],
            [1, 2, 3],
            terminated=np.array([[False], [True], [False]]),
            final_obs=np.float32([[7.0]]),
            final_index=np.array([1]),
        )
    )
    with_reset_row = ppo.prepare(
        rollout(
            [0, 1, 7, 2],
            [1, 2, 0, 3],
            terminated=np.array([[False], [True], [False], [False]]),
            valid=np.array([[True], [True], [False], [True]]),
            final_obs=np.float32([[7.0]]),
            final_index=np.array([1]),
        )
    )
    assert len(with_reset_row) == 3
    assert with_reset_row.advantages.tolist() == plain.advantages.tolist()
    assert with_reset_row.obs.flatten().tolist() == [0, 1, 2]


def test_the_ratio_is_one_at_the_first_minibatch():
    ppo = algorithm(num_envs=2)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((16, 2, 1)).astype(np.float32)
    acted = [ppo.policy.act(row, {}, np.zeros(2, bool), rng).actions for row in obs]
    batch = rollout([0] * 16, [0] * 16) | {
        "obs": obs, "actions": np.stack(acted), "last_obs": np.zeros((2, 1), np.float32),
        **{k: np.zeros((16, 2), bool) for k in ("terminated", "truncated", "is_first")},
        "valid": np.ones((16, 2), bool), "rewards": np.zeros((16, 2), np.float32),
    }  # fmt: skip
    prepared = ppo.prepare(batch)
    losses = ppo.loss(prepared, Coefficients(0.2, 0.0, 0.5, None))
    assert abs(float(losses["approx_kl"])) < 1e-6
    assert float(losses["clip_fraction"]) == 0.0
    mean = ppo.policy._features_and_mean(obs.reshape(-1, 1), {}, np.ones(obs.size, bool))[1]
    acting = torch.log_softmax(torch.from_numpy(mean), 1).gather(1, prepared.actions[:, None]).squeeze(1)
    torch.testing.assert_close(acting, prepared.logprobs, atol=1e-5, rtol=0)


def test_learning_rate_goes_from_one_to_a_tenth_over_ten_updates():
    progress = Progress()
    hp = PPOConfig(learning_rate=Schedule("linear", 1.0, 0.0))
    ppo = algorithm(hp, progress=progress, total_timesteps=1000)
    rates = []
    for _ in range(10):
        rates.append(ppo.scheduled("learning_rate"))
        progress.advance(env_steps=100)
    assert rates == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def test_adam_uses_the_epsilon_of_the_original_code():
    assert algorithm().optimizer.eps == 1e-5


def updated_weights(hp: PPOConfig) -> tuple[PPO, dict[str, float]]:
    ppo = algorithm(hp)
    rng = np.random.default_rng(1)
    batch = rollout(rng.standard_normal(64).tolist(), rng.standard_normal(64).tolist())
    batch["actions"] = rng.integers(0, 2, (64, 1))
    batch["last_obs"] = np.zeros((1, 1), np.float32)
    return ppo, {k: float(v) for k, v in ppo.update(batch).metrics.items()}


def test_target_kl_stops_the_epochs():
    free = PPOConfig(learning_rate=0.05, num_epochs=10)
    assert updated_weights(free)[1]["epochs"] == 10
    stopped = updated_weights(replace(free, target_kl=1e-3))[1]
    assert stopped["epochs"] < 10


def test_gradients_are_clipped_to_the_norm():
    before = updated_weights(PPOConfig(max_grad_norm=None, learning_rate=0.0))[1]["grad_norm"]
    ppo, metrics = updated_weights(PPOConfig(max_grad_norm=1e-3, num_epochs=1, num_minibatches=1))
    assert metrics["grad_norm"] > 1e-3
    assert before > 1e-3
    clipped = ppo.optimizer.mean / 0.1  # after one step the first moment is a tenth of the gradient
    assert float(clipped.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_accumulated_gradients_equal_one_large_minibatch():
    common = PPOConfig(num_epochs=1, learning_rate=1e-2, normalize_advantage=False, max_grad_norm=None)
    whole, _ = updated_weights(replace(common, num_minibatches=1))
    parts, _ = updated_weights(replace(common, num_minibatches=4, grad_accumulation=4))
    for a, b in zip(whole.network.parameters(), parts.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_reward_normalisation_scales_by_the_return_deviation_from_the_first_rollout_on():
    ppo = algorithm(PPOConfig(gamma=0.5), normalize_reward=True)
    ends = np.array([[False], [False], [True]] * 2)
    batch = rollout(
        [0] * 6, [1] * 6, terminated=ends, final_obs=np.zeros((2, 1), np.float32), final_index=np.array([2, 5])
    )
    scaled = ppo._scaled_rewards(batch)
    expected = 1.0 / np.std([1, 1.5, 1.75, 1, 1.5, 1.75])
    assert scaled[0, 0] == pytest.approx(expected, rel=1e-5)


def test_explained_variance():
    assert explained_variance(np.array([1.0, 2, 4]), np.array([1.0, 2, 3])) == pytest.approx(0.666667, abs=1e-6)
    # pred [1, 2, 4] for y [1, 2, 3]: residual variance 2/9, target variance 2/3
