"""Datasets from a policy, or from random actions: what is recorded, and the scores that count as 0 and as 100."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_training.algorithms.random import RandomAgent
from rl_training.assembly.environments import eval_env_maker
from rl_training.build_context import BuildContext
from rl_training.config.resolution import config_to_mapping
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.dataset import Dataset, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.envs import space_spec
from rl_training.hparams.random import RandomConfig
from rl_training.training.evaluation import EnvMaker, evaluate_policy
from rl_training.training.offline.recording import Amount, Behaviour, record_episodes
from rl_training.types import ConfigError, DictSpec, JointSpec, Policy


def recorded(
    cfg: TrainConfig,
    policy: Policy | None,
    amount: Amount,
    how: Behaviour,
    seed: int,
    references: int,
    facts: dict[str, Any],
) -> Dataset:
    """Record with a policy, or with random actions where it is None."""
    make = eval_env_maker(cfg, None)
    env = make(0)
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    env.close()
    if isinstance(spaces[1], DictSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has a Dict action space, which no dataset holds")
    if isinstance(spaces[0], JointSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has several agents; a dataset holds the episodes of one")
    chance = RandomAgent(BuildContext(*spaces), RandomConfig())
    acting: Policy = chance if policy is None else policy
    info = DatasetInfo(
        cfg.env_id,
        spaces,
        "env",
        env=config_to_mapping(cfg)["env"],
        policy={**facts, "algo": cfg.algo, "how": "random" if policy is None else how.text()},
        seed=seed,
    )
    if policy is not None and references:
        info = with_references(info, policy, make, references, seed)
    return joined(info, list(record_episodes(acting, make, spaces[1], amount, seed, how)))


def with_references(info: DatasetInfo, policy: Policy, make: EnvMaker, episodes: int, seed: int) -> DatasetInfo:
    """The record of a dataset with the returns that count as 0 and as 100."""
    chance = RandomAgent(BuildContext(*info.spaces), RandomConfig())
    low, high = (
        float(evaluate_policy(each, make, episodes=episodes, seed=seed).returns.mean()) for each in (chance, policy)
    )
    said = f"mean returns of {episodes} evaluation episodes, random (min) and this run's greedy policy (max)"
    return replace(info, ref_min=low, ref_max=high, reference=said)
