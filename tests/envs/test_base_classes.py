"""BaseEnvironment and BaseWrapper: plain Gymnasium underneath, checked and resumed like any other."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from rl_training.envs import BaseEnvironment, BaseWrapper, check_env, make_env
from rl_training.envs.suites import strategy_of


class Coin(BaseEnvironment):
    """Guess a coin that is shown: one step, reward 1 for the side that was seen."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(2))
        return self.side, {}

    def step(self, action: Any) -> Any:
        return self.side, float(action == self.side), True, False, {}


class Forgetful(Coin):
    def step(self, action: Any) -> Any:
        return 5, 0.0, True, False, {}


class Flipped(BaseWrapper):
    """The other side of everything."""

    def observation(self, obs: Any) -> Any:
        return 1 - obs

    def action(self, action: Any) -> Any:
        return 1 - action

    def reward(self, reward: float) -> float:
        return 10.0 * reward


def test_an_environment_passes_the_checks_and_can_be_trained_on(tmp_path: Any) -> None:
    assert Coin().check().ok
    assert check_env(Coin).ok
    result = rl_training.train(
        {
            "algo": "ppo",
            "env_id": "CartPole-v1",
            "output_dir": str(tmp_path),
            "training": {"total_timesteps": 2048, "num_eval_episodes": 20},
            "hparams": {"num_steps": 64, "learning_rate": 0.01, "ent_coef": 0.0},
            "logging": {"terminal": False},
        },
        env_fn=Coin,
    )
    assert result.metrics["eval/return_mean"] == 1.0


def test_check_names_what_is_wrong() -> None:
    report = Forgetful().check()
    assert not report.ok
    assert "5" in str(report)


def test_reset_and_step_must_be_written() -> None:
    class Half(BaseEnvironment):
        def step(self, action: Any) -> Any:
            return 0, 0.0, True, False, {}

    with pytest.raises(TypeError, match="reset"):
        Half()  # type: ignore[abstract]


def test_a_wrapper_changes_what_it_overrides() -> None:
    plain, flipped = make_env(Coin, seed=3), Flipped(make_env(Coin, seed=3))
    seen, _ = plain.reset(seed=11)
    shown, _ = flipped.reset(seed=11)
    assert shown == 1 - seen
    obs, reward, terminated, truncated, _ = flipped.step(shown)
    assert (obs, reward, terminated, truncated) == (1 - seen, 10.0, True, False)
    assert BaseWrapper(make_env(Coin)).reset(seed=11)[0] == seen


def test_both_say_how_they_resume() -> None:
    class Statistics(BaseWrapper):
        resume_strategy = "restart"

    assert strategy_of(Flipped(Coin())) == "replay"
    assert strategy_of(Statistics(Coin())) == "restart"
    np.testing.assert_equal(make_env(Coin).exact, True)
