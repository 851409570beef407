"""Every algorithm with another optimiser than Adam: the reference kernel, one per network, resumed to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.envs.probes import PROBES
from rl_training.models.optimization import TorchOptimizer
from rl_training.testing.states import difference
from rl_training.training.evaluation import stack_obs

SMALL = {"hidden_dims": [16], "activation": "tanh"}
REPLAY = {"learning_starts": 64, "batch_size": 32, "updates_per_step": 0.25}
ON_POLICY = ("ppo", "a2c", "reinforce")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"type": "adamw", "kwargs": {"weight_decay": 0.01}},
    "rmsprop": {"type": "rmsprop", "kwargs": {"momentum": 0.5}},
}


def trainer_of(algo: str, optimizer: str, steps: int = 512, *, probe: str = "", **hparams: Any) -> Any:
    env = probe or ("ObsTimesAction" if algo in (*ON_POLICY, "dqn") else "Target")
    own = {"num_steps": 16} if algo in ON_POLICY else REPLAY
    return build_trainer(
        parse_config(
            {
                "algo": algo,
                "env_id": f"RLProbe/{env}-v0",
                "env": {"num_envs": 8},
                "hparams": {**own, "max_grad_norm": 0.5, "optimizer": OPTIMIZERS[optimizer], **hparams},
                "network": {"actor": SMALL, "critic": SMALL},
                "training": {"total_timesteps": steps},
                **({} if algo in ON_POLICY else {"buffer": {"size": 1000}}),
            }
        )
    )


def optimizers_of(algorithm: Any) -> list[Any]:
    if hasattr(algorithm, "learners"):
        return [learner.optimizer for learner in algorithm.learners.values()]
    return [algorithm.optimizer]


@pytest.mark.parametrize("algo", ["ppo", "a2c", "reinforce", "dqn", "ddpg", "td3", "sac", "crossq"])
def test_all_networks_of_an_algorithm_have_it_and_kernels_are_the_reference(algo: str) -> None:
    trainer = trainer_of(algo, "adamw")
    found = optimizers_of(trainer.algorithm)
    assert all(isinstance(optimizer, TorchOptimizer) for optimizer in found)
    assert len(found) == {"td3": 2, "ddpg": 2, "sac": 3, "crossq": 3}.get(algo, 1)
    if algo not in ("a2c", "reinforce"):
        assert type(trainer.algorithm.kernel).__name__ == "ReferenceKernel"
    trainer.close()


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop"])
@pytest.mark.parametrize("algo", ["ppo", "sac", "dqn"])
def test_a_run_goes_on_bit_for_bit(algo: str, optimizer: str, tmp_path: Path) -> None:
    """Through files: stopped after 256 of 512 steps; whatever the optimiser keeps is in the checkpoint."""
    with pinned_threads(1):
        whole, half, resumed = (trainer_of(algo, optimizer) for _ in range(3))
        whole.run(512)
        half.run(256)
        manager = CheckpointManager(tmp_path)
        manager.save(half.state_dict(), step=half.progress.env_steps)
        resumed.load_state_dict(manager.load("latest").parts)
        resumed.run(512)
    assert difference(resumed.state_dict(), whole.state_dict()) is None
    assert difference(half.state_dict(), whole.state_dict()) is not None
    for trainer in (whole, half, resumed):
        trainer.close()


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop"])
def test_ppo_learns_with_it(optimizer: str) -> None:
    """The right action in both states of the probe."""
    schedule = {"type": "linear", "start": 1e-2, "end": 0.0}
    trainer = trainer_of("ppo", optimizer, 4_096, learning_rate=schedule, num_minibatches=2)
    with pinned_threads(1):
        trainer.run(4_096)
    known = PROBES["RLProbe/ObsTimesAction-v0"].best_actions
    obs, is_first = stack_obs([obs for obs, _ in known]), np.ones(len(known), bool)
    act = trainer.algorithm.policy.act(obs, {}, is_first, np.random.default_rng(0), deterministic=True)
    np.testing.assert_array_equal(act.actions, [action for _, action in known])
    trainer.close()
