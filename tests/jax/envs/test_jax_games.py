"""Tic-tac-toe in JAX: move by move the game of the host, against an opponent that moves uniformly at random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rl_training.assembly.lanes import lane_of
from rl_training.config.loading import parse_config
from rl_training.envs import make_env
from rl_training.jax.envs.tictactoe import Board, TicTacToe
from rl_training.types import ACTION_MASK, ConfigError

GAMES = 300


def test_games_are_those_of_the_host_for_given_moves_of_the_opponent() -> None:
    env: Any = make_env("RLGame/TicTacToe-v0")
    twin = TicTacToe()
    play, observe = jax.jit(twin.play), jax.jit(twin.obs)
    rng, ends = np.random.default_rng(0), []
    for seed in range(GAMES):
        obs, _ = env.reset(seed=seed)
        seat = env.unwrapped
        empty = jnp.zeros((1, 9), bool)
        first = jnp.arange(9) == (seat.moves[0][1] if seat.moves else -1)
        state, terminated, turns = Board(empty, first[None]), False, len(seat.moves)
        while not terminated:
            assert_seen(observe(state), obs)
            action = int(rng.choice(np.flatnonzero(obs[ACTION_MASK])))
            obs, reward, terminated, truncated, _ = env.step(action)
            answer = seat.moves[-1][1] if len(seat.moves) > turns else 0  # without an answer the game is over
            turns = len(seat.moves)
            state, rewards, *flags = play(state, jnp.array([action]), jnp.array([answer]))
            assert (float(rewards[0]), bool(flags[0][0]), bool(flags[1][0])) == (reward, terminated, truncated)
        assert_seen(observe(state), obs)
        ends.append((seat.seat, reward))
    assert len(set(ends)) == 6, "wins, draws and losses in both seats"


def assert_seen(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name][0], value)
        assert ours[name].dtype == value.dtype


def test_the_opponent_begins_half_of_the_games_and_moves_uniformly() -> None:
    twin, count = TicTacToe(), 9000

    @jax.jit
    def played(key: Any) -> tuple[Any, Any]:
        begin = twin.init(key, count)
        empty = jnp.zeros((count, 9), bool)
        return begin.other, twin.step(Board(empty, empty), jnp.full(count, 4), key)[0].other

    begun, answered = (np.asarray(pieces) for pieces in played(jax.random.key(0)))
    assert stats.binomtest(int(begun.any(1).sum()), count).pvalue > 1e-3
    assert begun.sum(1).max() == 1
    assert stats.chisquare(begun.sum(0)).pvalue > 1e-3
    assert (answered.sum(1) == 1).all()
    assert not answered[:, 4].any(), "the square is taken"
    assert stats.chisquare(np.delete(answered.sum(0), 4)).pvalue > 1e-3


def test_a_game_with_a_league_is_played_on_the_host() -> None:
    cfg = parse_config({"algo": "ppo", "env_id": "RLGame/TicTacToe-v0", "backend": "jax"})
    assert lane_of(cfg) == "host"
    with pytest.raises(ConfigError, match="opponents of a compiled game move at random"):
        lane_of(replace(cfg, lane="compiled"))
    random = replace(cfg.league, latest=0.0, snapshot_frequency=0)
    assert lane_of(replace(cfg, league=random)) == "compiled"
