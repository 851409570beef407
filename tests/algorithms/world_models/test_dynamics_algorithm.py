"""The algorithm `dynamics`: its score, where its rows come from, exact resume, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from rl_training.algorithms.world_models.dynamics import LatentModel, build_model
from rl_training.algorithms.world_models.episode_errors import episode_errors, judgement
from rl_training.build_context import BuildContext
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.dynamics.ensemble import Ensemble
from rl_training.hparams.dynamics import DynamicsHparams
from rl_training.hparams.world_models import DynamicsConfig
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, JudgesEpisodes, RLTrainingError

WIDTHS = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 3, "units": 8, "layers": 1, "depth": 1, "bins": 5}
SMALL: dict[str, Any] = {
    "size": "custom",
    "custom": WIDTHS,
    "batch_size": 4,
    "sequence_length": 8,
    "train_ratio": 4,
    "learning_starts": 64,
}


def config(folder: Path, **given: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "algo": "dynamics",
        "env_id": "Pendulum-v1",
        "output_dir": str(folder),
        "hparams": SMALL,
        "buffer": {"size": 2000},
        "training": {"total_timesteps": 768, "num_eval_episodes": 1, "checkpoint_frequency": 256},
        "logging": {"terminal": False, "tensorboard": False},
    }
    return {**sections, **given}


# -- the score --------------------------------------------------------------------------------------------------------


class Line(Ensemble):
    """Predicts that every step adds the action."""

    def forward(self, obs: torch.Tensor, actions: torch.Tensor, scales: Any = None) -> Any:
        mean = torch.cat([actions, torch.zeros_like(actions)], dim=-1)
        return mean, torch.full_like(mean, -30.0), torch.full(mean.shape[:-1], -30.0)


def errors_of_a_line(slope: float, length: int) -> dict[int, float]:
    """Errors of `Line` in an episode where every step really adds `slope` times the action 1."""
    line = Line(1, 1, np.random.default_rng(0), members=2, hidden=4, layers=1)
    obs = slope * torch.arange(length, dtype=torch.float32)[:, None]
    none = torch.zeros(length)
    states = {"obs": obs, "reward": none, "terminated": none}
    return episode_errors(line, states, torch.ones(length, 1), obs, lambda x: x, np.random.default_rng(0))


def test_a_perfect_model_has_no_error() -> None:
    assert max(errors_of_a_line(1.0, 40).values()) < 1e-4


def test_errors_are_those_of_so_many_steps_ahead() -> None:
    assert errors_of_a_line(1.5, 40) == pytest.approx({1: 0.5, 5: 2.5, 15: 7.5}, abs=1e-3)


@pytest.mark.parametrize(
    ("length", "horizons"), [(2, [1]), (3, [1]), (9, [1]), (10, [1, 5]), (19, [1, 5]), (20, [1, 5, 15])]
)
def test_short_episodes_are_rated_as_far_as_they_go(length: int, horizons: list[int]) -> None:
    errors = errors_of_a_line(1.5, length)
    assert list(errors) == horizons
    assert judgement(errors)["score"] == -errors[horizons[-1]]


def test_the_score_of_a_run_is_minus_the_error_furthest_ahead(tmp_path: Path) -> None:
    result = rl_training.train(config(tmp_path))
    found = rl_training.evaluate(result.run_dir, episodes=3)
    assert found["return_mean"] == pytest.approx(-found["open_loop_error_15"])
    assert found["open_loop_error_1"] > 0.0
    logged = [json.loads(line) for line in (result.run_dir / "logs" / "metrics.jsonl").read_text().splitlines()]
    assert logged[-1]["eval/open_loop_error_5"] > 0.0
    dream = rl_training.load(result.run_dir).dream(np.zeros((4, 3), np.float32), np.zeros((9, 1), np.float32))
    assert dream.predicted["obs"].shape == (16, 10, 3)
    assert rl_training.evaluate(result.run_dir, episodes=3, num_envs=3)["returns"] == found["returns"]


def test_learning_lowers_the_error(tmp_path: Path) -> None:
    hparams = {**SMALL, "dynamics": {"type": "ensemble", "kwargs": {"members": 2, "hidden": 32, "layers": 2}}}
    result = rl_training.train(config(tmp_path, hparams=hparams, checkpoint={"keep_last": 9}))
    first = rl_training.evaluate(result.run_dir, checkpoint=0, episodes=2)
    last = rl_training.evaluate(result.run_dir, episodes=2)
    assert last["open_loop_error_15"] < 0.5 * first["open_loop_error_15"]


# -- rows of another run ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of SAC."""
    sac = {"learning_starts": 100, "updates_per_step": 0.02, "batch_size": 8}
    folder = tmp_path_factory.mktemp("source")
    training = {"total_timesteps": 600, "num_eval_episodes": 0}
    return rl_training.train(config(folder, algo="sac", hparams=sac, training=training)).run_dir


def rows(run: Path, which: str | int = "latest") -> dict[str, Any]:
    found: dict[str, Any] = CheckpointManager(run).load(which, {"buffer"}).parts["buffer"]["rows"].arrays()
    return found


def test_it_learns_from_the_rows_of_another_run_and_adds_none(tmp_path: Path, source: Path) -> None:
    run = rl_training.train(config(tmp_path), init_from=str(source)).run_dir
    given, kept = rows(source), rows(run)
    assert len(kept["rewards"]) == 600
    for name, column in kept.items():
        np.testing.assert_array_equal(column, given[name])


def test_a_run_with_given_rows_resumes_exactly(tmp_path: Path, source: Path) -> None:
    whole = rl_training.train(config(tmp_path / "whole"), init_from=str(source)).run_dir
    training = {"total_timesteps": 512, "num_eval_episodes": 1, "checkpoint_frequency": 256}
    part = rl_training.train(config(tmp_path / "part", training=training), init_from=str(source)).run_dir
    rl_training.resume(part, total_timesteps=768)
    one, other = (CheckpointManager(run).load(768, {"policy", "buffer"}).parts for run in (whole, part))
    for name, value in one["policy"]["network"]["model"].items():
        np.testing.assert_array_equal(value, other["policy"]["network"]["model"][name])
    assert len(rows(part)["rewards"]) == 600


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env_id": "MountainCarContinuous-v0"}, "its 'obs' is float32\\[3\\], this run needs float32\\[2\\]"),
        ({"env": {"num_envs": 2}}, "its rows are of 4 environments: set env.num_envs: 4"),
        ({"buffer": {"size": 100}}, "it has 600 rows, this buffer holds 100: raise buffer.size"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_words(
    given: dict[str, Any], message: str, tmp_path: Path, source: Path
) -> None:
    with pytest.raises(RLTrainingError, match=message):
        rl_training.train(config(tmp_path, **given), init_from=str(source))
    assert not list(tmp_path.glob("dynamics*"))


def test_a_run_without_replay_has_no_rows_to_learn_from(tmp_path: Path) -> None:
    training = {"total_timesteps": 64, "num_eval_episodes": 0}
    ppo = config(tmp_path, algo="ppo", hparams={"num_steps": 32}, buffer={}, training=training)
    run = rl_training.train(ppo).run_dir
    with pytest.raises(RLTrainingError, match=r"that run has no replay rows for this one: .* has no part 'buffer'"):
        rl_training.train(config(tmp_path), init_from=str(run))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_an_ensemble_needs_vectors_and_bounded_actions() -> None:
    obs = BoxSpec(np.zeros(3, np.float32), np.ones(3, np.float32), np.dtype(np.float32))
    hp = DynamicsHparams(dynamics=DynamicsConfig("ensemble"))
    with pytest.raises(ConfigError, match="an ensemble does not fit this environment: it needs Box actions"):
        build_model(BuildContext(obs, DiscreteSpec(2)), hp)
    made = build_model(BuildContext(obs, DiscreteSpec(2)), DynamicsHparams())
    assert isinstance(made, LatentModel)
    assert isinstance(made.policy, JudgesEpisodes)


@pytest.mark.parametrize("algo", ["planet", "dreamer"])
def test_an_ensemble_has_no_latent_state_to_plan_or_imagine_in(algo: str, tmp_path: Path) -> None:
    hparams = {**SMALL, "dynamics": {"type": "ensemble"}}
    with pytest.raises(ConfigError, match="'ensemble' predicts observed vectors, not a latent state; take rssm"):
        rl_training.train(config(tmp_path, algo=algo, hparams=hparams))


def test_an_unknown_kind_of_dynamics_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown dynamics 'rsm'; did you mean 'rssm'\?"):
        rl_training.train(config(tmp_path, hparams={**SMALL, "dynamics": {"type": "rsm"}}))
