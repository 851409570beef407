"""PPO with memory on CartPole-v1 without velocities, in one file: torch, NumPy and Gymnasium, nothing of this package.

    python examples/ppo_recurrent_reference.py --total-timesteps 100000

It gives the weights of the package's own run bit for bit:

    rl train ppo/cartpole_no_velocity --seed 1 --env.normalize-obs false --env.normalize-reward false

Read it top to bottom: settings, randomness, network, environments, advantages, loss, the loop. What memory changes,
compared with `ppo_cartpole_reference.py`: acting hands the memory from step to step and clears it where an episode
begins; before each update the network walks along the whole rollout once, from the memory that the rollout began with;
minibatches are sequences in the order of time, each from the memory that this walk had at its beginning; and the value
of an episode's last observation comes from the memory after the step before it.
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
    """The preset ppo/cartpole_no_velocity, but for the normalisers of observations and rewards."""

    env_id: str = "CartPole-v1"
    seen: tuple[int, ...] = (0, 2)  # positions; numbers 1 and 3 of an observation are velocities
    seed: int = 1
    total_timesteps: int = 100_000
    num_envs: int = 8
    num_steps: int = 128
    sequence_length: int = 32
    num_epochs: int = 10
    num_minibatches: int = 4
    learning_rate: tuple[float, float] = (2e-3, 0.0)  # from the first update to the end of the budget
    clip_coef: tuple[float, float] = (0.2, 0.002)
    gamma: float = 0.99
    gae_lambda: float = 0.95
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    hidden: int = 64
    memory_size: int = 64


# -- randomness: one seed, a stream of its own for every purpose ------------------------------------------------------


def stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), 0]))


def reset_seed(seed: int, env_index: int, reset_count: int) -> int:
    """The seed of an environment's reset number `reset_count`."""
    words = np.random.SeedSequence([seed, zlib.crc32(b"reset"), env_index, reset_count + 1]).generate_state(1)
    return int(words[0]) >> 1


# -- network ----------------------------------------------------------------------------------------------------------


def orthogonal(rng: np.random.Generator, outputs: int, inputs: int, gain: float) -> np.ndarray:
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return ((q if outputs >= inputs else q.T) * gain).astype(np.float32)


def linear(weights: np.ndarray) -> nn.Linear:
    """A layer with these weights and zero bias."""
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights))
        layer.bias.zero_()
    return layer


class GRU(nn.Module):
    """Gated recurrent unit (Cho et al. 2014), gates in the order reset, update, new."""

    def __init__(self, rng: np.random.Generator, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.input = linear(np.concatenate([orthogonal(rng, size, inputs, 1.0) for _ in range(3)]))
        self.hidden = linear(np.concatenate([orthogonal(rng, size, size, 1.0) for _ in range(3)]))

    def cell(self, seen: Tensor, before: Tensor, is_first: Tensor) -> Tensor:
        """One step of N sequences; where an episode begins, what came before is exactly zero."""
        if is_first.any():
            before = before.masked_fill(is_first.unsqueeze(1), 0)
        seen_reset, seen_update, seen_new = seen.chunk(3, 1)
        reset, update, new = self.hidden(before).chunk(3, 1)
        candidate = torch.tanh(seen_new + torch.sigmoid(seen_reset + reset) * new)
        return torch.lerp(candidate, before, torch.sigmoid(seen_update + update))

    def follow(self, x: Tensor, before: Tensor, is_first: Tensor) -> Tensor:
        """The state after every step, (T, N, H), for inputs (T, N, F): with gradients through all of them.

        A piece of the sequence in which no episode begins is one call of torch's GRU.
        """
        weights = [self.input.weight, self.hidden.weight, self.input.bias, self.hidden.bias]
        starts = [0, *(is_first[1:].any(1).nonzero().flatten() + 1).tolist()]
        states = []
        for start, end in zip(starts, [*starts[1:], len(x)], strict=True):
            before = before.masked_fill(is_first[start].unsqueeze(1), 0)
            piece, after = torch.gru(x[start:end], before[None], weights, True, 1, 0.0, False, False, False)
            states.append(piece)
            before = after[0]
        return torch.cat(states)


class Body(nn.Module):
    """A tanh layer and a memory behind it."""

    def __init__(self, rng: np.random.Generator, inputs: int, settings: Settings) -> None:
        super().__init__()
        self.layer = linear(orthogonal(rng, settings.hidden, inputs, math.sqrt(2.0)))
        self.memory = GRU(rng, settings.hidden, settings.memory_size)

    def step(self, obs: Tensor, before: Tensor, is_first: Tensor) -> Tensor:
        """The state after one step: obs (N, D) to (N, H)."""
        return self.memory.cell(self.memory.input(torch.tanh(self.layer(obs))), before, is_first)

    def follow(self, obs: Tensor, before: Tensor, is_first: Tensor) -> Tensor:
        """The states along sequences: obs (T, N, D) to (T, N, H)."""
        embedded = torch.tanh(self.layer(obs.flatten(0, 1)))
        return self.memory.follow(embedded.view(*is_first.shape, -1), before, is_first)


class ActorCritic(nn.Module):
    """Two separate networks, each with a memory of its own: the logits of the actions, and the value of the state."""

    def __init__(self, rng: np.random.Generator, inputs: int, actions: int, settings: Settings) -> None:
        super().__init__()
        self.actor = Body(rng, inputs, settings)
        self.critic = Body(rng, inputs, settings)
        self.logits = linear(orthogonal(rng, actions, settings.memory_size, 0.01))  # a nearly uniform first policy
        self.value = linear(orthogonal(rng, 1, settings.memory_size, 1.0))

    def initial_memory(self, num_envs: int) -> Memory:
        zeros = torch.zeros(num_envs, self.actor.memory.size)
        return Memory(zeros, zeros)

    def next_values(self, obs: Tensor, before: Tensor) -> Tensor:
        """Values (B,) of observations that follow the step after which the critic remembered `before`."""
        goes_on = torch.zeros(len(obs), dtype=torch.bool)
        return self.value(self.critic.step(obs, before, goes_on)).squeeze(1)

    def follow(self, obs: Tensor, actions: Tensor, memory: Memory, is_first: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities of the actions, entropies and values, (T * N,) each; the states of both memories."""
        acting = self.actor.follow(obs, memory.actor, is_first)
        judging = self.critic.follow(obs, memory.critic, is_first)
        log_probabilities = F.log_softmax(self.logits(acting.flatten(0, 1)), dim=1)
        logprobs = log_probabilities.gather(1, actions.reshape(-1, 1)).squeeze(1)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
        return logprobs, entropy, self.value(judging.flatten(0, 1)).squeeze(1), acting, judging


@dataclass(frozen=True)
class Memory:
    """What actor and critic remember, (N, H) each."""

    actor: Tensor
    critic: Tensor


@torch.no_grad()
def act(
    network: ActorCritic, obs: np.ndarray, memory: Memory, is_first: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, Memory]:
    """Draw an action for every row. The critic's memory moves on too, for the values of the next rollout."""
    x, begins = torch.from_numpy(obs), torch.from_numpy(is_first)
    after = Memory(network.actor.step(x, memory.actor, begins), network.critic.step(x, memory.critic, begins))
    logits = network.logits(after.actor).numpy()
    return (logits - np.log(rng.standard_exponential(logits.shape))).argmax(axis=1), after  # the Gumbel-max trick


# -- environments -----------------------------------------------------------------------------------------------------


class Environments:
    """N environments side by side; one whose episode ends starts the next one at once."""

    def __init__(self, settings: Settings) -> None:
        self.seed, self.seen = settings.seed, list(settings.seen)
        self.envs = [gym.make(settings.env_id) for _ in range(settings.num_envs)]
        self.resets = [0] * settings.num_envs
        self.returns = [0.0] * settings.num_envs
        self.finished: list[float] = []
        self.obs = np.stack([self.reset(i) for i in range(settings.num_envs)])
        self.is_first = np.ones(settings.num_envs, bool)

    def reset(self, i: int) -> np.ndarray:
        obs, _ = self.envs[i].reset(seed=reset_seed(self.seed, i, self.resets[i]))
        self.resets[i] += 1
        return obs[self.seen]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(rewards, terminated, truncated, true next observations); `obs` is what to act on next."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        rewards = np.array([result[1] for result in results], np.float32)
        terminated, truncated = (np.array([result[k] for result in results]) for k in (2, 3))
        next_obs = np.stack([result[0][self.seen] for result in results])
        self.obs, self.is_first = next_obs.copy(), terminated | truncated
        for i, reward in enumerate(rewards):
            self.returns[i] += float(reward)
            if terminated[i] or truncated[i]:
                self.obs[i] = self.reset(i)
                self.finished.append(self.returns[i])
                self.returns[i] = 0.0
        return rewards, terminated, truncated, next_obs


@dataclass
class Rollout:
    """T steps of N environments; every array is (T, N, ...), `memory` is what was remembered before the first step."""

    memory: Memory
    obs: np.ndarray
    is_first: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray


def collect(
    envs: Environments, network: ActorCritic, memory: Memory, num_steps: int, rng: np.random.Generator
) -> tuple[Rollout, Memory]:
    steps, before = [], memory
    for _ in range(num_steps):
        obs, is_first = envs.obs, envs.is_first
        actions, memory = act(network, obs, memory, is_first, rng)
        steps.append((obs, is_first, actions, *envs.step(actions)))
    return Rollout(before, *(np.stack(column) for column in zip(*steps, strict=True))), memory


# -- advantages and loss ----------------------------------------------------------------------------------------------


def advantages_and_returns(
    rollout: Rollout, values: np.ndarray, judging: Tensor, network: ActorCritic, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimation. `judging` is what the critic remembered after every step, (T, N, H).

    Where an episode ended, the next value is that of its last observation, from the memory after the step before it.
    """
    ends = rollout.terminated | rollout.truncated
    num_envs = values.shape[1]
    edge = np.concatenate([rollout.next_obs[-1], rollout.next_obs[ends]])
    before = torch.cat([judging[-1], judging[torch.from_numpy(ends)]])
    with torch.no_grad():
        edge_values = network.next_values(torch.from_numpy(edge), before).numpy()
    next_values = np.concatenate([values[1:], edge_values[None, :num_envs]])
    next_values[ends] = edge_values[num_envs:]
    gamma, decay = settings.gamma, np.float32(settings.gamma * settings.gae_lambda)
    bootstrapped = np.where(rollout.terminated, rollout.rewards, rollout.rewards + gamma * next_values)
    advantages = bootstrapped - values
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += np.where(ends[t], np.float32(0.0), decay) * advantages[t + 1]
    return advantages, advantages + values


def sequences(column: Tensor, length: int) -> Tensor:
    """(T, N, ...) cut into (L, P, ...): P = N * T / L pieces of L steps, those of the first L steps in front."""
    num_envs = column.shape[1]
    return column.reshape(-1, length, num_envs, *column.shape[2:]).transpose(0, 1).flatten(1, 2)


def ppo_loss(
    network: ActorCritic, rows: dict[str, Tensor], memory: Memory, clip_coef: float, settings: Settings
) -> Tensor:
    """The clipped surrogate, half the squared error of the values, and the entropy bonus, on some sequences (L, B)."""
    logprobs, entropy, values, _, _ = network.follow(rows["obs"], rows["actions"], memory, rows["is_first"])
    advantages, old_logprobs, returns = (rows[name].flatten() for name in ("advantages", "logprobs", "returns"))
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (logprobs - old_logprobs).exp()
    clipped_ratio = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = -torch.min(ratio * advantages, clipped_ratio * advantages).mean()
    value_loss = 0.5 * (values - returns).square().mean()
    return policy_loss + settings.vf_coef * value_loss + settings.ent_coef * -entropy.mean()


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
    obs, actions, is_first = (torch.from_numpy(x) for x in (rollout.obs, rollout.actions, rollout.is_first))
    with torch.no_grad():
        logprobs, _, values, acting, judging = network.follow(obs, actions, rollout.memory, is_first)
    shape = rollout.rewards.shape
    advantages, returns = advantages_and_returns(rollout, values.numpy().reshape(shape), judging, network, settings)
    columns = {
        "obs": obs,
        "actions": actions,
        "is_first": is_first,
        "logprobs": logprobs.view(shape),
        "advantages": torch.from_numpy(advantages),
        "returns": torch.from_numpy(returns),
    }
    length = settings.sequence_length
    columns = {name: sequences(column, length) for name, column in columns.items()}
    before_each = slice(length - 1, -1, length)  # the steps before the second piece, the third, ...
    starts = Memory(
        torch.cat([rollout.memory.actor, acting[before_each].flatten(0, 1)]),
        torch.cat([rollout.memory.critic, judging[before_each].flatten(0, 1)]),
    )
    parameters = list(network.parameters())
    for _ in range(settings.num_epochs):
        order = torch.from_numpy(rng.permutation(len(starts.actor)))
        for index in order.tensor_split(settings.num_minibatches):
            rows = {name: column[:, index] for name, column in columns.items()}
            memory = Memory(starts.actor[index], starts.critic[index])
            optimizer.zero_grad()
            ppo_loss(network, rows, memory, clip_coef, settings).backward()
            clip_gradients(parameters, settings.max_grad_norm)
            optimizer.step()


# -- the loop ---------------------------------------------------------------------------------------------------------


def train(settings: Settings) -> ActorCritic:
    torch.set_num_threads(1)
    envs = Environments(settings)
    inputs, actions = envs.obs.shape[1], int(envs.envs[0].action_space.n)
    network = ActorCritic(stream(settings.seed, "init"), inputs, actions, settings)
    memory = network.initial_memory(settings.num_envs)
    optimizer = torch.optim.Adam(network.parameters(), eps=settings.adam_eps)
    acting, shuffling = stream(settings.seed, "actions"), stream(settings.seed, "minibatch")

    env_steps = 0
    while env_steps < settings.total_timesteps:
        rollout, memory = collect(envs, network, memory, settings.num_steps, acting)
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
