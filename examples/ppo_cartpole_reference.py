"""PPO on CartPole-v1 in one file: torch, NumPy and Gymnasium, nothing of this package.

    python examples/ppo_cartpole_reference.py --total-timesteps 100000

It gives the weights of the package's own run bit for bit:

    rl train ppo/cartpole --seed 1 --hparams.kernel reference

Read it top to bottom: settings, randomness, network, acting, advantages, loss, the loop.
"""

from __future__ import annotations

import argparse
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
    """The preset ppo/cartpole."""

    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 100_000
    num_envs: int = 8
    num_steps: int = 32
    num_epochs: int = 8
    num_minibatches: int = 1
    learning_rate: tuple[float, float] = (2e-3, 0.0)  # from the first update to the end of the budget
    clip_coef: tuple[float, float] = (0.2, 0.01)
    gamma: float = 0.98
    gae_lambda: float = 0.8
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    hidden: int = 64


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


class ActorCritic(nn.Module):
    """Two separate tanh networks: the logits of the actions, and the value of the state."""

    def __init__(self, rng: np.random.Generator, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        gain = math.sqrt(2.0)
        self.actor = nn.Sequential(
            linear(rng, inputs, hidden, gain), nn.Tanh(), linear(rng, hidden, hidden, gain), nn.Tanh()
        )
        self.critic = nn.Sequential(
            linear(rng, inputs, hidden, gain), nn.Tanh(), linear(rng, hidden, hidden, gain), nn.Tanh()
        )
        self.logits = linear(rng, hidden, actions, 0.01)  # a nearly uniform first policy
        self.value = linear(rng, hidden, 1, 1.0)

    def values(self, obs: Tensor) -> Tensor:
        return self.value(self.critic(obs)).squeeze(1)  # (B,)

    def forward(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the actions, entropies, values; (B,) each."""
        log_probabilities = F.log_softmax(self.logits(self.actor(obs)), dim=1)
        logprobs = log_probabilities.gather(1, actions.unsqueeze(1)).squeeze(1)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
        return logprobs, entropy, self.values(obs)


def act(network: ActorCritic, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw an action for every row. A small network is much faster in NumPy than in torch."""
    x = obs
    for layer in (network.actor[0], network.actor[2]):
        x = np.tanh(x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
    logits = x @ network.logits.weight.detach().numpy().T + network.logits.bias.detach().numpy()
    return (logits - np.log(rng.standard_exponential(logits.shape))).argmax(axis=1)  # the Gumbel-max trick


# -- environments -----------------------------------------------------------------------------------------------------


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
        """(rewards, terminated, truncated, true next observations); `obs` is what to act on next."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        rewards = np.array([result[1] for result in results], np.float32)
        terminated, truncated = (np.array([result[k] for result in results]) for k in (2, 3))
        next_obs = np.stack([result[0] for result in results])
        self.obs = next_obs.copy()
        for i, reward in enumerate(rewards):
            self.returns[i] += float(reward)
            if terminated[i] or truncated[i]:
                self.obs[i] = self.reset(i)
                self.finished.append(self.returns[i])
                self.returns[i] = 0.0
        return rewards, terminated, truncated, next_obs


@dataclass
class Rollout:
    """T steps of N environments; every array is (T, N, ...)."""

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray


def collect(envs: Environments, network: ActorCritic, num_steps: int, rng: np.random.Generator) -> Rollout:
    steps = []
    for _ in range(num_steps):
        obs, actions = envs.obs, act(network, envs.obs, rng)
        steps.append((obs, actions, *envs.step(actions)))
    return Rollout(*(np.stack(column) for column in zip(*steps, strict=True)))


# -- advantages and loss ----------------------------------------------------------------------------------------------


def advantages_and_returns(
    rollout: Rollout, values: np.ndarray, network: ActorCritic, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimation. Where an episode ended, the next value is that of its last observation."""
    ends = rollout.terminated | rollout.truncated
    num_envs = values.shape[1]
    edge = np.concatenate([rollout.next_obs[-1], rollout.next_obs[ends]])
    with torch.no_grad():
        edge_values = network.values(torch.from_numpy(edge)).numpy()
    next_values = np.concatenate([values[1:], edge_values[None, :num_envs]])
    next_values[ends] = edge_values[num_envs:]
    gamma, decay = settings.gamma, np.float32(settings.gamma * settings.gae_lambda)
    bootstrapped = np.where(rollout.terminated, rollout.rewards, rollout.rewards + gamma * next_values)
    advantages = bootstrapped - values
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += np.where(ends[t], np.float32(0.0), decay) * advantages[t + 1]
    return advantages, advantages + values


def ppo_loss(
    network: ActorCritic, rows: dict[str, Tensor], clip_coef: float, ent_coef: float, vf_coef: float
) -> Tensor:
    """The clipped surrogate, half the squared error of the values, and the entropy bonus, on a minibatch."""
    logprobs, entropy, values = network(rows["obs"], rows["actions"])
    advantages = rows["advantages"]
    if len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (logprobs - rows["logprobs"]).exp()
    clipped_ratio = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = -torch.min(ratio * advantages, clipped_ratio * advantages).mean()
    value_loss = 0.5 * (values - rows["returns"]).square().mean()
    return policy_loss + vf_coef * value_loss + ent_coef * -entropy.mean()


def clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> None:
    """Clip the global norm of the gradients to `max_norm`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in gradients:
            gradient.mul_(scale)


def update(
    network: ActorCritic,
    optimizer: torch.optim.Adam,
    rollout: Rollout,
    rng: np.random.Generator,
    clip_coef: float,
    settings: Settings,
) -> None:
    """Several epochs of minibatch steps on one rollout."""
    num_steps, num_envs = rollout.rewards.shape
    obs = torch.from_numpy(rollout.obs.reshape(num_steps * num_envs, -1))
    actions = torch.from_numpy(rollout.actions.reshape(-1))
    with torch.no_grad():
        logprobs, _, values = network(obs, actions)
    advantages, returns = advantages_and_returns(
        rollout, values.numpy().reshape(num_steps, num_envs), network, settings
    )
    columns = {
        "obs": obs,
        "actions": actions,
        "logprobs": logprobs,
        "advantages": torch.from_numpy(advantages.reshape(-1)),
        "returns": torch.from_numpy(returns.reshape(-1)),
    }
    parameters = list(network.parameters())
    for _ in range(settings.num_epochs):
        order = torch.from_numpy(rng.permutation(num_steps * num_envs))
        for index in order.tensor_split(settings.num_minibatches):
            rows = {name: column[index] for name, column in columns.items()}
            optimizer.zero_grad()
            ppo_loss(network, rows, clip_coef, settings.ent_coef, settings.vf_coef).backward()
            clip_gradients(parameters, settings.max_grad_norm)
            optimizer.step()


# -- the loop ---------------------------------------------------------------------------------------------------------


def train(settings: Settings) -> ActorCritic:
    torch.set_num_threads(1)
    envs = Environments(settings)
    inputs, actions = envs.obs.shape[1], int(envs.envs[0].action_space.n)
    network = ActorCritic(stream(settings.seed, "init"), inputs, settings.hidden, actions)
    optimizer = torch.optim.Adam(network.parameters(), eps=settings.adam_eps)
    acting, shuffling = stream(settings.seed, "actions"), stream(settings.seed, "minibatch")

    env_steps = 0
    while env_steps < settings.total_timesteps:
        rollout = collect(envs, network, settings.num_steps, acting)
        spent = env_steps / settings.total_timesteps
        learning_rate, clip_coef = (
            start + (end - start) * spent for start, end in (settings.learning_rate, settings.clip_coef)
        )
        optimizer.param_groups[0]["lr"] = learning_rate
        update(network, optimizer, rollout, shuffling, clip_coef, settings)
        before, env_steps = env_steps, env_steps + settings.num_steps * settings.num_envs
        if env_steps // 10_000 > before // 10_000 and envs.finished:
            print(f"env_steps {env_steps:>7}  return {np.mean(envs.finished[-50:]):.1f}", flush=True)
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
