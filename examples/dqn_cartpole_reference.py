"""Double DQN on CartPole-v1 in one file: torch, NumPy and Gymnasium, nothing of this package.

    python examples/dqn_cartpole_reference.py --total-timesteps 40000

It gives the weights of the package's own run bit for bit:

    rl train dqn/cartpole --seed 1 --hparams.kernel reference

(The package's own kernel rounds differently and is faster.) Read it top to bottom: settings, randomness, network,
replay, rewards, acting, loss, the loop.
"""

from __future__ import annotations

import argparse
import copy
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
    """The preset dqn/cartpole."""

    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 50_000
    num_envs: int = 4
    buffer_size: int = 50_000
    learning_rate: tuple[float, float] = (2e-3, 0.0)  # from the first step to the end of the budget
    gamma: float = 0.995
    n_step: int = 5  # rewards that are summed before the target bootstraps
    batch_size: int = 64
    learning_starts: int = 1000  # env steps of random actions
    updates_per_step: float = 1.0
    tau: float = 0.01  # how far the target network follows at each update
    epsilon_start: float = 1.0
    epsilon_end: float = 0.04
    epsilon_steps: int = 8_000
    max_grad_norm: float = 10.0
    adam_eps: float = 1e-8
    hidden: int = 64
    block: int = 64  # steps between two moves of the reward statistics


# -- randomness: one seed, a stream of its own for every purpose ------------------------------------------------------


def stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), 0]))


def reset_seed(seed: int, env_index: int, reset_count: int) -> int:
    """The seed of an environment's reset number `reset_count`."""
    words = np.random.SeedSequence([seed, zlib.crc32(b"reset"), env_index, reset_count + 1]).generate_state(1)
    return int(words[0]) >> 1


# -- network ----------------------------------------------------------------------------------------------------------


def linear(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A layer with orthogonal weights and zero bias."""
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(((q if outputs >= inputs else q.T) * gain).astype(np.float32)))
        layer.bias.zero_()
    return layer


def q_network(rng: np.random.Generator, inputs: int, hidden: int, actions: int) -> nn.Sequential:
    """Values (B, A) of every action."""
    gain = math.sqrt(2.0)
    return nn.Sequential(
        linear(rng, inputs, hidden, gain),
        nn.ReLU(),
        linear(rng, hidden, hidden, gain),
        nn.ReLU(),
        linear(rng, hidden, actions, 1.0),
    )


def values_of(network: nn.Sequential, obs: np.ndarray) -> np.ndarray:
    """The same in NumPy, for acting: much faster than torch for a handful of rows."""
    x = obs
    for i in (0, 2, 4):
        x = x @ network[i].weight.detach().numpy().T + network[i].bias.detach().numpy()
        if i < 4:
            x = np.maximum(x, 0.0)
    return x


# -- replay -----------------------------------------------------------------------------------------------------------


class Replay:
    """The last transitions of N environments in turn, drawn uniformly as windows of up to n steps."""

    def __init__(self, settings: Settings, obs_size: int, rng: np.random.Generator) -> None:
        self.settings, self.rng = settings, rng
        self.capacity, self.num_envs, self.written = settings.buffer_size, settings.num_envs, 0
        self.columns = {
            "obs": np.zeros((self.capacity, obs_size), np.float32),
            "actions": np.zeros(self.capacity, np.int64),
            "rewards": np.zeros(self.capacity, np.float32),
            "next_obs": np.zeros((self.capacity, obs_size), np.float32),
            "terminated": np.zeros(self.capacity, bool),
            "ended": np.zeros(self.capacity, bool),  # terminated or truncated
        }

    def add(self, **rows: np.ndarray) -> None:
        places = np.arange(self.written, self.written + self.num_envs) % self.capacity
        for name, column in self.columns.items():
            column[places] = rows[name]
        self.written += self.num_envs

    def drawable(self) -> np.ndarray:
        """Rows whose window is complete: n steps are there, or the episode ended before."""
        start = max(self.written - self.capacity, 0)
        stop = max(self.written - (self.settings.n_step - 1) * self.num_envs, start)
        recent = np.arange(stop, self.written)
        ended = self.columns["ended"][recent % self.capacity].reshape(-1, self.num_envs)
        closed = np.logical_or.accumulate(ended[::-1])[::-1]
        return np.concatenate([np.arange(start, stop), recent[closed.reshape(-1)]])

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        rows = self.drawable()
        first = rows[self.rng.integers(len(rows), size=batch_size)] % self.capacity
        last, rewards = first, self.columns["rewards"][first].astype(np.float64)
        discounts = np.full(batch_size, self.settings.gamma)
        for _ in range(self.settings.n_step - 1):
            goes_on = ~self.columns["ended"][last]
            last = np.where(goes_on, (last + self.num_envs) % self.capacity, last)
            rewards += np.where(goes_on, discounts * self.columns["rewards"][last], 0.0)
            discounts = np.where(goes_on, self.settings.gamma * discounts, discounts)
        return {
            "obs": self.columns["obs"][first],
            "actions": self.columns["actions"][first],
            "rewards": rewards.astype(np.float32),
            "discounts": discounts.astype(np.float32),
            "next_obs": self.columns["next_obs"][last],
            "terminated": self.columns["terminated"][last].astype(np.float32),
        }


# -- rewards ----------------------------------------------------------------------------------------------------------


class RewardScale:
    """Divides rewards by the standard deviation of the discounted return: the Huber loss then suits any task."""

    def __init__(self, settings: Settings) -> None:
        self.gamma = settings.gamma
        self.open_returns = np.zeros(settings.num_envs)
        self.returns: list[np.ndarray] = []  # since the statistics moved last
        self.mean, self.deviations, self.count = 0.0, 0.0, 0

    def see(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        returns = rewards + self.gamma * self.open_returns
        self.returns.append(returns)
        self.open_returns = np.where(ended, 0.0, returns)

    def move(self) -> None:
        """Merge the returns since the last update; batches are merged by their sums of squared deviations."""
        rows = np.concatenate(self.returns)
        total, delta = self.count + len(rows), rows.mean() - self.mean
        own = np.square(rows - rows.mean()).sum()
        self.deviations += own + np.square(delta) * (self.count * len(rows) / total)
        self.mean += delta * (len(rows) / total)
        self.count, self.returns = total, []

    def __call__(self, rewards: np.ndarray) -> np.ndarray:
        variance = self.deviations / self.count if self.count else 1.0
        scale = 1.0 / np.sqrt(variance + 1e-8) if self.count else 1.0
        return np.clip(rewards * scale, -10.0, 10.0).astype(np.float32)


# -- environments and acting ------------------------------------------------------------------------------------------


class Environments:
    """N environments side by side; one whose episode ends starts the next one at once."""

    def __init__(self, settings: Settings) -> None:
        self.seed = settings.seed
        self.envs = [gym.make(settings.env_id) for _ in range(settings.num_envs)]
        self.resets = [0] * settings.num_envs
        self.returns = [0.0] * settings.num_envs
        self.finished: list[float] = []
        self.obs = np.stack([self.reset(i) for i in range(settings.num_envs)])

    def reset(self, i: int) -> np.ndarray:
        obs, _ = self.envs[i].reset(seed=reset_seed(self.seed, i, self.resets[i]))
        self.resets[i] += 1
        return obs

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(rewards, terminated, terminated or truncated, true next observations); `obs` is what to act on next."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        rewards = np.array([result[1] for result in results], np.float32)
        terminated = np.array([result[2] for result in results])
        next_obs = np.stack([result[0] for result in results])
        self.obs = next_obs.copy()
        for i, (_, reward, ended, cut, _) in enumerate(results):
            self.returns[i] += float(reward)
            if ended or cut:  # a truncated episode still bootstraps: only `terminated` ends the return
                self.obs[i] = self.reset(i)
                self.finished.append(self.returns[i])
                self.returns[i] = 0.0
        return rewards, terminated, terminated | np.array([result[3] for result in results]), next_obs


def act(
    network: nn.Sequential, obs: np.ndarray, env_steps: int, rng: np.random.Generator, settings: Settings
) -> np.ndarray:
    """Random before learning starts; then the best action, or with probability epsilon any."""
    num_envs, num_actions = len(obs), network[4].out_features
    if env_steps < settings.learning_starts:
        return rng.integers(num_actions, size=num_envs)
    spent = min(env_steps / settings.epsilon_steps, 1.0)
    epsilon = settings.epsilon_start + (settings.epsilon_end - settings.epsilon_start) * spent
    best = values_of(network, obs).argmax(axis=1)
    anything = rng.integers(num_actions, size=num_envs)
    return np.where(rng.random(num_envs) < epsilon, anything, best)


# -- learning ---------------------------------------------------------------------------------------------------------


def dqn_loss(network: nn.Sequential, target: nn.Sequential, rows: dict[str, Tensor]) -> Tensor:
    """Huber loss against rewards + discount * Q_target(next, best action of the online network)."""
    with torch.no_grad():
        best = network(rows["next_obs"]).argmax(1, keepdim=True)
        following = target(rows["next_obs"]).gather(1, best).squeeze(1)
        targets = rows["rewards"] + rows["discounts"] * (1.0 - rows["terminated"]) * following
    values = network(rows["obs"]).gather(1, rows["actions"].unsqueeze(1)).squeeze(1)
    return F.huber_loss(values - targets, torch.zeros_like(targets), reduction="none").mean()


def clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> None:
    """Clip the global norm of the gradients to `max_norm`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in gradients:
            gradient.mul_(scale)


def follow(network: nn.Sequential, target: nn.Sequential, tau: float) -> None:
    with torch.no_grad():
        for online, lagging in zip(network.parameters(), target.parameters(), strict=True):
            lagging.lerp_(online, tau)


def train(settings: Settings) -> nn.Sequential:
    torch.set_num_threads(1)
    envs = Environments(settings)
    inputs, actions = envs.obs.shape[1], int(envs.envs[0].action_space.n)
    network = q_network(stream(settings.seed, "init"), inputs, settings.hidden, actions)
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), eps=settings.adam_eps)
    parameters = list(network.parameters())
    replay = Replay(settings, inputs, stream(settings.seed, "buffer"))
    scale = RewardScale(settings)
    acting = stream(settings.seed, "actions")

    def updates_done(env_steps: int) -> int:
        return math.floor(max(env_steps - settings.learning_starts, 0) * settings.updates_per_step)

    env_steps = 0
    while env_steps < settings.total_timesteps:
        obs = envs.obs
        chosen = act(network, obs, env_steps, acting, settings)
        rewards, terminated, ended, next_obs = envs.step(chosen)
        replay.add(obs=obs, actions=chosen, rewards=rewards, next_obs=next_obs, terminated=terminated, ended=ended)
        scale.see(rewards, ended)
        before, env_steps = env_steps, env_steps + settings.num_envs
        start, end = settings.learning_rate
        optimizer.param_groups[0]["lr"] = start + (end - start) * min(env_steps / settings.total_timesteps, 1.0)
        for _ in range(updates_done(env_steps) - updates_done(before)):
            batch = replay.sample(settings.batch_size)
            batch["rewards"] = scale(batch["rewards"])
            optimizer.zero_grad()
            dqn_loss(network, target, {name: torch.from_numpy(rows) for name, rows in batch.items()}).backward()
            clip_gradients(parameters, settings.max_grad_norm)
            optimizer.step()
            follow(network, target, settings.tau)
        if env_steps % (settings.block * settings.num_envs) == 0:
            scale.move()
        if env_steps // 5_000 > before // 5_000 and envs.finished:
            print(f"env_steps {env_steps:>6}  return {np.mean(envs.finished[-20:]):.1f}", flush=True)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=Settings.total_timesteps)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--save", help="write the final weights to this .npz file")
    options = parser.parse_args()
    network = train(Settings(seed=options.seed, total_timesteps=options.total_timesteps))
    if options.save:
        np.savez(options.save, **{name: weight.detach().numpy() for name, weight in network.named_parameters()})


if __name__ == "__main__":
    main()
