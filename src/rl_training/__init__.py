"""rl_training: a reinforcement-learning workbench.

    import rl_training as rl
    result = rl.train("ppo/cartpole")
    policy = rl.load(result.run_dir)
    action = policy.predict(obs)

Names are imported when first used, so `import rl_training` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily
from rl_training.version import __version__

if TYPE_CHECKING:
    from rl_training.algorithms.base import BaseAlgorithm
    from rl_training.config.loading import load_config
    from rl_training.config.schema import TrainConfig
    from rl_training.envs import check_env, make_env, make_vector_env
    from rl_training.eval import evaluate, load
    from rl_training.registry import (
        register_algorithm,
        register_buffer,
        register_callback,
        register_dynamics,
        register_environment,
        register_logger,
        register_network,
        register_optimizer,
        register_wrapper,
    )
    from rl_training.trainer import DistributedTrainer, TrainResult, resume, train, train_ppo
    from rl_training.training.callbacks import Callback
    from rl_training.training.env_runner import EnvRunner

_HOME = {
    "BaseAlgorithm": "algorithms.base",
    "Callback": "training.callbacks",
    "DistributedTrainer": "trainer",
    "EnvRunner": "training.env_runner",
    "TrainConfig": "config",
    "TrainResult": "trainer",
    "check_env": "envs",
    "evaluate": "eval",
    "load": "eval",
    "load_config": "config.loading",
    "make_env": "envs",
    "make_vector_env": "envs",
    "register_algorithm": "registry",
    "register_buffer": "registry",
    "register_callback": "registry",
    "register_dynamics": "registry",
    "register_environment": "registry",
    "register_logger": "registry",
    "register_network": "registry",
    "register_optimizer": "registry",
    "register_wrapper": "registry",
    "resume": "trainer",
    "train": "trainer",
    "train_ppo": "trainer",
}

__all__ = [
    "BaseAlgorithm",
    "Callback",
    "DistributedTrainer",
    "EnvRunner",
    "TrainConfig",
    "TrainResult",
    "__version__",
    "check_env",
    "evaluate",
    "load",
    "load_config",
    "make_env",
    "make_vector_env",
    "register_algorithm",
    "register_buffer",
    "register_callback",
    "register_dynamics",
    "register_environment",
    "register_logger",
    "register_network",
    "register_optimizer",
    "register_wrapper",
    "resume",
    "train",
    "train_ppo",
]


__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
