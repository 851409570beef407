"""Small systems whose true model is known, and the shortest training loops for latent dynamics and for ensembles."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.dynamics import Dynamics, State
from rl_training.dynamics.base import rows_of
from rl_training.dynamics.ensemble import Ensemble, EnsembleRows
from rl_training.models.world_models.layers import NormedMLP
from rl_training.types import Array

DECAY, PUSH, NOISE = 0.9, 0.5, 0.5
"""The chain: x' = 0.9 x + 0.5 a + 0.5 e, with standard normal e."""
PRECISION = 0.1
"""Standard deviation of what latent models observe: small against the noise of the systems."""


class Trajectories(NamedTuple):
    """Observations (T, B, n) and the actions (T, B, A) that led to them."""

    obs: Array
    actions: Array


System = Callable[[np.random.Generator, int, int], Trajectories]
"""(generator, length, rows) -> trajectories."""


def chain(rng: np.random.Generator, length: int, rows: int) -> Trajectories:
    """A linear-Gaussian chain under random actions, started in its own spread."""
    obs, actions = np.zeros((length, rows, 1), np.float32), rng.uniform(-1, 1, (length, rows, 1)).astype(np.float32)
    obs[0] = rng.standard_normal((rows, 1))
    for t in range(1, length):
        obs[t] = DECAY * obs[t - 1] + PUSH * actions[t] + NOISE * rng.standard_normal((rows, 1))
    return Trajectories(obs, actions)


def fork(rng: np.random.Generator, length: int, rows: int) -> Trajectories:
    """0 at first, then +1 or -1 with probability one half, for ever."""
    side = np.where(rng.random((rows, 1)) < 0.5, 1.0, -1.0)
    obs = np.broadcast_to(side, (length, rows, 1)).astype(np.float32).copy()
    obs[0] = 0.0
    return Trajectories(obs, np.zeros((length, rows, 1), np.float32))


class LatentLearner:
    """Latent dynamics with a decoder, trained on the evidence lower bound with observation noise `PRECISION`."""

    def __init__(self, dynamics: Dynamics, seed: int, learning_rate: float = 3e-3) -> None:
        self.dynamics = dynamics
        self.decoder = NormedMLP(np.random.default_rng(seed), dynamics.features, 32, 1, 1)
        self.rng = np.random.default_rng(seed)
        self.optimizer = torch.optim.Adam(nn.ModuleList([dynamics, self.decoder]).parameters(), learning_rate)

    def uniform(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.random(shape, np.float32))

    def observe(self, data: Trajectories) -> tuple[State, Tensor]:
        """States (T, B, ...) and divergences (T, B)."""
        obs, actions = torch.from_numpy(data.obs), torch.from_numpy(data.actions)
        length, rows = obs.shape[:2]
        is_first = torch.zeros(length, rows)
        is_first[0] = 1.0
        noise = self.uniform(length, rows, self.dynamics.noise_size)
        seen = self.dynamics.observe(self.dynamics.initial(rows), actions, obs, is_first, noise)
        return seen.states, self.dynamics.divergence(seen.posterior, seen.prior)

    def learn(self, data: Trajectories) -> float:
        """One step; returns the loss per step of a sequence, in nats up to a constant."""
        states, divergence = self.observe(data)
        obs = torch.from_numpy(data.obs)
        loss = self.error(states, obs).mean() + divergence.mean()
        for k in range(1, self.dynamics.open_loop + 1):  # dynamics that no divergence teaches learn by predicting
            if k >= len(obs):
                break
            states = self.ahead({name: value[:-1] for name, value in states.items()}, data.actions[k:])
            loss = loss + self.error(states, obs[k:]).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def ahead(self, states: State, actions: Array) -> State:
        """States (T, B, ...) one step later, each on its own."""
        moved = self.dynamics.predict(rows_of(states), torch.from_numpy(actions).flatten(0, 1))
        return {name: value.unflatten(0, actions.shape[:2]) for name, value in moved.items()}

    def error(self, states: State, obs: Tensor) -> Tensor:
        decoded = self.decoder(self.dynamics.read(states))
        return 0.5 * ((decoded - obs) / PRECISION).square().sum(-1)

    @torch.no_grad()
    def samples(self, data: Trajectories, start: int, count: int, *, noise_of_sight: bool = True) -> Array:
        """Predictions (K, B, count) of the steps after `start`, which is the last one that the model sees; with the
        noise that observations have for the model, or without."""
        each = Trajectories(*(np.repeat(column, count, axis=1) for column in data))  # also of what was seen
        states, _ = self.observe(Trajectories(each.obs[: start + 1], each.actions[: start + 1]))
        rows = {name: value[-1] for name, value in states.items()}
        actions = torch.from_numpy(each.actions[start + 1 :])
        noise = self.uniform(len(actions), actions.shape[1], self.dynamics.noise_size)
        imagined = self.dynamics.imagine(rows, actions, noise)
        decoded: Array = self.decoder(self.dynamics.read(imagined)).view(len(actions), -1, count).numpy()
        return decoded + PRECISION * self.rng.standard_normal(decoded.shape) if noise_of_sight else decoded


class EnsembleLearner:
    """An ensemble, trained on the likelihood of single transitions."""

    def __init__(self, ensemble: Ensemble, seed: int, learning_rate: float = 1e-3) -> None:
        self.ensemble = ensemble
        self.rng = np.random.default_rng(seed)
        self.optimizer = torch.optim.Adam(ensemble.parameters(), learning_rate)

    def learn(self, data: Trajectories) -> None:
        """One step on as many transitions as members divide."""
        members = self.ensemble.members
        columns = (data.obs[:-1], data.actions[1:], data.obs[1:])
        obs, actions, next_obs = (torch.from_numpy(column).flatten(0, 1) for column in columns)
        rows = len(obs) // members
        split = [values[: members * rows].view(members, rows, -1) for values in (obs, actions, next_obs)]
        none = torch.zeros(members, rows)
        given = EnsembleRows(split[0], split[1], none, split[2], none)
        self.ensemble.update_scales(given)
        losses = self.ensemble.losses(given)
        self.optimizer.zero_grad()
        (losses["nll"] + losses["end"] + losses["bounds"]).backward()
        self.optimizer.step()

    @torch.no_grad()
    def samples(self, data: Trajectories, start: int, count: int) -> Array:
        """Predictions (K, B, count) of the steps after `start`."""
        obs = torch.from_numpy(data.obs[start]).repeat_interleave(count, 0)
        state = {**self.ensemble.initial(len(obs)), "obs": obs}
        actions = torch.from_numpy(data.actions[start + 1 :]).repeat_interleave(count, 1)
        noise = torch.from_numpy(self.rng.random((len(actions), len(obs), self.ensemble.noise_size), np.float32))
        imagined = self.ensemble.imagine(state, actions, noise)["obs"]
        return imagined.view(len(actions), -1, count).numpy()


def trained(learner: LatentLearner | EnsembleLearner, system: System, updates: int, length: int) -> None:
    """Updates on fresh trajectories; the step size falls to 0 over the second half."""
    rng = np.random.default_rng(1)
    first = learner.optimizer.param_groups[0]["lr"]
    for update in range(updates):
        learner.optimizer.param_groups[0]["lr"] = first * min(1.0, 2.0 * (1.0 - update / updates))
        learner.learn(system(rng, length, 64))


def true_samples(data: Trajectories, start: int, count: int, rng: np.random.Generator) -> Array:
    """The same by the true chain."""
    x = np.repeat(data.obs[start], count, axis=1)
    found = []
    for actions in data.actions[start + 1 :]:
        x = DECAY * x + PUSH * actions + NOISE * rng.standard_normal(x.shape)
        found.append(x)
    return np.stack(found)
