"""Optimisers by name in JAX: optax behind the step of our own Adam, in both lanes, resumed to the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sampling import sampled

from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.envs.probes import PROBES
from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.jax.models.optimization import ADAM_OPTIMIZER, build_optimizer, optimizer_step
from rl_training.testing.states import difference
from rl_training.training.evaluation import stack_obs
from rl_training.types import ConfigError

SMALL = {"hidden_dims": [16], "activation": "tanh"}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"type": "adamw", "kwargs": {"weight_decay": 0.01}},
    "rmsprop": {"type": "rmsprop", "kwargs": {"momentum": 0.5}},
}
REPLAY = {"learning_starts": 64, "batch_size": 32, "updates_per_step": 0.25}


def trainer_of(algo: str, optimizer: str, lane: str, steps: int = 1_024, **hparams: Any) -> Any:
    env = "ObsTimesAction" if algo in ("ppo", "reinforce", "pqn", "dqn") else "Target"
    own = {"ppo": {"num_steps": 16, "num_minibatches": 4}, "reinforce": {"num_steps": 16}}
    own["pqn"] = {**own["ppo"], "epsilon_steps": 500}
    chosen = {"max_grad_norm": 0.5, **own.get(algo, REPLAY), "optimizer": OPTIMIZERS[optimizer], **hparams}
    backbone = {**SMALL, "layer_norm": algo == "pqn"}
    return build_trainer(
        parse_config(
            {
                "algo": algo,
                "backend": "jax",
                "lane": lane,
                "env_id": f"RLProbe/{env}-v0",
                "env": {"num_envs": 8},
                "hparams": chosen,
                "network": {"actor": backbone, "critic": backbone},
                "training": {"total_timesteps": steps},
                **({} if algo in own else {"buffer": {"size": 1000}}),
            }
        )
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_optax_with_our_clipping_and_a_schedule(name: str) -> None:
    kwargs = OPTIMIZERS[name]["kwargs"]
    ours = build_optimizer(OptimizerConfig(name, kwargs))
    params = theirs = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    state, expected = ours.init(params), optax.chain(optax.clip_by_global_norm(0.5))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state)), "made on the host"
    reference = getattr(optax, name)(0.01, **kwargs)
    their_state, clip_state = reference.init(theirs), expected.init(theirs)
    for seed in range(4):
        grads = jax.tree.map(lambda p, seed=seed: jnp.cos(p + seed), params)
        params, state, norm = optimizer_step(params, grads, state, {"max_grad_norm": 0.5}, jnp.float32(0.01), ours)
        assert float(norm) > 0.5, "nothing was clipped"
        clipped, clip_state = expected.update(jax.tree.map(lambda p, seed=seed: jnp.cos(p + seed), theirs), clip_state)
        changes, their_state = reference.update(clipped, their_state, theirs)
        theirs = optax.apply_updates(theirs, changes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), params, theirs)


CASES = [(algo, name, lane) for algo in ("ppo", "sac") for name in OPTIMIZERS for lane in ("compiled", "host")]
OFTEN = [("ppo", "adamw", "compiled"), ("sac", "rmsprop", "host")]


@pytest.mark.parametrize(("algo", "name", "lane"), sampled(CASES, OFTEN))
def test_a_run_goes_on_bit_for_bit(algo: str, name: str, lane: str, tmp_path: Path) -> None:
    """Through files: stopped after 512 of 1024 steps; whatever the optimiser keeps is in the checkpoint, by name."""
    whole, half, resumed = (trainer_of(algo, name, lane) for _ in range(3))
    whole.run(1_024)
    half.run(512)
    manager = CheckpointManager(tmp_path)
    manager.save(half.state_dict(), step=half.progress.env_steps)
    resumed.load_state_dict(manager.load("latest").parts)
    resumed.run(1_024)
    assert difference(resumed.state_dict(), whole.state_dict()) is None
    assert difference(half.state_dict(), whole.state_dict()) is not None
    saved = half.state_dict()["algorithm"]["optimizer"]
    assert "layers.0.weight" in str(saved), "moments bear the names of their parameters"
    for trainer in (whole, half, resumed):
        trainer.close()


@pytest.mark.parametrize("algo", sampled(["reinforce", "pqn", "dqn", "td3"], ("pqn", "dqn")))
def test_the_other_algorithms_train_with_it(algo: str) -> None:
    trainer = trainer_of(algo, "adamw", "compiled", 512)
    before = jax.tree.map(np.copy, trainer.algorithm.state.params)
    trainer.run(512)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), before, dict(trainer.algorithm.state.params))
    assert max(jax.tree.leaves(moved)) > 1e-4
    trainer.close()


def test_ppo_learns_with_it_in_the_compiled_lane() -> None:
    trainer = trainer_of("ppo", "adamw", "compiled", 8_192, learning_rate=1e-2)
    trainer.run(8_192)
    known = PROBES["RLProbe/ObsTimesAction-v0"].best_actions
    obs, is_first = stack_obs([obs for obs, _ in known]), np.ones(len(known), bool)
    act = trainer.algorithm.policy.act(obs, {}, is_first, np.random.default_rng(0), deterministic=True)
    np.testing.assert_array_equal(act.actions, [action for _, action in known])
    trainer.close()


def test_adam_needs_no_optax() -> None:
    """The library is imported only where a config asks for one of its optimisers."""
    program = (
        "import sys; from rl_training.jax.models.optimization import build_optimizer; "
        "from rl_training.hparams.optimizer import OptimizerConfig; build_optimizer(OptimizerConfig()); "
        "assert 'optax' not in sys.modules; build_optimizer(OptimizerConfig('adamw')); assert 'optax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert build_optimizer(OptimizerConfig()) is ADAM_OPTIMIZER


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("adamw", {"learning_rate": 0.1}, r"set hparams\.learning_rate instead"),
        ("adamw", {"weight_decoy": 0.1}, "optimizer 'adamw' is called with .*weight_decoy"),
        ("builtins:float", {}, "made a float; it must be an optax.GradientTransformation"),
        ("nonsense", {}, "unknown optimizer 'nonsense'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_cure(name: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_optimizer(OptimizerConfig(name, kwargs)).init({"w": np.zeros(2, np.float32)})


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ConfigError, match=r"needs optax; pip install 'rl-training\[jax\]'"):
        build_optimizer(OptimizerConfig("rmsprop"))
