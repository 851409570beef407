"""PPO with another loss: trains from its config under its short name, learns, and does not use PPO's own gradient."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rl_training
from rl_training.algorithms.ppo import PPO, Coefficients, ReferenceKernel
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import load_config
from rl_training.testing import check_algorithm

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "algorithms" / "my_ppo_loss.yaml"


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch, registrations: None) -> None:
    """The module can be imported, and what its decorator registers is forgotten after the test."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "examples.my_ppo_loss", raising=False)


def test_it_learns_from_its_config(tmp_path: Path) -> None:
    overrides = {
        "output_dir": str(tmp_path),
        "training.total_timesteps": 12_000,
        "training.eval_frequency": 0,
        "logging.terminal": False,
        "logging.tensorboard": False,
    }
    result = rl_training.train(load_config(CONFIG, overrides))
    assert result.metrics["eval/return_mean"] > 150  # chance reaches 22


def test_it_conforms() -> None:
    config = {"plugins": ["examples.my_ppo_loss"]}
    report = check_algorithm("kl_penalty_ppo", environments=["CartPole-v1", "Pendulum-v1"], config=config)
    assert report.refused == {}


@torch.no_grad()
def test_its_loss_is_the_one_that_is_minimised() -> None:
    """At ratio 1 nothing is clipped and the KL is 0, so both losses agree; a step away they do not."""
    trainer = build_trainer(load_config(CONFIG))
    algorithm: Any = trainer.algorithm
    assert isinstance(algorithm.kernel, ReferenceKernel), "the fast kernel computes the gradient of PPO's own loss"
    trainer.collector.collect(trainer.num_steps, trainer.buffer)
    rollout = algorithm.prepare(trainer.buffer.as_batch())
    coefficients = Coefficients(clip_coef=0.2, ent_coef=0.0, vf_coef=0.5, clip_vf=None)
    own, ppo = algorithm.loss(rollout, coefficients), PPO.loss(algorithm, rollout, coefficients)
    assert float(own["loss"]) == pytest.approx(float(ppo["loss"]), abs=1e-6)
    rollout.logprobs = rollout.logprobs - 0.3  # every ratio is e^0.3 = 1.349859, so k3 is 1.349859 - 1 - 0.3
    own, ppo = algorithm.loss(rollout, coefficients), PPO.loss(algorithm, rollout, coefficients)
    assert float(own["approx_kl"]) == pytest.approx(0.049859, abs=1e-5)
    assert float(own["policy_loss"]) == pytest.approx(0.049859, abs=1e-4), "normalised advantages have mean 0"
    assert float(own["policy_loss"]) < float(ppo["policy_loss"]), "which clips the gains and not the losses"
    trainer.close()
