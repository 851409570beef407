"""Starting from another run: from its policy, its critics, or its replay rows."""

from __future__ import annotations

from rl_training.assembly.algorithm import resolve_algorithm
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import fitting
from rl_training.config.schema import TrainConfig
from rl_training.runs.directory import RunDir
from rl_training.runs.names import parse_run_step
from rl_training.training.loop import Trainer
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.offline.online import OnlineTrainer
from rl_training.types import CheckpointError, ConfigError


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
        with fitting(f"--init-from {init_from}: that run", "it needs the networks and the spaces of that run"):
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
    checkpoint = CheckpointManager(source.path).load(start.checkpoint, parts={"policy"})
    with fitting(f"--init-from {init_from}: that policy", "it needs the network and the spaces of that run"):
        trainer.parts()["policy"].load_state_dict(checkpoint.parts["policy"])


def learns_from_given_rows(cfg: TrainConfig) -> bool:
    """Whether `--init-from` gives the algorithm replay rows instead of a policy."""
    return resolve_algorithm(cfg)[0].init_from == "replay"
