"""`rl dream`: play an episode, let the world model of a run foresee it, and write both side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    allow_changed_config_flag,
    argument,
    checkpoint_flag,
    json_flag,
    output_dir_flag,
    text,
    trust_flag,
    whole,
)
from rl_training.cli.parser import Command
from rl_training.cli.policy_of_run import answer, loading

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir


@dataclass(frozen=True, kw_only=True)
class DreamOptions:
    run: str = argument(values="runs")
    checkpoint: int | str = checkpoint_flag()
    context: int = whole("observations that the model sees first (default 5)", low=1, default=5)
    steps: int = whole("steps that it foresees then (default 15)", low=1, default=15)
    samples: int = whole("samples of the future, for the spread in plots (default 16)", low=1, default=16)
    seed: int | None = whole("seed of the episode (default: the run's own)", "S")
    out: str | None = text("folder for videos and plots (default: those of the run)", "DIR")
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: DreamOptions) -> int:
    def text(record: dict[str, Any]) -> str:
        errors = ", ".join(f"{error:.3f} after {k}" for k, error in record["errors"].items())
        return (
            f"{record['run']}\ncheckpoint {options.checkpoint} at {record['env_steps']:,} env steps; saw "
            f"{record['context']} observations, then {record['steps']} steps on its own\n"
            f"root mean squared error of symlog values, of images in 0..1: {errors}\n" + "\n".join(record["files"])
        )

    return answer("dream", options, lambda target: dreamt(target, options), text)


def dreamt(target: RunDir, options: DreamOptions) -> dict[str, Any]:
    """Play, dream, write; returns the record that `--json` prints."""
    from pathlib import Path

    from rl_training.eval import dream_of_an_episode
    from rl_training.logging.dream_pictures import write_dream

    found, env_steps = dream_of_an_episode(
        target.path,
        context=options.context,
        steps=options.steps,
        samples=options.samples,
        seed=options.seed,
        **loading(options),
    )
    videos, plots = (Path(options.out),) * 2 if options.out else (target.videos, target.plots)
    files = write_dream(found, videos, plots, f"dream_{env_steps:012d}_episode")
    return {
        "run": str(target.path),
        "env_steps": env_steps,
        "context": found.context,
        "steps": next(iter(found.predicted.values())).shape[1] - found.context,
        "errors": errors_of(found),
        "files": [str(file) for file in files],
    }


def errors_of(found: Any) -> dict[str, float]:
    """Root mean squared errors of the mean prediction 1, 5 and 15 steps ahead, over everything observed, in the units
    of `rl eval` of a model: symlog of vectors, images in 0..1."""
    import numpy as np

    from rl_training.hparams.world_models import HORIZONS
    from rl_training.numerics.symlog import symlog

    errors = {}
    for k in HORIZONS:
        at, differences = found.context - 1 + k, []
        for name, true in found.true.items():
            if at < len(true):
                samples, seen = found.predicted[name][:, at], true[at]
                if name not in found.images:
                    samples, seen = symlog(samples), symlog(seen)
                differences.append((samples.mean(0) - seen).ravel())
        if differences:
            errors[str(k)] = float(np.sqrt(np.square(np.concatenate(differences)).mean()))
    return errors


COMMAND = Command(
    name="dream",
    summary="show what the world model of a run foresees, beside what really happens",
    usage="RUN [flags]",
    options=DreamOptions,
    run=run,
    examples=("rl dream latest", "rl dream latest --context 3 --steps 6 --out pictures"),
    notes=TARGETS,
)
