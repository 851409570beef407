"""Games are learnt: the presets against the players that their pages name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.config.loading import load_config
from rl_training.eval import evaluate
from rl_training.trainer import train

QUIET = {"logging.terminal": False, "logging.tensorboard": False, "training.num_eval_episodes": 0}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tictactoe_is_rarely_lost(seed: int, tmp_path: Path) -> None:
    """500 games from each seat: 95 % draws or more against perfect play, at most 2 losses against random moves."""
    run = train(load_config("ppo/tictactoe", {**QUIET, "seed": seed, "output_dir": str(tmp_path)})).run_dir
    random = evaluate(run, episodes=1000, opponent="random")
    assert random["losses"] <= 2
    perfect = evaluate(run, episodes=1000, opponent="perfect_tictactoe")
    assert perfect["draws"] >= 950


def test_a_rule_is_exploited_in_a_minute(tmp_path: Path) -> None:
    """Against a player who always takes the first free square, a short run wins nearly always, from both seats."""
    settings = {
        **QUIET,
        "output_dir": str(tmp_path),
        "training.total_timesteps": 20_480,
        "env.num_envs": 32,
        "league.opponents": ["rule:test_games:first_free"],
        "league.latest": 0.0,
        "league.snapshot_frequency": 0,
        "network.actor.hidden_dims": [32],
        "network.critic.hidden_dims": [32],
    }
    for seed in (0, 1):
        run = train(load_config("ppo/tictactoe", {**settings, "seed": seed})).run_dir
        result = evaluate(run, episodes=20, opponent="rule:test_games:first_free")
        assert min(tally["score"] for tally in result["seats"].values()) == 1.0


def first_free(observation: object, mask: object, rng: object) -> int:
    return int(mask.argmax())  # type: ignore[attr-defined]
