"""On-policy algorithms with memory: sequences give the numbers of acting, and the conformance suite passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.testing import check_algorithm
from rl_training.types import Batch, ConfigError

MEMORIES = ("gru", "lstm", "transformer")


def network(kind: str, **memory: Any) -> dict[str, Any]:
    backbone = {"hidden_dims": [8], "memory": {"type": kind, "size": 8, "window": 6, **memory}}
    return {"actor": backbone, "critic": backbone}


def built(kind: str, tmp_path: Any, **changes: Any) -> Any:
    cfg = {
        "algo": "ppo",
        "env_id": "RLProbe/CueMemory-v0",
        "env": {"num_envs": 3},
        "output_dir": str(tmp_path),
        "network": network(kind),
        "hparams": {"num_steps": 24, "sequence_length": 8, "num_minibatches": 2},
    }
    return build_trainer(parse_config({**cfg, **changes}))


def rollout(trainer: Any, count: int = 1) -> Batch:
    """The `count`-th rollout, so that episodes and memories are under way when it begins."""
    for _ in range(count):
        trainer.collector.collect(trainer.num_steps, trainer.buffer, trainer.algorithm.policy)
    return trainer.buffer.as_batch()


def acted(algorithm: Any, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and values (T, N), one step at a time as the policy acts."""
    net = algorithm.network
    carry = algorithm.policy.memory_of(batch["initial_carry"])
    logprobs, values = [], []
    with torch.no_grad():
        for t in range(len(batch["rewards"])):
            obs, begins = torch.as_tensor(batch["obs"][t]), torch.as_tensor(batch["is_first"][t])
            features, after = net.advance(obs, carry, begins)
            critic = net.memories["critic"]
            own = {name.removeprefix("critic/"): value for name, value in carry.items() if name.startswith("critic/")}
            seen, _ = critic.memory.step(critic.embed(obs), own, begins)
            actions = torch.as_tensor(batch["actions"][t])
            logprobs.append(net.action_head.logprob_entropy(net.action_head(features), actions, None)[0].numpy())
            values.append(net.value_head(seen).numpy())
            carry = after
    return np.stack(logprobs), np.stack(values)


@pytest.mark.parametrize("kind", MEMORIES)
def test_recomputed_log_probabilities_are_those_of_acting(kind: str, tmp_path: Any) -> None:
    trainer = built(kind, tmp_path)
    batch = rollout(trainer, 2)
    prepared = trainer.algorithm.prepare(batch)
    logprobs, values = acted(trainer.algorithm, batch)
    pieces = prepared.pieces
    assert (pieces.length, pieces.count) == (8, 9)

    def as_rollout(column: torch.Tensor) -> np.ndarray:
        """(L * P) rows back to (T, N): piece p is the p // N-th stretch of environment p % N."""
        return column.view(8, 3, 3).transpose(0, 1).reshape(24, 3).numpy()

    np.testing.assert_allclose(as_rollout(prepared.logprobs), logprobs, atol=1e-5)
    np.testing.assert_allclose(as_rollout(prepared.values), values, atol=1e-5)
    trainer.close()


@pytest.mark.parametrize("kind", MEMORIES)
def test_the_first_minibatch_has_ratio_1(kind: str, tmp_path: Any) -> None:
    """Pieces start from fresh memories, so at the first optimiser step nothing differs from acting."""
    trainer = built(kind, tmp_path)
    algorithm = trainer.algorithm
    prepared = algorithm.prepare(rollout(trainer, 2))
    for minibatch, _ in algorithm.minibatches(prepared):
        with torch.no_grad():
            logprobs, _, values = algorithm.evaluated(minibatch)
        assert torch.allclose(logprobs, minibatch.learnt().logprobs, atol=1e-5)
        assert torch.allclose(values, minibatch.learnt().values, atol=1e-5)
    trainer.close()


@pytest.mark.parametrize("kind", MEMORIES)
def test_values_of_final_observations_come_from_the_memory_before_them(kind: str, tmp_path: Any) -> None:
    """A truncated episode bootstraps from its own memory, not from that of the next episode or of the next row."""
    trainer = built(kind, tmp_path, env_id="CartPole-v1", env={"num_envs": 3, "max_episode_steps": 5})
    algorithm = trainer.algorithm
    batch = rollout(trainer, 1)
    assert len(batch["final_index"]) > 0
    seen: list[np.ndarray] = []
    original = algorithm.targets

    def spy(given: Batch, rewards: np.ndarray, values: np.ndarray, edge_values: np.ndarray) -> Any:
        seen.append(edge_values)
        return original(given, rewards, values, edge_values)

    algorithm.targets = spy
    algorithm.prepare(batch)
    critic, num_envs = algorithm.network.memories["critic"], 3
    for row, index in enumerate(batch["final_index"]):
        time, env = divmod(int(index), num_envs)
        begin = max(t for t in range(time + 1) if batch["is_first"][t, env])
        carry = critic.memory.initial_carry(1)
        with torch.no_grad():
            for t in range(begin, time + 1):
                x = critic.embed(torch.as_tensor(batch["obs"][t, env : env + 1]))
                _, carry = critic.memory.step(x, carry, torch.tensor([t == begin]))
            x = critic.embed(torch.as_tensor(batch["final_obs"][row : row + 1]))
            features, _ = critic.memory.step(x, carry, torch.tensor([False]))
            wanted = float(algorithm.network.value_head(features)[0])
        assert seen[0][num_envs + row] == pytest.approx(wanted, abs=1e-5)
    trainer.close()


def test_rows_that_are_no_transitions_are_not_learnt_from(tmp_path: Any) -> None:
    trainer = built("gru", tmp_path)
    batch = dict(rollout(trainer, 1))
    batch["valid"] = batch["valid"].copy()
    batch["valid"][3, 1] = batch["valid"][10, 0] = False
    prepared = trainer.algorithm.prepare(batch)
    assert len(prepared.learnt().advantages) == 24 * 3 - 2
    logprobs, _, _ = trainer.algorithm.evaluated(prepared)
    assert len(logprobs) == 24 * 3 - 2
    trainer.close()


def test_a_sequence_length_that_does_not_divide_the_rollout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sequence_length.* 7 does not divide num_steps 24"):
        parse_config({"algo": "ppo", "env_id": "CartPole-v1", "hparams": {"num_steps": 24, "sequence_length": 7}})


@pytest.mark.parametrize("kind", MEMORIES)
def test_ppo_conforms_with_memory(kind: str) -> None:
    environments = ["CartPole-v1", "RLProbe/MaskedArms-v0"]
    assert check_algorithm("ppo", environments=environments, config={"network": network(kind)}).trained_on


@pytest.mark.parametrize("algo", ["a2c", "reinforce"])
def test_the_other_on_policy_algorithms_conform_with_memory(algo: str) -> None:
    config = {"network": {**network("lstm"), "shared": True}}
    assert check_algorithm(algo, environments=["RLProbe/DictObs-v0"], config=config).trained_on


def test_memory_and_state_dependent_exploration_share_the_carry() -> None:
    check_algorithm("ppo", environments=["Pendulum-v1"], hparams={"use_sde": True}, config={"network": network("gru")})


def test_predict_remembers_each_row_of_a_batch(tmp_path: Any) -> None:
    """A batch of three is three policies that remember for themselves; `reset` makes single rows forget."""
    cfg = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "output_dir": str(tmp_path),
        "network": network("gru"),
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 8},
        "training": {"total_timesteps": 16, "num_eval_episodes": 0},
        "logging": {"terminal": False},
    }
    run = rl_training.train(cfg).run_dir
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((6, 3, 4)).astype(np.float32)
    together = rl_training.load(run)
    alone = [rl_training.load(run) for _ in range(3)]
    for t, rows in enumerate(steps):
        if t == 3:
            together.reset(np.array([False, True, False]))
            alone[1].reset()
        together.predict(rows)
        for i, policy in enumerate(alone):
            policy.predict(rows[i])
            np.testing.assert_allclose(together._carry["actor/hidden"][i], policy._carry["actor/hidden"][0], atol=1e-6)
