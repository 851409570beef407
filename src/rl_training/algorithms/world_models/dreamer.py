"""Dreamer: a policy learnt from what a world model imagines (DreamerV3, Hafner et al. 2023, arXiv:2301.04104).

Top to bottom: returns and losses as pure functions, the policy, the algorithm. Hyperparameters are in
`hparams/dreamer.py`, the world model and its losses in `world_model.py`, the recurrent state in `dynamics/rssm.py`.
One update: the model follows replayed sequences and learns to predict them; from the states on the way the policy
imagines some steps; actor and critic learn from the imagined returns, the critic also from the replayed rewards.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.world_models.latent_policy import LatentPolicy
from rl_training.algorithms.world_models.learner import WorldModelLearner
from rl_training.algorithms.world_models.numpy_acting import NumpyActing, fits
from rl_training.algorithms.world_models.world_model import Arrivals, Losses, mean_over
from rl_training.build_context import BuildContext
from rl_training.dynamics.base import State, rows_of
from rl_training.hparams.dreamer import SPEC, DreamerConfig
from rl_training.models.networks import load_module_state, module_state, polyak_update
from rl_training.models.world_models.layers import NormedMLP
from rl_training.models.world_models.two_hot import two_hot_loss, two_hot_mean
from rl_training.numerics.return_scale import ReturnScale
from rl_training.types import Array, Batch, Carry, Metrics, Obs, StateDict, UpdateResult

__all__ = ["SPEC", "Dreamer", "DreamerConfig"]


# -- the mathematics --------------------------------------------------------------------------------------------------


def imagined_returns(rewards: Tensor, discounts: Tensor, values: Tensor, return_lambda: float) -> Tensor:
    """Returns (H, N) of H imagined steps between H + 1 states; rewards and discounts (H + 1, N) are those of arriving:
    R[t] = r[t+1] + c[t+1] ((1 - lambda) v[t+1] + lambda R[t+1]), R[H] = v[H]."""
    following, found = values[-1], []
    for t in range(len(rewards) - 1, 0, -1):
        following = rewards[t] + discounts[t] * ((1.0 - return_lambda) * values[t] + return_lambda * following)
        found.append(following)
    return torch.stack(found[::-1])


def replayed_returns(steps: Arrivals, bootstrap: Tensor, discount: float, return_lambda: float) -> Tensor:
    """Returns (T - 1, B) of replayed steps; `bootstrap` (T, B) are the imagined returns of each state. A return ends
    where an episode ends: with 0 where it terminated, with the bootstrap where it was cut off."""
    following, found = bootstrap[-1], []
    for t in range(len(bootstrap) - 1, 0, -1):
        share = return_lambda * (1.0 - steps.is_last[t])
        mixed = (1.0 - share) * bootstrap[t] + share * following
        following = steps.rewards[t] + discount * (1.0 - steps.is_terminal[t]) * mixed
        found.append(following)
    return torch.stack(found[::-1])


def trajectory_weights(discounts: Tensor) -> Tensor:
    """How likely each imagined step still counts, (H + 1, N): the product of the discounts up to it, the first one
    included, so that nothing is learnt from what is imagined behind the end of an episode."""
    return torch.cumprod(discounts, dim=0)


def actor_losses(logprobs: Tensor, entropy: Tensor, advantages: Tensor, ent_coef: float) -> Tensor:
    """REINFORCE with an entropy bonus, (H, N); advantages are constants."""
    return -(logprobs * advantages.detach() + ent_coef * entropy)


def value_losses(logprobs: Tensor, returns: Tensor, slow_values: Tensor, bins: Tensor, regularizer: float) -> Tensor:
    """Cross-entropy towards the returns, and towards the slow copy's values as a regulariser."""
    loss = two_hot_loss(logprobs, returns, bins)
    return loss + regularizer * two_hot_loss(logprobs, slow_values, bins)


# -- acting -----------------------------------------------------------------------------------------------------------


class DreamerPolicy(LatentPolicy):
    """Chooses by the policy network; in NumPy where that is possible, which is faster for a few environments."""

    learner: Dreamer

    def __init__(self, learner: Dreamer) -> None:
        super().__init__(learner)
        in_numpy = fits(learner.model, learner.actions, learner.ctx.device)
        self.in_numpy = NumpyActing(learner.model, learner.actor, learner.actions) if in_numpy else None

    def decide(self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator | None) -> tuple[Carry, Array]:
        if self.in_numpy is None:
            return super().decide(obs, carry, is_first, rng)
        noise = self.noise(len(is_first), rng)
        draws = None if rng is None else self.learner.actions.draw((len(is_first),), rng)
        return self.in_numpy(obs, carry, is_first, noise, draws)

    def choose(self, state: State, rng: np.random.Generator | None) -> Array:
        outputs = self.learner.actor(self.model.dynamics.read(state))
        noise = None if rng is None else self.learner.tensor(self.learner.actions.draw((len(outputs),), rng))
        numbers: Array = self.learner.actions.sample(outputs, noise).cpu().numpy()
        return numbers

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model, "actor": self.learner.actor}


# -- learning ---------------------------------------------------------------------------------------------------------


class Imagined(NamedTuple):
    """What the policy imagined from N states: H steps, H + 1 states."""

    features: Tensor
    """(H + 1, N, F), the start included."""
    actions: Tensor
    """(H, N, A)"""
    rewards: Tensor
    """(H + 1, N), of arriving at each state."""
    discounts: Tensor
    """(H + 1, N): the predicted probability that the episode goes on, times the discount."""


class Dreamer(WorldModelLearner):
    """World model, actor and critic under one optimiser."""

    policy: DreamerPolicy

    def __init__(self, ctx: BuildContext, hp: DreamerConfig) -> None:
        super().__init__(ctx, hp, unimix=hp.unimix)
        self.hp = hp
        size, features = hp.widths, self.model.dynamics.features
        outputs = self.actions.outputs
        self.actor = NormedMLP(self.init, features, size.units, size.layers, outputs, output_scale=0.01)
        self.critic = NormedMLP(self.init, features, size.units, size.layers, size.bins, output_scale=0.0)
        self.ready(actor=self.actor, critic=self.critic)
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.scale = ReturnScale(debias=hp.debias_scale)
        self.policy = DreamerPolicy(self)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of all networks; then the slow critic follows."""
        steps = self.prepare(batch)
        losses, metrics = self.losses(steps)
        total = torch.stack(list(losses.values())).sum()
        grad_norm = self.descend(total, losses)
        polyak_update(self.critic, self.slow_critic, self.hp.slow_rate)
        detached = {name: loss.detach() for name, loss in losses.items()}
        return UpdateResult({"loss": total.detach(), **detached, **metrics, "grad_norm": grad_norm})

    def losses(self, steps: Arrivals) -> tuple[Losses, Metrics]:
        """All losses of one batch, as they add up to the total, and what is worth logging."""
        hp, dynamics = self.hp, self.model.dynamics
        seen = self.model.observe(steps, self.uniform(*steps.rewards.shape, dynamics.noise_size))
        model = self.model.losses(seen, steps, hp, hp.discount)
        losses = {name: mean_over(loss, steps.valid) for name, loss in model.items()}

        last = slice(-hp.imagine_last if hp.imagine_last else None, None)
        recent = {name: value[last] for name, value in seen.states.items()}
        imagined = self.imagine(rows_of({name: value.detach() for name, value in recent.items()}))
        behaviour, returns, metrics = self.behaviour_losses(imagined, steps.valid[last].flatten())
        features = dynamics.read(recent)
        bootstrap = returns[0].view(features.shape[:2])
        losses |= {
            **behaviour,
            "replay_value_loss": hp.replay_critic * self.replay_loss(features, steps.part(last), bootstrap),
        }
        return losses, metrics

    def imagine(self, state: State) -> Imagined:
        """Follow the policy through the model from N states. No gradient reaches the model: its weights are constants
        here, and with REINFORCE everything is."""
        count = len(next(iter(state.values())))
        dynamics, hp = self.model.dynamics, self.hp
        features, actions = [dynamics.read(state)], []
        with self.constant_model():
            for _ in range(hp.imagine_horizon):
                outputs = self.actor(features[-1])
                action = self.actions.sample(outputs, self.tensor(self.actions.draw((count,), self.rng)))
                state = dynamics.predict(state, action, self.uniform(count, dynamics.noise_size))
                actions.append(action)
                features.append(dynamics.read(state))
            read = torch.stack(features)
            return Imagined(read, torch.stack(actions), self.model.rewards(read), self.model.continues(read))

    @contextmanager
    def constant_model(self) -> Iterator[None]:
        """Inside, gradients reach no weight of the model or the critic; with REINFORCE none is computed at all."""
        if self.hp.actor_gradient == "reinforce":
            with torch.no_grad():
                yield
            return
        weights = [*self.model.parameters(), *self.critic.parameters()]
        for weight in weights:
            weight.requires_grad_(False)
        try:
            yield
        finally:
            for weight in weights:
                weight.requires_grad_(True)

    def behaviour_losses(self, imagined: Imagined, valid: Tensor) -> tuple[Losses, Tensor, Metrics]:
        """Losses of actor and critic, and the returns (H, N) they learn from. `valid` (N,) marks real starts."""
        hp, bins = self.hp, self.model.bins
        features = imagined.features.detach()
        logprobs = F.log_softmax(self.critic(features), dim=-1)
        slow_values = two_hot_mean(F.log_softmax(self.slow_critic(features), dim=-1), bins)
        with self.constant_model():
            if hp.value_target == "slow" and hp.actor_gradient == "reinforce":
                values = slow_values
            elif hp.actor_gradient == "reinforce":
                values = two_hot_mean(logprobs, bins)
            else:
                network = self.slow_critic if hp.value_target == "slow" else self.critic
                values = two_hot_mean(F.log_softmax(network(imagined.features), dim=-1), bins)
            returns = imagined_returns(imagined.rewards, imagined.discounts, values, hp.return_lambda)
        weights = trajectory_weights(imagined.discounts.detach())[:-1] * valid
        scale = self.scale.update(returns.detach().cpu().numpy()) if hp.return_scale == "percentile" else 1.0

        outputs = self.actor(features[:-1])
        chosen, entropy = self.actions.logprob_entropy(outputs, imagined.actions.detach())
        if hp.actor_gradient == "reinforce":
            actor = actor_losses(chosen, entropy, (returns - values[:-1]) / scale, hp.ent_coef)
        else:
            actor = -(returns / scale + hp.ent_coef * entropy)
        value = value_losses(logprobs[:-1], returns, slow_values[:-1], bins, hp.slow_regularizer)
        count = (valid.sum() * len(weights)).clamp(min=1.0)
        metrics: Metrics = {
            "entropy": entropy.detach().mean(),
            "imagined_reward": imagined.rewards[1:].detach().mean(),
            "imagined_return": returns.detach().mean(),
            "value_mean": values.detach().mean(),
            "return_scale": scale,
        }
        losses = {"policy_loss": (weights * actor).sum() / count, "value_loss": (weights * value).sum() / count}
        return losses, returns.detach(), metrics

    def replay_loss(self, features: Tensor, steps: Arrivals, bootstrap: Tensor) -> Tensor:
        """Value loss on replayed steps. Its gradient reaches the world model, whose states shall tell the value."""
        if len(features) < 2:
            return features.new_zeros(())
        hp, bins = self.hp, self.model.bins
        returns = replayed_returns(steps, bootstrap, hp.discount, hp.return_lambda)
        logprobs = F.log_softmax(self.critic(features[:-1]), dim=-1)
        with torch.no_grad():
            slow_values = two_hot_mean(F.log_softmax(self.slow_critic(features[:-1]), dim=-1), bins)
        loss = value_losses(logprobs, returns, slow_values, bins, hp.slow_regularizer)
        weights = (1.0 - steps.is_last[:-1]) * steps.valid[1:]
        return (weights * loss).mean()

    def state_dict(self) -> StateDict:
        """What the policy does not save: critics, scale of the returns, and what every learner saves."""
        networks = {"critic": module_state(self.critic), "slow_critic": module_state(self.slow_critic)}
        return {**super().state_dict(), "networks": networks, "scale": self.scale.state_dict()}

    def load_state_dict(self, state: StateDict, /) -> None:
        super().load_state_dict(state)
        load_module_state(self.critic, state["networks"]["critic"])
        load_module_state(self.slow_critic, state["networks"]["slow_critic"])
        self.scale.load_state_dict(state["scale"])
