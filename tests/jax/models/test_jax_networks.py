"""Backbones beyond the MLP: convolutions and memory, by hand-worked numbers and a probe that only memory solves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import eval_env_maker
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig, TrainConfig
from rl_training.hparams import dqn, ppo
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.ppo import PPOConfig
from rl_training.jax.algorithms.on_policy import Learner
from rl_training.jax.host import build_agent
from rl_training.jax.models import backbones
from rl_training.jax.models.actor_critic import Seen
from rl_training.jax.models.backbones.memory import carry_of, stepped
from rl_training.jax.models.layers import FEW_ROWS, product, tanh
from rl_training.jax.models.networks import backbone
from rl_training.jax.numerics.normalization import normalized_obs, observed, scales
from rl_training.registry import import_own
from rl_training.seeding import Streams
from rl_training.testing.states import difference
from rl_training.training.compiled import CompiledTrainer
from rl_training.training.evaluation import evaluate_policy
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

FLOAT = np.dtype(np.float32)
OBS = BoxSpec(np.full(3, -1.0, np.float32), np.full(3, 1.0, np.float32), FLOAT)
SLOW = pytest.mark.slow
GRU = BackboneConfig(type="gru", hidden_dims=(6, 4))


def pictures(*shape: int, dtype: Any = np.uint8) -> BoxSpec:
    return BoxSpec(np.zeros(shape, dtype), np.full(shape, 255, dtype), np.dtype(dtype))


def cnn(**given: Any) -> BackboneConfig:
    return BackboneConfig(**{"type": "cnn", "hidden_dims": (), "activation": "relu", **given})


# -- layers -----------------------------------------------------------------------------------------------------------


def test_tanh_is_as_exact_as_that_of_the_libraries() -> None:
    x = np.concatenate([np.linspace(-12, 12, 200_001), np.geomspace(1e-30, 1, 20_001)]).astype(np.float32)
    y, exact = np.asarray(jax.jit(tanh)(jnp.asarray(x)), np.float64), np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=4e-7)
    slopes = jax.jit(jax.vmap(jax.grad(tanh)))(jnp.asarray(x))
    np.testing.assert_allclose(slopes, 1.0 - exact**2, atol=8e-7)
    far = np.asarray(tanh(jnp.array([np.inf, -np.inf, np.nan, 3e38])))
    np.testing.assert_allclose(far, [1.0, -1.0, np.nan, 1.0], rtol=4e-7)
    np.testing.assert_array_equal(tanh(x), np.tanh(x))  # what NumPy has is NumPy's


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 16), (16, 2), (4, 2), (16, 1), (1, 16), (16, 16)])
@pytest.mark.parametrize("rows", [1, 5, FEW_ROWS, FEW_ROWS + 1])
def test_products_of_a_few_rows_are_products(rows: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype("f") for shape in ((rows, inputs), (inputs, outputs)))
    actual = jax.jit(product)(x, weight)
    assert actual.shape == (rows, outputs)
    np.testing.assert_allclose(actual, x @ weight, atol=1e-5)


# -- convolutions -----------------------------------------------------------------------------------------------------


def test_the_convolutions_of_the_nature_paper() -> None:
    network = backbone(pictures(4, 84, 84), cnn(hidden_dims=(512,)))
    params = network.init(np.random.default_rng(0))
    assert {name: value.shape for name, value in params.items() if name.endswith("weight")} == {
        "convolutions.0.weight": (32, 4, 8, 8),
        "convolutions.2.weight": (64, 32, 4, 4),
        "convolutions.4.weight": (64, 64, 3, 3),
        "layers.0.weight": (3136, 512),
    }
    first = params["convolutions.0.weight"].reshape(32, -1)
    np.testing.assert_allclose(first @ first.T, 2.0 * np.eye(32), atol=1e-5)  # orthogonal, gain sqrt 2
    assert jax.eval_shape(network.apply, params, np.zeros((2, 4, 84, 84), np.uint8)).shape == (2, 512)


def test_a_convolution_by_hand() -> None:
    """Bytes become 0..1; a kernel of 2 x 2 sees four places of a 3 x 3 picture; what is below zero is cut."""
    small = cnn(kwargs={"channels": [1], "kernels": [2], "strides": [1]})
    network = backbone(pictures(1, 3, 3), small)
    params = {
        "convolutions.0.weight": np.array([[[[1.0, 0.0], [0.0, -1.0]]]], np.float32),
        "convolutions.0.bias": np.array([0.1], np.float32),
    }
    picture = np.array([[[[255, 0, 0], [0, 51, 0], [102, 0, 0]]]], np.uint8)
    # 1 - .2 + .1, 0 - 0 + .1, 0 - 0 + .1, .2 - 0 + .1
    np.testing.assert_allclose(network.apply(params, picture), [[0.9, 0.1, 0.1, 0.3]], atol=1e-6)
    below = {**params, "convolutions.0.bias": np.array([-0.85], np.float32)}
    np.testing.assert_allclose(network.apply(below, picture), [[0.0, 0.0, 0.0, 0.0]], atol=1e-6)


def test_channels_may_come_last_and_other_observations_beside_the_picture() -> None:
    shape = {"channels": [3], "kernels": [3], "strides": [2]}
    rng = np.random.default_rng(1)
    first, last = backbone(pictures(2, 9, 7), cnn(kwargs=shape)), backbone(pictures(9, 7, 2), cnn(kwargs=shape))
    params, rows = first.init(rng), rng.integers(256, size=(4, 2, 9, 7)).astype(np.uint8)
    seen = np.asarray(first.apply(params, rows))
    assert seen.shape == (4, first.out_features) == (4, 3 * 4 * 3)
    np.testing.assert_allclose(last.apply(params, np.moveaxis(rows, 1, 3)), seen, atol=1e-6)
    both = backbone(DictSpec({"seen": pictures(2, 9, 7), "speed": OBS}), cnn(kwargs=shape))
    joined = both.apply(params, {"seen": rows, "speed": np.full((4, 3), 0.5, np.float32)})
    np.testing.assert_allclose(joined, np.concatenate([seen, np.full((4, 3), 0.5)], axis=1), atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 7, 20), (20, 7, 7), (4, 7, 7, 5), (4, 5, 7, 7)])
def test_more_channels_than_pixels_and_stacked_frames(shape: tuple[int, ...]) -> None:
    """Each is a picture of 7 x 7 with 20 channels; the weights see channels, not rows."""
    network = backbone(pictures(*shape), cnn(kwargs={"channels": [2], "kernels": [3], "strides": [1]}))
    params = network.init(np.random.default_rng(0))
    assert params["convolutions.0.weight"].shape == (2, 20, 3, 3)
    rows = np.random.default_rng(1).integers(256, size=(3, *shape)).astype(np.uint8)
    in_front = {3: [0, 3, 1, 2], 4: [0, 1, 4, 2, 3]}[len(shape)] if shape[-1] != 7 else list(range(len(shape) + 1))
    turned = rows.transpose(in_front).reshape(3, 20, 7, 7)
    expected = backbone(pictures(20, 7, 7), cnn(kwargs={"channels": [2], "kernels": [3], "strides": [1]}))
    np.testing.assert_allclose(network.apply(params, rows), expected.apply(params, turned), atol=1e-5)


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (pictures(3, 10, 10), {}, r"convolution 1 looks at 4 x 4 of a picture that is 1 x 1 there; set smaller"),
        (OBS, {}, r"needs one picture \(a Box of three axes\) to look at, not 0"),
        (pictures(3, 9, 9), {"kernel": [3]}, "has no kwargs kernel; it has channels, kernels, strides"),
        (pictures(3, 9, 9), {"channels": [3]}, "as many kwargs.channels as kernels and strides"),
    ],
)
def test_pictures_that_do_not_fit_are_refused(space: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        backbone(space, cnn(kwargs=kwargs))


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_step_of_memory_by_hand() -> None:
    """Gates half open: the new memory is half the old one and half tanh(0.5)."""
    one = BoxSpec(np.zeros(1, np.float32), np.ones(1, np.float32), FLOAT)
    network = backbone(one, BackboneConfig(type="gru", hidden_dims=(1,)))
    assert network.step is not None
    params = {
        "cell.input.weight": np.array([[0.0, 0.0, 1.0]], np.float32),
        "cell.hidden.weight": np.zeros((1, 3), np.float32),
        "cell.input.bias": np.zeros(3, np.float32),
        "cell.hidden.bias": np.zeros(3, np.float32),
    }
    memory = network.step(params, np.ones((1, 1), np.float32), network.apply(params, np.full((1, 1), 0.5, np.float32)))
    np.testing.assert_allclose(memory, [[0.5 * 0.46211716 + 0.5]], rtol=1e-6)


def test_the_memory_is_torch_s_gru() -> None:
    network = backbone(OBS, BackboneConfig(type="gru", hidden_dims=(4,)))
    assert network.step is not None
    rng = np.random.default_rng(0)
    params = {name: rng.standard_normal(value.shape).astype("f") for name, value in network.init(rng).items()}
    cell = torch.nn.GRUCell(3, 4)
    with torch.no_grad():
        for kind, layer in (("ih", "cell.input"), ("hh", "cell.hidden")):
            getattr(cell, f"weight_{kind}").copy_(torch.from_numpy(params[f"{layer}.weight"].T))
            getattr(cell, f"bias_{kind}").copy_(torch.from_numpy(params[f"{layer}.bias"]))
    obs, memory = rng.standard_normal((5, 3)).astype("f"), rng.standard_normal((5, 4)).astype("f")
    expected = cell(torch.from_numpy(obs), torch.from_numpy(memory)).detach().numpy()
    np.testing.assert_allclose(network.step(params, memory, network.apply(params, obs)), expected, atol=1e-6)
    compiled = jax.jit(lambda params, memory, obs: network.step(params, memory, network.apply(params, obs)))
    np.testing.assert_allclose(compiled(params, memory, obs), expected, atol=1e-6)


def test_an_episode_begins_with_nothing_remembered() -> None:
    network = backbone(OBS, GRU)
    params, obs = network.init(np.random.default_rng(0)), np.ones((2, 3), np.float32)
    forgot, _ = stepped(network, params, obs, np.full((2, 4), 7.0, np.float32), np.array([True, False]))
    fresh, _ = stepped(network, params, obs, np.zeros((2, 4), np.float32), np.array([False, False]))
    np.testing.assert_array_equal(forgot[0], fresh[0])
    assert (forgot[1] != fresh[1]).all()


@pytest.mark.parametrize("truncated_share", [0.0, 0.2, 1.0])
def test_the_value_of_what_followed_is_that_of_the_next_row_or_asked_for(truncated_share: float) -> None:
    """Within an episode it is that of the next row, at a truncation or the end of the rollout that of the true next
    observation; after termination it is not used."""
    steps, envs = 9, 4
    ctx = BuildContext(OBS, DiscreteSpec(3), num_envs=envs, streams=Streams(3), normalize_obs=True)
    learner, rng = Learner(ctx, PPOConfig()), np.random.default_rng(0)
    obs, elsewhere = rng.standard_normal((2, steps + 1, envs, 3)).astype("f")
    hyper = {"log_std_init": np.float32(0.0)}
    state = learner.init(rng, hyper)
    state = state._replace(normalizer=observed(state.normalizer, 3.0 * elsewhere + 1.0))
    terminated, truncated = rng.random((steps, envs)) < 0.2, rng.random((steps, envs)) < truncated_share
    ends = (terminated | truncated)[:, :, None]
    batch = {"next_obs": np.where(ends, elsewhere[1:], obs[1:]), "truncated": jnp.asarray(truncated)}
    scale = scales(state.normalizer)

    def values_of(seen: Any) -> Any:
        flat = normalized_obs(scale, seen.reshape(-1, 3))
        return learner.network.values(state.params, Seen(flat)).reshape(seen.shape[:2])

    following = jax.jit(learner.next_values)(state, batch, Seen(()), values_of(obs[:-1]))
    counts = ~terminated | truncated
    np.testing.assert_allclose(following[counts], values_of(batch["next_obs"])[counts], atol=1e-6)
    assert np.isfinite(following).all()


def learner_of(
    body: BackboneConfig, *, steps: int, envs: int, shared: bool = False, length: int | None = None
) -> Learner:
    network = NetworkConfig(body, body, shared=shared)
    ctx = BuildContext(OBS, DiscreteSpec(3), num_envs=envs, network=network, streams=Streams(3))
    return Learner(ctx, PPOConfig(num_steps=steps, sequence_length=length, num_minibatches=1))


@pytest.mark.parametrize("shared", [False, True])
def test_learning_follows_what_acting_remembered(shared: bool) -> None:
    """Over a rollout that begins within episodes and sees some end: the same log-probabilities, step by step or in one
    go; and the value of what a step led to is the value of the next step, as long as the episode lasts."""
    steps, envs = 7, 4
    learner = learner_of(GRU, steps=steps, envs=envs, shared=shared)
    network, rng = learner.network, np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.3 * rng.standard_normal(x.shape).astype("f"), network.init(rng, 0.0))
    obs = rng.standard_normal((steps + 1, envs, 3)).astype("f")
    is_first = rng.random((steps, envs)) < 0.3
    actions = rng.integers(3, size=(steps, envs))
    carry = begin = {name: rng.standard_normal(m.shape).astype("f") for name, m in network.initial_carry(envs).items()}
    assert set(carry) == ({"actor"} if shared else {"actor", "critic"})
    acted, judge = [], jax.jit(learner.distribution.logprob_entropy)
    for t in range(steps):
        parameters, carry = network.action(params, obs[t], carry, is_first[t])
        acted.append(judge(parameters, actions[t], None)[0])
    seen = Seen(learner.rows(obs[:-1]), learner.rows(is_first), begin)
    logprobs, _, values = jax.jit(network.evaluate)(params, seen, learner.rows(actions))
    np.testing.assert_allclose(learner.grid(logprobs, (steps, envs)), np.stack(acted), atol=1e-6)
    next_values = jax.jit(network.next_values)(params, seen, learner.rows(obs[1:]))
    goes_on = ~is_first.T[:, 1:]
    np.testing.assert_allclose(next_values[:, :-1][goes_on], values[:, 1:][goes_on], atol=1e-6)
    assert (next_values[:, :-1][~goes_on] != values[:, 1:][~goes_on]).all()


@pytest.mark.parametrize(
    ("body", "shared"),
    [(BackboneConfig("lstm", (6, 4)), False), (BackboneConfig(memory=MemoryConfig("transformer", 4, window=3)), True)],
)
def test_a_rollout_is_prepared_with_what_was_carried(body: BackboneConfig, shared: bool) -> None:
    """Log-probabilities are those of acting; a piece begins with what was carried into it; what follows a truncation is
    valued by one step from the memory after that row, not from the row below."""
    steps, envs = 8, 3
    learner = learner_of(body, steps=steps, envs=envs, shared=shared, length=4)
    network, rng = learner.network, np.random.default_rng(0)
    hyper = {name: np.float32(1.0) for name in ("log_std_init", "gamma", "gae_lambda")}
    state = learner.init(rng, hyper)
    obs, elsewhere = rng.standard_normal((2, steps + 1, envs, 3)).astype("f")
    is_first, truncated = rng.random((2, steps, envs)) < 0.3
    is_first[1:], truncated[4] = truncated[:-1], True
    first = network.initial_carry(envs)
    carry = begin = jax.jit(network.action)(state.params, elsewhere[0], first, np.ones(envs, bool))[1]
    outputs, carries, act = [], [], jax.jit(network.action)
    for t in range(steps):
        parameters, carry = act(state.params, obs[t], carry, is_first[t])
        outputs.append(parameters.outputs)
        carries.append(carry)
    batch = {
        "obs": obs[:-1],
        "next_obs": np.where(truncated[:, :, None], elsewhere[1:], obs[1:]),
        "actions": rng.integers(3, size=(steps, envs)),
        "rewards": np.zeros((steps, envs), np.float32),
        "terminated": np.zeros((steps, envs), bool),
        "truncated": jnp.asarray(truncated),
        "is_first": is_first,
        "outputs": np.stack(outputs),
        "initial_carry": begin,
    }
    _, rollout = jax.jit(learner.prepare)(state, batch)
    for name, column in rollout.seen.carry.items():  # two pieces for each environment
        np.testing.assert_allclose(column[::2], begin[name], atol=1e-6)
        np.testing.assert_allclose(column[1::2], carries[3][name], atol=1e-6)
    logprobs, _, values = jax.jit(network.evaluate)(state.params, rollout.seen, rollout.actions)
    np.testing.assert_allclose(logprobs, rollout.logprobs, atol=1e-6)
    np.testing.assert_allclose(values, rollout.values, atol=1e-6)
    # without rewards and with gamma = lambda = 1, a return is the value at the end of the episode or the rollout
    critic = carry_of({name: jnp.stack([c[name] for c in carries]) for name in carry}, "actor" if shared else "critic")
    at_truncation = jax.tree.map(lambda x: x[4], critic)
    wanted = jax.jit(network.values_after)(state.params, at_truncation, batch["next_obs"][4])
    returns = np.asarray(rollout.returns).reshape(envs, steps)
    np.testing.assert_allclose(returns[:, 4], wanted, atol=1e-5)


def cue_memory(algo: str, lane: str, blanks: int, steps: int, memory: str = "gru", seed: int = 0) -> TrainConfig:
    network = {"type": memory, "hidden_dims": [16], "memory": {"window": 16}}
    given = {"num_minibatches": 2} if algo == "ppo" else {}
    return parse_config(
        {
            "algo": algo,
            "backend": "jax",
            "lane": lane,
            "seed": seed,
            "env_id": "RLProbe/CueMemory-v0",
            "env": {"num_envs": 16, "kwargs": {"blanks": blanks}},
            "hparams": {"num_steps": 24, "learning_rate": 1e-2 if algo == "ppo" else 2e-2, **given},
            "network": {"actor": network, "critic": network},
            "training": {"total_timesteps": steps},
        }
    )


@pytest.mark.parametrize(
    ("algo", "lane", "blanks", "steps", "memory", "seed"),
    [
        ("ppo", "compiled", 10, 20_000, "gru", 0),
        ("ppo", "host", 2, 6_000, "gru", 0),
        *(
            pytest.param("ppo", "compiled", 6, 20_000, kind, seed, marks=SLOW)
            for kind in ("lstm", "transformer")
            for seed in (0, 1)
        ),
        *(pytest.param("ppo", "host", 2, 8_000, kind, 0, marks=SLOW) for kind in ("lstm", "transformer")),
        *(pytest.param("reinforce", "compiled", 3, 20_000, kind, 0, marks=SLOW) for kind in ("gru", "lstm")),
    ],
)
def test_a_cue_is_remembered_until_it_is_asked_for(
    algo: str, lane: str, blanks: int, steps: int, memory: str, seed: int
) -> None:
    """Without memory half of the answers are right."""
    cfg = cue_memory(algo, lane, blanks, steps, memory, seed)
    trainer = build_trainer(cfg)
    trainer.run(steps)
    assert isinstance(trainer, CompiledTrainer) is (lane == "compiled")
    result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=50, seed=1)
    trainer.close()
    assert result.returns.mean() == 1.0


def resumed_halfway(cfg: TrainConfig, steps: int) -> tuple[Any, Any]:
    """The policy's carry at a checkpoint halfway and at the end of the resumed run, whose result equals that of an
    uninterrupted run."""
    whole, half, resumed = (build_trainer(cfg) for _ in range(3))
    whole.run(steps)
    half.run(steps // 2)
    saved = half.state_dict()
    resumed.load_state_dict(saved)
    resumed.run(steps)
    ended = resumed.state_dict()
    assert difference(ended, whole.state_dict()) is None
    place = "env" if isinstance(whole, CompiledTrainer) else "collector"
    return saved[place]["carry"], ended[place]["carry"]


@pytest.mark.parametrize(
    ("memory", "lane", "name"),
    [
        ("gru", "compiled", "actor"),
        ("lstm", "host", "critic/hidden"),
        pytest.param("lstm", "compiled", "actor/cell", marks=SLOW),
        pytest.param("transformer", "compiled", "critic/inputs", marks=SLOW),
        pytest.param("transformer", "host", "actor/inputs", marks=SLOW),
    ],
)
def test_memory_is_part_of_a_checkpoint(memory: str, lane: str, name: str) -> None:
    saved, _ = resumed_halfway(cue_memory("ppo", lane, 10, 20_000, memory), 768)
    assert np.abs(saved[name]).max() > 0.0


def test_matrices_of_noise_go_on_where_a_checkpoint_left_them() -> None:
    """gSDE draws one per episode here, and no episode ends."""
    network = {"hidden_dims": [8]}
    given = {
        "algo": "ppo",
        "env_id": "Pendulum-v1",
        "backend": "jax",
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 16, "num_minibatches": 2, "num_epochs": 1, "use_sde": True},
        "network": {"actor": network, "critic": network},
    }
    saved, ended = resumed_halfway(parse_config(given), 128)
    assert np.abs(saved["draws"]).min() > 0.0
    np.testing.assert_array_equal(ended["draws"], saved["draws"])


def test_memory_is_refused_where_it_cannot_be_used() -> None:
    ctx = BuildContext(OBS, DiscreteSpec(2), num_envs=6, network=NetworkConfig(GRU, GRU), streams=Streams(0))
    with pytest.raises(ConfigError, match="'gru' has memory, which with backend: jax only ppo and reinforce learn to"):
        build_agent(ctx, dqn.SPEC, DQNConfig())
    with pytest.raises(ConfigError, match=r"num_minibatches 4 does not divide the 6 rows.*num_envs, since the network"):
        build_agent(ctx, ppo.SPEC, PPOConfig(num_minibatches=4))
    lstm = BackboneConfig(memory=MemoryConfig("lstm"))
    ctx = BuildContext(OBS, DiscreteSpec(2), num_envs=6, network=NetworkConfig(lstm, lstm), streams=Streams(0))
    with pytest.raises(ConfigError, match="'lstm' has memory, which with backend: jax only ppo and reinforce learn to"):
        build_agent(ctx, dqn.SPEC, DQNConfig())
    pieces = PPOConfig(num_steps=8, sequence_length=4, num_minibatches=5)
    with pytest.raises(ConfigError, match=r"divide the 12 rows .* has memory, times the 2 pieces of sequence_length"):
        build_agent(ctx, ppo.SPEC, pieces)
    with pytest.raises(ConfigError, match="'gru' needs hidden_dims"):
        backbone(OBS, BackboneConfig(type="gru", hidden_dims=()))


@pytest.mark.parametrize("name", ["mlp", "cnn", "gru"])
def test_stored_names_of_networks_still_resolve(name: str) -> None:
    """Configs of runs hold these paths: that of version 0.1.0, and that of the module which now only re-exports."""
    built_in = getattr(backbones, name)
    assert import_own(f"rl_training.jax.nets:{name}", "network") is built_in
    assert import_own(f"rl_training.jax.models.networks:{name}", "network") is built_in
