"""Fitted Q evaluation: known returns, what it says of far policies, divergence, and how it ranks checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.algorithms.offline.fqe import (
    FQEConfig,
    action_distance,
    greedy_actions,
    off_policy_estimate,
    possible_returns,
)
from rl_training.algorithms.static import StaticAgent
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.eval import load, record, record_replay
from rl_training.training.offline.recording import Amount
from rl_training.types import REWARD, ActResult, BoxSpec, DiscreteSpec

LINE = BoxSpec(np.full(1, -np.inf, np.float32), np.full(1, np.inf, np.float32), np.dtype(np.float32))
UNIT = BoxSpec(np.full(1, -1.0, np.float32), np.full(1, 1.0, np.float32), np.dtype(np.float32))
QUICK = FQEConfig(gamma=0.9, total_updates=800, learning_rate=1e-2, tau=0.05, batch_size=64, hidden_dims=(32,))


class Always(StaticAgent):
    """One action, whatever is seen."""

    def __init__(self, action: Any, carry: Any = None) -> None:
        self.action, self.carry = np.asarray(action), carry or {}
        self.told: list[Any] = []

    def initial_carry(self, num_envs: int) -> Any:
        return {name: value.copy() for name, value in self.carry.items()}

    def act(self, obs: Any, carry: Any, is_first: Any, rng: Any, *, deterministic: bool = False) -> ActResult:
        if REWARD in carry:
            self.told.append((bool(is_first[0]), float(carry[REWARD][0])))
        actions = np.repeat(self.action[None], len(is_first), 0)
        return ActResult(actions, actions, carry)


def chain(space: Any, seed: int = 0, episodes: int = 40) -> Dataset:
    """Three states 0, 1, 2 in a row, then the end; the reward is the action (0 or 1, or real in -1..1)."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        obs = np.arange(4, dtype=np.float32)[:, None]
        if isinstance(space, DiscreteSpec):
            actions: Any = rng.integers(2, size=3)
            rewards = actions.astype(np.float64)
        else:
            actions = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
            rewards = actions[:, 0].astype(np.float64)
        end = np.array([False, False, True])
        found.append(Steps(obs, actions, rewards, end, end & ~end))
    return joined(DatasetInfo("Chain", (LINE, space)), found)


@pytest.mark.parametrize(
    ("space", "action", "value"),
    [(DiscreteSpec(2), 1, 2.71), (DiscreteSpec(2), 0, 0.0), (UNIT, [0.5], 1.355)],
    ids=["one", "zero", "half"],
)
def test_the_return_of_a_policy_that_did_not_act(space: Any, action: Any, value: float) -> None:
    """1 + 0.9 + 0.81 = 2.71 for action 1; the data's own mean is half of it, or 0."""
    result = off_policy_estimate(Always(action), chain(space), QUICK)
    assert abs(result.estimate - value) < 0.15
    assert result.spread < 0.2
    assert len(result.critics) == 3
    assert not result.diverged
    assert result.data_return == pytest.approx(2.71 * chain(space).rewards.mean(), abs=0.4)


def test_distances() -> None:
    assert action_distance(np.array([1, 1, 0]), np.array([1, 0, 0])) == pytest.approx(1 / 3)
    assert action_distance(np.full((2, 1), 0.5), np.array([[0.0], [1.0]], np.float32)) == pytest.approx(0.5)
    low, high = possible_returns(chain(UNIT), 0.9)
    assert -10.0 < low < 0.0 < high < 10.0


def test_values_beyond_what_rewards_allow_are_called_divergence() -> None:
    """A critic that learns in steps of 1e6 ends nowhere, and says so."""
    result = off_policy_estimate(Always([0.5]), chain(UNIT), FQEConfig(learning_rate=1e3, total_updates=50, gamma=0.9))
    assert result.diverged
    assert json.dumps(result.to_json())


def test_values_are_fitted_as_far_as_the_targets_allow() -> None:
    """One state that goes on for ever, reward 1 and gamma 0.9: the value is 10, and targets lag behind it."""
    obs, end = np.zeros((51, 1), np.float32), np.arange(50) == 49
    steps = Steps(obs, np.zeros((50, 1), np.float32), np.ones(50), end & ~end, end)
    data = joined(DatasetInfo("Line", (LINE, UNIT)), [steps])
    for tau in (0.01, 0.1):
        hparams = FQEConfig(gamma=0.9, tau=tau, total_updates=600, learning_rate=1e-2, batch_size=16, hidden_dims=(8,))
        result = off_policy_estimate(Always([0.0]), data, hparams)
        assert result.estimate == pytest.approx(10.0 * hparams.fitted, abs=0.7)
    assert FQEConfig(gamma=0.9, tau=0.01, total_updates=600).fitted == pytest.approx(0.451, abs=1e-3)


def test_episodes_that_begin_in_the_middle_are_no_first_observations() -> None:
    """The chain from its last state on is worth 0.5, from its first one 1.355: replay rows have both."""
    data = chain(UNIT)
    parts = [
        Steps(
            data.observations[4 * n + 2 : 4 * n + 4], *(c[3 * n + 2 : 3 * n + 3] for c in columns_of(data)), whole=False
        )
        for n in range(40)
    ]
    wholes = [
        Steps(data.observations[4 * n : 4 * n + 4], *(c[3 * n : 3 * n + 3] for c in columns_of(data)))
        for n in range(40)
    ]
    result = off_policy_estimate(Always([0.5]), joined(data.info, parts + wholes), QUICK)
    assert abs(result.estimate - 1.355) < 0.15


def columns_of(data: Dataset) -> tuple[np.ndarray, ...]:
    return data.actions, data.rewards, data.terminated, data.truncated


def test_a_policy_with_memory_follows_the_episodes() -> None:
    data = chain(UNIT, episodes=2)
    policy = Always([0.25], {REWARD: np.zeros(1, np.float32)})
    actions = greedy_actions(policy, data)
    assert actions.shape == (8, 1)
    assert [first for first, _ in policy.told] == [True, False, False, False] * 2
    np.testing.assert_allclose([reward for _, reward in policy.told[1:4]], data.rewards[:3], rtol=1e-6)


def test_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    folder = write_native(record(None, Amount(steps=300), random_env="Pendulum-v1"), tmp_path / "data")
    small = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
    cfg = {"algo": "bc", "output_dir": str(tmp_path), "dataset": {"path": str(folder)}, "network": small}
    run = train(cfg, training={"total_updates": 10, "num_eval_episodes": 0})
    capsys.readouterr()
    words = ["ope", str(run.run_dir), "--dataset", str(folder), "--updates", "50"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == run.run_dir.name
    assert found["gamma"] == 0.99
    assert 0.0 < found["distance"] < 1.0
    assert found["fitted"] == pytest.approx(1.0 - 0.9995**50)
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "distance of the policy from the dataset's actions" in text
    assert "UNFINISHED: after 50 updates the critics are 2% of the way" in text
    assert main(["ope", str(run.run_dir)]) == 2
    other = write_native(record(None, Amount(steps=50), random_env="CartPole-v1"), tmp_path / "other")
    capsys.readouterr()
    assert main(["ope", str(run.run_dir), "--dataset", str(other)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"dataset '{other}' of 'CartPole-v1' has the observation space Box(4,) float32" in said
    assert "the run of 'Pendulum-v1' has Box(3,) float32: give --dataset one of 'Pendulum-v1'" in said


def ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def spread(truth: dict[int, float], count: int) -> list[int]:
    """Checkpoints by their true returns alone: the nearest that is left to each of `count` levels, evenly between the
    worst and the best. A run is soon as good as it gets, and ranks of equals are noise.

    >>> spread({0: -9.0, 1: -5.0, 2: -1.2, 3: -1.1, 4: -1.0}, 3)
    [0, 1, 4]
    """
    left, chosen = dict(truth), []
    for level in np.linspace(min(truth.values()), max(truth.values()), count):
        chosen.append(min(left, key=lambda step: abs(left[step] - level)))
        del left[chosen[-1]]
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_checkpoints_are_ranked_as_their_true_returns(seed: int, tmp_path: Path) -> None:
    """Eight checkpoints of one run, chosen by `spread` among one every 256 steps, evaluated on its replay rows:
    Spearman's correlation is at least 0.8, and none is said to have diverged."""
    layers = {"hidden_dims": [64, 64], "activation": "relu"}
    training = {"total_timesteps": 3500, "num_eval_episodes": 0, "checkpoint_frequency": 256}
    cfg: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1", "seed": seed, "output_dir": str(tmp_path)}
    cfg |= {"network": {"actor": layers, "critic": layers}, "checkpoint": {"keep_last": 40}, "training": training}
    cfg |= {"hparams": {"learning_rate": 1e-3, "learning_starts": 800}, "env": {"num_envs": 1}}
    run = train(cfg).run_dir
    data = record_replay(run, reference_episodes=0)
    truth = {}
    for step in CheckpointManager(run).steps():
        if step >= 800:  # before, there is only the policy of the start
            played = record(run, Amount(episodes=10), checkpoint=step, reference_episodes=0, seed=100 + seed)
            rewards = np.asarray(played.rewards).reshape(10, 200)
            truth[step] = float((rewards @ 0.99 ** np.arange(200)).mean())
    steps = spread(truth, 8)
    hparams = FQEConfig(total_updates=1500, learning_rate=1e-3, tau=0.2, seed=seed)
    results = [off_policy_estimate(load(run, step).policy, data, hparams) for step in steps]
    estimates = [result.estimate for result in results]
    spearman = float(np.corrcoef(ranks(estimates), ranks([truth[step] for step in steps]))[0, 1])
    found = [
        (step, round(truth[step], 1), round(result.estimate, 1)) for step, result in zip(steps, results, strict=True)
    ]
    print(f"seed {seed}: Spearman {spearman:.2f}, (step, true return, estimate): {found}")
    assert spearman >= 0.8, found
    assert not any(result.diverged for result in results), found
