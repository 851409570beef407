"""What a resume leaves in run.json: budgets, a config changed on purpose, logs that were not what they had been."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.checkpointing.manager import Checkpoint
from rl_training.checkpointing.seal import SealCheck
from rl_training.config.schema import TrainConfig
from rl_training.runs.budgets import Budget, budgets_json, taken_over
from rl_training.runs.directory import RunDir
from rl_training.training.loop import Trainer


def record_first_budget(run: RunDir, cfg: TrainConfig) -> None:
    """What is known about the budgets of a run of 0.1.0, which recorded the newest one alone."""
    info = run.info()
    if "budgets" not in info:
        known = [Budget(0, cfg.training.total_timesteps)] if info.get("total_timesteps") is None else []
        run.update_info(budgets=budgets_json(known))


def take_over(trainer: Trainer, total: int, *, asked: bool) -> None:
    """Go on with a budget of `total` env steps; a run that had decided to end goes on only with a new one, or where
    that was `asked` for."""
    step, before = trainer.progress.env_steps, trainer.budgets
    is_new = bool(before) and before[-1].total_timesteps != total
    goes_on = trainer.decided is not None and (asked or is_new)
    trainer.budgets = taken_over(before, step, total, goes_on=goes_on)
    trainer.decided = None if asked or is_new else trainer.decided


def record_changes(run: RunDir, checkpoint: Checkpoint, sealing: SealCheck | None) -> None:
    """Fields that are others than those the checkpoint was saved under: somebody allowed that."""
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
    """Logs that were not what the checkpoint of `step` covers."""
    if damage:
        known = run.info().get("logs_damage") or []
        run.update_info(logs_intact=False, logs_damage=[*known, {"env_steps": step, "files": list(damage)}])
