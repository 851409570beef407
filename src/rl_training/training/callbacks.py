"""Callbacks: everything that happens between two train steps.

The order matters and is fixed in `assembly/running/callbacks.py`: guard, evaluation, video, alerts, log, debug mode,
those of the user, checkpoint, progress.

Triggers are functions of progress before and after a step, so there is no trigger state to lose.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.schema import TrainingConfig
from rl_training.guards import Guard, Suspects, part_suspects
from rl_training.logging.logger import Logger
from rl_training.logging.progress_display import Display
from rl_training.numerics.agents import AGENT_RETURN, POLICY_RETURN, TEAM_RETURN
from rl_training.runs.budgets import budgets_json
from rl_training.system.formatting import number_text
from rl_training.training.collector import Episode
from rl_training.training.contract import inspected
from rl_training.training.evaluation import EvalResult
from rl_training.training.host import HostTrainer
from rl_training.training.loop import NOTHING, Report, Trainer
from rl_training.types import Array, ConfigError, EnvError, Metrics, Obs, StateDict, Stateful, VectorStep, crossed

TEAM_NUMBERS = (TEAM_RETURN, POLICY_RETURN, AGENT_RETURN)
"""What the numbers of episodes of several agents begin with."""


class Callback:
    """Base for your own: override what you need. With `state_dict` and `load_state_dict` its state is saved, too."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step, also after a resume."""

    def on_step(self, trainer: Trainer, report: Report) -> None:
        """After every train step."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last step, also when interrupted."""

    def on_failure(self, trainer: Trainer, error: BaseException) -> None:
        """Instead of `on_end`, where the run ends with an error. Errors raised here are ignored."""


@runtime_checkable
class HandlesFailure(Protocol):
    """A callback that is told when a run ends with an error; one that does not derive from `Callback` need not be."""

    def on_failure(self, trainer: Trainer, error: BaseException) -> None: ...


class GuardCallback(Callback):
    """Stops the run in the update that produced a NaN or Inf, before any of it is logged or saved."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def on_start(self, trainer: Trainer) -> None:
        """Check what was loaded: the checkpoint of a run without checks, or the policy of another run."""
        self.guard.check_state(self.suspects(trainer))

    def on_step(self, trainer: Trainer, report: Report) -> None:
        *earlier, last = report.updates
        for update in earlier:
            self.guard.check_update(update.metrics, tuple, tuple, update.before)
        watched = inspected(trainer.algorithm).watched
        self.guard.check_update(last.metrics, watched, lambda: self.suspects(trainer), last.before)
        trainer.clock.seconds["guard"] = self.guard.seconds

    def suspects(self, trainer: Trainer) -> Suspects:
        parts = trainer.parts()
        return part_suspects({name: parts[name].state_dict() for name in ("algorithm", "policy")})


class Evaluate(Protocol):
    """Plays whole episodes with the policy as it is now."""

    def __call__(self, *, episodes: int, first: int = 0) -> EvalResult: ...


class EvalCallback(Callback):
    """Evaluates at the start, every `eval_frequency` env steps and at the end; stops a run that has reached
    `stop_at_return`. The evaluation at the start only adds a row to evals.jsonl."""

    def __init__(
        self,
        evaluate: Evaluate,
        logger: Logger,
        training: TrainingConfig,
        score: Callable[[Array], Array] | None = None,
    ) -> None:
        self.evaluate = evaluate
        self.score = score
        """Normalised scores of returns, where a dataset has reference scores."""
        self.best_score: float | None = None
        self.logger = logger
        self.training = training
        self.last_step = -1

    def on_start(self, trainer: Trainer) -> None:
        if self.training.eval_at_start and trainer.progress.position == 0 and self.last_step < 0:
            with trainer.clock.measure("evaluation"):
                result = self.evaluate(episodes=self.training.num_eval_episodes)
            self.log(trainer, result, to_sinks=False)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        if report.final or crossed(report.before.position, report.after.position, self.training.eval_steps):
            report.metrics.update(self.run(trainer))

    def on_end(self, trainer: Trainer) -> None:
        if not trainer.interrupted and self.last_step != trainer.progress.position:
            self.logger.log_metrics({**trainer.progress.state_dict(), **self.run(trainer)})

    def run(self, trainer: Trainer) -> Metrics:
        episodes, enough = self.training.num_eval_episodes, self.training.stop_episodes
        with trainer.clock.measure("evaluation"):
            result = self.evaluate(episodes=episodes)
            if self.is_solved(result) and episodes < enough:  # a few lucky episodes must not end a run
                result = result.followed_by(self.evaluate(episodes=enough - episodes, first=episodes))
        metrics = self.log(trainer, result)
        if self.is_solved(result):
            score = f"{number_text(metrics['return_mean'])} over {len(result.returns)} episodes"
            trainer.request_stop(f"solved: evaluation return {score} >= {self.training.stop_at_return:g}")
        return {f"eval/{name}": value for name, value in metrics.items()}

    def log(self, trainer: Trainer, result: EvalResult, *, to_sinks: bool = True) -> dict[str, float]:
        """Write the row of evals.jsonl; returns its metrics."""
        self.last_step = trainer.progress.position
        metrics = {**result.metrics(), **self.scores(result)}
        row = {"returns": result.returns.tolist(), "lengths": result.lengths.tolist()}
        self.logger.log_eval({**trainer.progress.state_dict(), **metrics, **row}, to_sinks=to_sinks)
        return metrics

    def scores(self, result: EvalResult) -> dict[str, float]:
        """The normalised score, and the best so far: which of the evaluations is best is known only afterwards, so the
        best alone would be too good."""
        if self.score is None:
            return {}
        score = float(self.score(result.returns).mean())
        self.best_score = score if self.best_score is None else max(self.best_score, score)
        return {"score": score, "score_best": self.best_score}

    def is_solved(self, result: EvalResult) -> bool:
        goal = self.training.stop_at_return
        return goal is not None and goal <= float(result.returns.mean()) < inf

    def state_dict(self) -> StateDict:
        best = {} if self.best_score is None else {"best_score": self.best_score}
        return {"last_step": self.last_step, **best}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.last_step = int(state["last_step"])
        self.best_score = state.get("best_score")


class VideoCallback(Callback):
    """Records an evaluation episode every `every` env steps; none after the first that could not be recorded, which is
    said and ends no training."""

    def __init__(self, record: Callable[[Path], Path], videos: Path, every: int) -> None:
        self.record = record
        self.videos = videos
        self.every = every

    def on_step(self, trainer: Trainer, report: Report) -> None:
        if self.every and crossed(report.before.position, report.after.position, self.every):
            with trainer.clock.measure("video"):
                try:
                    self.record(self.videos / f"step_{report.after.position:012d}.mp4")
                except (ConfigError, EnvError) as error:  # the environment draws nothing
                    self.every = 0
                    warnings.warn(f"no more videos of episodes (logging.video_frequency): {error}", stacklevel=2)


class PauseCallback(Callback):
    """Saves and stops the run at `step` env steps, as a signal would: a scheduler decides whether it goes on."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.has_paused = False

    def on_step(self, trainer: Trainer, report: Report) -> None:
        if report.after.env_steps >= self.step and not report.final and trainer.stop_reason is None:
            self.has_paused = True
            trainer.request_stop(f"paused at {report.after.env_steps:,} env steps", interrupted=True)


class LogCallback(Callback):
    """Writes finished episodes and metric rows: one row per train step, or per `every` env steps."""

    def __init__(self, logger: Logger, every: int = 0) -> None:
        self.logger = logger
        self.every = every
        self.pending: list[float] = []
        """Returns of episodes that ended since the last row; only kept when rows are further apart than steps."""

    def on_step(self, trainer: Trainer, report: Report) -> None:
        for update in report.updates:
            self.log(trainer, update, last=report.final and update is report.updates[-1])

    def log(self, trainer: Trainer, report: Report, *, last: bool) -> None:
        for episode in report.episodes:
            self.logger.log_episode(**episode_row(episode, report))
        due = self.every == 0 or last or crossed(report.before.position, report.after.position, self.every)
        self.pending += [episode.episode_return for episode in report.episodes]
        if due or "eval/return_mean" in report.metrics:
            if self.pending:
                report.metrics["rollout/return_mean"] = sum(self.pending) / len(self.pending)
            self.logger.log_metrics({**report.after.state_dict(), **report.metrics, **clock_metrics(trainer)})
            self.pending = []

    def on_end(self, trainer: Trainer) -> None:
        self.logger.save_logs()

    def state_dict(self) -> StateDict:
        return {"pending": list(self.pending)}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.pending = list(state["pending"])


class CheckpointCallback(Callback):
    """Saves at step 0, every `every` env steps, at each new best evaluation, and at the end; restores what it saved.

    A checkpoint holds the parts of the trainer, the callbacks in `beside`, this one, and last the `logs`: they are cut
    back only when everything else has loaded.
    """

    def __init__(
        self,
        manager: CheckpointManager,
        guard: Guard,
        *,
        every: int,
        keep_best: bool,
        beside: Mapping[str, Stateful] = NOTHING,
        logs: Stateful | None = None,
    ) -> None:
        self.manager = manager
        self.guard = guard
        self.beside: dict[str, Stateful] = {**beside, "checkpoint": self}
        if logs is not None:
            self.beside["logs"] = logs
        self.every = every
        self.keep_best = keep_best
        self.best: float | None = None
        self.saved_step = -1

    def on_start(self, trainer: Trainer) -> None:
        if trainer.progress.position == 0:
            self.save(trainer)

    def on_step(self, trainer: Trainer, report: Report) -> None:
        score = report.metrics.get("eval/return_mean")
        # a NaN would stay the best for ever: no score is greater
        is_best = self.keep_best and score is not None and isfinite(score) and (self.best is None or score > self.best)
        if is_best:
            self.best = score
        if is_best or crossed(report.before.position, report.after.position, self.every):
            self.save(trainer, score=score, best=is_best)

    def on_end(self, trainer: Trainer) -> None:
        if self.saved_step != trainer.progress.position:
            self.save(trainer)

    def save(self, trainer: Trainer, *, score: float | None = None, best: bool = False) -> None:
        with trainer.clock.measure("checkpoint"):
            state = trainer.state_dict(self.beside)
            self.guard.check_state(part_suspects({name: state[name] for name in trainer.parts()}))
            step = trainer.progress.position
            budgets = budgets_json(trainer.budgets)
            metadata: dict[str, Any] = {**trainer.progress.state_dict(), "score": score, "budgets": budgets}
            self.manager.save(state, step=step, metadata=metadata, best=best)
            self.saved_step = step

    def restore(self, trainer: Trainer, state: dict[str, StateDict]) -> None:
        """Bring the trainer and everything that is saved beside it back to a checkpoint."""
        trainer.load_state_dict(state, self.beside)

    def state_dict(self) -> StateDict:
        return {"best": self.best}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.best = state["best"]


class TraceCallback(Callback):
    """Writes every transition of a short run to trace.jsonl (`logging.trace`)."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def on_start(self, trainer: Trainer) -> None:
        cast(HostTrainer, trainer).watch_steps(self.log)  # the compiled lane refuses `logging.trace`

    def log(self, step: VectorStep) -> None:
        for i in np.flatnonzero(step.valid):
            self.logger.log_step(
                env=int(i),
                obs=row_of(step.obs, int(i)),
                action=step.actions[i],
                reward=step.rewards[i],
                next_obs=row_of(step.next_obs, int(i)),
                terminated=step.terminated[i],
                truncated=step.truncated[i],
            )


class ProgressCallback(Callback):
    """Updates the progress bar or prints plain lines; never changes the run."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.eval_return: float | None = None
        self.recent: list[float] = []

    def on_step(self, trainer: Trainer, report: Report) -> None:
        self.recent = (self.recent + [episode.episode_return for episode in report.episodes])[-100:]
        self.eval_return = report.metrics.get("eval/return_mean", self.eval_return)
        mean = sum(self.recent) / len(self.recent) if self.recent else None
        self.display.update(report.after.position, return_mean=mean, eval_return=self.eval_return)

    def on_end(self, trainer: Trainer) -> None:
        self.display.close()


def row_of(obs: Obs, row: int) -> Any:
    """The observation of one environment."""
    return {name: column[row] for name, column in obs.items()} if isinstance(obs, dict) else obs[row]


def episode_row(episode: Episode, report: Report) -> dict[str, Any]:
    """A line of episodes.jsonl; `env_steps` is the end of the train step in which the episode ended."""
    return {
        "env_steps": report.after.env_steps,
        "env": episode.env_index,
        "return": episode.episode_return,
        "length": episode.length,
        "terminated": episode.terminated,
        **{name if name.startswith(TEAM_NUMBERS) else f"info/{name}": value for name, value in episode.info.items()},
    }


def clock_metrics(trainer: Trainer) -> Metrics:
    """Everything that depends on the clock, under `time/`."""
    seconds = {f"time/{name}_seconds": round(value, 4) for name, value in trainer.clock.seconds.items()}
    return {"time/elapsed_seconds": round(trainer.clock.elapsed, 3), **seconds}
