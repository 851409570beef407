"""Runs a captured update again, from the same state and with the same batch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_training.assembly.algorithm import resolve_algorithm
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.remote import inline_pool
from rl_training.checkpointing.capture import load_capture
from rl_training.config.schema import TrainConfig
from rl_training.monitoring.debug_mode import DebugMode, load_snapshot
from rl_training.monitoring.gradient_check import GradientCheck
from rl_training.registry import import_plugins
from rl_training.runs.stored_config import CAPTURE, StoredConfig
from rl_training.types import CheckpointError, NonFiniteError

SMALL_BUFFER = 1000
"""Size of the replay buffer, which a replayed update does not use."""


@dataclass
class ReplayReport:
    """Outcome of a captured update when it is run again."""

    file: Path
    why: str
    """Why it was captured."""
    updates: int
    error: str | None = None
    """Error message of this run; None if it succeeded."""
    failed_before: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)
    layers: dict[str, float] = field(default_factory=dict)
    gradient_checks: list[GradientCheck] = field(default_factory=list)

    @property
    def reproduced(self) -> bool:
        """Whether it fails or succeeds as it did when it was captured."""
        return (self.error is not None) == self.failed_before


def replay_capture(file: str | Path, *, gradient_check: bool = False, trust_plugins: bool = False) -> ReplayReport:
    """Build the algorithm of the captured run, restore the state before the update, and update once.

    `trust_plugins` allows the code that a file captured on another machine asks for.
    """
    path = Path(file)
    captured = load_capture(path)
    try:
        why, updates, progress = str(captured["why"]), int(captured["updates"]), captured["progress"]
        stored = stored_config(path, json.loads(captured["config"]), captured.get("trust_seal"))
        batch, state = captured["batch"], {"policy": captured["policy"], "algorithm": captured["algorithm"]}
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"'{path}' was not captured by a run, or is damaged ({error!r})") from error
    report = ReplayReport(path, why, updates, failed_before=why != "asked for")
    with stored.to_run(trust_plugins=trust_plugins) as run, pinned_threads(run.training.num_threads):
        trainer = build_trainer(replay_config(run), make_pool=inline_pool)
        try:
            trainer.progress.load_state_dict(progress)
            load_snapshot(trainer.algorithm, state)
            run_update(report, DebugMode(trainer.algorithm), batch, gradient_check=gradient_check)
        finally:
            trainer.close()
    return report


def run_update(report: ReplayReport, mode: DebugMode, batch: Any, *, gradient_check: bool) -> None:
    try:
        result = mode.wrap_update()(batch)
    except NonFiniteError as error:
        report.error = str(error)
        return
    report.metrics = {name: float(value) for name, value in result.metrics.items()}
    if gradient_check:
        report.gradient_checks = mode.gradient_checks = mode.check_gradients(batch)
    report.hints, report.layers = mode.hints(), mode.statistics


def stored_config(path: Path, mapping: Any, mark: object) -> StoredConfig:
    if not isinstance(mapping, dict):
        raise TypeError("the config is not a mapping")
    return StoredConfig(CAPTURE, CAPTURE, mapping, mark, f"captured update '{path}'", "captured config")


def replay_config(cfg: TrainConfig) -> TrainConfig:
    """The config of the captured run, with every check on and a small buffer."""
    cfg = replace(cfg, monitor=replace(cfg.monitor, checks="full"))
    import_plugins(cfg.plugins)
    spec, _ = resolve_algorithm(cfg)
    if spec.kind != "off_policy" or cfg.buffer.size is None or cfg.buffer.size <= SMALL_BUFFER:
        return cfg
    return replace(cfg, buffer=replace(cfg.buffer, size=SMALL_BUFFER))
