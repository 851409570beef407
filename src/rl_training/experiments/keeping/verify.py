"""`ReproducibilityChecker`: trains a run again from its stored config and reports where the two first differ.

First the hashes that the run recorded of its config, logs and files are checked. Then the rows of metrics and
evaluations (without clock metrics) are compared and, at every step of which the run still has a checkpoint, the whole
state of the trainer, bit for bit.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn, need_env_fn
from rl_training.assembly.remote import inline_pool
from rl_training.assembly.running.user_parts import user_parts
from rl_training.assembly.running.warm_start import warm_start
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.schema import TrainConfig
from rl_training.experiments.keeping.run_comparison import (
    comparable,
    compare_logs,
    compare_row,
    compare_runs,
    damaged_tensor,
    first_difference,
    stored_rows,
)
from rl_training.experiments.keeping.verify_records import (
    Difference,
    VerifyReport,
    check_config,
    check_files,
    check_log,
    compare_versions,
)
from rl_training.runs.budgets import Leg, are_known, legs, read_budgets
from rl_training.runs.directory import RunDir
from rl_training.system.json_lines import Row, encode_row, read_rows, steps_of
from rl_training.system.signals import StopSignals
from rl_training.trainer import Start, execute, with_budget
from rl_training.training.callbacks import Callback
from rl_training.training.loop import Report, Trainer
from rl_training.types import RLTrainingError, RunError, TrustError

__all__ = ["Difference", "ReproducibilityChecker", "VerifyReport"]

VERIFY = "experiments.ReproducibilityChecker().verify_experiment"


class ReproducibilityChecker:
    """Compares stored runs with what their configs produce now, on this machine."""

    def verify_experiment(
        self, run_dir: str | Path, *, steps: int | None = None, env_fn: EnvFn | None = None, trust_plugins: bool = False
    ) -> VerifyReport:
        """Train again up to `steps` env steps (default: as far as the run got), comparing along the way.

        `trust_plugins` allows the code that a run from another machine asks for.
        """
        run = RunDir.open(run_dir)
        need_env_fn(run.path, run.config(secrets=False), env_fn, VERIFY)
        refuse_async(run)
        report = VerifyReport(run.path)
        if not check_config(run, report):
            return report  # what would be trained is not what was trained
        with run.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None) as cfg:
            self._train_again(run, cfg, report, steps, env_fn)
        return report

    def _train_again(
        self, run: RunDir, cfg: TrainConfig, report: VerifyReport, steps: int | None, env_fn: EnvFn | None
    ) -> None:
        sound = check_files(run, report)
        check_log(run, report, sound.values())
        cfg = quiet(cfg)
        compare_versions(run, report)
        plan = legs_of(run, cfg, report, steps)
        with tempfile.TemporaryDirectory(prefix="rl-verify-") as folder:
            watcher = Comparison(run, report, plan[-1].stop, sound)
            try:
                again = play_legs(plan, replace(cfg, output_dir=folder), watcher, run.info().get("parent"), env_fn)
                compare_logs(run, again, report, "evaluation", "evals.jsonl", report.env_steps)
            except TrustError:
                raise
            except RLTrainingError as error:
                if run.info().get("status") != "failed":
                    raise
                report.notes.append(f"the run failed, and so it does again: {error}")
            watcher.finish()

    def verify_resume(
        self, run_dir: str | Path, *, steps: int | None = None, env_fn: EnvFn | None = None, trust_plugins: bool = False
    ) -> VerifyReport:
        """Train twice from the stored config, once without interruption and once stopped half-way and resumed from
        files by a new trainer; then compare logs and final states."""
        run = RunDir.open(run_dir)
        need_env_fn(run.path, run.config(secrets=False), env_fn, VERIFY)
        refuse_async(run)
        with run.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None) as cfg:
            return self._verify_resume(run, cfg, steps, env_fn)

    def _verify_resume(self, run: RunDir, cfg: TrainConfig, steps: int | None, env_fn: EnvFn | None) -> VerifyReport:
        report = VerifyReport(run.path)
        cfg = quiet(cfg)
        limit = min(reach(run, steps), cfg.training.budget)
        parent = run.info().get("parent")
        with tempfile.TemporaryDirectory(prefix="rl-verify-") as folder:
            half = StopAt(max(limit // 2, 1))
            straight = play(replace(cfg, output_dir=f"{folder}/straight"), StopAt(limit), parent=parent, env_fn=env_fn)
            halved = play(replace(cfg, output_dir=f"{folder}/halved"), half, parent=parent, env_fn=env_fn)
            again = replace(cfg, output_dir=f"{folder}/halved")
            play(again, StopAt(limit), run=halved, start="resumed", env_fn=env_fn)
            compare_runs(straight, halved, report)
        return report


# -- training again ---------------------------------------------------------------------------------------------------


def refuse_async(run: RunDir) -> None:
    """RunError for a run whose data depended on the clock."""
    if run.config(secrets=False).env.collection == "async":
        raise RunError(
            f"run '{run.path.name}' was collected with env.collection: async, which cannot be repeated bit for bit: "
            "there is nothing to verify"
        )


def quiet(cfg: TrainConfig) -> TrainConfig:
    """The same training without observers: no videos, no trackers, no files but its own."""
    unseen = replace(cfg.logging.wandb, enabled=False)
    logging = replace(cfg.logging, terminal=False, tensorboard=False, wandb=unseen, sinks=(), video_frequency=0)
    monitor = replace(cfg.monitor, command=(), url=None)
    return replace(cfg, logging=logging, monitor=monitor, training=replace(cfg.training, checkpoint_frequency=0))


def reach(run: RunDir, steps: int | None) -> int:
    """The number of env steps that can be compared."""
    logged = [steps_of(row) or 0 for row in read_rows(run.logs / "metrics.jsonl")]
    came = max([*logged, *CheckpointManager(run.path).steps()], default=0)
    if came == 0:
        raise RunError(f"run '{run.path}' has logged and saved nothing yet; there is nothing to verify")
    return came if steps is None else min(steps, came)


def legs_of(run: RunDir, cfg: TrainConfig, report: VerifyReport, steps: int | None) -> list[Leg]:
    """The segments of the run, each with the budget that was in force. Where budgets were not recorded, only the first
    one is trained."""
    info, limit, first = run.info(), reach(run, steps), cfg.training.budget
    budgets = read_budgets(info.get("budgets"))
    if are_known(budgets):
        return legs(budgets, limit, ended=info.get("status") == "finished")
    if info.get("total_timesteps") is None:
        return [Leg(first, limit)]
    report.notes.append(
        f"the budget was changed by a version that did not record when; the first one, {first:,} env steps, is compared"
    )
    return [Leg(first, min(limit, first))]


def play_legs(
    plan: Sequence[Leg], cfg: TrainConfig, watcher: StopAt, parent: str | None, env_fn: EnvFn | None
) -> RunDir:
    """Train under each budget in turn, as far as it was in force."""
    run = None
    for leg in plan:
        watcher.limit = leg.stop
        start: Start = "new" if run is None else "extended"
        budgeted = with_budget(cfg, leg.total_timesteps)
        if run is None:  # where eval_frequency is auto, the budget the run was started with decides, not an edited one
            axis = "total_timesteps" if cfg.training.total_updates is None else "total_updates"
            budget: dict[str, Any] = {axis: leg.total_timesteps}
            budgeted = replace(cfg, training=replace(cfg.training, **budget))
        run = play(budgeted, watcher, parent=parent, run=run, start=start, env_fn=env_fn)
    assert run is not None, "a plan has at least one leg"
    return run


def play(
    cfg: TrainConfig,
    watcher: StopAt,
    *,
    parent: str | None = None,
    run: RunDir | None = None,
    start: Start = "new",
    env_fn: EnvFn | None = None,
) -> RunDir:
    """Train in a new directory, or continue in `run`, with `watcher` as callback and sink."""
    with StopSignals() as signals, pinned_threads(cfg.training.num_threads, cfg.backend):
        trainer = build_trainer(cfg, env_fn, make_pool=inline_pool)
        try:
            users = user_parts(cfg, env_fn=env_fn)
            if run is None and parent is not None:
                warm_start(trainer, cfg, parent)
            run = run or RunDir.create(cfg, parent=parent)
            with run.lock():
                watched = replace(users, callbacks=[*users.callbacks, watcher], sinks=[watcher])
                execute(trainer, cfg, run, env_fn, watched, signals, start=start)
        finally:
            trainer.close()
        if signals.received is not None:
            raise KeyboardInterrupt
    return run


class StopAt(Callback):
    """Stops a run at `limit` env steps, as a signal would; as a sink it ignores all rows."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_start(self, trainer: Trainer) -> None:
        trainer.stops.append(self.limit)
        if trainer.progress.position >= self.limit and not trainer.budget_spent(trainer.total_timesteps):
            trainer.request_stop("far enough", interrupted=True)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        is_over = report.final or trainer.decided is not None
        if not is_over and trainer.progress.position >= self.limit:
            trainer.request_stop("far enough", interrupted=True)

    def log(self, row: Row, /) -> None:
        """Ignored here; subclasses compare it."""

    def log_eval(self, row: Row, /) -> None:
        """Ignored: evaluations are read from the log, which also has the one at the start."""

    def close(self) -> None:
        """Nothing is buffered."""


class Comparison(StopAt):
    """Compares a training with a stored run, row by row and checkpoint by checkpoint."""

    def __init__(self, run: RunDir, report: VerifyReport, limit: int, intact: Collection[int]) -> None:
        super().__init__(limit)
        self.manager = CheckpointManager(run.path, report=lambda line: None)
        self.intact = set(intact)
        self.steps = set(self.manager.steps())
        self.report = report
        self.expected = stored_rows(run)

    def on_start(self, trainer: Trainer) -> None:
        super().on_start(trainer)
        trainer.stops += [step for step in self.steps if step > 0]
        self.compare_state(trainer)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        super().on_step(trainer, report)
        self.report.env_steps = trainer.progress.position
        self.compare_state(trainer)

    def log(self, row: Row, /) -> None:
        found, stored = comparable(json.loads(encode_row(row))), next(self.expected, {})
        self.report.rows += 1
        compare_row("metric", stored, found, self.report)

    def compare_state(self, trainer: Trainer) -> None:
        step = trainer.progress.position
        if step not in self.steps:
            return
        self.steps.remove(step)  # the end of one budget is the beginning of the next
        parts = {name: part.state_dict() for name, part in trainer.parts().items()}
        if step in self.intact:
            found = first_difference(self.manager.load(step).parts, parts, only=parts)
        else:
            found = damaged_tensor(self.manager.path / f"step_{step:012d}", parts)
        self.report.checkpoints += 1
        if found is not None:
            self.report.add(replace(found, env_steps=step))

    def finish(self) -> None:
        """Report the first row of the stored run that the new one never produced."""
        left = next(self.expected, None)
        if left is not None and left.get("env_steps", 0) <= self.report.env_steps:
            self.report.add(Difference("metric", "a stored row that was not produced again", left.get("env_steps")))
