"""PPO and the replay algorithms learn what needs memory, and what is only told by images."""

from __future__ import annotations

from typing import Any

import image_cases
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import load_config, parse_config
from rl_training.training.evaluation import evaluate_policy

assert image_cases.KINDS
R2D2 = {"stored_state": True, "burn_in": 4, "sequence_length": 8, "prioritized": True}


def mean_return(config: dict[str, Any], steps: int, num_envs: int) -> float:
    cfg = parse_config({**config, "env": {"num_envs": num_envs}, "training": {"total_timesteps": steps}})
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        try:
            while trainer.progress.env_steps < steps:
                trainer.train_step()
            result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=40, seed=1)
        finally:
            trainer.close()
    return float(result.returns.mean())


def cue(memory: str, options: dict[str, Any], seed: int, steps: int) -> float:
    """Return of DQN on CueMemory, whose cue lies eleven steps back: 0.5 by guessing, 1 with memory."""
    network = {"hidden_dims": [32], "activation": "tanh", "memory": {"type": memory, "size": 32, "window": 12}}
    hparams = {
        "learning_rate": 2e-3,
        "learning_starts": 1000,
        "batch_size": 384,
        "sequence_length": 12,
        "updates_per_step": 0.05,
        "gamma": 0.9,
        "epsilon_steps": 15_000,
        "epsilon_end": 0.02,
        "target_every_updates": 1,
        "tau": 0.02,
        **options,
    }
    config = {"algo": "dqn", "env_id": "RLProbe/CueMemory-v0", "seed": seed, "hparams": hparams}
    return mean_return({**config, "network": {"critic": network}, "buffer": {"size": 50_000}}, steps, 8)


def test_a_recurrent_dqn_solves_cue_memory() -> None:
    assert cue("gru", {}, 0, 17_000) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("memory", "options"), [("gru", {}), ("gru", R2D2), ("lstm", R2D2), ("transformer", {})])
def test_every_memory_and_r2d2_solve_cue_memory(memory: str, options: dict[str, Any], seed: int) -> None:
    assert cue(memory, options, seed, 60_000) == 1.0


def test_without_memory_the_cue_is_forgotten() -> None:
    assert cue("none", {}, 0, 10_000) < 0.8


# -- PPO --------------------------------------------------------------------------------------------------------------


def preset_return(preset: str, memory: str, seed: int) -> float:
    """Return that a preset gets with another memory."""
    flags = {"seed": seed, "network.actor.memory.type": memory, "network.critic.memory.type": memory}
    cfg = load_config(preset, overrides=flags)
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        trainer.run(cfg.training.total_timesteps)
        result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=100, seed=1)
        trainer.close()
    return float(result.returns.mean())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("memory", ["gru", "lstm", "transformer"])
def test_ppo_with_every_memory_remembers_the_cue(memory: str, seed: int) -> None:
    assert preset_return("ppo/cue_memory", memory, seed) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_without_memory_guesses_the_cue(seed: int) -> None:
    assert preset_return("ppo/cue_memory", "none", seed) <= 0.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("memory", ["gru", "lstm", "transformer"])
def test_ppo_with_every_memory_repeats_the_symbol_of_four_steps_before(memory: str, seed: int) -> None:
    assert preset_return("ppo/repeat_previous", memory, seed) >= 0.9


# -- SAC --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_sac_with_memory_swings_a_pendulum_up_without_its_velocity(seed: int) -> None:
    with_memory, without = (preset_return("sac/pendulum_no_velocity", memory, seed) for memory in ("gru", "none"))
    assert with_memory >= without + 300.0


# -- images -----------------------------------------------------------------------------------------------------------

IMAGES: dict[str, tuple[str, dict[str, Any], float]] = {
    "dqn": ("Discrete", {"epsilon_steps": 300, "updates_per_step": 0.25}, 1.0),
    "sac": ("Box", {"updates_per_step": 0.5, "tau": 0.02, "gamma": 0.5, "alpha": 0.02}, 2.5),
    "td3": ("Box", {"updates_per_step": 0.5, "tau": 0.02, "gamma": 0.5}, 2.5),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algo", IMAGES)
def test_the_bright_side_of_an_image_is_learnt(algo: str, seed: int) -> None:
    kind, options, expected = IMAGES[algo]
    part = {"hidden_dims": [32], "activation": "relu", "encoder": {"features": 32, "random_shift": 1}}
    config = {
        "algo": algo,
        "env_id": f"TestImages/{kind}-v0",
        "seed": seed,
        "hparams": {"learning_rate": 1e-3, "learning_starts": 100, "batch_size": 16, **options},
        "network": {"actor": {**part, "encoder": {}}, "critic": part},
        "buffer": {"size": 2_000},
    }
    assert mean_return(config, 600, 4) >= expected


def test_ppo_learns_it_too() -> None:
    part = {"hidden_dims": [32], "encoder": {"features": 32}}
    hparams = {"num_steps": 32, "learning_rate": 1e-3}
    config = {"algo": "ppo", "env_id": "TestImages/Discrete-v0", "hparams": hparams}
    assert mean_return({**config, "network": {"actor": part, "critic": part}}, 1024, 4) == 1.0
