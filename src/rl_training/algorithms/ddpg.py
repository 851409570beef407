"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

TD3 is DDPG with three additions: a second critic, noise on the target's actions, a delayed actor. Without them the same
class is DDPG. Exploration is Gaussian, which works as well as the paper's correlated noise.
"""

from __future__ import annotations

from dataclasses import fields

from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.hparams.ddpg import SPEC, DDPGConfig
from rl_training.hparams.td3 import TD3Config

__all__ = ["SPEC", "DDPGConfig", "build"]


def build(ctx: BuildContext, hp: DDPGConfig) -> TD3:
    """TD3 without its three additions."""
    given = {item.name: getattr(hp, item.name) for item in fields(hp)}
    return TD3(ctx, TD3Config(**given, num_critics=1, target_noise=0.0, actor_every_updates=1))
