"""What the algorithms that learn from replay share: tensors of a batch, target networks, one optimiser step.

Nothing here is specific to an algorithm. An update reads: `rows = self.learnable(batch)`, then for each network the
gradient of its loss (`self.kernel.gradient`) and `self.apply`, then `target.follow`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.kernel_choice import Kernel, using_reference
from rl_training.algorithms.policies import STORED_CARRY, NetworkPolicy
from rl_training.algorithms.random import random_actions
from rl_training.algorithms.sequences import priorities_of, steps_of, with_n_steps
from rl_training.algorithms.sharding import REWARD_COLUMNS, ShardedKernel, ShardedRows, joined, observe_shards
from rl_training.algorithms.static import StaticAgent
from rl_training.build_context import BuildContext
from rl_training.guards import Held, Suspects, gradient_suspects, leaves
from rl_training.hparams.off_policy import OffPolicyHparams, ReplaySchedule, SequenceOptions
from rl_training.hparams.schedules import value_at
from rl_training.models.backbones.memory import Remembering
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.observed import Seen, Steps
from rl_training.models.optimization import FlatParameters, build_optimizer
from rl_training.models.random_shift import RandomShift
from rl_training.models.transfer import to_device
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.normalization import ObsNormalizer, RewardNormalizer
from rl_training.seeding import generator_state, set_generator_state, shard_stream
from rl_training.types import (
    ACTION_MASK,
    PARTS,
    ActResult,
    Array,
    Batch,
    BoxSpec,
    Carry,
    ConfigError,
    Obs,
    SpaceSpec,
    StateDict,
)


@dataclass(slots=True)
class Transitions:
    """A sampled batch as tensors of B rows, observations normalised; for networks with memory the rows of sequences."""

    obs: Seen
    actions: Tensor
    rewards: Tensor
    next_obs: Seen
    terminated: Tensor
    """1 where the episode terminated, so that nothing follows; 0 elsewhere."""
    discounts: Tensor
    """gamma to the number of steps that the rewards span."""
    weights: Tensor | None = None
    """Importance-sampling weights of a prioritised buffer; None means that all rows count alike."""
    bootstrap: Tensor | None = None
    """Row whose next observation each target goes on from, for targets over several steps of a sequence; None is the
    row itself."""
    next_actions: Tensor | None = None
    """What was done in the next observations, for algorithms that learn from datasets and ask for it."""
    next_known: Tensor | None = None
    """1 where `next_actions` is known; 0 at the end of an episode and in steps of the run itself."""
    floors: Tensor | None = None
    """Lower bounds of the return from each row on, from the episode it belongs to; -inf where nothing is known."""

    def next_of(self, values: Tensor) -> Tensor:
        """What targets go on from, given values (B, ...) of every row's next observation."""
        return values if self.bootstrap is None else values.index_select(0, self.bootstrap)


def td_targets(rewards: Tensor, discounts: Tensor, terminated: Tensor, next_values: Tensor) -> Tensor:
    """r + discount * V(next); V(next) counts as 0 where the episode terminated, but not where it was truncated."""
    return rewards + discounts * (1.0 - terminated) * next_values


def critic_loss(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Half the squared errors of E critics (E, B), summed over critics, averaged over the (weighted) batch."""
    errors = 0.5 * (values - targets).square().sum(0)
    return errors.mean() if weights is None else (weights * errors).mean()


Learnable = Transitions | ShardedRows[Transitions]
"""Rows of a batch, or of every shard of one."""


class CriticStep(NamedTuple):
    """Loss of the critics on one batch, and statistics for the log and for priorities."""

    loss: Tensor | float
    value_mean: Tensor | float
    errors: Tensor
    """Values minus targets, (E, B)."""


class Learner:
    """A network with its optimiser: one flat vector of parameters, one of gradients."""

    def __init__(self, name: str, network: nn.Module, ctx: BuildContext, hp: OffPolicyHparams) -> None:
        self.name = name
        self.network = network.to(ctx.device)
        self.parameters = FlatParameters(network)
        self.optimizer = build_optimizer(self.parameters, hp.optimizer, eps=hp.adam_eps, betas=hp.adam_betas)
        self.max_grad_norm = hp.max_grad_norm
        self.tensors = list(network.parameters())
        self.guard = ctx.guard
        self.check_every_step = ctx.guard.every_step(ctx.device)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of the loss, replacing the previous one."""
        self.optimizer.zero_grad()
        loss.backward()

    def apply(self, loss: Tensor | float, learning_rate: float, suspects: Callable[[], Suspects]) -> Tensor:
        """Clip the gradient and step; returns its norm before clipping."""
        norm = self.optimizer.grad_norm()
        if self.check_every_step:
            self.guard.check_gradients(norm, suspects, loss)
        self.optimizer.clip(self.max_grad_norm, norm)
        self.optimizer.step(learning_rate)
        return norm

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, gradients flow through the network to its inputs but not into its parameters."""
        for parameter in self.tensors:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self.tensors:
                parameter.requires_grad_(True)


class ReferenceKernel:
    """Autograd through the readable loss; see `kernel_choice.Kernel`. What a loss returns has a field `loss`."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def gradient(self, name: str, loss: Callable[..., Any], *inputs: Any) -> Any:
        step = loss(*inputs)
        self.learners[name].backward(step.loss)
        return step._replace(loss=step.loss.detach())


class Target:
    """A lagging copy of a network, sharing no storage with it."""

    def __init__(self, learner: Learner) -> None:
        self.network = copy.deepcopy(learner.network).requires_grad_(False)
        self.parameters = FlatParameters(self.network)
        self.source = learner
        self.buffers = list(zip(learner.network.buffers(), self.network.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """target <- target + tau (source - target); tau = 1 copies. Buffers are copied."""
        self.parameters.values.lerp_(self.source.parameters.values, tau)
        for current, stale in self.buffers:
            stale.copy_(current)


class UniformPolicy(StaticAgent):
    """Acts before learning starts: uniform over the actions; Box actions are in -1..1, as actors give them.

    With a `learner` that has memory, what that policy would remember is carried along.
    """

    def __init__(self, action_space: SpaceSpec, learner: NetworkPolicy | None = None) -> None:
        self.action_space = action_space
        self.learner = learner

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        count, extras = len(is_first), {}
        if self.learner is not None:
            extras, carry = self.learner.stored(carry), self.learner.remembered(obs, carry, is_first)
        if isinstance(self.action_space, BoxSpec):
            actions = rng.uniform(-1.0, 1.0, (count, *self.action_space.shape)).astype(np.float32)
            return ActResult(actions, to_bounds(self.action_space, actions), carry, extras)
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        actions = random_actions(self.action_space, count, rng, mask)
        return ActResult(actions, actions, carry, extras)


class OffPolicyAlgorithm:
    """Normalisers, learners and targets of one algorithm, and the operations that all algorithms share.

    A subclass fills `learners` and `targets`, calls `act_with`, and writes `update`.
    """

    policy: Any
    kernel: Any = None
    """Hand-written gradients in place of autograd, where a subclass has them."""
    updates_per_learn = 1
    """Updates that one call of `update` counts as."""
    n_step_sequences = False
    """Whether targets over several steps combine with memory."""
    policy_learners: tuple[str, ...] = ("actor",)
    """Learners whose network the policy saves."""
    priority_eta = 0.9
    """Weight of the largest error in the priority of a sequence; the rest is the mean (Kapturowski et al. 2019)."""

    def __init__(self, ctx: BuildContext, hp: OffPolicyHparams) -> None:
        self.ctx = ctx
        self.hp = hp
        self.device = torch.device(ctx.device)
        self.rng = ctx.streams("learning")
        """Draws the noise of updates, on the host: the same numbers on CPU and GPU."""
        self.normalizer = ObsNormalizer(ctx.observation_space) if ctx.normalize_obs else None
        self.reward_normalizer = RewardNormalizer(hp.gamma, ctx.num_envs) if ctx.normalize_reward else None
        self.warmup = UniformPolicy(ctx.action_space)
        self.shift = RandomShift(ctx.observation_space, ctx.network.critic)
        self.learners: dict[str, Learner] = {}
        self.targets: dict[str, Target] = {}
        self.updates = 0
        self._batch: Batch = {}

    @property
    def schedule(self) -> ReplaySchedule:
        """When the trainer calls `update`, and with how many transitions, or sequences of as many transitions."""
        replay = self.hp.replay
        return replace(replay, batch_size=replay.batch_size // self.hp.sequence_length) if self.remembers else replay

    @cached_property
    def remembers(self) -> bool:
        """Whether a network has memory; updates then learn from sequences."""
        modules = (module for learner in self.learners.values() for module in learner.network.modules())
        return any(isinstance(module, Remembering) for module in modules)

    @property
    def sequences(self) -> SequenceOptions | None:
        """What the buffer is told about sequences; None for networks without memory."""
        if not self.remembers:
            return None
        carry = self.policy.stored(self.policy.initial_carry(1))
        layout = {name.removeprefix(STORED_CARRY): (value.shape[1:], value.dtype) for name, value in carry.items()}
        return SequenceOptions(self.hp.burn_in + self.hp.sequence_length, layout)

    def act_with(self, policy: Any, *, store_carry: bool = False) -> None:
        """Set the policy. One that remembers does so from the first random action on."""
        self.policy = policy
        if not self.remembers:
            return
        if self.ctx.shards is not None:
            raise ConfigError(
                "training.shards: networks with memory learn from sequences, whose transitions differ in number from "
                "shard to shard; set training.shards: 1, take networks without memory, or ppo"
            )
        if self.hp.n_step > 1 and not self.n_step_sequences:
            raise ConfigError(
                "actor-critics with memory learn from one-step targets along sequences; set hparams.n_step: 1"
            )
        if self.hp.n_step > self.hp.sequence_length:
            raise ConfigError(
                f"hparams.n_step {self.hp.n_step} is more than the hparams.sequence_length {self.hp.sequence_length} "
                "that networks with memory learn from at a time"
            )
        if self.hp.batch_size < self.hp.sequence_length:
            raise ConfigError(
                f"hparams.batch_size {self.hp.batch_size} is less than one sequence of hparams.sequence_length "
                f"{self.hp.sequence_length} transitions"
            )
        policy.stores_carry = store_carry and policy.remembers
        self.warmup = UniformPolicy(self.ctx.action_space, policy)

    def learner(self, name: str, network: nn.Module) -> Learner:
        """Register a network that is trained; it is saved with the algorithm."""
        self.learners[name] = Learner(name, network, self.ctx, self.hp)
        return self.learners[name]

    def target(self, name: str) -> Target:
        """Register a lagging copy of a learner."""
        self.targets[name] = Target(self.learners[name])
        return self.targets[name]

    def learnable(self, batch: Batch) -> Learnable:
        """What an update learns from: the prepared batch, or that of every shard, with a random stream of its own."""
        shards = self.ctx.shards
        if shards is None:
            return self.prepare(batch)
        streams = [shard_stream(self.ctx.streams.seed, "learning", shard, self.updates) for shard in shards.own]
        parts = []
        for part, rng in zip(batch[PARTS], streams, strict=True):
            with self.drawing_from(rng):
                parts.append(self.prepare(part))
        self._batch = batch
        return ShardedRows(parts, [1.0 / shards.count] * shards.count, streams, self.drawing_from)

    @contextmanager
    def drawing_from(self, rng: np.random.Generator) -> Iterator[None]:
        """Inside, the noise of updates is drawn from `rng`."""
        usual, self.rng = self.rng, rng
        try:
            yield
        finally:
            self.rng = usual

    def prepare(self, batch: Batch) -> Transitions:
        """A sampled batch as tensors on the device."""
        self._batch = batch
        if self.remembers:
            return self.prepare_sequences(batch)
        rewards = batch["rewards"] if self.reward_normalizer is None else self.reward_normalizer.scale(batch["rewards"])
        discounts = batch.get("discounts")
        if discounts is None:
            discounts = np.full(len(rewards), self.hp.gamma, np.float32)
        weights = batch.get("weights")
        return Transitions(
            self.shift(self.observations(batch["obs"]), self.shift.draw(len(rewards), self.rng)),
            self.tensor(batch["actions"]),
            self.tensor(rewards),
            self.shift(self.observations(batch["next_obs"]), self.shift.draw(len(rewards), self.rng)),
            self.tensor(batch["terminated"]).to(torch.float32),
            self.tensor(discounts),
            None if weights is None else self.tensor(weights),
            next_actions=self.tensor(batch["next_actions"]) if "next_actions" in batch else None,
            next_known=self.tensor(batch["next_known"]).to(torch.float32) if "next_known" in batch else None,
            floors=self.tensor(batch["returns_to_go"]) if "returns_to_go" in batch else None,
        )

    def prepare_sequences(self, batch: Batch) -> Transitions:
        """Sampled sequences (N, K + T, ...) as the rows of T steps, after K of burn-in. Images of one sequence are all
        moved alike: a memory may compare them."""
        offsets = self.shift.draw(len(batch["rewards"]), self.rng)
        if self.reward_normalizer is not None:
            batch = {**batch, "rewards": self.reward_normalizer.scale(batch["rewards"])}
        rows, flat = steps_of(
            batch, self.hp.burn_in, self.device, lambda obs: self.shift(self.observations(obs), offsets)
        )
        if self.hp.n_step > 1:
            flat = with_n_steps(flat, batch, self.hp.burn_in, self.hp.gamma, self.hp.n_step)
        else:
            flat["discounts"] = np.full(len(flat["rewards"]), self.hp.gamma, np.float32)
        return Transitions(
            replace(rows, following=None),
            self.tensor(flat["actions"]),
            self.tensor(flat["rewards"]),
            rows,
            self.tensor(flat["terminated"]).to(torch.float32),
            self.tensor(flat["discounts"]),
            self.tensor(flat["weights"]) if "weights" in flat else None,
            self.tensor(flat["bootstrap"]) if "bootstrap" in flat else None,
        )

    def priorities(self, rows: Learnable, errors: Tensor) -> Array | None:
        """Priorities from the magnitudes (B,) of the rows' errors: of each row, or of each sequence; those of the
        shards of this process, one after the other, where the batch came in shards."""
        if isinstance(rows, ShardedRows):
            assert self.ctx.shards is not None
            each = errors.view(self.ctx.shards.count, -1)[self.ctx.shards.own.start : self.ctx.shards.own.stop]
            found = [self.priorities(part, own) for part, own in zip(rows.parts, each, strict=True)]
            return None if found[0] is None else np.concatenate([one for one in found if one is not None])
        if rows.weights is None:
            return None
        if isinstance(rows.obs, Steps):
            return priorities_of(rows.obs, errors.cpu().numpy(), self.priority_eta)
        return errors.cpu().numpy()

    def observations(self, obs: Obs) -> TensorObs:
        return as_tensors(obs if self.normalizer is None else self.normalizer(obs), self.device)

    def tensor(self, values: Any) -> Tensor:
        return to_device(values, self.device)

    def noise(self, *shape: int) -> Tensor:
        """Standard normal numbers from the algorithm's own random stream."""
        return self.tensor(self.rng.standard_normal(shape, dtype=np.float32))

    def reference_kernel(self) -> Kernel:
        """Gradients by autograd, for algorithms and debug mode; shard by shard where batches come in shards."""
        if self.ctx.shards is None:
            return ReferenceKernel(self.learners)
        gradients = {name: learner.parameters.grad for name, learner in self.learners.items()}
        return ShardedKernel(ReferenceKernel(self.learners), self.ctx.shards, gradients, adds_up=False)

    def drop_open_episodes(self) -> None:
        if self.reward_normalizer is not None:
            self.reward_normalizer.drop_open_episodes()

    def scheduled(self, name: str) -> float:
        """Current value of a hyperparameter that may be a schedule."""
        return value_at(getattr(self.hp, name), self.ctx.fraction)

    def step(self, name: str, loss: Tensor, losses: Mapping[str, Tensor | float]) -> Tensor:
        """Backward, and one optimiser step of a learner; returns the gradient norm before clipping."""
        self.learners[name].backward(loss)
        return self.apply(name, loss.detach(), losses)

    def apply(self, name: str, loss: Tensor | float, losses: Mapping[str, Tensor | float]) -> Tensor:
        """One optimiser step of a learner along its current gradient; returns the norm before clipping."""
        learner = self.learners[name]
        return learner.apply(loss, self.rate(name), lambda: gradient_suspects(self.held(learner, losses)))

    def rate(self, name: str) -> float:
        """Current step size of a learner."""
        return self.scheduled("learning_rate")

    def observe(self, batch: Batch) -> None:
        """Move the statistics; called between blocks with the steps of the block."""
        if self.ctx.shards is not None:
            if self.normalizer is not None:
                observe_shards(self.normalizer, self.ctx.shards, batch[PARTS])
            if self.reward_normalizer is None:
                return
            batch = joined(self.ctx.shards, batch[PARTS], REWARD_COLUMNS)
        valid = batch["valid"]
        if self.normalizer is not None and self.ctx.shards is None:
            self.normalizer.update(batch["obs"], valid)
        if self.reward_normalizer is not None:
            ends = batch["terminated"] | batch["truncated"]
            self.reward_normalizer.update(batch["rewards"], ends, valid)

    def watched(self) -> Iterator[Tensor | Array]:
        """Tensors that the guard checks after each block: parameters, moments, statistics."""
        for learner in self.learners.values():
            yield from (learner.parameters.values, *learner.optimizer.tensors())
        for normalizer in (self.normalizer, self.reward_normalizer):
            if normalizer is not None:
                yield from (array for _, array in leaves(normalizer.state_dict(), ""))

    def held(self, learner: Learner, losses: Mapping[str, Tensor | float]) -> Held:
        """Everything that a non-finite gradient of `learner` may come from, for the guard to search."""
        return Held(
            optimizers={learner.name: learner.optimizer.state_dict()},
            parameters={name: module_state(other.network) for name, other in self.learners.items()},
            gradients={learner.name: learner.parameters.by_name(learner.parameters.grad)},
            losses=losses,
            targets={name: module_state(target.network) for name, target in self.targets.items()},
            normalizer=None if self.normalizer is None else self.normalizer.state_dict(),
            batch=self._batch,
        )

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Networks that are trained, for debug mode."""
        yield from ((name, learner.network) for name, learner in self.learners.items())

    def named_optimizers(self) -> Iterator[tuple[str, Any]]:
        """Optimisers, each under the name of the network it moves."""
        yield from ((name, learner.optimizer) for name, learner in self.learners.items())

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd, through modules that can be inspected."""
        return using_reference(self)

    def state_dict(self) -> StateDict:
        """Everything except what the policy saves: other networks, targets, optimisers, statistics, random stream."""
        rewards = {} if self.reward_normalizer is None else self.reward_normalizer.state_dict()
        return {
            "networks": {k: module_state(v.network) for k, v in self.learners.items() if k not in self.policy_learners},
            "targets": {name: module_state(target.network) for name, target in self.targets.items()},
            "optimizer": {name: learner.optimizer.state_dict() for name, learner in self.learners.items()},
            "reward_normalizer": rewards,
            "rng": generator_state(self.rng),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, network in state["networks"].items():
            load_module_state(self.learners[name].network, network)
        for name, target in state["targets"].items():
            load_module_state(self.targets[name].network, target)
        for name, moments in state["optimizer"].items():
            self.learners[name].optimizer.load_state_dict(moments)
        if self.reward_normalizer is not None:
            self.reward_normalizer.load_state_dict(state["reward_normalizer"])
        set_generator_state(self.rng, state["rng"])
        self.updates = int(state["updates"])
