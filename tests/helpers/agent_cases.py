"""Short runs of several agents: a team with two policies, and a game with a league."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training import train

SMALL = {"encoder": "mlp", "hidden_dims": [8]}
COMMON: dict[str, Any] = {
    "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 1},
    "network": {"actor": SMALL, "critic": SMALL},
    "training": {"total_timesteps": 128, "num_eval_episodes": 2, "eval_frequency": 64, "checkpoint_frequency": 64},
    "logging": {"terminal": False, "tensorboard": False},
}


def agent_runs(folder: Path) -> dict[str, Path]:
    """The directories of the runs `team` and `game`."""
    team = {"num_envs": 4, "agents": {"policies": {"early": ["agent_[01]"], "late": ["agent_2"]}}}
    configs: dict[str, dict[str, Any]] = {
        "team": {"algo": "ippo", "env_id": "RLTeam/Leaving-v0", "env": team},
        "game": {"algo": "ppo", "env_id": "RLGame/TicTacToe-v0", "env": {"num_envs": 4}},
    }
    return {name: train({**COMMON, **config, "output_dir": str(folder)}).run_dir for name, config in configs.items()}
