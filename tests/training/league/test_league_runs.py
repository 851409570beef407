"""Runs on games: the same bits in this process and in workers, exact resume with the same Elo table, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.envs.games.players import RulePlayer
from rl_training.runs.foreign_code import foreign_code
from rl_training.trainer import resume, train
from rl_training.trust.consent import Consent, scope
from rl_training.types import ConfigError, TrustError


def mapping(folder: Path, **sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "algo": "ppo",
        "env_id": "RLGame/TicTacToe-v0",
        "seed": 3,
        "output_dir": str(folder),
        "env": {"num_envs": 4},
        "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 1},
        "network": {"actor": {"encoder": "mlp", "hidden_dims": [8]}, "critic": {"encoder": "mlp", "hidden_dims": [8]}},
        "league": {"opponents": ["random", "perfect_tictactoe"], "snapshot_frequency": 128, "size": 2},
        "training": {"total_timesteps": 640, "num_eval_episodes": 0, "checkpoint_frequency": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    for key, value in sections.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return base


def state_of(run: Path) -> dict[str, Any]:
    """The last checkpoint, with the weights of members as arrays."""
    parts = CheckpointManager(run).load_latest().parts
    league = dict(parts["league"])
    league["weights"] = league["weights"].arrays()
    kept = ("policy", "algorithm", "collector", "env")
    return {**{name: parts[name] for name in kept}, "league": league}


def assert_same(one: Any, other: Any, path: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, np.ndarray):
        assert one.tobytes() == other.tobytes(), path
    else:
        assert one == other, path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run in this process, without evaluation and with one checkpoint."""
    return state_of(train(mapping(tmp_path_factory.mktemp("plain"))).run_dir)


def test_league_has_met_its_members(plain: dict[str, Any]) -> None:
    league = plain["league"]
    assert [member["name"] for member in league["members"]] == [
        *("random", "perfect_tictactoe"),
        *("snapshot:512", "snapshot:640"),
    ]
    assert [member["name"] for member in league["retired"]] == ["snapshot:128", "snapshot:256", "snapshot:384"]
    games = sum(member["wins"] + member["draws"] + member["losses"] for member in league["members"])
    assert games > 40
    total = sum(member["rating"] for member in league["members"][:2])
    assert total != 2000.0


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_give_the_same_run(plain: dict[str, Any], workers: int, tmp_path: Path) -> None:
    found = state_of(train(mapping(tmp_path, env={"vectorization": "async", "num_workers": workers})).run_dir)
    assert_same(found, plain)


def test_evaluation_moves_no_rating(plain: dict[str, Any], tmp_path: Path) -> None:
    training = {"num_eval_episodes": 4, "eval_frequency": 64, "checkpoint_frequency": 64}
    found = state_of(train(mapping(tmp_path, training=training)).run_dir)
    assert_same(found, plain)


def test_resumed_run_is_the_uninterrupted_one(plain: dict[str, Any], tmp_path: Path) -> None:
    run = train(mapping(tmp_path, training={"total_timesteps": 320})).run_dir
    resume(run, total_timesteps=640)
    assert_same(state_of(run), plain)


def test_other_algorithms_play_too(tmp_path: Path) -> None:
    """Action values, and a policy with memory whose open games carry it over a resume."""
    dqn = mapping(tmp_path / "dqn", algo="dqn", network={}, hparams={})
    dqn["hparams"], dqn["network"] = {"learning_starts": 64}, {"critic": {"encoder": "mlp", "hidden_dims": [8]}}
    assert len(state_of(train(dqn).run_dir)["league"]["members"]) == 4
    memory = {"encoder": "mlp", "hidden_dims": [8], "memory": {"type": "gru", "size": 8}}
    network = {"actor": memory, "critic": memory}
    whole = train(mapping(tmp_path / "whole", network=network)).run_dir
    half = train(mapping(tmp_path / "half", network=network, training={"total_timesteps": 320})).run_dir
    resume(half, total_timesteps=640)
    assert_same(state_of(half), state_of(whole))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"league is for games, and environment 'CartPole-v1' has no turns"):
        train(mapping(tmp_path, env_id="CartPole-v1", network={}))
    with pytest.raises(ConfigError, match=r"is a game, .* env.overlap cannot be used"):
        train(mapping(tmp_path, env={"overlap": True}))
    with pytest.raises(ConfigError, match=r"is a game, in which one policy plays every seat: policies and env.agents"):
        train(mapping(tmp_path, env={"agents": {"policies": "separate"}}))
    with pytest.raises(ConfigError, match=r"unknown rule 'perfect_tictacto'; did you mean 'perfect_tictactoe'\?"):
        train(mapping(tmp_path, league={"opponents": ["perfect_tictacto"]}))
    with pytest.raises(
        ConfigError, match=r"league.opponents: 'connect_four_lookahead' cannot play 'RLGame/TicTacToe-v0'"
    ):
        train(mapping(tmp_path, league={"opponents": ["random", "connect_four_lookahead"]}))
    with pytest.raises(ConfigError, match=r"league.eval_opponent: 'connect_four_lookahead' .*: it plays connect_four"):
        train(mapping(tmp_path, league={"eval_opponent": "connect_four_lookahead"}, training={"num_eval_episodes": 1}))
    transformer = {"memory": {"type": "transformer", "size": 8}, "encoder": "mlp"}
    with pytest.raises(ConfigError, match=r"cannot play against itself"):
        train(mapping(tmp_path, network={"actor": transformer, "critic": transformer}))


def test_rules_of_others_need_consent(tmp_path: Path) -> None:
    """A stored config that names a rule from elsewhere is not run without being asked."""
    own = parse_config(mapping(tmp_path, league={"opponents": ["random", "rule:game_cases:stay"]}))
    assert foreign_code(own) == ["league.opponents.* rule:game_cases:stay"]
    assert foreign_code(parse_config(mapping(tmp_path))) == []
    player = RulePlayer("rule:game_cases:stay")
    with scope(Consent("none")), pytest.raises(TrustError, match="game_cases:stay"):
        player.act(np.zeros(1), {}, np.random.default_rng(0))
