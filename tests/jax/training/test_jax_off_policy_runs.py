"""DQN, PQN, SAC and TD3 in JAX on the probes they fit, in both lanes; and a run with replay that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.data.datasets.opening import open_dataset
from rl_training.data.given_rows import given_rows
from rl_training.envs.probes import PROBES
from rl_training.testing.states import difference
from rl_training.training.compiled import CompiledTrainer
from rl_training.training.evaluation import stack_obs
from rl_training.types import CheckpointError

SMALL = {"hidden_dims": [32], "activation": "tanh"}
REPLAY = {"learning_starts": 200, "batch_size": 64, "updates_per_step": 0.25}
HPARAMS: dict[str, dict[str, Any]] = {
    "dqn": {**REPLAY, "epsilon_steps": 1_000, "epsilon_end": 0.2, "target_every_updates": 1, "tau": 0.02},
    "pqn": {"num_steps": 16, "num_minibatches": 4, "epsilon_steps": 1_000, "epsilon_end": 0.2},
    "sac": {**REPLAY, "updates_per_step": 1.0},
    "td3": {**REPLAY, "updates_per_step": 1.0},
}
SLOW_TD3 = pytest.param("td3", "host", marks=pytest.mark.slow)


def trainer_of(algo: str, name: str, steps: int, lane: str = "auto", *, backend: str = "jax", **hparams: Any) -> Any:
    backbone = {**SMALL, "layer_norm": algo == "pqn"}
    cfg = {
        "algo": algo,
        "backend": backend,
        "lane": lane,
        "env_id": f"RLProbe/{name}-v0",
        "env": {"num_envs": 8},
        "hparams": {
            "gamma": PROBES[f"RLProbe/{name}-v0"].gamma,
            "learning_rate": {"type": "linear", "start": 1e-2 if algo in ("dqn", "pqn") else 5e-3, "end": 0.0},
            **HPARAMS[algo],
            **hparams,
        },
        "network": {"actor": backbone, "critic": backbone},
        "buffer": {"size": 20_000} if algo != "pqn" else {},
        "training": {"total_timesteps": steps},
    }
    return build_trainer(parse_config(cfg))


def trained(*args: Any, **kwargs: Any) -> Any:
    trainer = trainer_of(*args, **kwargs)
    trainer.run(args[2])
    return trainer


def values_of(trainer: Any, observations: list[Any]) -> Any:
    algorithm = trainer.algorithm
    network = algorithm.functions.act.__self__.q
    return np.asarray(network.apply(algorithm.state.params, stack_obs(observations)))


@pytest.mark.parametrize(("algo", "steps"), [("dqn", 12_032), ("pqn", 12_032)])
def test_action_values_of_two_states_for_ever(algo: str, steps: int) -> None:
    """Episodes are cut after 32 steps, and the values are those of going on: 17.2, 18; 20, 16.2.

    PQN's longer returns contain the explorer's own later actions, so with them only the order is exact.
    """
    trainer = trained(algo, "StaySwitch", steps)
    assert isinstance(trainer, CompiledTrainer)
    known = PROBES["RLProbe/StaySwitch-v0"].q_values
    values = values_of(trainer, [obs for obs, _ in known])
    assert values.argmax(1).tolist() == [1, 0]
    if algo == "dqn":
        np.testing.assert_allclose(values, [value for _, value in known], atol=0.5)


@pytest.mark.parametrize(("algo", "hparams"), [("dqn", {"dueling": True, "n_step": 3}), ("pqn", {})])
def test_the_right_action_in_the_host_lane(algo: str, hparams: dict[str, Any]) -> None:
    trainer = trained(algo, "ObsTimesAction", 4_096, "host", **hparams)
    known = PROBES["RLProbe/ObsTimesAction-v0"].q_values
    np.testing.assert_allclose(values_of(trainer, [obs for obs, _ in known]), [q for _, q in known], atol=0.05)
    trainer.close()


@pytest.mark.parametrize(("algo", "lane"), [("sac", "auto"), ("td3", "auto"), SLOW_TD3])
def test_the_best_continuous_action(algo: str, lane: str) -> None:
    """Half the observation, within -1..1."""
    trainer = trained(algo, "Target", 2_048, lane)
    known = PROBES["RLProbe/Target-v0"].best_actions
    obs = stack_obs([obs for obs, _ in known])
    actions = trainer.algorithm.policy.act(obs, {}, np.ones(3, bool), np.random.default_rng(0), deterministic=True)
    np.testing.assert_allclose(actions.env_actions, [action for _, action in known], atol=0.1)
    trainer.close()


@pytest.mark.slow
def test_a_mask_is_respected_and_a_dict_observed() -> None:
    """A forbidden action would give a NaN reward."""
    trainer = trained("dqn", "MaskedArms", 2_048)
    assert np.isfinite(np.asarray(trainer.position.loop.replay.rows["rewards"])).all()


@pytest.mark.parametrize("algo", ["dqn", pytest.param("td3", marks=pytest.mark.slow)])
def test_a_run_with_replay_goes_on_bit_for_bit(algo: str, tmp_path: Path) -> None:
    """Through files: stopped after 1024 of 2048 steps, in the middle of exploration and of open episodes."""
    name = "StaySwitch" if algo == "dqn" else "LQR"
    whole = trained(algo, name, 2_048)
    half = trainer_of(algo, name, 2_048)
    half.run(1_024)
    manager = CheckpointManager(tmp_path)
    manager.save(half.state_dict(), step=half.progress.env_steps)
    resumed = trainer_of(algo, name, 2_048)
    resumed.load_state_dict(manager.load("latest").parts)
    resumed.run(2_048)
    assert len(whole.state_dict()["buffer"]["rows"].arrays()["rewards"]) == 2_048
    assert difference(resumed.state_dict(), whole.state_dict()) is None


def test_replay_rows_of_a_compiled_run_are_a_dataset(tmp_path: Path) -> None:
    """600 random steps of three CartPoles in a ring of 450 rows, put together again by environment, bit for bit."""
    cfg: dict[str, Any] = {"algo": "dqn", "backend": "jax", "lane": "compiled", "env_id": "CartPole-v1"}
    cfg |= {"output_dir": str(tmp_path), "network": {"critic": SMALL}, "env": {"num_envs": 3}, "buffer": {"size": 450}}
    cfg["training"] = {"total_timesteps": 600, "num_eval_episodes": 0}
    run = train(cfg, hparams={"learning_starts": 10_000}).run_dir
    data = open_dataset(f"run:{run}")
    state = CheckpointManager(run).load("latest", parts={"buffer"}).parts["buffer"]
    rows, order = state["rows"].arrays(), np.arange(450)
    order = np.concatenate([order[(order + state["rows"].start) % 3 == env] for env in range(3)])
    for name, column in data.columns().items():
        np.testing.assert_array_equal(column, rows[name][order], err_msg=name)
    assert data.actions.dtype == np.int64
    lengths = np.diff(data.episodes(), axis=1)[:, 0]
    assert data.terminated.sum() > 10
    assert data.whole.sum() >= data.terminated.sum() - 3  # the first of each environment may have begun before
    np.testing.assert_array_equal(data.returns, lengths)
    with pytest.raises(CheckpointError, match="train it with --lane host"):
        given_rows(state, {})


def test_a_checkpoint_of_one_backend_is_a_policy_of_the_other() -> None:
    """The same greedy actions, and outside of training as much exploration as when it was saved."""
    ours, twin, back = (
        trainer_of("dqn", "ObsTimesAction", 1_024, backend=backend, epsilon_steps=2_048)
        for backend in ("jax", "torch", "jax")
    )
    ours.progress.advance(env_steps=1_024, updates=0, episodes=0)
    ours.algorithm.state.params["advantage.bias"][:] = [0.3, -0.2]
    twin.algorithm.policy.load_state_dict(ours.state_dict()["policy"])
    assert twin.algorithm.policy.epsilon() == pytest.approx(0.6)  # halfway from 1 to 0.2
    obs, is_first, rng = np.array([[-1.0], [1.0]], np.float32), np.ones(2, bool), np.random.default_rng(0)
    greedy = [t.algorithm.policy.act(obs, {}, is_first, rng, deterministic=True).actions for t in (ours, twin)]
    np.testing.assert_array_equal(*greedy)
    back.algorithm.policy.load_state_dict(twin.algorithm.policy.state_dict())
    assert float(back.algorithm.policy.acting().exploration) == pytest.approx(0.6)
    np.testing.assert_array_equal(back.algorithm.state.params["advantage.bias"], np.float32([0.3, -0.2]))
    twin.close()
