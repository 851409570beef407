"""Change the loss of PPO: a penalty on how far the policy moves, instead of a clipped ratio. The paper has both.

    rl train configs/algorithms/my_ppo_loss.yaml

Networks, advantages, minibatches, schedules, checkpoints and the optimiser step stay PPO's. Only `loss` is overridden,
and one hyperparameter added; since PPO's fast kernel knows the gradient of PPO's own loss only, autograd is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_training import register_algorithm
from rl_training.algorithms.ppo import PPO, PPOConfig
from rl_training.numerics.normalization import normalized


@dataclass(frozen=True)
class KLPenaltyConfig(PPOConfig):
    kl_coef: float = 1.0
    """Weight of the KL divergence between the policy that acted and the one that is trained."""


@register_algorithm("kl_penalty_ppo")
class KLPenaltyPPO(PPO):
    Hparams = KLPenaltyConfig

    def loss(self, rollout, coefficients):
        """From rows of a rollout to the losses; "loss" is what is minimised, the others are logged."""
        logprobs, entropy, values = self.network(rollout.obs, rollout.actions)
        log_ratio = logprobs - rollout.logprobs
        ratio = log_ratio.exp()

        kl = (ratio - 1 - log_ratio).mean()  # never negative, and 0 where nothing has moved
        policy_loss = -(ratio * normalized(rollout.advantages)).mean() + self.hp.kl_coef * kl
        value_loss = 0.5 * (values - rollout.returns).square().mean()
        entropy_loss = -entropy.mean()
        return {
            "loss": policy_loss + coefficients.vf_coef * value_loss + coefficients.ent_coef * entropy_loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy_loss": entropy_loss,
            "approx_kl": kl,
        }
