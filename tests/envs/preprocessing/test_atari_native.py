"""ALE's vector environment behind the wrapper `atari`: equal to the wrapper path bit for bit, resumed exactly, told."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from sampling import sampled

from rl_training.checkpointing.state_tree import flatten, unflatten
from rl_training.config.loading import parse_config
from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import make_vector_env
from rl_training.envs.preprocessing.step_infos import frames_of, learner_view
from rl_training.trainer import resume, train
from rl_training.types import ConfigError, EnvError

GAMES = ["Pong", "Breakout", "SpaceInvaders"]
STICKY = [0.0, 0.25]


def config(game: str, vectorization: Any, sticky: float = 0.25, seed: int = 3, **options: Any) -> TrainConfig:
    env = EnvConfig(
        num_envs=2,
        vectorization=vectorization,
        kwargs={"frameskip": 1, "repeat_action_probability": sticky},
        wrappers=(WrapperConfig("atari", options),),
    )
    return TrainConfig(env_id=f"ALE/{game}-v5", seed=seed, env=env)


def build(cfg: TrainConfig, reseed_steps: int = 10_000, state: Any = None) -> Any:
    """The vector environment of a run that seeds resets as often as asked."""
    envs: Any = make_vector_env(cfg, state=state)
    for part in envs.envs if cfg.env.vectorization == "sync" else [envs]:
        assert part.reseed_steps == 10_000
        part.reseed_steps = reseed_steps
    return envs


def actions_of(envs: Any, steps: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(envs.single_action_space.n, size=(steps, envs.num_envs))


def assert_same_step(one: Any, other: Any) -> int:
    """Every bit of two steps, with what the learner is told; how many episodes ended."""
    for left, right in zip(one[:4], other[:4], strict=True):
        np.testing.assert_array_equal(left, right, strict=True)
    ended = one[2] | one[3]
    for row in np.flatnonzero(ended):
        np.testing.assert_array_equal(one[4]["final_obs"][row], other[4]["final_obs"][row], strict=True)
    for left, right in zip(learner_view(*one[1:3], one[4]), learner_view(*other[1:3], other[4]), strict=True):
        np.testing.assert_array_equal(left, right, strict=True)
    np.testing.assert_array_equal(one[4]["lives"], other[4]["lives"])
    assert frames_of(one[4]) == frames_of(other[4])
    return int(np.count_nonzero(ended))


# -- equality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("game", "sticky"), sampled(product(GAMES, STICKY), [("Pong", 0.0), ("Breakout", 0.25)]))
def test_both_paths_are_equal_bit_for_bit(game: str, sticky: float) -> None:
    native, wrapped = (build(config(game, how, sticky), 200) for how in ("native", "sync"))
    np.testing.assert_array_equal(native.reset()[0], wrapped.reset()[0], strict=True)
    ends = sum(
        assert_same_step(native.step(actions), wrapped.step(actions)) for actions in actions_of(native, 500, seed=1)
    )
    assert ends > 0 or game == "Pong"
    np.testing.assert_array_equal(native.reset_counts, [env.reset_count for env in wrapped.envs])
    native.close()


@pytest.mark.slow
@pytest.mark.parametrize("game", ["Freeway", "MsPacman", "Seaquest", "Qbert", "Enduro", "MontezumaRevenge"])
@pytest.mark.parametrize("grayscale", [True, False])
def test_other_games_and_colours(game: str, grayscale: bool) -> None:
    options = {"grayscale": grayscale, "noop_max": 7, "stack": 3, "size": 60, "frame_skip": 3}
    native, wrapped = (build(config(game, how, 0.25, **options), 500) for how in ("native", "sync"))
    np.testing.assert_array_equal(native.reset()[0], wrapped.reset()[0], strict=True)
    for actions in actions_of(native, 2000, seed=2):
        assert_same_step(native.step(actions), wrapped.step(actions))


def test_games_are_truncated_after_the_same_frame() -> None:
    native, wrapped = (
        make_vector_env(
            TrainConfig(
                env_id="BreakoutNoFrameskip-v4",
                env=EnvConfig(num_envs=2, vectorization=how, max_episode_steps=50, wrappers=(WrapperConfig("atari"),)),
            )
        )
        for how in ("native", "sync")
    )
    native.reset()
    wrapped.reset()
    truncated = 0
    for actions in actions_of(native, 40, seed=0):
        one, other = native.step(actions), wrapped.step(actions)
        assert_same_step(one, other)
        truncated += np.count_nonzero(one[3])
    assert truncated == 2 * 3  # 50 frames are 13 steps


def test_it_stays_with_itself() -> None:
    before = dict(VectorEnv.metadata)
    envs = build(config("Pong", "native"))
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert VectorEnv.metadata == before
    assert envs.exact
    assert envs.reset(seed=7)[0].tobytes() == envs.reset(seed=[7, 8])[0].tobytes()
    rewards = envs.step(np.zeros(2, np.int32))[1]
    assert rewards.dtype == np.float64


# -- resume -----------------------------------------------------------------------------------------------------------


def cuts_are_exact(cfg: TrainConfig, *, cuts: int, reseed_steps: int, steps: int) -> None:
    """Cut anywhere, load what a checkpoint would hold into a fresh environment, and go on side by side."""
    rng = np.random.default_rng(5)
    live = build(cfg, reseed_steps)
    obs, _ = live.reset()
    for cut in range(cuts):
        for actions in actions_of(live, int(rng.integers(1, steps)), seed=cut):
            obs = live.step(actions)[0]
        resumed = build(cfg, reseed_steps, unflatten(flatten(live.state_dict())))
        np.testing.assert_array_equal(resumed.reset()[0], obs, strict=True)
        for actions in actions_of(live, steps, seed=1000 + cut):
            step = live.step(actions)
            assert_same_step(step, resumed.step(actions))
            obs = step[0]
        resumed.close()
    live.close()


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_a_cut_is_exact(vectorization: str) -> None:
    cuts_are_exact(config("Breakout", vectorization), cuts=3, reseed_steps=150, steps=100)


@pytest.mark.slow
@pytest.mark.parametrize("vectorization", ["sync", "native"])
@pytest.mark.parametrize("game", GAMES)
def test_twenty_cuts_are_exact(game: str, vectorization: str) -> None:
    cuts_are_exact(config(game, vectorization), cuts=20, reseed_steps=700, steps=300)


def test_a_state_from_before_the_first_reset_and_one_that_was_not_used() -> None:
    cfg = config("Pong", "native", noop_max=5)
    live = build(cfg)
    again = build(cfg, state=live.state_dict())
    np.testing.assert_array_equal(live.reset()[0], again.reset()[0])
    live.step(np.zeros(2, np.int64))
    state = live.state_dict()
    unused = build(cfg, state=state)
    assert unused.state_dict()["log"]["actions"].shape == (1, 2)


def test_what_does_not_fit_is_refused() -> None:
    live = build(config("Pong", "native"))
    live.reset()
    state = live.state_dict()
    with pytest.raises(ConfigError, match="has 2 environments, this one 1"):
        make_vector_env(config("Pong", "native"), 1, state=state)
    other = build(config("Pong", "native", noop_max=0, fire=False), state=state)
    with pytest.raises(EnvError, match=r"environment 0 .* cannot continue its open game exactly"):
        other.reset()


# -- refusals ---------------------------------------------------------------------------------------------------------


def native(**section: Any) -> Any:
    section = {"kwargs": {"frameskip": 1}, "wrappers": (WrapperConfig("atari"),), **section}
    return make_vector_env(TrainConfig(env_id="ALE/Pong-v5", env=EnvConfig(vectorization="native", **section)))


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"set env\.wrappers: \[atari\]"):
        native(wrappers=())
    with pytest.raises(ConfigError, match=r"no wrapper but 'atari', not 'clip_reward'; set env\.vectorization"):
        native(wrappers=(WrapperConfig("atari"), WrapperConfig("clip_reward")))
    with pytest.raises(ConfigError, match=r"set env\.kwargs: \{frameskip: 1\}"):
        native(kwargs={})
    with pytest.raises(ConfigError, match=r"takes no 'difficulty'; set env\.vectorization"):
        native(kwargs={"frameskip": 1, "difficulty": 1})
    with pytest.raises(ConfigError, match=r"env\.frame_stack: wrapper 'atari' stacks"):
        native(frame_stack=4)


# -- whole runs -------------------------------------------------------------------------------------------------------


def run_config(folder: Path, vectorization: str, steps: int) -> TrainConfig:
    return parse_config(
        {
            "algo": "ppo",
            "env_id": "ALE/Breakout-v5",
            "output_dir": str(folder),
            "env": {
                "num_envs": 2,
                "vectorization": vectorization,
                "kwargs": {"frameskip": 1},
                "wrappers": [{"name": "atari", "kwargs": {"size": 24, "stack": 2}}],
                "max_episode_steps": 400,
            },
            "hparams": {"num_steps": 40, "num_minibatches": 2, "num_epochs": 1},
            "network": {name: {"hidden_dims": [8], "encoder": "mlp"} for name in ("actor", "critic")},
            "training": {"total_timesteps": steps, "num_eval_episodes": 1, "checkpoint_frequency": 240},
        }
    )


def test_a_run_is_the_same_on_both_paths_and_after_a_resume(tmp_path: Path) -> None:
    def weights(run: Path) -> bytes:
        return (run / "checkpoints" / "step_000000000480" / "policy.safetensors").read_bytes()

    def rows(run: Path, name: str) -> str:
        return (run / "logs" / name).read_text()

    whole = {how: train(run_config(tmp_path / how, how, 480)).run_dir for how in ("sync", "native")}
    assert weights(whole["sync"]) == weights(whole["native"])
    assert rows(whole["sync"], "episodes.jsonl") == rows(whole["native"], "episodes.jsonl")
    half = train(run_config(tmp_path / "half", "native", 240)).run_dir
    resume(half, total_timesteps=480)
    assert weights(half) == weights(whole["native"])
    assert rows(half, "episodes.jsonl") == rows(whole["native"], "episodes.jsonl")
