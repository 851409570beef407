"""What a run leaves on record: in run.json, in the index, in its summary and on the terminal, however it ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.assembly.running.callbacks import speaks
from rl_training.assembly.running.run import Run
from rl_training.config.schema import TrainConfig
from rl_training.monitoring.alerts import MonitorCallback
from rl_training.runs import index
from rl_training.runs.budgets import budgets_json
from rl_training.runs.directory import RunDir
from rl_training.runs.holder import WHERE_VARIABLE
from rl_training.system.error_text import describe
from rl_training.system.file_systems import host_name
from rl_training.system.signals import requeue_under_slurm
from rl_training.system.terminal_text import printable
from rl_training.training.callbacks import HandlesFailure
from rl_training.training.loop import Trainer
from rl_training.training.summary import final_metrics, summary_text
from rl_training.types import RLTrainingError

STOP_PATIENCE = 1.0
"""Seconds that an interrupted run waits for the alert hook of the user."""


@dataclass(frozen=True)
class TrainResult:
    """What a finished (or stopped) run left behind."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    stop_reason: str = ""
    exit_code: int = 0


def record_start(trainer: Trainer, cfg: TrainConfig, directory: RunDir) -> None:
    """Mark the run as running, in run.json and in the index."""
    exact = trainer.exact and directory.info().get("exact") is not False
    intact = directory.info().get("logs_intact") is not False
    now: dict[str, Any] = {"exact": exact, "logs_intact": intact, "budgets": budgets_json(trainer.budgets)}
    if trainer.progress.axis != "env_steps":
        now["axis"] = trainer.progress.axis
    if cfg.training.shards > 1:
        now["ranks"] = trainer.num_ranks
    place = os.environ.get(WHERE_VARIABLE) or f"{host_name()}:{os.getpid()}"
    directory.update_info(status="running", ended=None, exit_code=None, threads=threads_of(cfg), where=place, **now)
    index.record(directory.path)


def record_end(run: Run, directory: RunDir, result: TrainResult) -> str:
    """Write the summary and close everything; returns what the user reads."""
    stopped = run.trainer.interrupted
    words = summary_text(directory, run.trainer, result.metrics, result.stop_reason)
    run.logger.message(words)
    directory.write_summary(result.metrics)
    directory.finish(status="stopped" if stopped else "finished", exit_code=result.exit_code)
    # last: SLURM ends a job that is requeued
    if result.exit_code == 75 and (requeued := requeue_under_slurm()):
        run.logger.message(requeued)
        words = f"{words}\n{requeued}"
    for callback in run.callbacks:
        if isinstance(callback, MonitorCallback):
            callback.close(patience=STOP_PATIENCE if stopped else None)
    run.logger.close()
    return words


def threads_of(cfg: TrainConfig) -> int:
    """Threads that one operation of the run may use: as configured, but XLA keeps those it was started with."""
    if cfg.backend != "jax":
        return cfg.training.num_threads
    from rl_training.jax.runtime import threads

    return threads()


def result_of(trainer: Trainer, directory: RunDir, reason: str, *, exit_code: int = 0) -> TrainResult:
    checkpoint = directory.checkpoints / f"step_{trainer.progress.position:012d}"
    return TrainResult(directory.path, checkpoint, final_metrics(directory, trainer, reason), reason, exit_code)


def record_failure(run: Run, directory: RunDir, error: BaseException, *, saved: bool) -> None:
    """Leave the terminal and the run directory in order; a full disk must not hide what really happened."""
    interrupted = isinstance(error, KeyboardInterrupt)
    in_place = directory.is_in_place()
    for callback in run.callbacks:
        # a capture of the failed update has no folder any more if that of the run is gone; an alert needs none
        may_write = in_place or isinstance(callback, MonitorCallback)
        if not interrupted and may_write and isinstance(callback, HandlesFailure):
            with suppress(Exception):
                callback.on_failure(run.trainer, error)
    run.display.close()
    if interrupted:
        state = "the last step is saved" if saved else "this step is not saved; the last checkpoint stands"
        sys.stderr.write(f"{state}: rl resume {printable(str(directory.path))}\n")
    with suppress(OSError, RLTrainingError):
        run.logger.message(describe(error))
        run.logger.close()
    with suppress(OSError, RLTrainingError):
        directory.finish(status="stopped" if interrupted else "failed", exit_code=130 if interrupted else 1)


def show(text: str, cfg: TrainConfig) -> None:
    """Print a few lines to the terminal, if the run has it."""
    if speaks(cfg):
        sys.stdout.write(printable(text, lines=True) + "\n")
        sys.stdout.flush()
