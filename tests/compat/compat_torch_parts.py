"""Parts of a user's own that need torch: a network with convolutions, and PPO with another loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.ppo import PPO, PPOConfig


class Convolutions(nn.Module):
    """Two convolutions over a picture of 1 x 8 x 8; its weights are drawn from the generator that it is given."""

    def __init__(self, observation_space: Any, config: Any, rng: np.random.Generator) -> None:
        super().__init__()
        channels = int(config.kwargs.get("channels", 4))
        self.first = nn.utils.skip_init(nn.Conv2d, 1, channels, 3, stride=2)
        self.second = nn.utils.skip_init(nn.Conv2d, channels, channels, 2)
        for layer in (self.first, self.second):
            weights = rng.normal(0.0, 0.3, tuple(layer.weight.shape)).astype(np.float32)
            layer.weight.data.copy_(torch.from_numpy(weights))
            layer.bias.data.zero_()
        self.out_features = channels * 2 * 2

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(obs.float() / 255.0))
        return torch.tanh(self.second(x)).flatten(1)


@dataclass(frozen=True)
class PenaltyConfig(PPOConfig):
    """PPO's hyperparameters and one more."""

    kl_coef: float = 1.0


class PenaltyPPO(PPO):
    """PPO with a penalty on the KL divergence instead of a clipped ratio, as `docs/extending.md` describes it."""

    Hparams = PenaltyConfig

    def loss(self, rollout: Any, coefficients: Any) -> dict[str, Any]:
        logprobs, entropy, values = self.network(rollout.obs, rollout.actions)
        log_ratio = logprobs - rollout.logprobs
        ratio = log_ratio.exp()
        kl = (ratio - 1 - log_ratio).mean()
        policy_loss = -(ratio * rollout.advantages).mean() + self.hp.kl_coef * kl
        value_loss = 0.5 * (values - rollout.returns).square().mean()
        entropy_loss = -entropy.mean()
        return {
            "loss": policy_loss + coefficients.vf_coef * value_loss + coefficients.ent_coef * entropy_loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy_loss": entropy_loss,
            "approx_kl": kl,
        }
