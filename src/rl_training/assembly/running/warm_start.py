"""Starting from another run: from its policy, its critics, or its replay rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from rl_training.assembly.algorithm import resolve_algorithm
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import fitting, named
from rl_training.config.loading import config_to_mapping
from rl_training.config.schema import TrainConfig
from rl_training.config.seal import sealed_changes
from rl_training.runs.directory import RunDir
from rl_training.runs.names import parse_run_step
from rl_training.training.loop import Trainer
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.offline.online import OnlineTrainer
from rl_training.types import CheckpointError, ConfigError, Policy, StateDict


def warm_start(trainer: Trainer, cfg: TrainConfig, init_from: str, *, policy_only: bool = False) -> None:
    """Load the policy of another run, its newest or the given step, or its replay rows where the algorithm learns from
    those; everything else starts fresh. An offline run that goes on in an environment is loaded whole, unless
    `policy_only`."""
    start = parse_run_step(init_from)
    source = RunDir.open(start.run, cfg.output_dir)
    if isinstance(trainer, OnlineTrainer) and not policy_only:
        algo = source.config(secrets=False).algo
        if algo != cfg.algo:
            raise ConfigError(
                f"--init-from {init_from} is a run of '{algo}', whose critics do not fit '{cfg.algo}': take --algo "
                f"{algo}, or give --init-policy-only"
            )
        saved = CheckpointManager(source.path).load(start.checkpoint, parts={"policy", "algorithm"}).parts
        check_normaliser(saved["policy"], trainer.algorithm.policy, init_from)
        with taken_from(source, cfg, init_from):
            trainer.take_from(saved["policy"], saved["algorithm"])
        return
    if policy_only and not isinstance(trainer, OnlineTrainer):
        raise ConfigError(
            "--init-policy-only is for offline algorithms that go on in an environment; others take the policy"
        )
    if isinstance(trainer, OffPolicyTrainer) and learns_from_given_rows(cfg):
        try:
            trainer.learn_from(CheckpointManager(source.path).load(start.checkpoint, {"buffer"}).parts["buffer"])
        except CheckpointError as error:
            raise ConfigError(f"--init-from {init_from}: that run has no replay rows for this one: {error}") from error
        return
    saved = CheckpointManager(source.path).load(start.checkpoint, parts={"policy"}).parts
    policy = cast(Policy, trainer.parts()["policy"])
    check_normaliser(saved["policy"], policy, init_from)
    with taken_from(source, cfg, init_from):
        policy.load_state_dict(saved["policy"])


def check_normaliser(saved: StateDict, policy: Policy, init_from: str) -> None:
    """ConfigError where one of both scales observations and the other does not: the network would see other numbers
    than those that it learnt from."""
    theirs, own = (bool(state.get("normalizer")) for state in (saved, policy.state_dict()))
    if theirs != own:
        words = ("scales observations", "does not") if theirs else ("does not scale observations", "does")
        raise ConfigError(
            f"--init-from {init_from}: that run {words[0]} and this config {words[1]}: "
            f"set env.normalize_obs: {str(theirs).lower()}"
        )


@contextmanager
def taken_from(source: RunDir, cfg: TrainConfig, init_from: str) -> Iterator[None]:
    """Around loading the state of another run: ConfigError that names the fields in which its networks differ."""
    try:
        with fitting(f"--init-from {init_from}: that run"):
            yield
    except CheckpointError as error:
        here, there = (config_to_mapping(each) for each in (cfg, source.config(secrets=False)))
        fields = ("backend", "network")
        changes = sealed_changes(*({name: tree[name] for name in fields} for tree in (there, here)))
        if not changes:
            raise ConfigError(str(error)) from error
        raise ConfigError(
            f"--init-from {init_from}: that run has other networks: {named(changes)}; give this run those of that one"
        ) from error


def learns_from_given_rows(cfg: TrainConfig) -> bool:
    """Whether `--init-from` gives the algorithm replay rows instead of a policy."""
    return resolve_algorithm(cfg)[0].init_from == "replay"
