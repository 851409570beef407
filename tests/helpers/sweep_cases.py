"""Sweeps and searches whose members have ended, without training anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rl_training.config.searches.tuning import parse_tune
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.experiments.launching.tuning import Tuning
from rl_training.runs.directory import RunDir
from rl_training.runs.index import record


def finish(sweep: Sweep, scores: dict[tuple[int, int], float]) -> None:
    """Runs of members with these final returns, as their processes would leave them."""
    for member in sweep.members:
        score = scores.get((member.trial or 0, member.seed))
        if score is None:
            continue
        config = replace(sweep.config(member.trial), seed=member.seed, output_dir=str(sweep.output_dir))
        run = RunDir.create(config, group=sweep.group_of(member), sweep=sweep.sweep)
        run.write_summary({"env_steps": 100, "eval/return_mean": score, "time/elapsed_seconds": 2.0})
        run.finish()
        record(run.path)
    sweep.observe()
    sweep.save()


def searched(folder: Path, trials: int = 5) -> Sweep:
    """A search over one learning rate; trial k has the score k."""
    config = parse_tune(
        {
            "base_config": "ppo/cartpole",
            "ranges": {"hparams.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
            "num_trials": trials + 1,
            "seeds": [0],
            "sampler": "random",
        },
        source="test",
    )
    tuning = Tuning.create(config, overrides={"output_dir": str(folder)})
    for number in range(trials):
        (member,) = tuning.begin()
        finish(tuning.sweep, {(number, 0): float(number)})
        assert member.status == "finished"
        tuning._go_on(number, tuning.open[number], set())
    return tuning.sweep
