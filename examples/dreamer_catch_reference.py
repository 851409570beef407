"""Dreamer on Catch in one file: torch, NumPy and Gymnasium, nothing of this package.

    python examples/dreamer_catch_reference.py --total-timesteps 24000

It gives the weights of the package's own run bit for bit:

    rl train dreamer/catch --seed 1

Read it top to bottom: settings, randomness, the game, networks, the world model, replay, acting, losses, the loop.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
import zlib
from dataclasses import dataclass

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy rounds differently with another number of threads

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Settings:
    """The preset dreamer/catch, and the widths of its size `mini`."""

    seed: int = 1
    total_timesteps: int = 24_000
    num_envs: int = 4
    buffer_size: int = 50_000
    batch_size: int = 16  # sequences
    sequence_length: int = 16
    train_ratio: float = 64.0  # replayed steps per env step
    learning_starts: int = 400
    imagine_horizon: int = 9
    imagine_last: int = 8  # imagine from the last so many steps of each sequence
    horizon: int = 50  # discount 1 - 1 / horizon
    return_lambda: float = 0.95
    ent_coef: float = 3e-3
    learning_rate: float = 2e-3
    warmup_updates: int = 100
    agc: float = 0.3
    kl_dynamics: float = 1.0
    kl_representation: float = 0.1
    free_nats: float = 1.0
    replay_critic: float = 0.3
    slow_rate: float = 0.02
    unimix: float = 0.01
    deter: int = 64
    units: int = 64
    latents: int = 8
    classes: int = 8
    bins: int = 63


LAYERS = 2
RMS_EPS = 1e-4
ACTIONS = 3


# -- randomness: one seed, a stream of its own for every purpose ------------------------------------------------------


def stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), 0]))


def reset_seed(seed: int, env_index: int, reset_count: int) -> int:
    """The seed of an environment's reset number `reset_count`."""
    words = np.random.SeedSequence([seed, zlib.crc32(b"reset"), env_index, reset_count + 1]).generate_state(1)
    return int(words[0]) >> 1


# -- the game ---------------------------------------------------------------------------------------------------------


class Catch(gym.Env):
    """A ball falls through ten rows of five columns; reward 1 if the paddle is under it in the end, -1 if not."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(5)), 2
        return self.grid(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), 4)
        self.row += 1
        ended = self.row == 9
        return self.grid(), (1.0 if self.column == self.paddle else -1.0) if ended else 0.0, ended, False, {}

    def grid(self) -> np.ndarray:
        cells = np.zeros((10, 5), np.float32)
        cells[self.row, self.column] = cells[-1, self.paddle] = 1.0
        return cells.reshape(-1)


# -- networks ---------------------------------------------------------------------------------------------------------


def truncated_normal(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int, scale: float = 1.0) -> Tensor:
    """Normal numbers within two standard deviations, of standard deviation scale / sqrt(fan_in)."""
    if scale == 0.0:
        return torch.zeros(shape)
    numbers = rng.standard_normal(shape)
    while (beyond := np.abs(numbers) > 2.0).any():
        numbers[beyond] = rng.standard_normal(int(beyond.sum()))
    numbers *= scale / (0.8796256610342398 * math.sqrt(fan_in))
    return torch.from_numpy(numbers.astype(np.float32))


def dense(rng: np.random.Generator, inputs: int, outputs: int, scale: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(truncated_normal(rng, (outputs, inputs), inputs, scale))
        layer.bias.zero_()
    return layer


class Norm(nn.Module):
    """RMS norm with a learnt scale, then SiLU."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(F.rms_norm(x, self.scale.shape, self.scale, RMS_EPS))


class Layer(nn.Module):
    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.norm = dense(rng, inputs, outputs), Norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class Network(nn.Module):
    """Normed layers and, where `outputs` is given, a linear one behind them."""

    def __init__(self, rng, inputs: int, units: int, layers: int, outputs: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        sizes = [inputs, *[units] * layers]
        self.layers = nn.Sequential(*(Layer(rng, *pair) for pair in itertools.pairwise(sizes)))
        self.output = dense(rng, units, outputs, scale) if outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layers(x))


class Gates(nn.Module):
    """Reset, candidate and update of the recurrent state."""

    def __init__(self, rng: np.random.Generator, deter: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(truncated_normal(rng, (1, deter, 3 * deter), deter))
        self.bias = nn.Parameter(torch.zeros(3 * deter))


class Core(nn.Module):
    """The recurrent part of the state: a gated step from state, latent and action."""

    def __init__(self, rng: np.random.Generator, deter: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.from_deter = Layer(rng, deter, hidden)
        self.from_latent = Layer(rng, latent, hidden)
        self.from_action = Layer(rng, ACTIONS, hidden)
        self.split = 2 * hidden
        fan_in = deter + 3 * hidden
        self.recurrent = nn.Parameter(truncated_normal(rng, (1, deter, deter), fan_in))
        self.shared = nn.Parameter(truncated_normal(rng, (3 * hidden, deter), fan_in))
        self.bias = nn.Parameter(torch.zeros(deter))
        self.norm = Norm(deter)
        self.gates = Gates(rng, deter)

    def action_part(self, actions: Tensor) -> Tensor:
        bounded = actions / actions.detach().abs().clamp(min=1.0)
        return self.from_action(bounded) @ self.shared[self.split :] + self.bias

    def forward(self, deter: Tensor, latent: Tensor, action_part: Tensor) -> Tensor:
        x = torch.cat([self.from_deter(deter), self.from_latent(latent)], dim=1)
        inside = torch.addmm(action_part, x, self.shared[: self.split])
        x = self.norm(inside + deter @ self.recurrent[0])
        gates = torch.addmm(self.gates.bias, x, self.gates.weight[0]).view(len(x), 1, 3, -1)
        reset, candidate, update = (part.reshape(len(x), -1) for part in gates.unbind(2))
        update = torch.sigmoid(update - 1.0)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        return update * candidate + (1.0 - update) * deter


class Posterior(nn.Module):
    """From state and tokens of an observation to the logits of the latents."""

    def __init__(self, rng: np.random.Generator, deter: int, tokens: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.from_deter = nn.Parameter(truncated_normal(rng, (deter, hidden), deter + tokens))
        self.from_tokens = nn.Parameter(truncated_normal(rng, (tokens, hidden), deter + tokens))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.norm = Norm(hidden)
        self.output = dense(rng, hidden, outputs)

    def forward(self, deter: Tensor, token_part: Tensor) -> Tensor:
        return self.output(self.norm(torch.addmm(token_part, deter, self.from_deter)))


# -- distributions ----------------------------------------------------------------------------------------------------


def mixed(logits: Tensor, unimix: float) -> Tensor:
    """Log-probabilities with a share of a uniform distribution mixed in."""
    return torch.log((1.0 - unimix) * F.softmax(logits, dim=-1) + unimix / logits.shape[-1])


def sample(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """One-hot samples by the inverse of the cumulative distribution; their gradient is that of the probabilities."""
    probs = logprobs.exp()
    index = (probs.detach()[..., :-1].cumsum(-1) < uniform[..., None]).sum(-1)
    one_hot = F.one_hot(index, probs.shape[-1]).to(probs.dtype)
    return one_hot + (probs - probs.detach()) if probs.requires_grad else one_hot


def divergence(logprobs: Tensor, other: Tensor) -> Tensor:
    return (logprobs.exp() * (logprobs - other)).sum((-2, -1))


def symlog(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.log1p(torch.abs(x))


def symexp_bins(count: int) -> Tensor:
    """Bins, dense around 0 and exactly antisymmetric, so that equal probabilities mean exactly 0."""
    exponents = np.linspace(-20.0, 20.0, count)[: count // 2]
    lower = np.sign(exponents) * np.expm1(np.abs(exponents))
    return torch.from_numpy(np.concatenate([lower, np.zeros(count % 2), -lower[::-1]])).float()


def two_hot_loss(logprobs: Tensor, values: Tensor, bins: Tensor) -> Tensor:
    """Cross-entropy towards the weights of the two bins around each value."""
    inside = values.detach().clamp(bins[0], bins[-1])
    upper = torch.searchsorted(bins, inside.contiguous()).clamp(1, len(bins) - 1)
    lower = upper - 1
    below, above = bins[lower], bins[upper]
    share = (inside - below) / (above - below)
    low = logprobs.gather(-1, lower[..., None]).squeeze(-1)
    high = logprobs.gather(-1, upper[..., None]).squeeze(-1)
    return -((1.0 - share) * low + share * high)


def two_hot_mean(logprobs: Tensor, bins: Tensor) -> Tensor:
    probs, half = logprobs.exp(), len(bins) // 2
    return (probs[..., -half:] - probs[..., :half].flip(-1)) @ bins[-half:]


# -- the world model --------------------------------------------------------------------------------------------------


class Dynamics(nn.Module):
    """Recurrent state-space model: a deterministic state and categorical latents."""

    def __init__(self, rng: np.random.Generator, tokens: int, s: Settings) -> None:
        super().__init__()
        self.s, size = s, s.latents * s.classes
        self.core = Core(rng, s.deter, s.units, size)
        self.prior_head = Network(rng, s.deter, s.units, 2, size)
        self.posterior_head = Posterior(rng, s.deter, tokens, s.units, size)

    def belief(self, outputs: Tensor) -> Tensor:
        return mixed(outputs.unflatten(-1, (self.s.latents, self.s.classes)), self.s.unimix)

    def predict(self, deter: Tensor, latent: Tensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """One step without an observation."""
        deter = self.core(deter, latent, self.core.action_part(action))
        return deter, sample(self.belief(self.prior_head(deter)), noise).flatten(-2)

    def observe(self, start: tuple[Tensor, Tensor], actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor):
        """States (T, B, ...) after each observation, with the beliefs after and before seeing it."""
        keep = (1.0 - is_first)[..., None]
        action_parts = self.core.action_part(actions * keep)
        token_parts = tokens @ self.posterior_head.from_tokens + self.posterior_head.bias
        deter, latent = start
        deters, latents, beliefs = [], [], []
        for t in range(len(tokens)):
            deter = self.core(deter * keep[t], latent * keep[t], action_parts[t])
            beliefs.append(self.belief(self.posterior_head(deter, token_parts[t])))
            latent = sample(beliefs[-1], noise[t]).flatten(-2)
            deters.append(deter)
            latents.append(latent)
        together = torch.stack(deters)
        return together, torch.stack(latents), torch.stack(beliefs), self.belief(self.prior_head(together))


class Model(nn.Module):
    """Encoder, dynamics, decoder, reward and continue heads."""

    def __init__(self, rng: np.random.Generator, obs_size: int, s: Settings) -> None:
        super().__init__()
        features = s.deter + s.latents * s.classes
        self.encoder = Network(rng, obs_size, s.units, LAYERS)
        self.dynamics = Dynamics(rng, s.units, s)
        self.decoder = Network(rng, features, s.units, LAYERS, obs_size)
        self.reward = Network(rng, features, s.units, 1, s.bins, 0.0)
        self.goes_on = Network(rng, features, s.units, 1, 1)


# -- replay -----------------------------------------------------------------------------------------------------------


class Replay:
    """All transitions in the order of time, with the state that the agent had at each; none is overwritten here."""

    def __init__(self, s: Settings, obs_size: int, rng: np.random.Generator) -> None:
        size = s.buffer_size
        self.columns = {
            "obs": np.zeros((size, obs_size), np.float32),
            "next_obs": np.zeros((size, obs_size), np.float32),
            "actions": np.zeros(size, np.int64),
            "rewards": np.zeros(size, np.float32),
            "terminated": np.zeros(size, bool),
            "deter": np.zeros((size, s.deter), np.float32),
            "stoch": np.zeros((size, s.latents), np.uint8),
        }
        self.s, self.size, self.rng = s, 0, rng

    def add(self, **rows: np.ndarray) -> None:
        for name, column in self.columns.items():
            column[self.size : self.size + self.s.num_envs] = rows[name]
        self.size += self.s.num_envs
        assert self.size <= self.s.buffer_size

    def __len__(self) -> int:
        return max(self.size - (self.s.sequence_length - 1) * self.s.num_envs, 0)

    def sample(self) -> dict[str, np.ndarray]:
        """Sequences as arrivals (T, B, ...): an observation, with the reward and the end that came with it and the
        action that led there. A row that starts an episode gives two: its own observation, then its next one."""
        starts = self.rng.integers(len(self), size=self.s.batch_size)
        length = self.s.sequence_length
        numbers = starts[:, None] + self.s.num_envs * np.arange(length)
        found = {name: column[numbers] for name, column in self.columns.items()}
        first = self.columns["terminated"][numbers - self.s.num_envs] | (numbers < self.s.num_envs)
        ends = np.cumsum(1 + first.astype(np.int64), axis=1)
        time, batch = np.arange(length), np.arange(self.s.batch_size)[:, None]
        row = (ends[:, None, :] <= time[:, None]).sum(2)
        reset = first[batch, row] & (time == ends[batch, row] - 2)
        obs = np.where(reset[..., None], found["obs"][batch, row], found["next_obs"][batch, row])
        steps = {
            "obs": obs,
            "actions": found["actions"][batch, row],
            "rewards": np.where(reset, np.float32(0), found["rewards"][batch, row]),
            "is_first": reset.astype(np.float32),
            "is_terminal": (found["terminated"][batch, row] & ~reset).astype(np.float32),
        }
        steps = {name: np.ascontiguousarray(value.swapaxes(0, 1)) for name, value in steps.items()}
        return {**steps, "deter": found["deter"][:, 0], "stoch": found["stoch"][:, 0]}


# -- acting, in NumPy: much faster than torch for a handful of rows ---------------------------------------------------


def array(parameter: Tensor) -> np.ndarray:
    return parameter.detach().numpy()


def np_norm(norm: Norm, x: np.ndarray) -> np.ndarray:
    scale = array(norm.scale)
    mean_square = np.einsum("ni,ni->n", x, x) / np.float32(len(scale)) + np.float32(RMS_EPS)
    normed = x * (1.0 / np.sqrt(mean_square))[:, None] * scale
    return normed / (1.0 + np.exp(-normed))


def np_layer(layer: Layer, x: np.ndarray) -> np.ndarray:
    return np_norm(layer.norm, x @ array(layer.linear.weight).T + array(layer.linear.bias))


def np_network(network: Network, x: np.ndarray) -> np.ndarray:
    for layer in network.layers:
        x = np_layer(layer, x)
    if isinstance(network.output, nn.Linear):
        x = x @ array(network.output.weight).T + array(network.output.bias)
    return x


def np_classes(logits: np.ndarray, unimix: float, uniform: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    probs = exponents / exponents.sum(-1, keepdims=True)
    probs = (1.0 - unimix) * probs + np.float32(unimix / logits.shape[-1])
    return (np.cumsum(probs[..., :-1], -1) < uniform[..., None]).sum(-1)


def np_sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


class Agent:
    """Follows the state of the model and draws actions from the policy."""

    def __init__(self, model: Model, actor: Network, s: Settings) -> None:
        self.model, self.actor, self.s = model, actor, s
        self.deter = np.zeros((s.num_envs, s.deter), np.float32)
        self.stoch = np.zeros((s.num_envs, s.latents), np.uint8)
        self.action = np.zeros((s.num_envs, ACTIONS), np.float32)

    def act(self, obs: np.ndarray, is_first: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        s, count = self.s, len(obs)
        noise = rng.random((count, s.latents), dtype=np.float32)
        action_noise = rng.random((count,), dtype=np.float32)
        keep = (~is_first[:, None]).astype(np.float32)
        deter = self.core(self.deter * keep, self.stoch, self.action * keep, keep)
        tokens = np_network(self.model.encoder, np.sign(obs) * np.log1p(np.abs(obs)))
        head = self.model.dynamics.posterior_head
        inside = tokens @ array(head.from_tokens) + array(head.bias) + deter @ array(head.from_deter)
        hidden = np_norm(head.norm, inside)
        logits = hidden @ array(head.output.weight).T + array(head.output.bias)
        classes = np_classes(logits.reshape(count, s.latents, s.classes), s.unimix, noise)
        one_hot = np.zeros((count, s.latents * s.classes), np.float32)
        np.put_along_axis(one_hot, classes + s.classes * np.arange(s.latents), 1.0, axis=1)
        outputs = np_network(self.actor, np.concatenate([deter, one_hot], axis=1))
        actions = np_classes(outputs, s.unimix, action_noise)
        self.deter, self.stoch = deter, classes.astype(np.uint8)
        self.action = np.eye(ACTIONS, dtype=np.float32)[actions]
        return self.action.argmax(-1)

    def core(self, deter: np.ndarray, classes: np.ndarray, action: np.ndarray, keep: np.ndarray) -> np.ndarray:
        core, s = self.model.dynamics.core, self.s
        rows = array(core.from_latent.linear.weight).T
        latent = rows.take(classes + s.classes * np.arange(s.latents), axis=0).sum(1) * keep
        latent = np_norm(core.from_latent.norm, latent + array(core.from_latent.linear.bias))
        bounded = action / np.maximum(np.abs(action), 1.0)
        inputs = [np_layer(core.from_deter, deter), latent, np_layer(core.from_action, bounded)]
        inside = (
            np.concatenate(inputs, axis=1) @ array(core.shared) + array(core.bias) + deter @ array(core.recurrent)[0]
        )
        gates = np_norm(core.norm, inside) @ array(core.gates.weight)[0] + array(core.gates.bias)
        reset, candidate, update = (part.reshape(len(deter), -1) for part in np.split(gates, 3, axis=1))
        update = np_sigmoid(update - 1.0)
        return update * np.tanh(np_sigmoid(reset) * candidate) + (1.0 - update) * deter


# -- learning ---------------------------------------------------------------------------------------------------------


class LaProp:
    """Adaptive gradient clipping, division by the root mean square, then momentum; on one flat vector."""

    def __init__(self, module: nn.Module, agc: float) -> None:
        self.tensors, self.agc, self.steps = list(module.parameters()), agc, 0
        self.values = torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors])
        self.grad = torch.zeros_like(self.values)
        offset = 0
        for tensor in self.tensors:
            where = slice(offset, offset + tensor.numel())
            tensor.data, tensor.grad = self.values[where].view(tensor.shape), self.grad[where].view(tensor.shape)
            offset = where.stop
        self.square, self.momentum = torch.zeros_like(self.values), torch.zeros_like(self.values)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        self.steps += 1
        limits = torch.stack(torch._foreach_norm([tensor.detach() for tensor in self.tensors])).clamp_(min=1e-3)
        norms = torch.stack(torch._foreach_norm([tensor.grad for tensor in self.tensors]))
        scales = 1.0 / (norms / limits.mul_(self.agc)).clamp_(min=1.0)
        for tensor, scale in zip(self.tensors, scales, strict=True):
            tensor.grad.mul_(scale)
        self.square.mul_(0.999).addcmul_(self.grad, self.grad, value=1.0 - 0.999)
        root = (self.square / (1.0 - 0.999**self.steps)).sqrt_().add_(1e-20)
        self.momentum.lerp_(self.grad / root, 1.0 - 0.9)
        self.values.add_(self.momentum, alpha=-learning_rate / (1.0 - 0.9**self.steps))


class Learner:
    """World model, actor and critic under one optimiser."""

    def __init__(self, obs_size: int, s: Settings) -> None:
        rng, features = stream(s.seed, "init"), s.deter + s.latents * s.classes
        self.s, self.rng = s, stream(s.seed, "learning")
        self.model = Model(rng, obs_size, s)
        self.actor = Network(rng, features, s.units, LAYERS, ACTIONS, 0.01)
        self.critic = Network(rng, features, s.units, LAYERS, s.bins, 0.0)
        networks = nn.ModuleDict({"model": self.model, "actor": self.actor, "critic": self.critic})
        self.optimizer = LaProp(networks, s.agc)
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.bins, self.discount = symexp_bins(s.bins), 1.0 - 1.0 / s.horizon
        self.low, self.high, self.updates = 0.0, 0.0, 0

    def uniform(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.random(shape, dtype=np.float32))

    def update(self, batch: dict[str, np.ndarray]) -> None:
        s, dynamics = self.s, self.model.dynamics
        steps = {name: torch.from_numpy(value) for name, value in batch.items()}
        vectors, shape = symlog(steps["obs"].flatten(0, 1)), steps["rewards"].shape
        start = steps["deter"], F.one_hot(steps["stoch"].long(), s.classes).flatten(-2).float()
        actions = F.one_hot(steps["actions"], ACTIONS).float()
        tokens, noise = self.model.encoder(vectors).view(*shape, -1), self.uniform(*shape, s.latents)
        deter, latent, posterior, prior = dynamics.observe(start, actions, tokens, steps["is_first"], noise)
        features = torch.cat([deter, latent], dim=-1)
        losses = self.model_losses(features, vectors, steps, posterior, prior)

        last = slice(-s.imagine_last, None)
        roots = deter[last].detach().flatten(0, 1), latent[last].detach().flatten(0, 1)
        behaviour, bootstrap = self.behaviour_losses(*self.imagine(*roots))
        recent = {name: steps[name][last] for name in ("rewards", "is_terminal")}
        replayed = self.replay_loss(torch.cat([deter[last], latent[last]], dim=-1), recent, bootstrap)
        total = torch.stack([*losses, *behaviour, s.replay_critic * replayed]).sum()
        self.optimizer.grad.zero_()
        total.backward()
        self.optimizer.step(s.learning_rate * min(1.0, self.updates / s.warmup_updates))
        self.updates += 1
        with torch.no_grad():
            for online, lagging in zip(self.critic.parameters(), self.slow_critic.parameters(), strict=True):
                lagging.data.lerp_(online.data, s.slow_rate)

    def model_losses(
        self, features: Tensor, vectors: Tensor, steps: dict[str, Tensor], posterior, prior
    ) -> list[Tensor]:
        """Reconstruction, reward, continue, and the divergence of posterior and prior in both directions."""
        s, shape = self.s, features.shape[:2]
        moves_prior = divergence(posterior.detach(), prior).clamp(min=s.free_nats)
        moves_posterior = divergence(posterior, prior.detach()).clamp(min=s.free_nats)
        predicted = F.log_softmax(self.model.reward(features), dim=-1)
        errors = (self.model.decoder(features.flatten(0, 1)) - vectors).square().sum(1).view(shape)
        reward = two_hot_loss(predicted, steps["rewards"], self.bins)
        target = (1.0 - steps["is_terminal"]) * self.discount
        goes_on = self.model.goes_on(features).squeeze(-1)
        ends = F.binary_cross_entropy_with_logits(goes_on, target, reduction="none")
        losses = (errors, 1.0 * reward, ends, s.kl_dynamics * moves_prior, s.kl_representation * moves_posterior)
        ones = torch.ones(shape)
        return [(loss * ones).sum() / ones.sum() for loss in losses]

    @torch.no_grad()
    def imagine(self, deter: Tensor, latent: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Follow the policy through the model: features, actions, rewards and discounts of arriving."""
        s, count = self.s, len(deter)
        features, actions = [torch.cat([deter, latent], dim=-1)], []
        for _ in range(s.imagine_horizon):
            outputs = self.actor(features[-1])
            actions.append(sample(mixed(outputs, s.unimix), self.uniform(count)))
            deter, latent = self.model.dynamics.predict(deter, latent, actions[-1], self.uniform(count, s.latents))
            features.append(torch.cat([deter, latent], dim=-1))
        read = torch.stack(features)
        rewards = two_hot_mean(F.log_softmax(self.model.reward(read), dim=-1), self.bins)
        return read, torch.stack(actions), rewards, torch.sigmoid(self.model.goes_on(read).squeeze(-1))

    def behaviour_losses(self, features: Tensor, actions: Tensor, rewards: Tensor, discounts: Tensor):
        """REINFORCE with normalised advantages, and the value loss; also the returns of the first states."""
        s, bins = self.s, self.bins
        logprobs = F.log_softmax(self.critic(features), dim=-1)
        slow = two_hot_mean(F.log_softmax(self.slow_critic(features), dim=-1), bins)
        with torch.no_grad():
            values = two_hot_mean(logprobs, bins)
            following, found = values[-1], []
            for t in range(len(rewards) - 1, 0, -1):
                mixture = (1.0 - s.return_lambda) * values[t] + s.return_lambda * following
                following = rewards[t] + discounts[t] * mixture
                found.append(following)
            returns = torch.stack(found[::-1])
        weights = torch.cumprod(discounts, dim=0)[:-1]
        scale = self.scale(returns.numpy())
        policy = mixed(self.actor(features[:-1]), s.unimix)
        chosen, entropy = (policy * actions).sum(-1), -(policy.exp() * policy).sum(-1)
        actor = -(chosen * ((returns - values[:-1]) / scale) + s.ent_coef * entropy)
        value = two_hot_loss(logprobs[:-1], returns, bins) + 1.0 * two_hot_loss(logprobs[:-1], slow[:-1], bins)
        count = weights.numel()
        return [(weights * actor).sum() / count, (weights * value).sum() / count], returns[0]

    def scale(self, returns: np.ndarray) -> float:
        """Range of the returns from their 5th to their 95th percentile, smoothed, at least 1."""
        low, high = np.percentile(np.asarray(returns, np.float64), [5.0, 95.0])
        self.low += 0.01 * (float(low) - self.low)
        self.high += 0.01 * (float(high) - self.high)
        return max(1.0, (self.high - self.low) / (1.0 - (1.0 - 0.01) ** (self.updates + 1)))

    def replay_loss(self, features: Tensor, steps: dict[str, Tensor], bootstrap: Tensor) -> Tensor:
        """Value loss on replayed rewards, bootstrapped with imagined returns; its gradient reaches the model."""
        s, bins = self.s, self.bins
        bootstrap = bootstrap.view(features.shape[:2])
        following, found = bootstrap[-1], []
        for t in range(len(bootstrap) - 1, 0, -1):
            share = s.return_lambda * (1.0 - steps["is_terminal"][t])  # Catch has no time limit: an end terminates
            mixture = (1.0 - share) * bootstrap[t] + share * following
            following = steps["rewards"][t] + self.discount * (1.0 - steps["is_terminal"][t]) * mixture
            found.append(following)
        returns = torch.stack(found[::-1])
        logprobs = F.log_softmax(self.critic(features[:-1]), dim=-1)
        with torch.no_grad():
            slow = two_hot_mean(F.log_softmax(self.slow_critic(features[:-1]), dim=-1), bins)
        loss = two_hot_loss(logprobs, returns, bins) + 1.0 * two_hot_loss(logprobs, slow, bins)
        return ((1.0 - steps["is_terminal"][:-1]) * loss).mean()


# -- the loop ---------------------------------------------------------------------------------------------------------


def train(s: Settings) -> Learner:
    torch.set_num_threads(1)
    envs, resets = [Catch() for _ in range(s.num_envs)], [1] * s.num_envs
    obs = np.stack([env.reset(seed=reset_seed(s.seed, i, 0))[0] for i, env in enumerate(envs)])
    learner = Learner(obs.shape[1], s)
    agent = Agent(learner.model, learner.actor, s)
    replay, acting = Replay(s, obs.shape[1], stream(s.seed, "buffer")), stream(s.seed, "actions")
    is_first, finished, env_steps = np.ones(s.num_envs, bool), [], 0
    per_step = s.train_ratio / (s.batch_size * s.sequence_length)

    def updates_done(env_steps: int) -> int:
        return math.floor(max(env_steps - s.learning_starts, 0) * per_step)

    while env_steps < s.total_timesteps:
        actions = agent.act(obs, is_first, acting)
        results = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        next_obs, rewards, ended = (np.stack([result[i] for result in results]) for i in range(3))
        replay.add(
            obs=obs, actions=actions, rewards=rewards, next_obs=next_obs, terminated=ended,
            deter=agent.deter, stoch=agent.stoch,
        )  # fmt: skip
        obs, is_first = next_obs.copy(), ended
        for i in np.flatnonzero(ended):
            finished.append(float(rewards[i]))
            obs[i] = envs[i].reset(seed=reset_seed(s.seed, int(i), resets[i]))[0]
            resets[i] += 1
        before, env_steps = env_steps, env_steps + s.num_envs
        for _ in range(updates_done(env_steps) - updates_done(before)):
            if len(replay):
                learner.update(replay.sample())
        if env_steps // 1_000 > before // 1_000:
            print(f"env_steps {env_steps:>6}  return {np.mean(finished[-100:]):.2f}", flush=True)
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=Settings.total_timesteps)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--save", help="write the final weights of model and actor to this .npz file")
    options = parser.parse_args()
    learner = train(Settings(seed=options.seed, total_timesteps=options.total_timesteps))
    if options.save:
        weights = [*learner.model.parameters(), *learner.actor.parameters()]
        np.savez(options.save, **{str(i): weight.detach().numpy() for i, weight in enumerate(weights)})


if __name__ == "__main__":
    main()
