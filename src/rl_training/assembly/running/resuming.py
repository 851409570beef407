"""Resuming: back to the newest intact checkpoint; what that puts on record: changed fields, damaged logs, budgets."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.assembly.running.run import Run
from rl_training.assembly.running.warm_start import warm_start
from rl_training.checkpointing.manager import Checkpoint
from rl_training.checkpointing.seal import SealCheck
from rl_training.config.schema import TrainConfig
from rl_training.runs.budgets import Budget, budgets_json, read_budgets
from rl_training.runs.directory import RunDir


def restore(run: Run, cfg: TrainConfig, directory: RunDir) -> list[Budget]:
    """Bring a new trainer and the run directory to the newest intact checkpoint; returns the budgets saved in it."""
    trainer, logger, manager = run.trainer, run.logger, run.manager
    if not manager.steps() and not (directory.logs / "metrics.jsonl").stat().st_size:
        # ended before the checkpoint of step 0 was there, so the beginning is where it was
        if parent := directory.info().get("parent"):
            warm_start(trainer, cfg, parent, policy_only=bool(directory.info().get("init_policy_only")))
        logger.cut_all()
        directory.rewind(0)
        logger.message("resumed from the beginning: the run had no checkpoint yet")
        return trainer.budgets
    checkpoint = manager.load_latest()
    run.saver.restore(trainer, checkpoint.parts)
    saved = read_budgets(checkpoint.metadata.get("budgets", directory.info().get("budgets")))
    manager.rewind(checkpoint.step)
    directory.rewind(checkpoint.step)
    record_changes(directory, checkpoint, manager.sealing)
    record_damage(directory, checkpoint.step, logger.damage)
    logger.message(f"resumed from {checkpoint.path.name}")
    return saved


def record_first_budget(run: RunDir, cfg: TrainConfig) -> None:
    """Add the first budget to the record of a run of 0.1.0, which has the newest one only."""
    info = run.info()
    if "budgets" not in info:
        known = [Budget(0, cfg.training.budget)] if info.get("total_timesteps") is None else []
        run.update_info(budgets=budgets_json(known))


def record_changes(run: RunDir, checkpoint: Checkpoint, sealing: SealCheck | None) -> None:
    """Record the fields that differ from those the checkpoint was saved under; the user allowed the change."""
    stored = checkpoint.seal
    if stored is None or sealing is None:
        return
    fields = {change.path: {"was": change.stored, "is": change.now} for change in stored.changes(sealing.now)}
    if not stored.belongs_to(sealing.now):
        fields = {"run": {"was": stored.run, "is": sealing.now.run}, **fields}
    if fields:
        known = run.info().get("config_changes") or []
        run.update_info(config_changes=[*known, {"env_steps": checkpoint.step, "fields": fields}])


def record_damage(run: RunDir, step: int, damage: Sequence[str]) -> None:
    """Record the logs that do not match the checkpoint of `step`."""
    if damage:
        known = run.info().get("logs_damage") or []
        run.update_info(logs_intact=False, logs_damage=[*known, {"env_steps": step, "files": list(damage)}])
