"""Images through both lanes: bytes come in, every algorithm trains, and PPO learns from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, EncoderConfig, NetworkConfig, TrainConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.jax.algorithms.kernels.ppo import fits
from rl_training.jax.algorithms.on_policy import Learner
from rl_training.jax.models.action_values import critics
from rl_training.jax.models.networks import backbone, runs_in_numpy, without_memory
from rl_training.seeding import Streams
from rl_training.testing.states import difference
from rl_training.training.compiled import CompiledTrainer
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec

PICTURE = BoxSpec(np.zeros((5, 5, 1), np.uint8), np.full((5, 5, 1), 255, np.uint8), np.dtype(np.uint8))
SMALL = {"hidden_dims": [8], "encoder": {"features": 8}}


class Lamp:
    """A cell of a picture is bright, in its left or its right half; an episode is one step, which says which."""

    observation_space = PICTURE
    max_episode_steps = 10

    def __init__(self, *, continuous: bool = False) -> None:
        self.continuous = continuous
        box = BoxSpec(np.full(1, -1.0, np.float32), np.ones(1, np.float32), np.dtype(np.float32))
        self.action_space = box if continuous else DiscreteSpec(2)

    def init(self, key: Any, n: int) -> Any:
        return jax.random.randint(key, (n,), 0, 10)

    def obs(self, state: Any) -> Any:
        cells = jax.nn.one_hot(state % 5 * 5 + jnp.where(state < 5, 1, 3), 25)
        return (255 * cells).astype(jnp.uint8).reshape(-1, 5, 5, 1)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        left = state < 5
        right_answer = (action[:, 0] < 0.0) == left if self.continuous else (action == 0) == left
        always = jnp.ones_like(left)
        return state, right_answer.astype(jnp.float32), always, ~always


HPARAMS: dict[str, dict[str, Any]] = {
    "ppo": {"num_steps": 16, "num_minibatches": 2, "num_epochs": 2},
    "reinforce": {"num_steps": 16},
    "pqn": {"num_steps": 16, "num_minibatches": 2},
    "dqn": {"learning_starts": 16, "batch_size": 8},
    "sac": {"learning_starts": 16, "batch_size": 8, "updates_per_step": 0.25},
    "td3": {"learning_starts": 16, "batch_size": 8, "updates_per_step": 0.25},
}


def config(algo: str, lane: str, **given: Any) -> TrainConfig:
    return parse_config(
        {
            "algo": algo,
            "backend": "jax",
            "lane": lane,
            "env_id": f"{__name__}:Lamp",
            "env": {"num_envs": 4, "kwargs": {"continuous": algo in ("sac", "td3")}},
            "hparams": HPARAMS[algo],
            "network": {"actor": SMALL, "critic": SMALL},
            "training": {"total_timesteps": 128},
            **given,
        }
    )


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("algo", "lane"),
    [
        ("dqn", "compiled"),
        ("ppo", "host"),
        pytest.param("ppo", "compiled", marks=SLOW),
        *(pytest.param(algo, "compiled", marks=SLOW) for algo in ("reinforce", "pqn", "sac", "td3")),
        *(pytest.param(algo, "host", marks=SLOW) for algo in ("reinforce", "pqn", "dqn", "sac", "td3")),
    ],
)
def test_every_algorithm_learns_from_images_and_resumes(algo: str, lane: str) -> None:
    cfg = config(algo, lane)
    whole, half, resumed = (build_trainer(cfg) for _ in range(3))
    assert isinstance(whole, CompiledTrainer) is (lane == "compiled")
    before = whole.algorithm.policy.state_dict()["network"]
    assert any("convolutions.0.weight" in name for name in before)
    whole.run(128)
    half.run(64)
    resumed.load_state_dict(half.state_dict())
    resumed.run(128)
    assert difference(resumed.state_dict(), whole.state_dict()) is None
    after = whole.algorithm.policy.state_dict()["network"]
    moved = [name for name in before if name.endswith("weight") and (before[name] != after[name]).any()]
    assert any("convolutions" in name for name in moved)
    for trainer in (whole, half, resumed):
        trainer.close()


def test_ppo_learns_what_a_picture_shows() -> None:
    hparams = {"num_steps": 16, "num_minibatches": 2, "num_epochs": 2, "learning_rate": 5e-3}
    trainer = build_trainer(config("ppo", "compiled", hparams=hparams, training={"total_timesteps": 4_000}))
    trainer.run(4_000)
    policy = trainer.algorithm.policy
    obs = np.asarray(Lamp().obs(jnp.arange(10)))
    assert obs.dtype == np.uint8
    actions = policy.act(obs, {}, np.zeros(10, bool), np.random.default_rng(0), deterministic=True).actions
    trainer.close()
    np.testing.assert_array_equal(actions, np.arange(10) >= 5)


def test_what_is_for_flat_observations_is_not_used_for_images() -> None:
    body = BackboneConfig(hidden_dims=(8,))
    assert not runs_in_numpy(PICTURE, body)
    assert runs_in_numpy(PICTURE, BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig("mlp")))
    network = NetworkConfig(body, body)
    ctx = BuildContext(PICTURE, DiscreteSpec(2), num_envs=2, network=network, streams=Streams(0))
    assert not fits(Learner(ctx, PPOConfig()))


def test_each_critic_looks_for_itself() -> None:
    """And the actions join behind the convolutions."""
    network = critics(PICTURE, 2, BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig(features=4)), 2)
    params = network.init(np.random.default_rng(0))
    assert {f"backbones.{e}.images.obs.projection.weight" for e in range(2)} < set(params)
    assert params["layers.0.weight"].shape == (2, 8 + 2, 8)
    rng = np.random.default_rng(1)
    obs, actions = rng.integers(256, size=(3, 5, 5, 1)).astype(np.uint8), rng.standard_normal((3, 2)).astype("f")
    values = network.apply(params, obs, actions)
    assert values.shape == (2, 3)
    assert (np.asarray(network.apply(params, obs, -actions)) != np.asarray(values)).all()


def test_random_shifts_are_refused() -> None:
    cfg = BackboneConfig(encoder=EncoderConfig(random_shift=4))
    with pytest.raises(ConfigError, match="random_shift is not available with backend: jax; use backend: torch"):
        without_memory(backbone(PICTURE, cfg), cfg)
