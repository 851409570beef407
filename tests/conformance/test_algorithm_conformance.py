"""Every registered algorithm keeps the rules that `rl_training.testing.check_algorithm` holds users' own ones to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.config.schema import EnvConfig, TrainConfig, TrainingConfig, builtin_spec
from rl_training.registry import algorithms
from rl_training.testing import ENVIRONMENTS, check_algorithm
from rl_training.types import Stateful

BUILTIN = [name for name in algorithms.names() if algorithms.is_builtin(name)]
WORLD_MODELS = ("dreamer", "planet", "dynamics", "pets", "mbpo")
"""They do not normalise, and most have no `network` section: see test_world_model_conformance.py."""
OFFLINE = [name for name in BUILTIN if builtin_spec(name).kind == "offline"]
"""They step no environment: see test_offline_conformance.py."""
WITH_TORCH = [name for name in BUILTIN if builtin_spec(name).build is not None]
TEAMS = [name for name in BUILTIN if builtin_spec(name).whole_teams]
"""They need several agents: see test_team_conformance.py."""
NAMES = [name for name in WITH_TORCH if name not in (*WORLD_MODELS, *OFFLINE, *TEAMS)]
NORMALIZED = {"env": {"normalize_obs": True, "normalize_reward": True}}


NETWORK = {"hidden_dims": [16, 16]}
NARROW = {"network": {"actor": NETWORK, "critic": NETWORK}}


@pytest.mark.parametrize("algo", NAMES)
def test_conforms_on_every_kind_of_space(algo: str):
    report = check_algorithm(algo, config=NARROW)
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
    if builtin_spec(algo).kind != "off_policy":
        assert not report.refused


@pytest.mark.parametrize("algo", NAMES)
def test_conforms_with_normalisation(algo: str):
    environments = ["CartPole-v1", "Pendulum-v1", "RLProbe/DictObs-v0"]
    assert check_algorithm(algo, environments=environments, config={**NARROW, **NORMALIZED}).trained_on


SAMPLE = ("ppo", "dqn", "sac")
"""One algorithm for each way of collecting and learning; the others overlap by the same trainer, and are slow."""
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in SAMPLE]


@pytest.mark.parametrize("algo", [*SAMPLE, *OTHERS])
def test_conforms_with_overlapped_collection(algo: str):
    environments = ["CartPole-v1", "Pendulum-v1", "RLProbe/DictObs-v0"]
    config = {**NARROW, "env": {"overlap": True, **NORMALIZED["env"]}}
    assert check_algorithm(algo, environments=environments, config=config).trained_on


RAINBOW = {"dueling": True, "n_step": 3, "prioritized": True, "distribution": "c51", "noisy": True, "atoms": 5}


@pytest.mark.parametrize("options", [*({name: value} for name, value in RAINBOW.items()), RAINBOW], ids=str)
def test_conforms_with_the_options_of_dqn(options: dict[str, Any]):
    check_algorithm("dqn", environments=["CartPole-v1"], hparams=options, config=NARROW)


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_conforms_with_prioritised_replay_of_several_steps(algo: str):
    config = {**NARROW, "buffer": {"type": "prioritized"}}
    check_algorithm(algo, environments=["Pendulum-v1"], hparams={"n_step": 3}, config=config)


@pytest.mark.parametrize(
    "options", [{"use_sde": True, "sde_sample_freq": 4}, {"use_sde": True}], ids=["freq", "episode"]
)
def test_conforms_with_state_dependent_exploration(options: dict[str, Any]):
    check_algorithm("ppo", environments=["Pendulum-v1"], hparams=options)


@pytest.mark.parametrize(
    "config",
    [{"network": {"shared": True}}, {"env": {"vectorization": "native"}}, {"hparams": {"kernel": "reference"}}],
    ids=str,
)
def test_conforms_with_other_parts(config: dict[str, Any]):
    check_algorithm("ppo", environments=["CartPole-v1"], config=config)


@pytest.mark.parametrize("algo", NAMES)
def test_every_part_is_stateful(algo: str):
    env_id = "Pendulum-v1" if algo in ("ddpg", "td3", "crossq") else "CartPole-v1"
    trainer = build_trainer(TrainConfig(algo=algo, env_id=env_id))
    assert all(isinstance(part, Stateful) for part in trainer.parts().values())
    trainer.close()


def test_out_of_bound_gaussian_actions_are_stored_raw_and_sent_clipped():
    cfg = TrainConfig(algo="ppo", env_id="Pendulum-v1", env=EnvConfig(num_envs=64), training=TrainingConfig(128))
    trainer = build_trainer(cfg)
    obs = np.zeros((64, 3), np.float32)
    network = trainer.algorithm.network
    network.action_head.log_std.data.fill_(3.0)
    result = trainer.algorithm.policy.act(obs, {}, np.ones(64, bool), np.random.default_rng(0))
    assert np.abs(result.actions).max() > 2.0
    assert np.abs(result.env_actions).max() == 2.0
    inside = np.abs(result.actions) <= 2.0
    np.testing.assert_array_equal(result.actions[inside], result.env_actions[inside])
