"""Ensemble of probabilistic networks on observed vectors: the dynamics of PETS and MBPO.

The state is the observation itself. E networks each predict a Gaussian of the change of the observation and of the
reward, and the probability that the episode terminates (Chua et al. 2018, arXiv:1805.12114; Janner et al. 2019,
arXiv:1906.08253). Inputs and targets are standardised by running statistics, which are part of the model. The networks
disagree where there is little data, so a plan that passes over all of them does not trust one network's error.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.dynamics.base import Belief, Dynamics, Observed, State, standard_normal
from rl_training.hparams.world_models import check_sizes
from rl_training.models.critics import EnsembleLinear

BOUND_WEIGHT = 0.01
"""Weight of the learnt bounds of the log-variance in the loss, as in PETS."""
SMALLEST_STD = 1e-6
"""Standard deviations below this count as 1: a constant input stays as it is."""


class EnsembleRows(NamedTuple):
    """Transitions for every member: (E, B, ...) each."""

    obs: Tensor
    actions: Tensor
    rewards: Tensor
    next_obs: Tensor
    terminated: Tensor


class Draws(NamedTuple):
    """Noise of one step: normal numbers (..., n + 1) for observation and reward, uniform ones (...) for the end."""

    normal: Tensor
    uniform: Tensor


class Scales(NamedTuple):
    """Means and standard deviations of the inputs, and of the changes and rewards that are predicted."""

    inputs: tuple[Tensor, Tensor]
    targets: tuple[Tensor, Tensor]


class Standardizer(nn.Module):
    """Running mean and standard deviation of vectors, as buffers: saved with the model, moved by `update` alone."""

    count: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(size, dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Add rows (B, size), by Welford's method for batches."""
        rows = rows.to(torch.float64)
        total, delta = self.count + len(rows), rows.mean(0) - self.mean
        self.square += (rows - rows.mean(0)).square().sum(0) + delta.square() * self.count * len(rows) / total
        self.mean += delta * len(rows) / total
        self.count.copy_(total)

    def numbers(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation in float32."""
        std = (self.square / self.count.clamp(min=1.0)).sqrt()
        return self.mean.to(torch.float32), torch.where(std > SMALLEST_STD, std, 1.0).to(torch.float32)


class Ensemble(Dynamics):
    """State {"obs", "reward", "terminated"}; every prediction of a row is made by one member.

    `tokens` are the observations, vectors; `correct` takes them over as they are.
    """

    def __init__(
        self,
        tokens: int,
        actions: int,
        rng: np.random.Generator,
        *,
        members: int = 5,
        hidden: int = 128,
        layers: int = 3,
    ) -> None:
        super().__init__()
        check_sizes(members=members, hidden=hidden, layers=layers)
        self.members, self.size = members, tokens
        self.features = tokens
        self.noise_size = tokens + 3
        """Columns: next observation, reward, termination, and which member predicts."""
        number = np.dtype(np.float32)
        self.state_spec = {"obs": ((tokens,), number), "reward": ((), number), "terminated": ((), number)}
        sizes = [tokens + actions, *[hidden] * layers]
        self.layers = nn.ModuleList(
            EnsembleLinear(rng, (members, *pair), kind="lecun", gain=1.0) for pair in itertools.pairwise(sizes)
        )
        outputs = tokens + 1
        self.output = EnsembleLinear(rng, (members, hidden, 2 * outputs + 1), kind="lecun", gain=1.0)
        self.lowest = nn.Parameter(torch.full((outputs,), -10.0))
        self.highest = nn.Parameter(torch.full((outputs,), 0.5))
        self.inputs_scale = Standardizer(tokens + actions)
        self.targets_scale = Standardizer(outputs)

    # -- one step of every member -------------------------------------------------------------------------------------

    def scales(self) -> Scales:
        """The running statistics as they are now; a rollout asks once."""
        return Scales(self.inputs_scale.numbers(), self.targets_scale.numbers())

    def draws_of(self, noise: Tensor) -> Draws:
        """Uniform `noise` (..., n + 2) in the form that `step` takes."""
        return Draws(standard_normal(noise[..., : self.size + 1]), noise[..., self.size + 1])

    def forward(self, obs: Tensor, actions: Tensor, scales: Scales | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows (E, B, ...), each block for its own member: mean and log-variance (E, B, n + 1) of the standardised
        change and reward, and the logit (E, B) that the episode terminates."""
        mean, std = (scales or self.scales()).inputs
        x = (torch.cat([obs, actions], dim=-1) - mean) / std
        for layer in self.layers:
            x = F.silu(layer(x))
        outputs = self.output(x)
        size = self.size + 1
        raw = outputs[..., size : 2 * size]
        bounded = self.highest - F.softplus(self.highest - raw)
        return outputs[..., :size], self.lowest + F.softplus(bounded - self.lowest), outputs[..., -1]

    def step(self, obs: Tensor, actions: Tensor, draws: Draws | None, scales: Scales | None = None) -> State:
        """The next state of rows (E, B, ...), each block by its own member; without `draws` the most likely one."""
        scales = scales or self.scales()
        mean, log_variance, logit = self(obs, actions, scales)
        ended = torch.sigmoid(logit)
        if draws is None:
            terminated = ended > 0.5
        else:
            mean = mean + (0.5 * log_variance).exp() * draws.normal
            terminated = draws.uniform < ended
        centre, scale = scales.targets
        change = mean * scale + centre
        return {
            "obs": obs + change[..., : self.size],
            "reward": change[..., self.size],
            "terminated": terminated.to(torch.float32),
        }

    def next_distribution(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (E, B, n + 1) of next observation and reward by every member, in their units."""
        expand = (self.members, *[-1] * obs.dim())
        mean, log_variance, _ = self(obs.expand(*expand), actions.expand(*expand))
        centre, scale = self.targets_scale.numbers()
        origin = F.pad(obs, (0, 1))
        return origin + mean * scale + centre, (0.5 * log_variance).exp() * scale

    # -- the contract -------------------------------------------------------------------------------------------------

    def prior(self, state: State, actions: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        """Each row goes to one member, chosen by the order of the rows' last number of noise: every member gets the
        same number of rows. Without noise the members' most likely outcomes are averaged."""
        obs, rows = state["obs"], len(actions)
        if noise is None:
            every = (self.members, rows, -1)
            outcome = self.step(obs.expand(*every), actions.expand(*every), None)
            return {name: value.mean(0) for name, value in outcome.items()}, {}
        order = torch.argsort(noise[:, -1], stable=True)
        missing = -rows % self.members
        order = torch.cat([order, order[:1].expand(missing)])

        def by_member(values: Tensor) -> Tensor:
            return values[order].view(self.members, -1, values.shape[-1])

        outcome = self.step(by_member(obs), by_member(actions), self.draws_of(by_member(noise[:, :-1])))
        back = torch.argsort(order[:rows], stable=True)
        return {name: value.flatten(0, 1)[:rows][back] for name, value in outcome.items()}, {}

    def posterior(
        self, state: State, actions: Tensor, tokens: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief, Belief]:
        none = torch.zeros(len(tokens), dtype=tokens.dtype, device=tokens.device)
        return {"obs": tokens, "reward": none, "terminated": none}, {}, {}

    def observe(
        self, state: State, actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor | None = None
    ) -> Observed:
        none = torch.zeros(tokens.shape[:2], dtype=tokens.dtype, device=tokens.device)
        return Observed({"obs": tokens, "reward": none, "terminated": none}, {}, {})

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return torch.zeros((), device=self.lowest.device)

    def read(self, state: State) -> Tensor:
        return state["obs"]

    # -- learning -----------------------------------------------------------------------------------------------------

    def update_scales(self, rows: EnsembleRows) -> None:
        """Move the running statistics of inputs and targets."""
        self.inputs_scale.update(torch.cat([rows.obs, rows.actions], dim=-1).flatten(0, 1))
        self.targets_scale.update(self.targets_of(rows).flatten(0, 1))

    def targets_of(self, rows: EnsembleRows) -> Tensor:
        """Change of the observation and reward (E, B, n + 1), in their units."""
        return torch.cat([rows.next_obs - rows.obs, rows.rewards[..., None]], dim=-1)

    def losses(self, rows: EnsembleRows) -> dict[str, Tensor]:
        """Scalars `nll` (Gaussian, standardised, without its constant), `end` (cross-entropy of termination) and
        `bounds`, summed over members; `error` is the mean squared standardised error, for the log."""
        mean, log_variance, logit = self(rows.obs, rows.actions)
        centre, scale = self.targets_scale.numbers()
        targets = (self.targets_of(rows) - centre) / scale
        squared = (mean - targets).square()
        nll = (squared * (-log_variance).exp() + log_variance).mean((1, 2)).sum()
        end = F.binary_cross_entropy_with_logits(logit, rows.terminated, reduction="none").mean(1).sum()
        bounds = BOUND_WEIGHT * (self.highest.sum() - self.lowest.sum())
        return {"nll": nll, "end": end, "bounds": bounds, "error": cast(Tensor, squared.detach().mean())}
