"""An algorithm of your own in one page: plain REINFORCE on whole rollouts, without a critic.

    rl train --config configs/algorithms/my_algorithm.yaml

or, from Python, `rl_training.train({"algo": "examples.my_algorithm:MyAlgorithm", "env_id": "CartPole-v1"})`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rl_training import BaseAlgorithm
from rl_training.models import PolicyNetwork
from rl_training.returns import discounted_returns
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
        policy = self.networks["policy"]
        with torch.no_grad():
            logits = policy(torch.as_tensor(obs)).mean.numpy()
        return policy.head.sample(logits, rng, deterministic=deterministic, mask=None)

    def update(self, batch):
        ends = batch["terminated"] | batch["truncated"]
        returns = torch.as_tensor(discounted_returns(batch["rewards"], ends, gamma=self.hparams.gamma)).flatten()
        weights = (returns - returns.mean()) / (returns.std() + 1e-8)

        obs, actions = torch.as_tensor(batch["obs"]).flatten(0, 1), torch.as_tensor(batch["actions"]).flatten()
        loss = -(self.networks["policy"].log_prob(obs, actions) * weights).mean()

        self.optimizers["adam"].zero_grad()
        loss.backward()
        self.optimizers["adam"].step()
        return UpdateResult({"loss": loss.detach(), "return_to_go": returns.mean()})
