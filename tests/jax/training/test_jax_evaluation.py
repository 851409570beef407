"""Evaluation as one program: the episodes of the host's evaluation, compiled once for all runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import eval_env_maker
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.loading import parse_config
from rl_training.training.compiled import CompiledTrainer
from rl_training.training.evaluation import evaluate_policy
from rl_training.types import ConfigError

TINY = {"num_steps": 8, "num_epochs": 1, "num_minibatches": 1}
GRU = {"type": "gru", "hidden_dims": [8]}
PENDULUM = "rl_training.jax.envs.pendulum:Pendulum"
CASES: dict[str, dict[str, Any]] = {
    "luck": {"algo": "ppo", "env_id": "RLJax/FourRooms-v0", "hparams": TINY},
    "memory": {
        "algo": "ppo",
        "env_id": "rl_training.jax.envs.probes:CueMemory",
        "hparams": TINY,
        "network": {"actor": GRU, "critic": GRU},
    },
    "bounds": {"algo": "td3", "env_id": PENDULUM, "network": {"actor": {"hidden_dims": [8]}}},
    "statistics": {"algo": "ppo", "env_id": PENDULUM, "hparams": TINY},
}
"""Environments by their class, so that the host plays the JAX form too."""


@pytest.mark.parametrize("case", CASES)
def test_episodes_are_those_of_the_host(case: str) -> None:
    env = {"num_envs": 2, "max_episode_steps": 20, "normalize_obs": case == "statistics"}
    training = {"eval_lane": "compiled", "num_eval_episodes": 6}
    cfg = parse_config({**CASES[case], "backend": "jax", "seed": 3, "env": env, "training": training})
    trainer = build_trainer(cfg)
    assert isinstance(trainer, CompiledTrainer)
    if case == "statistics":
        moved = jax.tree.map(lambda leaf: leaf + leaf.dtype.type(1), trainer.algorithm.state.normalizer)
        trainer.algorithm.state = trainer.algorithm.state._replace(normalizer=moved)
    compiled = trainer.evaluate(episodes=10)  # in two calls of the program
    host = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=10, seed=3)
    np.testing.assert_array_equal(trainer.evaluate(episodes=3, first=7).returns, compiled.returns[7:])
    np.testing.assert_array_equal(compiled.lengths, host.lengths)
    np.testing.assert_allclose(compiled.returns, host.returns, rtol=1e-4, atol=1e-5)
    assert len(set(compiled.returns)) > 1, "episodes differ"


def test_many_seeds_evaluate_at_the_end_with_one_program(tmp_path: Path, compilations: Counter[str]) -> None:
    words = ["train", "reinforce/cartpole", "--backend=jax", "--seed=0..2", "--jobs=2"]
    sizes = ["--hparams.num-steps=8", "--num-envs=2", "--total-timesteps=64"]
    ends = ["--training.eval-frequency=0", "--training.checkpoint-frequency=0", "--training.eval-lane=compiled"]
    quiet = ["--logging.terminal=false", "--logging.tensorboard=false", f"--output-dir={tmp_path}"]
    assert main([*words, *sizes, *ends, *quiet]) == 0
    assert compilations["jit(evaluation)"] == 1
    runs = sorted(tmp_path.glob("reinforce__*"))
    assert len(runs) == 3
    for run in runs:
        start, row = map(json.loads, (run / "logs" / "evals.jsonl").read_text().splitlines())
        assert (start["env_steps"], row["env_steps"]) == (0, 64)
        assert len(row["returns"]) == 10
        assert row["returns"] == row["lengths"], "CartPole pays 1 per step"
        assert json.loads((run / "metrics.json").read_text())["eval/return_mean"] == row["return_mean"]
        assert CheckpointManager(run).steps() == [0, 64]


@pytest.mark.parametrize("given", [{"backend": "torch"}, {"backend": "jax", "lane": "host"}])
def test_a_run_that_is_not_compiled_has_no_compiled_evaluation(given: dict[str, Any]) -> None:
    cfg = parse_config({"algo": "ppo", "env_id": "CartPole-v1", "training": {"eval_lane": "compiled"}, **given})
    with pytest.raises(ConfigError, match=r"training\.eval_lane: compiled .* need a run in the compiled lane"):
        build_trainer(cfg)
