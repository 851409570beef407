"""Environments: factory, wrappers, exact resume, vector environments, probes, checks; see the README beside this."""

from rl_training.envs.base import BaseEnvironment, BaseWrapper
from rl_training.envs.check_env import EnvReport, check_env
from rl_training.envs.episode_log import EpisodeLog
from rl_training.envs.factory import EnvironmentFactory, EnvThunk, make_env, make_vector_env
from rl_training.envs.games.catalogue import register_games
from rl_training.envs.probes import PROBES, Probe, register_probes
from rl_training.envs.replay_check import replay_difference, replay_is_exact
from rl_training.envs.spaces import space_spec
from rl_training.envs.suites import SuiteListing, list_envs
from rl_training.envs.wrappers import FrameStack, NormalizeObservations, NormalizeRewards

register_probes()
register_games()

__all__ = [
    "make_env",
    "make_vector_env",
    "EnvironmentFactory",
    "EnvThunk",
    "EpisodeLog",
    "space_spec",
    "BaseEnvironment",
    "BaseWrapper",
    "NormalizeObservations",
    "NormalizeRewards",
    "FrameStack",
    "check_env",
    "EnvReport",
    "replay_is_exact",
    "replay_difference",
    "list_envs",
    "SuiteListing",
    "PROBES",
    "Probe",
]
