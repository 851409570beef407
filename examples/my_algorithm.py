"""An algorithm of your own in one page: plain REINFORCE on whole rollouts, without a critic.

    rl train configs/algorithms/my_algorithm.yaml

or, from Python, `rl_training.train({"algo": "examples.my_algorithm:MyAlgorithm", "env_id": "CartPole-v1"})`.
`rl new algorithm NAME` writes a start like this one, with its config and its test.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rl_training import BaseAlgorithm
from rl_training.models import PolicyNetwork
from rl_training.numerics.returns import discounted_returns
from rl_training.types import UpdateResult


class MyAlgorithm(BaseAlgorithm):
    @dataclass(frozen=True)
    class Hparams:
        num_steps: int = 256
        learning_rate: float = 3e-3
        gamma: float = 0.99

    def setup(self):
        ctx = self.ctx
        policy = PolicyNetwork(ctx.observation_space, ctx.action_space, ctx.network.actor, ctx.streams("init"))
        self.networks["policy"] = policy
        self.optimizers["adam"] = torch.optim.Adam(policy.parameters(), lr=self.hparams.learning_rate)

    def act(self, obs, rng, *, deterministic=False):
        return self.networks["policy"].get_action(obs, deterministic, rng)

    def update(self, batch):
        ends = batch["terminated"] | batch["truncated"]
        returns = discounted_returns(batch["rewards"], ends, gamma=self.hparams.gamma)  # (T, N)
        obs, actions, returns = self.flat(batch, "obs", "actions", returns)  # tensors of T * N rows
        weights = (returns - returns.mean()) / (returns.std() + 1e-8)

        loss = -(self.networks["policy"].log_prob(obs, actions) * weights).mean()

        self.optimizers["adam"].zero_grad()
        loss.backward()
        self.optimizers["adam"].step()
        return UpdateResult({"loss": loss.detach(), "return_to_go": returns.mean()})
