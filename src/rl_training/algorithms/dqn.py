"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), and as options the improvements that make up Rainbow.

Top to bottom: targets and losses as pure functions, the policy, the algorithm. Hyperparameters are in `hparams/dqn.py`.
Double, dueling, n-step, prioritised, C51 or quantiles, and noisy layers are independent: the buffer does n-step and
prioritised sampling, the network dueling and noisy layers, the functions below the others. Networks with memory learn
from sequences, as R2D2 does (Kapturowski et al. 2019); the code is the same, since a row may belong to a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.ape_x import LadderPolicy, first_errors, ladder_epsilon
from rl_training.algorithms.kernel_choice import Kernel, Readable, allows_fast
from rl_training.algorithms.off_policy import Learnable, OffPolicyAlgorithm, Transitions, td_targets
from rl_training.algorithms.policies import NetworkPolicy, TorchParts, to_arrays
from rl_training.algorithms.random import random_actions
from rl_training.algorithms.rollout import flat_rows
from rl_training.build_context import BuildContext
from rl_training.config.networks import refuse_critic_only
from rl_training.export.graph import PolicyGraph
from rl_training.hparams.dqn import SPEC, DQNConfig
from rl_training.models.action_values import ActionValues, QShape
from rl_training.models.backbones.memory import Remembering
from rl_training.models.backbones.mlp import MLP, numpy_layer
from rl_training.models.heads import MASKED_LOGIT
from rl_training.models.networks import as_tensors
from rl_training.models.observed import Seen, action_mask
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.types import (
    ACTION_MASK,
    ActResult,
    Array,
    Batch,
    Carry,
    DiscreteSpec,
    Metrics,
    Obs,
    Policy,
    StateDict,
    UpdateResult,
)

__all__ = ["DQN", "SPEC", "DQNConfig", "c51_projection", "dqn_loss", "huber", "quantile_huber_loss"]


# -- the mathematics --------------------------------------------------------------------------------------------------


def huber(errors: Tensor) -> Tensor:
    """Half the square up to 1, linear beyond: 2 gives 1.5, 0.5 gives 0.125."""
    return F.huber_loss(errors, torch.zeros_like(errors), reduction="none")


def dqn_loss(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(losses (B,), magnitudes of the errors (B,)) of the values of the actions taken."""
    errors = values - targets
    return huber(errors), errors.detach().abs()


def c51_projection(
    probabilities: Tensor, support: Tensor, rewards: Tensor, discounts: Tensor, terminated: Tensor
) -> Tensor:
    """Distributions (B, K) of the next return, shifted by reward and discount and projected onto the fixed support.

    Bellemare et al. 2017, arXiv:1707.06887, algorithm 1.
    """
    low, high, atoms = float(support[0]), float(support[-1]), len(support)
    moved = td_targets(rewards[:, None], discounts[:, None], terminated[:, None], support).clamp(low, high)
    position = ((moved - low) / (high - low) * (atoms - 1)).clamp(0, atoms - 1)
    below = position.floor()
    share_above = position - below
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, below.long(), probabilities * (1.0 - share_above))
    projected.scatter_add_(1, position.ceil().long(), probabilities * share_above)
    return projected


def c51_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(cross-entropies (B,), the same again as magnitudes of the errors)."""
    losses = -(targets * F.log_softmax(logits, dim=1)).sum(1)
    return losses, losses.detach()


def quantile_huber_loss(quantiles: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(losses (B,), magnitudes of the errors (B,)) of quantiles (B, K) of the return, against samples of it (B, K).

    Dabney et al. 2018, arXiv:1710.10044, equation 10.
    """
    count = quantiles.shape[1]
    levels = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = targets.unsqueeze(1) - quantiles.unsqueeze(2)  # (B, K predicted, K target)
    tilted = (levels.view(1, -1, 1) - (errors.detach() < 0).float()).abs() * huber(errors)
    return tilted.mean(2).sum(1), errors.detach().abs().mean((1, 2))


def greedy(values: Tensor, obs: Seen) -> Tensor:
    """The greedy action of every row (B,), among those that a mask allows."""
    mask = action_mask(obs)
    return (values if mask is None else values.masked_fill(mask == 0, MASKED_LOGIT)).argmax(1)


def expected_returns(numbers: Tensor, support: Tensor | None) -> Tensor:
    """Means (B, A) of values or quantiles (B, A, K), or of distributions over returns `support`, given as logits."""
    return numbers.mean(2) if support is None else (F.softmax(numbers, dim=2) * support).sum(2)


def of_actions(numbers: Tensor, actions: Tensor) -> Tensor:
    """Select the outputs of the given actions: (B, A, K) and (B,) to (B, K)."""
    index = actions.long().view(-1, 1, 1).expand(-1, 1, numbers.shape[2])
    return numbers.gather(1, index).squeeze(1)


# -- acting -----------------------------------------------------------------------------------------------------------


class ExpectedValues(nn.Module):
    """From features to the expected returns (N, A) of a Q-network without noise."""

    def __init__(self, network: ActionValues, support: Tensor | None) -> None:
        super().__init__()
        self.network, self.support = network, support

    def forward(self, features: Tensor) -> Tensor:
        return expected_returns(self.network.numbers(features), self.support)


class Exploring(Protocol):
    """Hyperparameters of epsilon-greedy acting."""

    @property
    def epsilon_start(self) -> float: ...
    @property
    def epsilon_end(self) -> float: ...
    @property
    def epsilon_steps(self) -> int: ...


class QLearner(Protocol):
    """An algorithm that acts by the values of its actions."""

    q: ActionValues
    ctx: BuildContext
    normalizer: ObsNormalizer | None

    @property
    def hp(self) -> Exploring: ...
    def expected(self, numbers: Tensor) -> Tensor: ...
    def tensor(self, values: Any) -> Tensor: ...


class EpsilonGreedyPolicy(NetworkPolicy):
    """The greedy action, or with probability epsilon a random one; noisy layers draw fresh noise at every step."""

    network: ActionValues

    def __init__(self, algorithm: QLearner) -> None:
        super().__init__(algorithm.q, algorithm.ctx, algorithm.normalizer)
        self.algorithm = algorithm
        self.backbone = algorithm.q.backbone
        self._remembering = self.backbone if isinstance(self.backbone, Remembering) else None  # asked at every step
        self.saved_env_steps = 0
        """Env steps of the checkpoint that this policy was loaded from; they set epsilon outside of training."""
        self._values = numpy_values(algorithm.q)

    def graph(self) -> PolicyGraph | None:
        algorithm = cast(DQN, self.algorithm)
        support = algorithm.support.cpu().numpy() if algorithm.hp.distribution == "c51" else None
        return self.graph_with("values", support)

    def torch_parts(self) -> TorchParts | None:
        algorithm = cast(DQN, self.algorithm)
        support = algorithm.support if algorithm.hp.distribution == "c51" else None
        return TorchParts(self.network.backbone, ExpectedValues(self.network, support))

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        extras = self.stored(carry)
        values, carry = self.remembering_values(self.normalize(obs), carry, is_first, None if deterministic else rng)
        if mask is not None:
            values = np.where(mask == 0, MASKED_LOGIT, values)
        actions = values.argmax(axis=1)
        epsilon = 0.0 if deterministic else self.epsilon()
        if epsilon > 0.0:
            explored = random_actions(self.action_space, len(actions), rng, mask)
            actions = np.where(rng.random(len(actions)) < epsilon, explored, actions)
        return ActResult(actions, actions, carry, extras)

    def action_values(self, obs: Obs, rng: np.random.Generator | None) -> Array:
        """Expected returns (N, A) of observations by themselves; with `rng` noisy layers draw fresh noise."""
        if self._values is not None:
            return self._values(obs)
        noise = None if rng is None else self.network.draw_noise(rng)
        with torch.no_grad():
            return self.algorithm.expected(self.network(as_tensors(obs, self.device), noise)).cpu().numpy()

    def remembering_values(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator | None
    ) -> tuple[Array, Carry]:
        """Expected returns (N, A) given what is remembered, and what is remembered then."""
        backbone = self._remembering
        if backbone is None:
            return self.action_values(obs, rng), carry
        noise = None if rng is None else self.network.draw_noise(rng)
        memory = {name: self.algorithm.tensor(value) for name, value in carry.items()}
        with torch.no_grad():
            x, begins = backbone.embed(as_tensors(obs, self.device)), self.algorithm.tensor(is_first)
            features, memory = backbone.memory.step(x, memory, begins)
            return self.algorithm.expected(self.network.numbers(features, noise)).cpu().numpy(), to_arrays(memory)

    def epsilon(self) -> float:
        """Current share of random actions: a function of env steps, whatever the number of environments."""
        hp = self.algorithm.hp
        return hp.epsilon_start + (hp.epsilon_end - hp.epsilon_start) * min(self.env_steps / hp.epsilon_steps, 1.0)

    @property
    def env_steps(self) -> int:
        return self.algorithm.ctx.progress.env_steps or self.saved_env_steps

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "env_steps": self.env_steps}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        self.saved_env_steps = int(state.get("env_steps", 0))


def numpy_values(network: ActionValues) -> Callable[[Obs], Array] | None:
    """A NumPy function for the values (N, A) of a plain or dueling network; None for other kinds."""
    shape, backbone = network.shape, network.backbone
    if shape.numbers != 1 or shape.noisy_std is not None or not isinstance(backbone, MLP):
        return None
    features, advantage = backbone.numpy_forward(), numpy_layer(network.advantage)
    value = None if network.value is None else numpy_layer(network.value)
    if features is None or advantage is None or (value is None) is not (network.value is None):
        return None

    def run(obs: Obs) -> Array:
        x = features(obs)
        advantages = advantage(x)
        return advantages if value is None else value(x) + advantages - advantages.mean(axis=1, keepdims=True)

    return run


# -- learning ---------------------------------------------------------------------------------------------------------


class QStep(NamedTuple):
    """Loss of the Q-network on one batch, and statistics for the log and for priorities."""

    loss: Tensor | float
    value_mean: Tensor | float
    td_error: Tensor | float
    errors: Tensor
    """Magnitude of each row's error, (B,)."""


class DQN(OffPolicyAlgorithm):
    """Q-learning with a lagging target network."""

    hp: DQNConfig
    policy_learners = ("q",)
    n_step_sequences = True

    def __init__(self, ctx: BuildContext, hp: DQNConfig) -> None:
        super().__init__(ctx, hp)
        refuse_critic_only(ctx.observation_space, ctx.network, "dqn")
        space = cast(DiscreteSpec, ctx.action_space)
        numbers = 1 if hp.distribution == "none" else hp.atoms
        shape = QShape(space.n, numbers, hp.dueling, hp.noisy_std if hp.noisy else None)
        self.q = ActionValues(ctx.observation_space, shape, ctx.network.critic, ctx.streams("init"))
        self.learner("q", self.q)
        self.target("q")
        low, high = hp.value_range
        self.support = torch.linspace(low, high, hp.atoms, device=self.device)
        self.priority_eta = hp.priority_eta
        self.act_with(EpsilonGreedyPolicy(self), store_carry=hp.stored_state)

    @cached_property
    def kernel(self) -> Kernel:
        """Chosen once, at the first update: a subclass may replace parts until its own constructor has run."""
        from rl_training.algorithms.kernels.dqn import FastKernel, fits

        parts = (self.q, self.targets["q"].network)
        if self.ctx.shards is None and allows_fast(self.hp) and READABLE.is_unchanged(self, parts) and fits(self):
            return FastKernel(self)
        return self.reference_kernel()

    def expected(self, numbers: Tensor) -> Tensor:
        """Expected returns (B, A) from the outputs of the network (B, A, K)."""
        return expected_returns(numbers, self.support if self.hp.distribution == "c51" else None)

    def explorer(self, index: int) -> Policy:
        """The policy of one environment that collects without waiting for the learner (`env.collection: async`)."""
        hp = self.hp
        epsilon = ladder_epsilon(index, self.ctx.num_envs, base=hp.ladder_epsilon, exponent=hp.ladder_exponent)
        return LadderPolicy(self.policy, self.ctx.action_space, epsilon)

    def first_priorities(self, steps: Batch, reward_scale: float, /) -> Array | None:
        """Priorities (T, n) of steps before the learner has seen them: their n-step errors under the acting network.
        None with memory, where priorities are those of whole sequences."""
        if self.remembers:
            return None
        shape = steps["rewards"].shape
        policy = cast(EpsilonGreedyPolicy, self.policy)
        values = policy.action_values(policy.normalize(flat_rows(steps["obs"])), None)
        following = policy.action_values(policy.normalize(flat_rows(steps["next_obs"])), None)
        if isinstance(steps["next_obs"], dict) and ACTION_MASK in steps["next_obs"]:
            following = np.where(flat_rows(steps["next_obs"][ACTION_MASK]) == 0, MASKED_LOGIT, following)
        taken = np.take_along_axis(values, steps["actions"].reshape(-1, 1), axis=1)
        return first_errors(
            taken.reshape(shape),
            following.max(axis=1).reshape(shape),
            reward_scale * steps["rewards"].astype(np.float32),
            steps["terminated"],
            steps["terminated"] | steps["truncated"],
            gamma=self.hp.gamma,
            n=self.hp.n_step,
        )

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the Q-network; the target follows at every `target_every_updates`-th call."""
        self.updates += 1
        rows = self.learnable(batch)
        step = self.gradient(rows)
        metrics: Metrics = {"loss": step.loss, "value_mean": step.value_mean, "td_error": step.td_error}
        metrics["grad_norm"] = self.apply("q", step.loss, metrics)
        if self.updates % self.hp.target_every_updates == 0:
            self.targets["q"].follow(self.hp.tau)
        metrics["epsilon"] = self.policy.epsilon()
        return UpdateResult(metrics, self.priorities(rows, step.errors))

    def gradient(self, rows: Learnable) -> QStep:
        """Gradient of `objective`, ready for the optimiser."""
        return self.kernel.gradient("q", self.objective, rows)

    def objective(self, rows: Transitions) -> QStep:
        """Loss of the values of the actions taken, towards the targets."""
        with torch.no_grad():
            targets = self.targets_of(rows)
        predicted = of_actions(self.q(rows.obs, self.q.draw_noise(self.rng)), rows.actions)  # (B, K)
        losses, errors = self.losses(predicted, targets)
        loss = losses.mean() if rows.weights is None else (rows.weights * losses).mean()
        with torch.no_grad():
            values = self.expected(predicted.unsqueeze(1))
        return QStep(loss, values.mean(), errors.mean(), errors)

    def targets_of(self, rows: Transitions) -> Tensor:
        """Bellman targets of the actions taken, (B, K)."""
        network = cast(ActionValues, self.targets["q"].network)
        numbers = network(rows.next_obs, network.draw_noise(self.rng))
        chooser = self.q(rows.next_obs, self.q.draw_noise(self.rng)) if self.hp.double else numbers
        following = rows.next_of(of_actions(numbers, greedy(self.expected(chooser), rows.next_obs)))
        if self.hp.distribution == "c51":
            probabilities = F.softmax(following, dim=1)
            return c51_projection(probabilities, self.support, rows.rewards, rows.discounts, rows.terminated)
        return td_targets(rows.rewards[:, None], rows.discounts[:, None], rows.terminated[:, None], following)

    def losses(self, predicted: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(losses (B,), magnitudes of the errors (B,))."""
        if self.hp.distribution == "c51":
            return c51_loss(predicted, targets)
        if self.hp.distribution == "quantile":
            return quantile_huber_loss(predicted, targets)
        return dqn_loss(predicted.squeeze(1), targets.squeeze(1))


READABLE = Readable(
    DQN,
    ["objective", "losses", "targets_of", "expected"],
    [dqn_loss, huber, td_targets, greedy, of_actions],
)
