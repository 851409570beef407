"""Random network distillation in PPO: its mathematics by hand, its part in the losses, exact resume, refusals."""

from __future__ import annotations

from typing import Any

import image_cases
import numpy as np
import pytest
import torch
from sampling import sampled

from rl_training.algorithms.ppo import ReferenceKernel
from rl_training.algorithms.rnd import (
    INTRINSIC,
    RandomNetworkDistillation,
    continued_values,
    intrinsic_returns,
    prediction_errors,
    seen_rows,
)
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.hparams import ppo
from rl_training.hparams.exploration import ExplorationConfig
from rl_training.jax.host import build_agent
from rl_training.jax.runtime import start_with
from rl_training.testing import check_algorithm
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

assert image_cases.KINDS
NUMBERS = BoxSpec(np.full(3, -1, "f"), np.ones(3, "f"), np.dtype("f"))
IMAGE = BoxSpec(np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8), np.dtype(np.uint8))
RND = {"type": "rnd", "hidden_dims": [16], "features": 8, "learning_rate": 1e-3}


def rollout(space: Any = NUMBERS, seed: int = 0, steps: int = 6, envs: int = 2, ended: tuple[int, int] = (2, 1)) -> Any:
    """A rollout of two environments; the second one's episode terminated in the third step."""
    rng = np.random.default_rng(seed)

    def draw(count: tuple[int, ...]) -> Any:
        if isinstance(space, DictSpec):
            return {"place": rng.integers(0, 4, count), "image": rng.integers(0, 256, (*count, *IMAGE.shape), np.uint8)}
        return rng.standard_normal((*count, 3)).astype("f")

    terminated = np.zeros((steps, envs), bool)
    terminated[ended] = True
    return {
        "obs": draw((steps, envs)),
        "last_obs": draw((envs,)),
        "final_obs": draw((1,)),
        "final_index": np.array([ended[0] * envs + ended[1]]),
        "rewards": np.zeros((steps, envs), "f"),
        "terminated": terminated,
        "truncated": np.zeros((steps, envs), bool),
        "valid": np.ones((steps, envs), bool),
    }


def distillation(space: Any = NUMBERS, **changes: Any) -> RandomNetworkDistillation:
    cfg = ExplorationConfig("rnd", **{"hidden_dims": (16,), "features": 8, "learning_rate": 1e-3, **changes})
    return RandomNetworkDistillation(BuildContext(space, DiscreteSpec(2), num_envs=2), cfg)


# -- the mathematics --------------------------------------------------------------------------------------------------


def test_the_error_of_a_row_is_the_mean_square_over_its_features() -> None:
    errors = prediction_errors(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]]))
    assert errors.tolist() == [2.0, 5.0]


def test_values_continue_past_the_ends_of_episodes_and_over_reset_steps() -> None:
    values = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    valid = np.array([[True, True], [False, True], [True, True]])
    np.testing.assert_array_equal(continued_values(values, np.array([9.0, 8.0]), valid), [[3, 6], [3, 7], [9, 8]])


def test_returns_reach_past_the_end_of_an_episode_unless_they_are_episodic() -> None:
    batch = {
        "terminated": np.array([[True], [False]]),
        "truncated": np.zeros((2, 1), bool),
        "valid": np.ones((2, 1), bool),
    }
    rewards, values, following = np.array([[1.0], [2.0]]), np.zeros((2, 1)), np.array([[0.0], [4.0]])
    settings = {"gamma": 0.5, "gae_lambda": 1.0}
    endless = intrinsic_returns(rewards, values, following, batch, episodic=False, **settings)
    assert endless.returns[:, 0].tolist() == [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4]
    episodic = intrinsic_returns(rewards, values, following, batch, episodic=True, **settings)
    assert episodic.returns[:, 0].tolist() == [1.0, 4.0]


def test_what_follows_a_step_is_the_final_observation_where_its_episode_ended() -> None:
    batch = rollout()
    rows = seen_rows(batch)
    following = np.asarray(rows.obs)[rows.following].reshape(6, 2, 3)
    np.testing.assert_array_equal(following[:2], batch["obs"][1:3])
    np.testing.assert_array_equal(following[2, 1], batch["final_obs"][0])
    np.testing.assert_array_equal(following[2, 0], batch["obs"][3, 0])
    np.testing.assert_array_equal(following[5], batch["last_obs"])


# -- novelty ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [NUMBERS, DictSpec({"place": DiscreteSpec(4), "image": IMAGE})], ids=["box", "dict"])
def test_what_was_seen_often_is_worth_less_than_what_is_new(space: Any) -> None:
    part = distillation(space, train_fraction=1.0, learning_rate=3e-3)
    known, new = rollout(space), rollout(space, seed=1)
    part.rewards(known)  # statistics of observations, which learning does not move

    def error(batch: Any) -> float:
        rows = seen_rows(batch)
        with torch.no_grad():
            return float(part._errors(rows.obs, rows.following).mean())

    first = error(known)
    with pinned_threads(1):
        part.learn(known, 60, 1)
    assert error(known) < 0.3 * first
    assert error(new) > 1.5 * error(known)


def test_inputs_are_normalised_and_clipped_to_five_images_too() -> None:
    space = DictSpec({"place": DiscreteSpec(4), "image": IMAGE})
    part = distillation(space)
    batch = rollout(space, steps=40)
    part.rewards(batch)
    shown = part.obs_normalizer(batch["obs"])["image"]
    assert shown.dtype == np.float32
    assert np.abs(shown.mean((0, 1))).max() < 0.3
    assert shown.std() == pytest.approx(1.0, abs=0.05)
    part.obs_normalizer._affine["image"] = (np.zeros(IMAGE.shape), np.ones(IMAGE.shape))
    assert part.obs_normalizer(batch["obs"])["image"].max() == 5.0


def test_rewards_are_divided_by_the_deviation_of_their_running_returns() -> None:
    part = distillation()
    batch = rollout()
    scaled = part.rewards(batch)
    deviation = np.sqrt(part.reward_normalizer.statistics.var + 1e-8)
    rows = seen_rows(batch)
    with torch.no_grad():
        raw = part._errors(rows.obs, rows.following).numpy().reshape(6, 2)
    np.testing.assert_allclose(scaled, raw / deviation, rtol=1e-5)
    assert part.reward_normalizer.open_returns.all(), "no episode ends them"


def test_the_predictor_learns_from_a_share_of_the_rows_and_the_target_stays() -> None:
    part, whole = distillation(train_fraction=0.25), distillation(train_fraction=1.0)
    seen: dict[str, list[int]] = {"part": [], "whole": []}
    for name, subject in (("part", part), ("whole", whole)):
        inner = subject._errors
        subject._errors = lambda shown, index, inner=inner, name=name: (
            seen[name].append(len(index)),
            inner(shown, index),
        )[1]  # type: ignore[method-assign]
        before = subject.target.output.weight.clone(), subject.predictor.output.weight.clone()
        subject.learn(rollout(steps=8), 1, 2)
        assert torch.equal(subject.target.output.weight, before[0])
        assert not torch.equal(subject.predictor.output.weight, before[1])
    assert seen == {"part": [2, 2], "whole": [8, 8]}


# -- in PPO -----------------------------------------------------------------------------------------------------------


def config(env_id: str = "RLProbe/DeepSea-v0", **changes: Any) -> dict[str, Any]:
    hparams = {"num_steps": 16, "num_minibatches": 2, "exploration": RND}
    return {"algo": "ppo", "env_id": env_id, "env": {"num_envs": 4}, "hparams": hparams, **changes}


def test_both_advantages_are_weighed_and_each_value_head_learns_its_own_returns() -> None:
    trainer = build_trainer(parse_config(config()))
    algorithm = trainer.algorithm
    trainer.collector.collect(16, trainer.buffer, algorithm.policy)
    batch = trainer.buffer.as_batch()
    batch = {**batch, INTRINSIC: algorithm.exploration.rewards(batch)}
    prepared = algorithm.prepare(batch)
    assert prepared.values.shape == prepared.returns.shape == (64, 2)
    advantages = (prepared.returns - prepared.values).numpy()
    np.testing.assert_allclose(prepared.advantages, 2.0 * advantages[:, 0] + 1.0 * advantages[:, 1], atol=1e-5)
    assert isinstance(algorithm.kernel, ReferenceKernel)
    metrics = algorithm.update(batch).metrics
    assert {"intrinsic_reward_mean", "intrinsic_return_mean", "intrinsic_explained_variance"} <= set(metrics)
    assert {"intrinsic_value_loss", "predictor_loss", "predictor_grad_norm"} <= set(metrics)
    trainer.close()


def test_without_it_nothing_is_added() -> None:
    trainer = build_trainer(parse_config(config(hparams={"num_steps": 16})))
    assert trainer.algorithm.exploration is None
    assert trainer.algorithm.network.intrinsic_head is None
    assert set(trainer.algorithm.state_dict()) == {"optimizer", "reward_normalizer", "rng"}
    trainer.close()


RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "vector": ("RLProbe/DeepSea-v0", {}),
    "memory": ("RLProbe/CueMemory-v0", {"network": {"actor": {"type": "gru"}, "critic": {"type": "gru"}}}),
    "dict, critic only": ("RLProbe/HiddenCue-v0", {"network": {"critic_only": ["cue"]}}),
    "image": ("TestImages/Discrete-v0", {"network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}}),
}


@pytest.mark.parametrize("case", sampled(RUNS, ("vector", "memory")))
def test_runs_are_deterministic_finite_and_resume_bit_by_bit(case: str) -> None:
    env_id, sections = RUNS[case]
    given = config()
    check_algorithm("ppo", environments=[env_id], hparams=given["hparams"], config={"env": given["env"], **sections})


def test_the_state_holds_everything_that_changes() -> None:
    part, other = distillation(), distillation(discount=0.5)
    part.rewards(rollout())
    part.learn(rollout(), 2, 2)
    other.load_state_dict(part.state_dict())
    later = rollout(seed=3)
    other.reward_normalizer.gamma = part.reward_normalizer.gamma
    assert part.rewards(later).tobytes() == other.rewards(later).tobytes()
    assert part.learn(later, 2, 2) == other.learn(later, 2, 2)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"discount": 1.5}, {"train_fraction": 0.0}, {"coef": -1.0}, {"hidden_dims": []}, {"learning_rate": 0.0}]
)
def test_settings_out_of_range_are_refused_by_name(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(ConfigError, match=rf"exploration\.{name} must be"):
        parse_config(config(hparams={"exploration": {"type": "rnd", **changes}}))


def test_jax_refuses_it() -> None:
    start_with(1)
    ctx = BuildContext(NUMBERS, DiscreteSpec(2), 4)
    with pytest.raises(
        ConfigError, match=r"hparams\.exploration is not available with backend: jax; use backend: torch"
    ):
        build_agent(ctx, ppo.SPEC, ppo.PPOConfig(exploration=ExplorationConfig("rnd")))
