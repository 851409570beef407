"""What the on-policy algorithms share: the acting policy, targets of a rollout, and one optimiser step.

Nothing here is specific to a loss. An update reads: `rollout = self.learnable(batch)`, then `self.step` along
its own loss on rows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.kernel_choice import Kernel
from rl_training.algorithms.policies import NetworkPolicy, TorchParts, to_arrays
from rl_training.algorithms.rollout import Pieces, Rollout, concatenate_rows, flat_rows, with_edges
from rl_training.algorithms.sharding import REWARD_COLUMNS, ShardedKernel, ShardedRollout, joined, observe_shards
from rl_training.build_context import BuildContext
from rl_training.export.graph import PolicyGraph
from rl_training.guards import Held, gradient_suspects, leaves
from rl_training.hparams.base import OnPolicyHparams
from rl_training.hparams.schedules import value_at
from rl_training.models.backbones.memory import MemoryCarry, Trace, prefixed
from rl_training.models.backbones.mlp import MLP, TensorObs, numpy_layer
from rl_training.models.heads import ActionHead, StateDependentGaussianHead
from rl_training.models.networks import ActorCritic, as_tensors, module_state
from rl_training.models.optimization import FlatParameters, build_optimizer
from rl_training.models.transfer import to_device
from rl_training.numerics.encoding import to_env
from rl_training.numerics.gsde import due, first_draws
from rl_training.numerics.normalization import ObsNormalizer, RewardNormalizer
from rl_training.numerics.returns import explained_variance, gae
from rl_training.types import (
    ACTING_POLICY,
    ACTION_MASK,
    PARTS,
    ActResult,
    Array,
    Batch,
    BoxSpec,
    Carry,
    Metrics,
    Obs,
    StateDict,
)

CURRENT_LOGPROBS = "current_logprobs"
"""Key of a batch inside `targets`: log-probabilities (T, N) of the actions under the network from before the update."""


class ActorCriticPolicy(NetworkPolicy):
    """Acts with an actor-critic network. Values and log-probabilities are not needed for acting and not computed."""

    network: ActorCritic

    def __init__(self, ctx: BuildContext, hp: OnPolicyHparams) -> None:
        network = ActorCritic(
            ctx.observation_space,
            ctx.action_space,
            ctx.network,
            ctx.streams("init"),
            log_std_init=hp.log_std_init,
            use_sde=hp.use_sde and isinstance(ctx.action_space, BoxSpec),
            intrinsic_value=hp.has_intrinsic_value,
            critic_space=hp.critic_space(ctx.observation_space),
        ).to(ctx.device)
        super().__init__(network, ctx, ObsNormalizer(ctx.observation_space) if ctx.normalize_obs else None)
        self.parameters = FlatParameters(self.network)
        self.sde_sample_freq = hp.sde_sample_freq
        self._numpy_actor = self.network.actor.numpy_forward() if isinstance(self.network.actor, MLP) else None
        self.head: ActionHead = self.network.action_head
        self._numpy_output = numpy_layer(cast(torch.nn.Module, self.head.output))

    def initial_carry(self, num_envs: int) -> Carry:
        memory = to_arrays(self.network.initial_carry(num_envs))
        if not isinstance(self.head, StateDependentGaussianHead):
            return memory
        return {**memory, **first_draws(num_envs, *self.head.log_std.shape)}

    def graph(self) -> PolicyGraph | None:
        return self.graph_with("actor_critic")

    def torch_parts(self) -> TorchParts:
        return TorchParts(self.network.actor, cast(nn.Module, self.head.output))

    def acting_modules(self) -> list[nn.Module]:
        return [self.network.actor, self.network.action_head]

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        features, mean, carry = self._features_and_mean(self.normalize(obs), carry, is_first)
        if isinstance(self.head, StateDependentGaussianHead) and not deterministic:
            carry = self._with_new_draws(self.head, carry, is_first, rng)
            actions = self.head.sample_with_draws(mean, features, carry["draws"])
        else:
            actions = self.head.sample(mean, rng, deterministic=deterministic, mask=mask)
        extras = {} if deterministic else self.recorded(features, actions, mask)
        return ActResult(actions, to_env(self.action_space, actions), carry, extras)

    def recorded(self, features: Array, actions: Array, mask: Array | None) -> dict[str, Array]:
        """What is stored beside the actions of a training step: nothing here."""
        return {}

    def _features_and_mean(self, obs: Obs, carry: Carry, is_first: Array) -> tuple[Array, Array, Carry]:
        if self._numpy_actor is not None and self._numpy_output is not None and not self.network.memories:
            features = self._numpy_actor(obs)
            return features, self._numpy_output(features), carry
        begins = to_device(is_first, self.device)
        with torch.no_grad():
            memory = self.memory_of(carry)
            latent, memory = self.network.advance(as_tensors(obs, self.device), memory, begins)
            mean = self.head(latent).mean.cpu().numpy()
        return latent.cpu().numpy(), mean, {**carry, **to_arrays(memory)}

    def memory_of(self, carry: Carry) -> MemoryCarry:
        """The part of a carry that the network's memories hold, on the device."""
        owners = self.network.memories
        return {
            name: to_device(value, self.device) for name, value in carry.items() if name.partition("/")[0] in owners
        }

    def seen(self, rows: Obs) -> TensorObs:
        """Raw observations (B, ...) as the network sees them: normalised, on the device, in its memory format."""
        return self.network.arranged(as_tensors(self.normalize(rows), self.device))

    def _with_new_draws(
        self, head: StateDependentGaussianHead, carry: Carry, is_first: Array, rng: np.random.Generator
    ) -> Carry:
        stale, age = due(carry["age"], is_first, self.sde_sample_freq)
        draws = carry["draws"]
        if stale.any():
            draws = draws.copy()
            draws[stale] = head.draw(rng, int(stale.sum()))
        return {**carry, "draws": draws, "age": age}


class ReferenceKernel:
    """Autograd through the readable loss; see `kernel_choice.Kernel`. Gradients of several minibatches add up."""

    def __init__(self, grad_accumulation: int) -> None:
        self.grad_accumulation = grad_accumulation

    def gradient(self, name: str, loss: Callable[..., Any], *inputs: Any) -> Any:
        losses = loss(*inputs)
        (losses["loss"] / self.grad_accumulation).backward()
        return {term: value.detach() for term, value in losses.items()}


class OnPolicyAlgorithm:
    """Network, optimiser and normalisers of one algorithm, and the operations that all algorithms share.

    A subclass writes `update`: its loss on the rows of a prepared rollout.
    """

    def __init__(self, ctx: BuildContext, hp: OnPolicyHparams) -> None:
        self.ctx = ctx
        self.hp = hp
        self.policy = self.build_policy()
        self.network = self.policy.network
        self.optimizer = build_optimizer(self.policy.parameters, hp.optimizer, eps=hp.adam_eps)
        self.reward_normalizer = RewardNormalizer(hp.gamma, ctx.num_envs) if ctx.normalize_reward else None
        self.check_every_step = ctx.guard.every_step(ctx.device)

    def build_policy(self) -> ActorCriticPolicy:
        """A policy with initial weights: the one that learns, and with `env.overlap` a copy of the one that acted."""
        return ActorCriticPolicy(self.ctx, self.hp)

    @cached_property
    def _earlier_policy(self) -> ActorCriticPolicy:
        return self.build_policy()

    def acting_policy(self, batch: Batch) -> ActorCriticPolicy:
        """The policy that collected a rollout: the present one, or the earlier one whose state the batch brings."""
        state = batch.get(ACTING_POLICY)
        if state is None:
            return self.policy
        self._earlier_policy.load_state_dict(state)
        return self._earlier_policy

    @cached_property
    def kernel(self) -> Kernel:
        """How gradients are computed: by autograd, unless a subclass has something faster."""
        return self.in_shards(ReferenceKernel(1))

    def in_shards(self, kernel: Kernel) -> Kernel:
        """The same kernel for each shard, where batches come in shards."""
        if self.ctx.shards is None:
            return kernel
        return ShardedKernel(kernel, self.ctx.shards, {"network": self.policy.parameters.grad}, adds_up=True)

    def learnable(self, batch: Batch) -> Rollout | ShardedRollout:
        """What an update learns from: the prepared rollout, or that of every shard."""
        shards = self.ctx.shards
        if shards is None:
            return self.prepare(batch)
        if self.reward_normalizer is not None:
            self._count_rewards(joined(shards, batch[PARTS], REWARD_COLUMNS))
        return ShardedRollout(shards, [self.prepare(part) for part in batch[PARTS]])

    def prepare(self, batch: Batch) -> Rollout:
        """Values, log-probabilities, advantages and returns of a rollout under the policy that acted; observations as
        the current network sees them."""
        if self.network.memories:
            return self._prepare_pieces(batch)
        rewards = self._scaled_rewards(batch)
        num_steps, num_envs = rewards.shape
        acting, rows = self.acting_policy(batch), flat_rows(batch["obs"])
        seen = acting.seen(rows)
        actions = to_device(flat_rows(batch["actions"]), self.policy.device)
        with torch.no_grad():
            logprobs, _, values = acting.network(seen, actions)
        value_rows = values.cpu().numpy().reshape(num_steps, num_envs, *values.shape[1:])
        batch = {**batch, CURRENT_LOGPROBS: logprobs.cpu().numpy().reshape(num_steps, num_envs)}
        advantages, returns = self.targets(batch, rewards, value_rows, self._edge_values(batch, acting))
        obs = self._current(seen, acting, rows)
        rollout = Rollout(obs, actions, logprobs, values, self._flat(advantages), self._flat(returns))
        if not batch["valid"].all():
            rollout = rollout.rows(to_device(np.flatnonzero(batch["valid"]), self.policy.device))
        return rollout

    def _current(self, seen: TensorObs, acting: ActorCriticPolicy, rows: Obs) -> TensorObs:
        """Observations as the current network sees them: as the acting one did, unless the statistics have moved."""
        moved = acting is not self.policy and self.policy.normalizer is not None
        return self.policy.seen(rows) if moved else seen

    def targets(self, batch: Batch, rewards: Array, values: Array, edge_values: Array) -> tuple[Array, Array]:
        """Advantages and returns (T, N), from the values of the rows and of the last and final observations."""
        return gae(
            rewards,
            values,
            with_edges(batch, values, edge_values),
            batch["terminated"],
            batch["terminated"] | batch["truncated"],
            gamma=self.hp.gamma,
            gae_lambda=self.hp.gae_lambda,
            valid=batch["valid"],
        )

    def _prepare_pieces(self, batch: Batch) -> Rollout:
        """`prepare` for networks with memory: one pass along the rollout, then cut into pieces of `sequence_length`."""
        rewards, device = self._scaled_rewards(batch), self.policy.device
        num_steps, num_envs = rewards.shape
        acting, rows = self.acting_policy(batch), flat_rows(batch["obs"])
        seen = acting.seen(rows)
        actions = to_device(flat_rows(batch["actions"]), device)
        is_first, valid = (to_device(batch[name], device) for name in ("is_first", "valid"))
        carry = self.policy.memory_of(batch["initial_carry"])
        with torch.no_grad():
            (logprobs, _, values), traces = acting.network.follow(seen, actions, carry, is_first)
            edge = acting.seen(concatenate_rows(batch["last_obs"], batch["final_obs"]))
            edge_values = acting.network.next_values(edge, self._edge_carry(batch, traces)).cpu().numpy()
        obs = self._current(seen, acting, rows)
        value_rows = values.cpu().numpy().reshape(num_steps, num_envs, *values.shape[1:])
        batch = {**batch, CURRENT_LOGPROBS: logprobs.cpu().numpy().reshape(num_steps, num_envs)}
        advantages, returns = self.targets(batch, rewards, value_rows, edge_values)
        length = self.hp.sequence_length or num_steps
        starts = torch.arange(length, num_steps, length, device=device)  # the first piece begins with the rollout
        before = ((starts - 1)[:, None] * num_envs + torch.arange(num_envs, device=device)).reshape(-1)
        later = prefixed({name: trace.after(before) for name, trace in traces.items()})
        carries = {name: torch.cat([value, later[name]]) for name, value in carry.items()}

        def cut(column: Tensor) -> Tensor:
            """(T * N, ...) rows to those of the pieces, (L * P, ...)."""
            return column.view(-1, length, num_envs, *column.shape[1:]).transpose(0, 1).flatten(0, 2)

        pieces = Pieces(
            carries,
            cut(is_first.reshape(-1)).view(length, -1),
            cut(valid.reshape(-1)).view(length, -1),
        )
        rollout = Rollout(
            {name: cut(column) for name, column in obs.items()} if isinstance(obs, dict) else cut(obs),
            cut(actions),
            cut(logprobs),
            cut(values),
            cut(self._flat(advantages)),
            cut(self._flat(returns)),
            pieces,
        )
        # a minibatch of pieces without a transition would have a mean over nothing
        lived = pieces.valid.any(0)
        return rollout if lived.all() else rollout.rows(lived.nonzero().reshape(-1))

    def _edge_carry(self, batch: Batch, traces: Mapping[str, Trace]) -> MemoryCarry:
        """The critic's memory before the last and the final observations: that after the row they follow."""
        trace = traces.get("actor" if self.network.critic is self.network.actor else "critic")
        if trace is None:
            return {}
        last, final = trace.last(), trace.after(to_device(batch["final_index"], self.policy.device))
        return {name: torch.cat([value, final[name]]) for name, value in last.items()}

    def evaluated(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, entropies and values of the rows of `rollout.learnt()` under the current network."""
        if rollout.pieces is None:
            return cast(tuple[Tensor, Tensor, Tensor], self.network(rollout.obs, rollout.actions))
        pieces = rollout.pieces
        columns, _ = self.network.follow(rollout.obs, rollout.actions, pieces.carry, pieces.is_first)
        rows = pieces.valid_rows()
        logprobs, entropy, values = (column.index_select(0, rows) for column in columns)
        return logprobs, entropy, values

    def _scaled_rewards(self, batch: Batch) -> Array:
        rewards = cast(Array, batch["rewards"])
        if self.reward_normalizer is None:
            return rewards
        # The rollout's own rewards count before they are scaled: the first update would see raw rewards otherwise.
        # Acting never uses these statistics, so moving them here is still between rollouts.
        if self.ctx.shards is None:  # else those of all shards were counted together
            self._count_rewards(batch)
        return self.reward_normalizer.scale(rewards)

    def _count_rewards(self, batch: Batch) -> None:
        assert self.reward_normalizer is not None
        ends = batch["terminated"] | batch["truncated"]
        self.reward_normalizer.update(batch["rewards"], ends, batch["valid"])

    def _edge_values(self, batch: Batch, acting: ActorCriticPolicy) -> Array:
        """V of the last and then of the final observations, (N + F,)."""
        edge = concatenate_rows(batch["last_obs"], batch["final_obs"])
        with torch.no_grad():
            return acting.network.values(acting.seen(edge)).cpu().numpy()

    def _flat(self, values: Array) -> Tensor:
        rows = values.reshape(-1, *values.shape[2:])
        return to_device(rows, self.policy.device).to(torch.float32)

    def observe(self, batch: Batch) -> None:
        """Move the observation statistics; called between rollouts, after the update."""
        normalizer, shards = self.policy.normalizer, self.ctx.shards
        if normalizer is not None and shards is not None:
            observe_shards(normalizer, shards, batch[PARTS])
        elif normalizer is not None:
            normalizer.update(flat_rows(batch["obs"], batch["valid"].reshape(-1)))

    def drop_open_episodes(self) -> None:
        if self.reward_normalizer is not None:
            self.reward_normalizer.drop_open_episodes()

    def scheduled(self, name: str) -> float:
        """Current value of a hyperparameter that may be a schedule."""
        return value_at(getattr(self.hp, name), self.ctx.fraction)

    def step(self, loss: Callable[[Rollout], dict[str, Tensor]], rollout: Rollout | ShardedRollout) -> dict[str, Any]:
        """One optimiser step along the gradient of `loss` on a rollout; returns its terms and the gradient norm."""
        self.optimizer.zero_grad()
        losses: dict[str, Any] = self.kernel.gradient("network", loss, rollout.whole())
        losses["grad_norm"] = self.apply_gradients(losses)
        return losses

    def apply_gradients(self, losses: Mapping[str, Tensor | float]) -> Tensor:
        """Clip and step; the guard stops a non-finite gradient here, before it reaches a parameter."""
        grad_norm = self.optimizer.grad_norm()
        if self.check_every_step:
            self.ctx.guard.check_gradients(grad_norm, lambda: gradient_suspects(self.held(losses)), losses["loss"])
        self.optimizer.clip(self.hp.max_grad_norm, grad_norm)
        self.optimizer.step(self.scheduled("learning_rate"))
        return grad_norm

    def watched(self) -> Iterator[Tensor | Array]:
        """Tensors that the guard checks after each update: parameters, moments, statistics."""
        yield from (self.policy.parameters.values, *self.optimizer.tensors())
        for normalizer in (self.policy.normalizer, self.reward_normalizer):
            if normalizer is not None:
                yield from (array for _, array in leaves(normalizer.state_dict(), ""))

    def held(self, losses: Mapping[str, Tensor | float]) -> Held:
        """Everything that a non-finite gradient may come from, for the guard to search."""
        normalizer, rewards = self.policy.normalizer, self.reward_normalizer
        return Held(
            optimizers={"": self.optimizer.state_dict()},
            parameters={"": module_state(self.network)},
            gradients={"": self.policy.parameters.by_name(self.policy.parameters.grad)},
            losses=losses,
            normalizer=None if normalizer is None else normalizer.state_dict(),
            reward_normalizer=None if rewards is None else rewards.state_dict(),
        )

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Networks that are trained, for debug mode."""
        yield "network", self.network

    def named_optimizers(self) -> Iterator[tuple[str, Any]]:
        """Optimisers, each under the name of the network it moves."""
        yield "network", self.optimizer

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd, through modules that can be inspected: here they always do."""
        return nullcontext()

    def rollout_metrics(self, rollout: Rollout | ShardedRollout) -> Metrics:
        """Metrics of a rollout that do not depend on the loss."""
        first = (..., 0) if rollout.values.dim() > 1 else ...  # a bonus has values of its own in the second column
        values, returns = rollout.values[first].cpu().numpy(), rollout.returns[first].cpu().numpy()
        metrics: Metrics = {
            "learning_rate": self.scheduled("learning_rate"),
            "explained_variance": explained_variance(values, returns),
            "value_mean": rollout.values[first].mean(),
        }
        log_std = getattr(self.policy.head, "log_std", None)
        if log_std is not None:
            metrics["action_std"] = log_std.detach().exp().mean()
        return metrics

    def state_dict(self) -> StateDict:
        rewards = {} if self.reward_normalizer is None else self.reward_normalizer.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "reward_normalizer": rewards}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.load_state_dict(state["reward_normalizer"])
