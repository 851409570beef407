"""Rules of an update that a learning curve does not show: each with a number that only the right code gives."""

from __future__ import annotations

import math
import zlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.algorithms.crossq import CrossQ
from rl_training.algorithms.dqn import DQN, numpy_values
from rl_training.algorithms.off_policy import UniformPolicy
from rl_training.algorithms.reinforce import Reinforce
from rl_training.algorithms.sac import ENUMERATED_ACTIONS, SAC
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.data.prioritized import PrioritizedReplayBuffer
from rl_training.hparams.crossq import CrossQConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.reinforce import ReinforceConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.action_values import ActionValues, QShape
from rl_training.models.heads import StateDependentGaussianHead
from rl_training.numerics.encoding import to_bounds
from rl_training.training.evaluation import evaluate_policy
from rl_training.types import ActResult, Batch, BoxSpec, DictSpec, DiscreteSpec

OBS = BoxSpec(np.full(3, -1, np.float32), np.full(3, 1, np.float32), np.dtype(np.float32))
FLAGS = BoxSpec(np.zeros(3, np.int8), np.ones(3, np.int8), np.dtype(np.int8))
BOX = BoxSpec(np.float32([-2.0, -1.0]), np.float32([1.0, 1.0]), np.dtype(np.float32))
LAYER = BackboneConfig(hidden_dims=(8,), activation="relu")
SMALL = NetworkConfig(LAYER, LAYER)
KERNELS = ("auto", "reference")


def context(action_space: Any = BOX, observation_space: Any = OBS) -> BuildContext:
    return BuildContext(observation_space, action_space, network=SMALL)


def transitions(actions: Any, *, size: int = 4, **given: Any) -> Batch:
    rng = np.random.default_rng(0)
    rows = {
        "obs": rng.standard_normal((size, 3)).astype(np.float32),
        "next_obs": rng.standard_normal((size, 3)).astype(np.float32),
        "actions": actions,
        "rewards": np.ones(size, np.float32),
        "terminated": np.zeros(size, bool),
        "truncated": np.zeros(size, bool),
    }
    return {**rows, **given}


def constant_values(network: Any, *values: float) -> None:
    """Make the outputs of a network the same for every observation."""
    with torch.no_grad():
        network.weight.zero_()
        network.bias.copy_(torch.tensor(values).reshape(network.bias.shape))


# -- DQN --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_hard_target_is_copied_every_so_many_updates_and_stands_still_between(kernel: Any) -> None:
    dqn = DQN(context(DiscreteSpec(3)), DQNConfig(target_every_updates=3, tau=1.0, kernel=kernel))
    batch, copied = transitions(np.int64([0, 1, 2, 0])), []
    for _ in range(7):
        before = dqn.targets["q"].parameters.values.clone()
        dqn.update(batch)
        now = dqn.targets["q"].parameters.values
        copied.append(torch.equal(now, dqn.learners["q"].parameters.values))
        assert copied[-1] or torch.equal(now, before)
    assert copied == [False, False, True, False, False, True, False]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("double", "mask", "future"),
    [(True, [1, 0, 1], 4.0), (False, [0, 1, 1], 4.0), (True, [1, 1, 1], 2.0), (False, [1, 1, 1], 5.0)],
)
def test_the_target_of_dqn_looks_at_allowed_actions_only(
    kernel: Any, double: bool, mask: list[int], future: float
) -> None:
    """Online values (1, 3, 2), lagging ones (5, 2, 4): the target is 0.9 times that of the best allowed action."""
    space = DictSpec({"x": OBS, "action_mask": FLAGS})
    dqn = DQN(context(DiscreteSpec(3), space), DQNConfig(double=double, gamma=0.9, kernel=kernel))
    constant_values(dqn.q.advantage, 1.0, 3.0, 2.0)
    constant_values(dqn.targets["q"].network.advantage, 5.0, 2.0, 4.0)
    plain = transitions(np.zeros(4, np.int64), rewards=np.zeros(4, np.float32))
    allowed, masks = np.ones((4, 3), np.int8), np.tile(np.int8(mask), (4, 1))
    obs, next_obs = {"x": plain["obs"], "action_mask": allowed}, {"x": plain["next_obs"], "action_mask": masks}
    errors = dqn.gradient(dqn.prepare({**plain, "obs": obs, "next_obs": next_obs})).errors.numpy()
    np.testing.assert_allclose(errors, abs(1.0 - 0.9 * future), rtol=1e-6)


def test_a_dueling_head_takes_the_mean_of_the_advantages_off() -> None:
    network = ActionValues(OBS, QShape(3, dueling=True), LAYER, np.random.default_rng(0))
    constant_values(network.advantage, 1.0, 2.0, 6.0)
    constant_values(network.value, 10.0)
    obs = np.zeros((1, 3), np.float32)
    assert network(torch.from_numpy(obs)).squeeze(2).tolist() == [[8.0, 9.0, 13.0]]
    in_numpy = numpy_values(network)
    assert in_numpy is not None
    assert in_numpy(obs).tolist() == [[8.0, 9.0, 13.0]]


# -- the discount of a row --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_dqn_discounts_by_the_length_of_the_rows_window(kernel: Any) -> None:
    dqn = DQN(context(DiscreteSpec(2)), DQNConfig(gamma=0.9, n_step=3, kernel=kernel))
    constant_values(dqn.q.advantage, 0.0, 10.0)
    constant_values(dqn.targets["q"].network.advantage, 0.0, 10.0)
    discounts = np.float32([0.9, 0.81, 0.729, 0.729])
    errors = dqn.gradient(dqn.prepare(transitions(np.zeros(4, np.int64), discounts=discounts))).errors.numpy()
    np.testing.assert_allclose(errors, [10.0, 9.1, 8.29, 8.29], rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sac_and_td3_discount_by_the_length_of_the_rows_window(kernel: Any) -> None:
    """Two critics that say 5 and 4: targets 1 + discount * 4, so the errors of the first are 4 - discount * 4."""
    discounts = np.float32([0.9, 0.81, 0.729, 0.729])
    rows = transitions(np.zeros((4, 2), np.float32), discounts=discounts)
    sac = SAC(context(), SACConfig(alpha=0.0, gamma=0.9, n_step=3, kernel=kernel))
    td3 = TD3(context(), TD3Config(gamma=0.9, n_step=3, kernel=kernel))
    for algorithm in (sac, td3):
        for critics in (algorithm.critics, algorithm.targets["critics"].network):
            constant_values(critics.output, 5.0, 4.0)
    for step in (sac.critics_gradient(sac.prepare(rows), 0.0), td3.critics_gradient(td3.prepare(rows))):
        expected = np.stack([4.0 - discounts * 4.0, 3.0 - discounts * 4.0])
        np.testing.assert_allclose(step.errors.numpy(), expected, atol=1e-6)


def test_crossq_discounts_by_the_length_of_the_rows_window() -> None:
    crossq = CrossQ(context(), CrossQConfig(alpha=0.0, gamma=0.9, n_step=3))
    constant_values(crossq.critics.output, 5.0, 4.0)
    discounts = np.float32([0.9, 0.81, 0.729, 0.729])
    rows = crossq.prepare(transitions(np.zeros((4, 2), np.float32), discounts=discounts))
    errors = crossq.critics_objective(rows, 0.0).errors.numpy()
    np.testing.assert_allclose(errors, np.stack([4.0 - discounts * 4.0, 3.0 - discounts * 4.0]), atol=1e-6)


# -- SAC with enumerated actions --------------------------------------------------------------------------------------


def test_discrete_sac_takes_expectations_over_all_actions() -> None:
    """pi = (1/4, 3/4), values (5, 2) and (3, 4), alpha 0.5: the soft value is the mean of min Q - alpha log pi."""
    sac = SAC(context(DiscreteSpec(2)), SACConfig(alpha=0.5))
    constant_values(sac.actor.head.output, math.log(0.25), math.log(0.75))
    for critics in (sac.critics, sac.targets["critics"].network):
        constant_values(critics.output, 5.0, 2.0, 3.0, 4.0)
    obs = torch.zeros(2, 3)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    expected = 0.25 * 3.0 + 0.75 * 2.0 + 0.5 * entropy
    noise = torch.zeros(2, 0)
    soft_values = ENUMERATED_ACTIONS.soft_values(sac.actor, sac.targets["critics"].network, obs, 0.5, noise)
    np.testing.assert_allclose(soft_values.detach().numpy(), [expected] * 2, rtol=1e-6)
    logprobs, values = ENUMERATED_ACTIONS.logprobs_and_values(sac.actor, sac.critics, obs, noise)
    np.testing.assert_allclose(logprobs.detach().numpy(), [-entropy] * 2, rtol=1e-6)
    np.testing.assert_allclose(values.detach().numpy(), [0.25 * 3.0 + 0.75 * 2.0] * 2, rtol=1e-6)


# -- CrossQ -----------------------------------------------------------------------------------------------------------


def critic_step(rows: Batch) -> tuple[torch.Tensor, torch.Tensor, CrossQ]:
    """Errors and gradient of the first critic step of a fresh CrossQ."""
    crossq = CrossQ(context(), CrossQConfig(alpha=0.2, gamma=0.9))
    step = crossq.kernel.gradient("critics", crossq.critics_objective, crossq.prepare(rows), 0.2)
    return step.errors, crossq.learners["critics"].parameters.grad.clone(), crossq


def test_crossq_lets_no_gradient_through_the_next_values() -> None:
    """With the future moved into the rewards of ended episodes the targets are the same numbers, and so must be the
    gradient: next values count as constants although they come from the same pass."""
    actions = np.random.default_rng(1).uniform(-1, 1, (6, 2)).astype(np.float32)
    live = transitions(actions, size=6)
    ended = {**live, "terminated": np.ones(6, bool)}
    errors, gradient, _ = critic_step(live)
    without_future, other, _ = critic_step(ended)
    future = (without_future - errors)[0].numpy()
    assert np.abs(future).max() > 0.01
    assert not torch.allclose(gradient, other, rtol=1e-3)
    again, same, _ = critic_step({**ended, "rewards": live["rewards"] + future})
    torch.testing.assert_close(again, errors, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(same, gradient, rtol=1e-4, atol=1e-6)


def test_crossq_normalises_states_and_next_states_as_one_batch() -> None:
    """The first layer sees observation and action: after one pass its running mean is momentum times the mean over
    the rows of both; the actor's step uses the critics' running statistics and moves none of them."""
    rows = transitions(np.full((4, 2), 0.5, np.float32))
    _, _, crossq = critic_step(rows)
    momentum, norm = crossq.hp.norm_momentum, crossq.critics.norms[0]
    both = np.concatenate([rows["obs"], rows["next_obs"]]).mean(0)
    np.testing.assert_allclose(norm.mean[0, 0, :3].numpy(), momentum * both, rtol=1e-4, atol=1e-7)
    moved, passes = norm.mean.clone(), int(norm.passes)
    crossq.actor_objective(crossq.prepare(rows), 0.2)
    assert torch.equal(norm.mean, moved)
    assert int(norm.passes) == passes == 1
    np.testing.assert_allclose(
        crossq.actor.network.norms[0].mean[0, 0].numpy(), momentum * rows["obs"].mean(0), rtol=1e-4, atol=1e-7
    )


# -- optimiser, warm-up, exploration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_are_clipped_before_the_step_uses_them(kernel: Any) -> None:
    """Adam's first moment after one step is a tenth of the gradient it was given: its norm is a tenth of the limit."""
    hp = SACConfig(max_grad_norm=0.5, kernel=kernel)
    sac = SAC(context(), hp)
    rows = transitions(np.zeros((4, 2), np.float32), rewards=np.full(4, 1e3, np.float32))
    metrics = sac.update(rows).metrics
    assert float(metrics["critic_grad_norm"]) > 100.0
    moment = torch.linalg.vector_norm(sac.learners["critics"].optimizer.mean)
    assert float(moment) == pytest.approx(0.05, rel=1e-4)


def test_warm_up_actions_are_stored_in_the_scale_of_the_actor() -> None:
    acted: ActResult = UniformPolicy(BOX).act(np.zeros((4000, 3)), {}, np.ones(4000, bool), np.random.default_rng(0))
    assert -1.0 <= acted.actions.min() < -0.99
    assert 0.99 < acted.actions.max() <= 1.0
    np.testing.assert_allclose(acted.actions.mean(0), [0.0, 0.0], atol=0.03)
    np.testing.assert_allclose(acted.env_actions.mean(0), [-0.5, 0.0], atol=0.03)
    np.testing.assert_array_equal(acted.env_actions, to_bounds(BOX, acted.actions))


def test_the_noise_of_gsde_does_not_shape_the_features() -> None:
    """With a mean that does not depend on the features their only way into the log-probability is the variance, which
    takes them as constants."""
    head = StateDependentGaussianHead(8, BOX, np.random.default_rng(0))
    with torch.no_grad():
        head.output.weight.zero_()
    features = torch.ones(5, 8, requires_grad=True)
    params = head(features)
    assert params.log_std.requires_grad
    (params.mean.sum() + params.log_std.sum()).backward()
    assert features.grad is None or not features.grad.any()
    assert head.log_std.grad is not None
    assert head.log_std.grad.abs().min() > 0.0


# -- REINFORCE --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("baseline", "weight"), [(True, -2.0), (False, 1.0)])
def test_reinforce_weighs_actions_by_the_return_without_the_baseline(baseline: bool, weight: float) -> None:
    """A reward of 1, a critic that says 3 and a policy of (1/2, 1/2): the loss is log 2 times the weight."""
    algorithm = Reinforce(
        context(DiscreteSpec(2)), ReinforceConfig(baseline=baseline, normalize_advantage=False, num_steps=4)
    )
    constant_values(algorithm.network.value_head.output, 3.0)
    constant_values(algorithm.network.action_head.output, 0.0, 0.0)
    steps = 4
    batch: Batch = {
        "obs": np.zeros((steps, 1, 3), np.float32),
        "actions": np.zeros((steps, 1), np.int64),
        "rewards": np.ones((steps, 1), np.float32),
        "terminated": np.ones((steps, 1), bool),
        "truncated": np.zeros((steps, 1), bool),
        "is_first": np.ones((steps, 1), bool),
        "valid": np.ones((steps, 1), bool),
        "final_obs": np.zeros((0, 3), np.float32),
        "final_index": np.zeros(0, np.int64),
        "last_obs": np.zeros((1, 3), np.float32),
        "initial_carry": {},
    }
    assert float(algorithm.update(batch).metrics["policy_loss"]) == pytest.approx(math.log(2.0) * weight, rel=1e-5)


# -- prioritised batches ----------------------------------------------------------------------------------------------


def test_the_largest_weight_of_every_prioritised_batch_is_one() -> None:
    """Weights are (smallest priority of the batch / priority) to the power of beta."""
    priorities = np.array([1.0, 2.0, 3.0, 4.0])
    seen = set()
    for seed in range(20):
        buffer = PrioritizedReplayBuffer(4, (), (), alpha=1.0, beta=0.4, rng=np.random.default_rng(seed))
        buffer.add(np.arange(4.0), np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4))
        buffer.update_priorities(np.arange(4), priorities)
        batch = buffer.sample(2)
        drawn = priorities[batch["indices"]]
        np.testing.assert_allclose(batch["weights"], (drawn.min() / drawn) ** 0.4, rtol=1e-6)
        assert batch["weights"].max() == 1.0
        seen.add(float(drawn.min()))
    assert len(seen) > 1, "batches without the smallest priority of the buffer were drawn too"


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_weights_of_a_batch_scale_the_gradients_of_its_rows(kernel: Any) -> None:
    def gradient(weights: list[float]) -> torch.Tensor:
        dqn = DQN(context(DiscreteSpec(2)), DQNConfig(kernel=kernel))
        dqn.gradient(dqn.prepare(transitions(np.int64([0, 1, 0, 1]), weights=np.float32(weights))))
        return dqn.learners["q"].parameters.grad.clone()

    parts = [gradient(np.eye(4)[row].tolist()) for row in range(4)]
    together = 1.0 * parts[0] + 0.5 * parts[1] + 0.25 * parts[2]
    torch.testing.assert_close(gradient([1.0, 0.5, 0.25, 0.0]), together, rtol=1e-4, atol=1e-7)


# -- evaluation -------------------------------------------------------------------------------------------------------


class Starts(gym.Env[np.ndarray, np.int64]):
    """Ends after one step; remembers every seed that it was reset with."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seeds: list[int]) -> None:
        self.seeds = seeds

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        assert seed is not None, "every evaluation episode has a seed of its own"
        self.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Asked:
    """A policy that remembers whether it was asked for its greedy action."""

    def __init__(self) -> None:
        self.deterministic: set[bool] = set()

    def initial_carry(self, num_envs: int) -> dict[str, Any]:
        return {}

    def act(self, obs: Any, carry: Any, is_first: Any, rng: Any, *, deterministic: bool = False) -> ActResult:
        self.deterministic.add(deterministic)
        actions = np.zeros(len(is_first), np.int64)
        return ActResult(actions, actions, carry)


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_episodes_have_their_own_seeds_and_greedy_actions(deterministic: bool) -> None:
    """Episode k starts from the word of SeedSequence([seed, crc32("eval"), k]), however many environments there are."""
    words = [np.random.SeedSequence([7, zlib.crc32(b"eval"), k]).generate_state(1)[0] for k in range(5)]
    starts = {}
    for num_envs in (1, 2, 5):
        seeds: list[int] = []
        policy: Any = Asked()
        options = {"episodes": 5, "deterministic": deterministic, "num_envs": num_envs}
        evaluate_policy(policy, lambda i, seeds=seeds: Starts(seeds), seed=7, **options)  # type: ignore[misc]
        assert policy.deterministic == {deterministic}
        starts[num_envs] = sorted(seeds)
        assert len(set(seeds)) == 5
    assert starts[1] == starts[2] == starts[5] == sorted(int(word) >> 1 for word in words)
    others: list[int] = []
    evaluate_policy(policy, lambda i: Starts(others), episodes=5, seed=8)
    assert not set(others) & set(starts[1])
