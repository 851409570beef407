"""TD3 on Pendulum-v1 in one file: torch, NumPy and Gymnasium, nothing of this package.

    python examples/td3_pendulum_reference.py --total-timesteps 20000

It gives the weights of the package's own run bit for bit:

    rl train td3/pendulum --seed 1 --hparams.kernel reference

(The package's own kernel rounds differently and is faster.) Read it top to bottom: settings, randomness, networks,
replay, acting, losses, the loop.
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


@dataclass(frozen=True)
class Settings:
    """The preset td3/pendulum."""

    env_id: str = "Pendulum-v1"
    seed: int = 1
    total_timesteps: int = 20_000
    num_envs: int = 1
    buffer_size: int = 20_000
    learning_rate: tuple[float, float] = (1e-3, 0.0)  # from the first step to the end of the budget
    gamma: float = 0.98
    batch_size: int = 256
    learning_starts: int = 1000  # env steps of random actions
    updates_per_step: float = 1.0
    tau: float = 0.01  # how far the targets follow
    exploration_noise: float = 0.1
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    actor_every_updates: int = 2
    adam_eps: float = 1e-8
    hidden: int = 64


# -- randomness: one seed, a stream of its own for every purpose ------------------------------------------------------


def stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), 0]))


def reset_seed(seed: int, env_index: int, reset_count: int) -> int:
    """The seed of an environment's reset number `reset_count`."""
    words = np.random.SeedSequence([seed, zlib.crc32(b"reset"), env_index, reset_count + 1]).generate_state(1)
    return int(words[0]) >> 1


# -- networks ---------------------------------------------------------------------------------------------------------


def orthogonal(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> np.ndarray:
    """Weights (outputs, inputs) with orthonormal rows or columns, times `gain`."""
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return ((q if outputs >= inputs else q.T) * gain).astype(np.float32)


def linear(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A layer with orthogonal weights and zero bias."""
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(orthogonal(rng, inputs, outputs, gain)))
        layer.bias.zero_()
    return layer


class TwinLinear(nn.Module):
    """Two linear layers side by side, as one batched product."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> None:
        super().__init__()
        weights = [orthogonal(rng, inputs, outputs, gain).T for _ in range(2)]
        self.weight = nn.Parameter(torch.from_numpy(np.stack(weights)).contiguous())  # (2, inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(2, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x.expand(2, *x.shape) if x.dim() == 2 else x, self.weight)


class TwinCritics(nn.Module):
    """Two values (2, B) of every state and action."""

    def __init__(self, rng: np.random.Generator, inputs: int, hidden: int) -> None:
        super().__init__()
        gain = math.sqrt(2.0)
        self.layers = nn.Sequential(
            TwinLinear(rng, inputs, hidden, gain), nn.ReLU(), TwinLinear(rng, hidden, hidden, gain), nn.ReLU()
        )
        self.output = TwinLinear(rng, hidden, 1, 1.0)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.output(self.layers(torch.cat([obs, actions], dim=1))).squeeze(2)


class Actor(nn.Module):
    """One action in -1..1 per state."""

    def __init__(self, rng: np.random.Generator, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        gain = math.sqrt(2.0)
        self.body = nn.Sequential(
            linear(rng, inputs, hidden, gain), nn.ReLU(), linear(rng, hidden, hidden, gain), nn.ReLU()
        )
        self.output = linear(rng, hidden, actions, 0.01)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.output(self.body(obs)))


# -- replay -----------------------------------------------------------------------------------------------------------


class Replay:
    """The last transitions, drawn uniformly with replacement."""

    def __init__(self, capacity: int, obs_size: int, action_size: int, rng: np.random.Generator) -> None:
        self.columns = {
            "obs": np.zeros((capacity, obs_size), np.float32),
            "actions": np.zeros((capacity, action_size), np.float32),
            "rewards": np.zeros(capacity, np.float32),
            "next_obs": np.zeros((capacity, obs_size), np.float32),
            "terminated": np.zeros(capacity, np.float32),
        }
        self.capacity, self.position, self.size, self.rng = capacity, 0, 0, rng

    def add(self, **rows: np.ndarray) -> None:
        count = len(rows["rewards"])
        places = np.arange(self.position, self.position + count) % self.capacity
        for name, column in self.columns.items():
            column[places] = rows[name]
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, batch_size: int) -> dict[str, Tensor]:
        index = self.rng.integers(self.size, size=batch_size)
        return {name: torch.from_numpy(column[index]) for name, column in self.columns.items()}


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

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rewards, terminated, true next observations); `obs` is what to act on next."""
        low, high = self.envs[0].action_space.low, self.envs[0].action_space.high
        scaled = low + 0.5 * (actions + 1.0) * (high - low)  # -1..1 to the bounds of the environment
        results = [env.step(action) for env, action in zip(self.envs, scaled, strict=True)]
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
        return rewards, terminated, next_obs


def act(actor: Actor, obs: np.ndarray, rng: np.random.Generator, noise: float) -> np.ndarray:
    """The actor's actions with noise, in NumPy: much faster than torch for a handful of rows."""
    x = obs
    for layer in (actor.body[0], actor.body[2]):
        x = np.maximum(x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0.0)
    actions = np.tanh(x @ actor.output.weight.detach().numpy().T + actor.output.bias.detach().numpy())
    noisy = actions + np.float32(noise) * rng.standard_normal(actions.shape, dtype=np.float32)
    return np.minimum(np.maximum(noisy, -1.0), 1.0)


# -- learning ---------------------------------------------------------------------------------------------------------


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Half the squared errors of both critics."""
    return (0.5 * (values - targets).square().sum(0)).mean()


def follow(network: nn.Module, target: nn.Module, tau: float) -> None:
    with torch.no_grad():
        for online, lagging in zip(network.parameters(), target.parameters(), strict=True):
            lagging.lerp_(online, tau)


def step(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Learner:
    """Critics and actor with their optimisers and lagging copies."""

    def __init__(self, actor: Actor, critics: TwinCritics, settings: Settings) -> None:
        self.actor, self.critics, self.settings = actor, critics, settings
        self.actor_target, self.critic_target = copy.deepcopy(actor), copy.deepcopy(critics)
        self.rng = stream(settings.seed, "learning")
        self.actor_optimizer = torch.optim.Adam(actor.parameters(), eps=settings.adam_eps)
        self.critic_optimizer = torch.optim.Adam(critics.parameters(), eps=settings.adam_eps)
        self.updates = 0

    def update(self, rows: dict[str, Tensor], env_steps: int) -> None:
        """One step of the critics; every second time of the actor and the targets too."""
        self.updates += 1
        settings = self.settings
        start, end = settings.learning_rate
        for optimizer in (self.actor_optimizer, self.critic_optimizer):
            optimizer.param_groups[0]["lr"] = start + (end - start) * min(env_steps / settings.total_timesteps, 1.0)
        with torch.no_grad():
            next_actions = self.actor_target(rows["next_obs"])
            noise = torch.from_numpy(self.rng.standard_normal(tuple(next_actions.shape), dtype=np.float32))
            clip = settings.target_noise_clip
            next_actions = (next_actions + (settings.target_noise * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)
            next_values = self.critic_target(rows["next_obs"], next_actions).amin(0)
            targets = rows["rewards"] + settings.gamma * (1.0 - rows["terminated"]) * next_values
        step(self.critic_optimizer, critic_loss(self.critics(rows["obs"], rows["actions"]), targets))
        if self.updates % settings.actor_every_updates == 0:
            step(self.actor_optimizer, -self.critics(rows["obs"], self.actor(rows["obs"]))[0].mean())
            follow(self.actor, self.actor_target, settings.tau)
            follow(self.critics, self.critic_target, settings.tau)


def train(settings: Settings) -> Actor:
    torch.set_num_threads(1)
    envs = Environments(settings)
    obs_size, action_size = envs.obs.shape[1], envs.envs[0].action_space.shape[0]
    rng = stream(settings.seed, "init")
    actor = Actor(rng, obs_size, settings.hidden, action_size)
    critics = TwinCritics(rng, obs_size + action_size, settings.hidden)
    learner = Learner(actor, critics, settings)
    replay = Replay(settings.buffer_size, obs_size, action_size, stream(settings.seed, "buffer"))
    acting = stream(settings.seed, "actions")

    def updates_done(env_steps: int) -> int:
        return math.floor(max(env_steps - settings.learning_starts, 0) * settings.updates_per_step)

    env_steps = 0
    while env_steps < settings.total_timesteps:
        obs = envs.obs
        if env_steps < settings.learning_starts:
            actions = acting.uniform(-1.0, 1.0, (settings.num_envs, action_size)).astype(np.float32)
        else:
            actions = act(actor, obs, acting, settings.exploration_noise)
        rewards, terminated, next_obs = envs.step(actions)
        replay.add(obs=obs, actions=actions, rewards=rewards, next_obs=next_obs, terminated=terminated)
        before, env_steps = env_steps, env_steps + settings.num_envs
        for _ in range(updates_done(env_steps) - updates_done(before)):
            learner.update(replay.sample(settings.batch_size), env_steps)
        if env_steps // 1_000 > before // 1_000 and envs.finished:
            print(f"env_steps {env_steps:>6}  return {np.mean(envs.finished[-5:]):.1f}", flush=True)
    return actor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=Settings.total_timesteps)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--save", help="write the final weights of the actor to this .npz file")
    options = parser.parse_args()
    actor = train(Settings(seed=options.seed, total_timesteps=options.total_timesteps))
    if options.save:
        np.savez(options.save, **{name: weight.detach().numpy() for name, weight in actor.named_parameters()})


if __name__ == "__main__":
    main()
