"""Catch, four rooms and deep sea against independent plain Python implementations of the same games."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from rl_training.jax.envs import make
from rl_training.jax.envs.four_rooms import PLAN, State
from rl_training.types import ConfigError

EPISODES = 128


class PlainCatch:
    """A list of rows, drawn anew at every step."""

    def __init__(self, state: Any, rows: int, columns: int) -> None:
        self.ball, self.paddle = [int(state.row), int(state.column)], int(state.paddle)
        self.rows, self.columns = rows, columns

    def step(self, action: int) -> tuple[Any, float, bool]:
        self.paddle = sorted([0, self.paddle + (-1, 0, 1)[action], self.columns - 1])[1]
        self.ball[0] += 1
        board = [[0.0] * self.columns for _ in range(self.rows)]
        board[self.ball[0]][self.ball[1]] = board[-1][self.paddle] = 1.0
        landed = self.ball[0] == self.rows - 1
        reward = 0.0
        if landed:
            reward = 1.0 if self.ball[1] == self.paddle else -1.0
        return np.array(board, np.float32).reshape(-1), reward, landed


class PlainSea:
    def __init__(self, state: Any, size: int, right: Any) -> None:
        self.depth, self.column, self.size, self.right = int(state.row), int(state.column), size, right

    def step(self, action: int) -> tuple[Any, float, bool]:
        reward = 0.0
        if action == self.right[self.depth][self.column]:
            reward -= 0.01 / self.size
            if self.column == self.size - 1:
                reward += 1.0
            self.column = min(self.column + 1, self.size - 1)
        else:
            self.column = max(self.column - 1, 0)
        self.depth += 1
        cells = np.zeros((self.size + 1, self.size), np.float32)
        cells[self.depth, self.column] = 1.0
        return cells[: self.size].reshape(-1), reward, self.depth == self.size


class PlainRooms:
    def __init__(self, state: Any) -> None:
        self.row, self.column = map(int, state.position)
        self.goal = tuple(map(int, state.goal))

    def step(self, action: int) -> tuple[Any, float, bool]:
        down, right = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}[action]
        if PLAN.strip().splitlines()[self.row + down][self.column + right] == "#":
            down = right = 0
        self.row, self.column = self.row + down, self.column + right
        at_goal = (self.row, self.column) == self.goal
        obs = np.array([self.row, self.column, *self.goal], np.float32) / 6 - 1
        return obs, float(at_goal), at_goal


def compare(env: Any, plain: Any, steps: int) -> None:
    """`steps` random steps of EPISODES episodes; the plain game starts each step from the state of the JAX one."""
    rng = np.random.default_rng(0)
    step = jax.jit(lambda state, action, key: (out := env.step(state, action, key), env.obs(out[0])))
    state = jax.jit(env.init, static_argnums=1)(jax.random.key(0), EPISODES)
    for t in range(steps):
        action = rng.integers(0, env.action_space.n, EPISODES).astype(np.int32)
        (after, rewards, terminated, truncated), obs = jax.device_get(step(state, action, jax.random.key(t)))
        before = jax.device_get(state)
        games = [plain(type(before)(*(leaf[i] for leaf in before))) for i in range(EPISODES)]
        expected = zip(*(game.step(int(a)) for game, a in zip(games, action, strict=True)), strict=True)
        for ours, theirs in zip((obs, rewards, terminated), expected, strict=True):
            np.testing.assert_allclose(ours, np.stack(theirs), atol=1e-6)
        assert not truncated.any()
        state = after


def test_catch_steps_as_the_plain_game() -> None:
    compare(make("RLJax/Catch-v0"), lambda state: PlainCatch(state, 10, 5), 9)
    compare(make("RLJax/Catch-v0", {"rows": 6, "columns": 4}), lambda state: PlainCatch(state, 6, 4), 5)


def test_catch_drops_the_ball_in_every_column_alike() -> None:
    state: Any = make("RLJax/Catch-v0").init(jax.random.key(2), 5000)
    counts = np.bincount(np.asarray(state.column), minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert set(np.asarray(state.paddle)) == {2}


@pytest.mark.parametrize("kwargs", [{}, {"size": 5, "mapping_seed": None}, {"size": 7, "mapping_seed": 3}])
def test_deep_sea_steps_as_the_plain_game(kwargs: dict[str, Any]) -> None:
    env: Any = make("RLJax/DeepSea-v0", kwargs)
    compare(env, lambda state: PlainSea(state, env.size, env.right.tolist()), env.size)


def test_deep_sea_pays_for_one_sequence_only() -> None:
    """All 2^5 sequences of five actions: one return of 0.99, the others minus their cost."""
    env: Any = make("RLJax/DeepSea-v0", {"size": 5, "mapping_seed": 1})
    actions = (np.arange(32)[:, None] >> np.arange(5)) & 1
    step, state, returns = jax.jit(env.step), env.init(jax.random.key(0), 32), np.zeros(32)
    for t in range(5):
        state, rewards, terminated, _ = step(state, actions[:, t], jax.random.key(0))
        returns += np.asarray(rewards)
    assert terminated.all()
    assert sorted(returns)[-1] == pytest.approx(0.99)
    assert sorted(returns)[-2] <= 1e-6


def test_deep_sea_maps_actions_both_ways() -> None:
    right = make("RLJax/DeepSea-v0").right  # type: ignore[attr-defined]
    assert 30 < right.sum() < 70


def test_four_rooms_step_as_the_plain_game() -> None:
    compare(make("RLJax/FourRooms-v0", {"fail_probability": 0.0}).env, PlainRooms, 10)  # type: ignore[attr-defined]


def test_four_rooms_have_104_cells_and_every_start_differs_from_its_goal() -> None:
    env: Any = make("RLJax/FourRooms-v0").env  # type: ignore[attr-defined]
    state = jax.device_get(jax.jit(env.init, static_argnums=1)(jax.random.key(0), 20_000))
    assert not (state.position == state.goal).all(axis=-1).any()
    for cells in (state.position, state.goal):
        _, counts = np.unique(cells, axis=0, return_counts=True)
        assert len(counts) == 104
        assert stats.chisquare(counts).pvalue > 1e-3


def test_four_rooms_moves_fail_one_time_in_three() -> None:
    """From the middle of a room, the chosen direction in 2/3 of the moves and each other one in 1/9."""
    env: Any = make("RLJax/FourRooms-v0", {"goal": [8, 9]}).env  # type: ignore[attr-defined]
    n = 18_000
    start = State(np.tile([[3, 3]], (n, 1)), np.tile([[8, 9]], (n, 1)))
    after, *_ = jax.jit(env.step)(start, np.ones(n, np.int32), jax.random.key(5))
    ends, counts = np.unique(np.asarray(after.position), axis=0, return_counts=True)
    assert ends.tolist() == [[2, 3], [3, 2], [3, 4], [4, 3]]
    assert stats.chisquare(counts, [n / 9, n / 9, 2 * n / 3, n / 9]).pvalue > 1e-3


def test_a_goal_in_a_wall_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"goal \(0, 0\) is not a free cell"):
        make("RLJax/FourRooms-v0", {"goal": (0, 0)})
