"""Runs of Dreamer in JAX in both lanes: resumed bit for bit, the updates and metrics of torch, loading and dreaming."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampling import sampled

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.config.schema import TrainConfig
from rl_training.testing.states import difference
from rl_training.training.compiled import CompiledTrainer
from rl_training.types import ConfigError

WIDTHS = {"deter": 16, "hidden": 8, "stoch": 4, "classes": 4, "units": 8, "layers": 1, "depth": 1, "bins": 21}
HPARAMS: dict[str, Any] = {
    "size": "custom",
    "custom": WIDTHS,
    "batch_size": 4,
    "sequence_length": 8,
    "train_ratio": 4,
    "learning_starts": 16,
    "imagine_horizon": 3,
    "imagine_last": 3,
    "warmup_updates": 0,
    "learning_rate": 1e-3,
}
TOTAL = 768
LANES = ("compiled", "host")
SLOW = pytest.mark.slow


def config(lane: str, env_id: str = "RLProbe/Catch-v0", **fields: Any) -> TrainConfig:
    """Four environments and a ring of 400 rows, which is full before the run ends."""
    backend = {"backend": "torch"} if lane == "torch" else {"backend": "jax", "lane": lane}
    mapping = {
        "algo": "dreamer",
        **backend,
        "env_id": env_id,
        "env": {"num_envs": 4},
        "hparams": HPARAMS,
        "buffer": {"size": 400},
        "training": {"total_timesteps": TOTAL, "eval_frequency": 512, "num_eval_episodes": 2},
        "logging": {"terminal": False, "tensorboard": False},
        **fields,
    }
    return parse_config(mapping)


@cache
def uninterrupted(lane: str) -> Any:
    trainer = build_trainer(config(lane))
    trainer.run(TOTAL)
    return trainer


@pytest.mark.parametrize("lane", sampled(LANES, ("compiled",)))
def test_a_run_goes_on_bit_for_bit(lane: str, tmp_path: Path) -> None:
    """Through files: stopped in the middle of open episodes, with latents in the ring and in the carry."""
    whole = uninterrupted(lane)
    assert isinstance(whole, CompiledTrainer) is (lane == "compiled")
    half = build_trainer(config(lane))
    half.run(TOTAL // 3)
    manager = CheckpointManager(tmp_path)
    manager.save(half.state_dict(), step=half.progress.env_steps)
    resumed = build_trainer(config(lane))
    resumed.load_state_dict(manager.load("latest").parts)
    assert difference(resumed.state_dict(), whole.state_dict()) is not None
    resumed.run(TOTAL)
    found, expected = resumed.state_dict(), whole.state_dict()
    assert difference(found, expected) is None
    columns = expected["buffer"]["rows"].arrays()
    assert {"carry/deter", "carry/stoch"} <= columns.keys()
    assert len(columns["rewards"]) == 400
    assert np.asarray(columns["carry/deter"]).any()


def test_both_lanes_learn_after_the_same_steps_as_torch() -> None:
    """Four environments have their first sequence of eight steps after 32 env steps, and learning starts after 16: of
    the 94 updates that are due, the first finds nothing to learn from."""
    done = {lane: uninterrupted(lane).progress for lane in LANES}
    torch = build_trainer(config("torch"))
    torch.run(TOTAL)
    assert done["compiled"].env_steps == done["host"].env_steps == torch.progress.env_steps == TOTAL
    assert done["compiled"].updates == done["host"].updates == torch.progress.updates == 93
    torch.close()


def test_the_ring_holds_what_the_policy_remembered() -> None:
    """A row's latent is the state after its own observation: where an episode starts it follows from that alone."""
    trainer = uninterrupted("compiled")
    batch = trainer.buffer.sample_sequences(64, 8, np.random.default_rng(0))
    assert batch["carry"]["deter"].shape == (64, 16)
    assert batch["carry"]["stoch"].dtype == np.uint8
    ends = batch["terminated"] | batch["truncated"]
    np.testing.assert_array_equal(batch["is_first"][:, 1:], ends[:, :-1])
    goes_on = ~batch["is_first"][:, 1:]
    np.testing.assert_array_equal(batch["obs"][:, 1:][goes_on], batch["next_obs"][:, :-1][goes_on])


@pytest.mark.parametrize("lane", LANES)
def test_a_run_is_an_ordinary_run(lane: str, tmp_path: Path) -> None:
    """Metrics have torch's names; the run is evaluated, loaded, asked for actions and for dreams."""
    results = {
        name: rl_training.train(config(name, output_dir=str(tmp_path / name))).run_dir for name in (lane, "torch")
    }
    names = {name: set(last_row(Path(run), "metrics")) for name, run in results.items()}
    clocks = {"time/", "system/"}
    ours, theirs = ({key for key in found if not key.startswith(tuple(clocks))} for found in names.values())
    assert ours == theirs
    assert {"model/open_loop_error_1", "model/open_loop_error_5", "train/reconstruction_loss"} <= ours
    assert len(last_row(Path(results[lane]), "evals")["returns"]) == 2

    policy = rl_training.load(results[lane])
    obs, action = np.zeros((6, 50), np.float32), policy.predict(np.zeros(50, np.float32))
    assert action in (0, 1, 2)
    dream = policy.dream(obs, np.ones(9, int), samples=3, context=4)
    assert dream.predicted["obs"].shape == (3, 10, 50)
    assert dream.true["obs"].shape == (6, 50)
    assert dream.rewards.shape == dream.continues.shape == (3, 10)
    assert np.isfinite(dream.predicted["obs"]).all()


def last_row(run: Path, name: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((run / "logs" / f"{name}.jsonl").read_text().splitlines()[-1])
    return row


def test_a_checkpoint_of_one_backend_is_a_policy_of_the_other() -> None:
    """The same greedy actions and states, from torch to JAX and back."""
    ours, twin = uninterrupted("compiled").algorithm.policy, build_trainer(config("torch"))
    twin.algorithm.policy.load_state_dict(ours.state_dict())
    back = build_trainer(config("host"))
    back.algorithm.policy.load_state_dict(twin.algorithm.policy.state_dict())
    rng = np.random.default_rng(0)
    obs, is_first = (rng.random((32, 50)) < 0.05).astype(np.float32), np.ones(32, bool)
    policies = (ours, twin.algorithm.policy, back.algorithm.policy)
    results = [p.act(obs, p.initial_carry(32), is_first, rng, deterministic=True) for p in policies]
    for result in results[1:]:
        np.testing.assert_allclose(result.carry["stoch"], results[0].carry["stoch"])
        np.testing.assert_array_equal(result.actions, results[0].actions)
    for trainer in (twin, back):
        trainer.close()


def test_a_buffer_too_small_for_a_sequence_is_refused() -> None:
    for lane in LANES:
        with pytest.raises(ConfigError, match="holds no sequence of 8 steps of 4 environments"):
            build_trainer(config(lane, buffer={"size": 32}))


@SLOW
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("env_id", "fields"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {}),
        ("Pendulum-v1", {"hparams": {**HPARAMS, "dynamics": {"kwargs": {"latent": "gaussian"}}, "context": "zero"}}),
        ("RLProbe/Catch-v0", {"env": {"num_envs": 2, "kwargs": {"obs": "pixels"}}}),
        ("RLProbe/DictObs-v0", {"hparams": {**HPARAMS, "actor_gradient": "dynamics", "return_scale": "none"}}),
    ],
    ids=["cartpole", "pendulum", "gaussian", "pixels", "dict"],
)
def test_every_kind_of_space_learns_with_finite_numbers(lane: str, env_id: str, fields: dict[str, Any]) -> None:
    played = {"training": {"total_timesteps": 512, "num_eval_episodes": 2, "eval_lane": lane}}
    trainer = build_trainer(config(lane, env_id, **{**fields, **played}))
    before = trainer.algorithm.policy.state_dict()["network"]
    trainer.run(512)
    after = trainer.algorithm.policy.state_dict()["network"]
    assert difference(before, after) is not None
    assert all(np.isfinite(value).all() for network in after.values() for value in network.values())
    if isinstance(trainer, CompiledTrainer):
        assert np.isfinite(trainer.evaluate(episodes=2).returns).all()
    trainer.close()
