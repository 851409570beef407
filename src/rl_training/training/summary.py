"""The summary of a finished run: metrics.json, where the time went, what to type next."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl_training.runs.directory import RunDir
from rl_training.runs.names import env_fn_of
from rl_training.system.formatting import number_text
from rl_training.system.json_lines import number_of, read_rows, tail_rows
from rl_training.system.machine import peak_memory_bytes
from rl_training.training.loop import Trainer
from rl_training.types import Progress


def final_metrics(run: RunDir, trainer: Trainer, reason: str) -> dict[str, Any]:
    """The last value of every metric, with counters and time. Read back from the log, so a resumed run has them all."""
    latest = last_values(run.logs / "metrics.jsonl")
    elapsed = trainer.clock.elapsed
    return {
        **latest,
        **trainer.progress.state_dict(),
        "global_step": trainer.progress.position,
        "stop_reason": reason,
        "time/elapsed_seconds": round(elapsed, 3),
        **{f"time/{name}_seconds": round(value, 3) for name, value in trainer.clock.seconds.items()},
        "system/peak_memory_bytes": peak_memory_bytes(),
    }


def last_values(path: Path) -> dict[str, Any]:
    """The newest value of each key of a JSONL file; clock fields are left out."""
    values: dict[str, Any] = {}
    for row in read_rows(path):
        values.update(row)
    return {name: value for name, value in values.items() if not name.startswith(("time/", "system/"))}


def summary_text(run: RunDir, trainer: Trainer, metrics: dict[str, Any], reason: str) -> str:
    """The text that a user reads at the end of a run."""
    steps, elapsed = trainer.progress.env_steps, trainer.clock.elapsed
    where, axis = counted(trainer.progress), trainer.progress.axis
    position = f"{trainer.progress.position:,} {axis.replace('_', ' ')}"
    lines = [
        f"{'stopped' if trainer.interrupted else 'finished'}: {reason}",
        f"  steps      {where} in {elapsed:.1f} s",
    ]
    if 0 < steps <= trainer.learning_starts:
        lines.append(f"  learnt     nothing yet: hparams.learning_starts is {trainer.learning_starts:,}")
    names = ("eval/return_mean", "eval/return_std", "rollout/return_mean")
    score, spread, training = (number_of(metrics, name) for name in names)
    if score is not None:
        around = "" if spread is None else f" +- {number_text(spread)}"
        lines.append(f"  return     {number_text(score)}{around} (last evaluation)")
        if (scaled := number_of(metrics, "eval/score")) is not None:
            best = number_of(metrics, "eval/score_best")
            lines.append(f"  score      {scaled:.1f} (last), {scaled if best is None else best:.1f} (best)")
    elif training is not None:
        lines.append(f"  return     {number_text(training)} (training episodes)")
    lines.append(f"  time       {time_breakdown(trainer)}")
    lines.append(f"  run        {run.path}")
    if trainer.interrupted:
        lines += [f"  saved      this step is saved ({position})", f"  next       {command(run, 'resume')}"]
    else:
        lines.append(f"  next       {evaluate_next(run)}")
    return "\n".join(lines)


def finished_text(run: RunDir, trainer: Trainer) -> str:
    """The text that a user reads who resumes a finished run."""
    progress, limit = trainer.progress, trainer.total_episodes
    by_episodes = trainer.decided is None and limit is not None and progress.episodes >= limit
    go_on = command(run, "resume", f" --total-timesteps {2 * progress.env_steps}")
    if progress.axis == "updates":
        go_on = command(run, "resume", f" --total-updates {2 * progress.updates}")
    elif by_episodes:
        go_on = f"rl train --init-from {run.path}, with another training.total_episodes"
    lines = [
        f"nothing to do: this run is finished ({trainer.decided or 'budget spent'})",
        f"  steps      {counted(progress)}",
        f"  run        {run.path}",
        f"  go on      {go_on}",
        f"  next       {evaluate_next(run)}",
    ]
    return "\n".join(lines)


def counted(progress: Progress) -> str:
    """What a run has done, in numbers."""
    if progress.axis == "updates":
        return f"{progress.updates:,} updates"
    return f"{progress.env_steps:,} env steps, {progress.updates:,} updates, {progress.episodes:,} episodes"


def evaluate_next(run: RunDir) -> str:
    """The evaluation to try next: of a game a match, else one with a video where the encoder, an extra, is there."""
    if any("league/rating" in row for row in tail_rows(run.logs / "metrics.jsonl")):
        return command(run, "eval", " --opponent random")
    return command(run, "eval", "" if find_spec("imageio_ffmpeg") is None else " --video")


def command(run: RunDir, verb: str, flags: str = "") -> str:
    """The next command to type; a Python call where the environment was given as a function."""
    if env_fn_of(str(run.info().get("env_id"))) is None:
        return f"rl {verb} {run.path}{flags}"
    return f"rl_training.{'evaluate' if verb == 'eval' else verb}('{run.path}', env_fn=...)"


def time_breakdown(trainer: Trainer) -> str:
    """Shares of the wall time, largest first, and the rest as other."""
    elapsed = max(trainer.clock.elapsed, 1e-9)
    parts = sorted(trainer.clock.seconds.items(), key=lambda item: -item[1])
    shares = [f"{name} {100 * value / elapsed:.0f}%" for name, value in parts if value / elapsed >= 0.005]
    other = 1.0 - sum(trainer.clock.seconds.values()) / elapsed
    return ", ".join([*shares, f"other {100 * max(other, 0.0):.0f}%"])
