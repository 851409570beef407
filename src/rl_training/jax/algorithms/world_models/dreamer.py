"""Dreamer for JAX: a policy learnt from what a world model imagines (DreamerV3, Hafner et al. 2023, arXiv:2301.04104).

The twin of `rl_training/algorithms/world_models/dreamer.py`: returns and losses as pure functions, then the algorithm.
All losses are one function of the trained parameters, differentiated at once; what must not learn from a loss is a
constant there. Noise is an argument of `update`. Hyperparameters are in `hparams/dreamer.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.config.networks import refuse_beside_world_model
from rl_training.hparams.dreamer import SPEC, DreamerConfig
from rl_training.hparams.off_policy import SequenceOptions, block_steps
from rl_training.jax.algorithms.off_policy import Networks, following, uniform_of
from rl_training.jax.algorithms.world_models.actors import action_distribution
from rl_training.jax.algorithms.world_models.dreams import Foresight
from rl_training.jax.algorithms.world_models.world_model import Arrivals, Losses, WorldModel, flat, mean_over
from rl_training.jax.data.replay_buffer import CARRY
from rl_training.jax.data.sequences import arrivals
from rl_training.jax.models.distributions import draw
from rl_training.jax.models.laprop import LaPropState, laprop, laprop_init
from rl_training.jax.models.layers import Params
from rl_training.jax.models.optimization import global_norm
from rl_training.jax.models.world_models.layers import normed_mlp, normed_mlp_init, part
from rl_training.jax.models.world_models.two_hot import two_hot_loss, two_hot_mean
from rl_training.jax.numerics.return_scale import return_scale
from rl_training.jax.traced_hparams import scheduled
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise

__all__ = ["HYPER", "SPEC", "DreamerConfig", "dreamer"]

HYPER = (
    "learning_rate",
    "warmup_updates",
    "agc",
    "horizon",
    "return_lambda",
    "ent_coef",
    "slow_rate",
    "slow_regularizer",
    "replay_critic",
    "kl_dynamics",
    "kl_representation",
    "free_nats",
    "reward_scale",
)
"""Hyperparameters that are leaves of the state; all others are static."""
PREVIOUS = "action"
"""Name of the previous action in the carry."""


# -- the mathematics --------------------------------------------------------------------------------------------------


def imagined_returns(rewards: Any, discounts: Any, values: Any, return_lambda: Any) -> Any:
    """Returns (H, N) of H imagined steps between H + 1 states; rewards and discounts (H + 1, N) are those of arriving:
    R[t] = r[t+1] + c[t+1] ((1 - lambda) v[t+1] + lambda R[t+1]), R[H] = v[H]."""

    def step(following: Any, row: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        reward, discount, value = row
        total = reward + discount * ((1.0 - return_lambda) * value + return_lambda * following)
        return total, total

    return jax.lax.scan(step, values[-1], (rewards[1:], discounts[1:], values[1:]), reverse=True)[1]


def replayed_returns(steps: Arrivals, bootstrap: Any, discount: Any, return_lambda: Any) -> Any:
    """Returns (T - 1, B) of replayed steps; `bootstrap` (T, B) are the imagined returns of each state. A return ends
    where an episode ends: with 0 where it terminated, with the bootstrap where it was cut off."""

    def step(following: Any, row: tuple[Any, ...]) -> tuple[Any, Any]:
        reward, value, is_last, is_terminal = row
        share = return_lambda * (1.0 - is_last)
        total = reward + discount * (1.0 - is_terminal) * ((1.0 - share) * value + share * following)
        return total, total

    rows = (steps.rewards[1:], bootstrap[1:], steps.is_last[1:], steps.is_terminal[1:])
    return jax.lax.scan(step, bootstrap[-1], rows, reverse=True)[1]


def trajectory_weights(discounts: Any) -> Any:
    """How likely each imagined step still counts, (H + 1, N): the product of the discounts up to it, its own among
    them."""
    return jnp.cumprod(discounts, axis=0)


def actor_losses(logprobs: Any, entropy: Any, advantages: Any, ent_coef: Any) -> Any:
    """REINFORCE with an entropy bonus, (H, N); advantages are constants."""
    return -(logprobs * jax.lax.stop_gradient(advantages) + ent_coef * entropy)


def value_losses(logprobs: Any, returns: Any, slow_values: Any, bins: Any, regularizer: Any) -> Any:
    """Cross-entropy towards the returns, and towards the slow copy's values as a regulariser."""
    return two_hot_loss(logprobs, returns, bins) + regularizer * two_hot_loss(logprobs, slow_values, bins)


# -- state ------------------------------------------------------------------------------------------------------------


class PolicyNetworks(NamedTuple):
    """What acting and dreaming need, which is what the policy saves, as in the torch twin."""

    model: Params
    actor: Params


class Trained(NamedTuple):
    """All parameters that the optimiser moves."""

    model: Params
    actor: Params
    critic: Params


class State(NamedTuple):
    """State of Dreamer. `params` make up its policy."""

    params: PolicyNetworks
    normalizer: dict[str, Any]
    networks: Networks
    """The critic."""
    targets: Networks
    """The slow copy of the critic."""
    optimizer: LaPropState
    scale: Any
    """Averages (2,) of two percentiles of the returns."""
    hyper: Hyper


class UpdateNoise(NamedTuple):
    """All random numbers of one update."""

    observed: Any
    """Uniform numbers (T, B, noise_size) for the states of replayed steps."""
    actions: Any
    """(H, N, ...): uniform ones for discrete actions, standard normal ones for real actions."""
    imagined: Any
    """Uniform numbers (H, N, noise_size) for imagined states."""


class Imagined(NamedTuple):
    """What the policy imagined from N states: H steps, H + 1 states."""

    features: Any
    """(H + 1, N, F), the start included."""
    actions: Any
    """(H, N, A)"""
    rewards: Any
    """(H + 1, N), of arriving at each state."""
    discounts: Any
    """(H + 1, N): the predicted probability that the episode goes on, times the discount."""


# -- the algorithm ----------------------------------------------------------------------------------------------------


class Dreamer:
    """Static parts of Dreamer, which its pure functions close over; `losses` is the whole algorithm."""

    def __init__(self, ctx: BuildContext, hp: DreamerConfig) -> None:
        refuse_beside_world_model(ctx.network, normalize_obs=ctx.normalize_obs, normalize_reward=ctx.normalize_reward)
        self.hp = hp
        self.actions = action_distribution(ctx.action_space, hp.unimix)
        self.model = WorldModel(ctx.observation_space, self.actions.size, hp)
        self.by_dynamics = hp.actor_gradient == "dynamics"
        """Whether the policy learns by gradients through the imagined states."""

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        size, features = self.hp.widths, self.model.dynamics.features
        model = self.model.init(rng)
        actor = normed_mlp_init(rng, features, size.units, size.layers, self.actions.outputs, 0.01)
        critic = normed_mlp_init(rng, features, size.units, size.layers, size.bins, 0.0)
        slow = {name: value.copy() for name, value in critic.items()}
        moments = laprop_init(Trained(model, actor, critic))
        policy, averages = PolicyNetworks(model, actor), np.zeros(2, np.float32)
        return State(policy, {}, {"critic": critic}, {"critic": slow}, moments, averages, hyper)

    # -- acting -------------------------------------------------------------------------------------------------------

    def initial_carry(self, num_envs: int) -> dict[str, Any]:
        spec = self.model.dynamics.state_spec
        state = {name: np.zeros((num_envs, *shape), dtype) for name, (shape, dtype) in spec.items()}
        return {**state, PREVIOUS: np.zeros((num_envs, self.actions.size), np.float32)}

    def policy(self, state: State, env_steps: Any) -> PolicyNetworks:
        """What acting needs: encoder, the part of the dynamics that corrects a state, and actor."""
        needed = ("encoder.", *(f"dynamics.{name}." for name in self.model.dynamics.acting))
        model = {name: value for name, value in state.params.model.items() if name.startswith(needed)}
        return PolicyNetworks(model, state.params.actor)

    def act(
        self, policy: PolicyNetworks, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        rssm, (draws, action_noise) = self.model.dynamics, self.split(None if deterministic else noise)
        tokens = self.model.encoder.apply(part(policy.model, "encoder"), obs)
        state = rssm.restored({name: carry[name] for name in rssm.state_spec})
        state = rssm.correct(part(policy.model, "dynamics"), state, carry[PREVIOUS], tokens, is_first, draws)
        numbers = self.actions.sample(normed_mlp(policy.actor, rssm.read(state)), action_noise)
        stored = rssm.stored(state)
        extras = {CARRY + name: value for name, value in stored.items()} if self.hp.context == "stored" else {}
        return self.actions.as_stored(numbers), {**stored, PREVIOUS: numbers}, extras

    @property
    def noise(self) -> Noise:
        """Noise of one decision: for the latents, then for the action, all of the kind that the action needs."""
        kind, shape = self.actions.noise
        return Noise(kind, (self.model.dynamics.noise_size + math.prod(shape),))

    def split(self, noise: Any) -> tuple[Any, Any]:
        """The noise of a decision as (uniform numbers for the latents, noise of the action)."""
        if noise is None:
            return None, None
        count, (kind, shape) = self.model.dynamics.noise_size, self.actions.noise
        latents = noise[:, :count]
        if kind == "normal":
            latents = 0.5 + 0.5 * uniform_of(latents)
        return latents, noise[:, count:].reshape(len(noise), *shape)

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn(self, state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        steps = self.prepare(batch)
        noise = self.draw(key, *steps.rewards.shape)
        return self.update(state, steps, noise, scheduled(self.hp, "learning_rate", state.hyper, env_steps))

    def prepare(self, batch: Batch) -> Arrivals:
        """Sampled sequences of rows as arrivals, time first."""
        rssm, steps = self.model.dynamics, arrivals(batch)
        steps = {name: jax.tree.map(lambda column: column.swapaxes(0, 1), tree) for name, tree in steps.items()}
        floats = {name: steps[name].astype(jnp.float32) for name in Arrivals._fields[2:-1]}
        stored = self.hp.context == "stored"
        start = rssm.restored(batch["carry"]) if stored else rssm.initial(len(batch["rewards"]))
        return Arrivals(steps["obs"], self.actions.as_numbers(steps["actions"]), **floats, start=start)

    def draw(self, key: Any, length: int, rows: int) -> UpdateNoise:
        """The noise of an update, with few calls of the generator: each costs compile time."""
        hp, size = self.hp, self.model.dynamics.noise_size
        horizon, count = hp.imagine_horizon, (hp.imagine_last or length) * rows
        shapes = [(length, rows, size), (horizon, count, size), (horizon, count, *self.actions.noise.shape)]
        state_key, action_key = jax.random.split(key)
        uniform = self.actions.noise.kind == "uniform"
        ends = np.cumsum([math.prod(shape) for shape in (shapes if uniform else shapes[:2])])
        numbers = draw(Noise("uniform", (int(ends[-1]),)), state_key, ())
        observed, imagined = numbers[: ends[0]], numbers[ends[0] : ends[1]]
        actions = numbers[ends[1] :] if uniform else draw(self.actions.noise, action_key, (horizon, count))
        return UpdateNoise(observed.reshape(shapes[0]), actions.reshape(shapes[2]), imagined.reshape(shapes[1]))

    def update(self, state: State, steps: Arrivals, noise: UpdateNoise, learning_rate: Any) -> tuple[State, Metrics]:
        """One step of all networks, of `learning_rate` once it is warmed up; then the slow critic follows."""
        hyper, trained = state.hyper, Trained(*state.params, state.networks["critic"])

        def total(trained: Trained) -> tuple[Any, tuple[Any, Metrics]]:
            losses, metrics, scale = self.losses(trained, state, steps, noise)
            loss = sum(losses.values())
            return loss, (scale, {"loss": loss, **losses, **metrics})

        grads, (scale, metrics) = jax.grad(total, has_aux=True)(trained)
        warmup, done = hyper["warmup_updates"], state.optimizer.steps.astype(jnp.float32)
        share = jnp.where(warmup > 0.0, jnp.minimum(1.0, done / jnp.maximum(warmup, 1e-9)), 1.0)
        step_size = learning_rate * share
        moved, moments = laprop(trained, grads, state.optimizer, learning_rate=step_size, agc=hyper["agc"])
        slow = following(state.targets["critic"], moved.critic, hyper["slow_rate"])
        params, critics = PolicyNetworks(moved.model, moved.actor), {"critic": moved.critic}
        state = state._replace(
            params=params, networks=critics, targets={"critic": slow}, optimizer=moments, scale=scale
        )
        return state, {**metrics, "grad_norm": global_norm(grads)}

    def losses(
        self, trained: Trained, state: State, steps: Arrivals, noise: UpdateNoise
    ) -> tuple[Losses, Metrics, Any]:
        """All losses of one batch as they add up to the total, what is worth logging, and the scale's averages."""
        hyper, dynamics = state.hyper, self.model.dynamics
        discount = 1.0 - 1.0 / hyper["horizon"]
        seen = self.model.observe(trained.model, steps, noise.observed)
        model = self.model.losses(trained.model, seen, steps, hyper, discount)
        losses = {name: mean_over(loss, steps.valid) for name, loss in model.items()}

        last = slice(-self.hp.imagine_last if self.hp.imagine_last else None, None)
        recent = {name: value[last] for name, value in seen.states.items()}
        imagined = self.imagine(trained, jax.lax.stop_gradient(flat(recent)), noise)
        valid = steps.valid[last].reshape(-1)
        behaviour, returns, (metrics, scale) = self.behaviour_losses(trained, state, imagined, valid)
        features = dynamics.read(recent)
        bootstrap = returns[0].reshape(features.shape[:2])
        replayed = self.replay_loss(trained.critic, state, features, steps.part(last), bootstrap)
        return {**losses, **behaviour, "replay_value_loss": hyper["replay_critic"] * replayed}, metrics, scale

    def imagine(self, trained: Trained, state: Any, noise: UpdateNoise) -> Imagined:
        """Follow the policy through the model from N states. No gradient reaches the model: its weights are constants
        here, and with REINFORCE everything is."""
        model, rssm = jax.lax.stop_gradient(trained.model), self.model.dynamics
        actor = trained.actor if self.by_dynamics else jax.lax.stop_gradient(trained.actor)
        dynamics = part(model, "dynamics")

        def step(state: Any, drawn: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
            action = self.actions.sample(normed_mlp(actor, rssm.read(state)), drawn[0])
            following = rssm.predict(dynamics, state, action, drawn[1])
            return following, (rssm.read(following), action)

        _, (later, actions) = jax.lax.scan(step, state, (noise.actions, noise.imagined))
        features = jnp.concatenate([rssm.read(state)[None], later])
        return Imagined(features, actions, self.model.rewards(model, features), self.model.continues(model, features))

    def behaviour_losses(
        self, trained: Trained, state: State, imagined: Imagined, valid: Any
    ) -> tuple[Losses, Any, tuple[Metrics, Any]]:
        """Losses of actor and critic, the returns (H, N) they learn from, metrics and the scale's averages. `valid`
        (N,) marks real starts."""
        hyper, bins, constant = state.hyper, self.model.bins, jax.lax.stop_gradient
        features = constant(imagined.features)
        logprobs = jax.nn.log_softmax(normed_mlp(trained.critic, features))
        slow_values = self.values(state.targets["critic"], features)
        values = self.bootstrap_values(trained.critic, state, imagined.features, logprobs)
        returns = imagined_returns(imagined.rewards, imagined.discounts, values, hyper["return_lambda"])
        weights = trajectory_weights(constant(imagined.discounts))[:-1] * valid
        averages, scale = self.scaled(state, constant(returns))

        outputs = normed_mlp(trained.actor, features[:-1])
        chosen, entropy = self.actions.logprob_entropy(outputs, constant(imagined.actions))
        if self.by_dynamics:
            actor = -(returns / scale + hyper["ent_coef"] * entropy)
        else:
            actor = actor_losses(chosen, entropy, (returns - values[:-1]) / scale, hyper["ent_coef"])
        value = value_losses(logprobs[:-1], returns, slow_values[:-1], bins, hyper["slow_regularizer"])
        count = jnp.maximum(valid.sum() * len(weights), 1.0)
        metrics = {
            "entropy": entropy.mean(),
            "imagined_reward": imagined.rewards[1:].mean(),
            "imagined_return": returns.mean(),
            "value_mean": values.mean(),
            "return_scale": scale,
        }
        losses = {"policy_loss": (weights * actor).sum() / count, "value_loss": (weights * value).sum() / count}
        return losses, constant(returns), (metrics, averages)

    def replay_loss(self, critic: Params, state: State, features: Any, steps: Arrivals, bootstrap: Any) -> Any:
        """Value loss on replayed steps. Its gradient reaches the world model, whose states shall tell the value."""
        if len(features) < 2:
            return jnp.zeros(())
        hyper, bins = state.hyper, self.model.bins
        discount = 1.0 - 1.0 / hyper["horizon"]
        returns = replayed_returns(steps, bootstrap, discount, hyper["return_lambda"])
        logprobs = jax.nn.log_softmax(normed_mlp(critic, features[:-1]))
        slow_values = self.values(state.targets["critic"], jax.lax.stop_gradient(features[:-1]))
        loss = value_losses(logprobs, returns, slow_values, bins, hyper["slow_regularizer"])
        weights = (1.0 - steps.is_last[:-1]) * steps.valid[1:]
        return (weights * loss).mean()

    def bootstrap_values(self, critic: Params, state: State, features: Any, logprobs: Any) -> Any:
        """Values (H + 1, N) that returns go on from: constants, or with gradients through the dynamics functions of the
        imagined states. `logprobs` are the critic's predictions for them."""
        if self.hp.value_target == "slow":
            return self.values(state.targets["critic"], features)
        if self.by_dynamics:
            return self.values(jax.lax.stop_gradient(critic), features)
        return jax.lax.stop_gradient(two_hot_mean(logprobs, self.model.bins))

    def values(self, critic: Params, features: Any) -> Any:
        """Values (...) of states with these features (..., F)."""
        return two_hot_mean(jax.nn.log_softmax(normed_mlp(critic, features)), self.model.bins)

    def scaled(self, state: State, returns: Any) -> tuple[Any, Any]:
        """The scale's averages after this batch of returns, and what advantages are divided by."""
        if self.hp.return_scale == "none":
            return state.scale, jnp.ones(())
        updates = state.optimizer.steps.astype(jnp.float32) + 1.0 if self.hp.debias_scale else None
        return return_scale(state.scale, returns, updates=updates)


def dreamer(ctx: BuildContext, hp: DreamerConfig) -> JaxAlgorithm:
    """World model, actor and critic under one optimiser."""
    parts = Dreamer(ctx, hp)
    model = parts.model
    stored = model.dynamics.state_spec if hp.context == "stored" else {}
    return JaxAlgorithm(
        rollout_length=block_steps(ctx.num_envs),
        replay=hp.replay,
        noise=parts.noise,
        init=parts.init,
        policy=parts.policy,
        act=parts.act,
        learn=parts.learn,
        observe=lambda state, batch: state,  # symlog takes the place of normalisers
        initial_carry=parts.initial_carry,
        unit_actions=True,
        sequences=SequenceOptions(hp.sequence_length, stored),
        in_numpy=model.dynamics.in_numpy and not model.encoder.parts.images,
        foresight=Foresight(model, parts.actions, parts.prepare),
    )
