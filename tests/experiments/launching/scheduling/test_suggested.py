"""A search with a scheduler, its runs only written down: who goes on, what the sampler hears, and kills."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.searches.tuning import parse_tune
from rl_training.experiments.launching.auto_tuner import ask_with_scores
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.scheduling.asha import Asha
from rl_training.experiments.launching.scheduling.making import make_scheduler
from rl_training.experiments.launching.scheduling.pbt import Population
from rl_training.experiments.launching.scheduling.suggested import SuggestedTrials
from rl_training.experiments.launching.tuning import Tuning
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError

RATE = "hparams.learning_rate"
FILE: dict[str, Any] = {
    "base_config": "ppo/cartpole",
    "space": "none",
    "ranges": {RATE: {"low": 1e-5, "high": 1e-1, "log": True}},
    "sweep": {"hparams.gamma": [0.9, 0.95, 0.99]},
    "num_trials": 9,
    "seeds": [3, 4],
    "aggregate": "mean",
    "scheduler": "asha",
}
TOTAL = 900


def closeness(values: dict[str, Any]) -> float:
    return -abs(math.log10(values[RATE]) + 3.0)


def learning(values: dict[str, Any], seed: int, steps: int) -> float | None:
    """Better near 1e-3 and with more steps."""
    return closeness(values) + seed + steps / 1e4


Score = Callable[[dict[str, Any], int, int], float | None]


class KilledError(Exception):
    """This process is no more."""


class Runs:
    """Stands for a `GroupRunner`: every run comes at once to its pause or its end, or fails."""

    def __init__(self, tuning: Tuning, score: Score = learning, jobs: int = 1, limit: int | None = None) -> None:
        self.tuning, self.score, self.jobs, self.limit = tuning, score, jobs, limit
        self.waiting: list[Member] = []
        self.running: list[Any] = []
        self.pauses: dict[Any, int] = {}
        self.started: list[tuple[int | None, int, int]] = []

    def parallel(self) -> int:
        return self.jobs

    def play(self) -> Asha | Population:
        """Until the scheduler has nothing left, or this process is "killed" at the given number of runs."""
        self.tuning.resume()
        config = self.tuning.config
        assert config.scheduler is not None
        scheduler = make_scheduler(self.tuning.sweep, config.scheduler, SuggestedTrials(self.tuning))
        try:
            while new := scheduler.feed(self):  # type: ignore[arg-type]
                for member in new:
                    if self.limit is not None and len(self.started) >= self.limit:
                        raise KilledError
                    self.end(member)
        finally:
            scheduler.close()
        return scheduler

    def end(self, member: Member) -> None:
        sweep = self.tuning.sweep
        steps = self.pauses.get(member.key, TOTAL)
        self.started.append((*member.key, steps))
        score = self.score(sweep.info.trials[member.trial or 0], member.seed, steps)
        member.run = f"ppo__CartPole-v1__seed{member.seed}__{member.trial:03d}"
        folder = sweep.output_dir / member.run
        folder.mkdir(exist_ok=True)
        status = "failed" if score is None else "stopped" if member.key in self.pauses else "finished"
        info = {"id": member.run, "status": status, "exit_code": 0, "group": sweep.group_of(member)}
        (folder / "run.json").write_text(json.dumps(info))
        (folder / "metrics.json").write_text(json.dumps({"eval/return_mean": score, "env_steps": steps}))
        sweep.observe_member(member)
        sweep.save()


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuning]:
    monkeypatch.chdir(tmp_path)
    overrides = {"training.total_timesteps": TOTAL}
    return lambda **changes: Tuning.create(parse_tune({**FILE, **changes}), overrides=overrides, source="")


# -- ASHA -------------------------------------------------------------------------------------------------------------


def test_suggested_trials_are_promoted_and_the_best_third_goes_on(create: Callable[..., Tuning]) -> None:
    """Nine trials at 100 steps, of these some at 300, the best of those at 900; promotions come before new trials."""
    tuning = create()
    runs = Runs(tuning)
    scheduler = runs.play()
    assert isinstance(scheduler, Asha)
    assert scheduler.is_over()
    rungs = scheduler.rungs.scores
    assert [len(rung) for rung in rungs] == [9, len(rungs[1]), len(rungs[2])]
    assert 3 <= len(rungs[1]) < 9
    assert 1 <= len(rungs[2]) < len(rungs[1])
    assert {steps for _, _, steps in runs.started} == {100, 300, 900}
    rows = {row["trial"]: row for row in tuning.trials()}
    for trial, row in rows.items():
        reached = [rung for rung in range(3) if trial in rungs[rung]]
        assert row["state"] == ("complete" if reached[-1] == 2 else "paused")
        # the mean of seeds 3 and 4 at each rung
        assert row["scores"] == pytest.approx([closeness(row["values"]) + 3.5 + 100 * 3**r / 1e4 for r in reached])
    best = tuning.best()
    assert best is not None
    assert best["value"] == max(rungs[2].values())
    assert {trial for trial, _, _ in runs.started[:6]} == {0, 1, 2}
    assert runs.started[6][2] == 300  # of three at the first rung one goes on before the fourth trial begins


@pytest.mark.parametrize("best", [1e-4, 1e-2])
def test_the_sampler_hears_of_paused_trials(create: Callable[..., Tuning], best: float) -> None:
    """What TPE suggests next follows the scores of trials that were paused at the first rung, and nothing else."""
    how = {"type": "asha", "reduction": 100, "num_rungs": 2}
    tuning = create(num_trials=20, seeds=[3], scheduler=how, sampler="random", sweep={})
    Runs(tuning, lambda values, seed, steps: -abs(math.log10(values[RATE] / best))).play()
    assert {row["state"] for row in tuning.trials()} == {"paused"}
    rates = [ask_with_scores(tuning.study, tuning.space, "tpe", seed).params[RATE] for seed in range(15)]
    assert abs(math.log10(statistics.median(rates) / best)) < 0.7


def test_minimising_by_the_worst_seed(create: Callable[..., Tuning]) -> None:
    """Scores inside of the scheduler are higher for better; the study has the values of the metric."""
    tuning = create(direction="minimize", aggregate="max", num_trials=3)
    scheduler = Runs(tuning, lambda values, seed, steps: -(learning(values, 0, steps) or 0.0) + seed).play()
    assert isinstance(scheduler, Asha)
    rows = {row["trial"]: row["scores"][0] for row in tuning.trials()}
    assert rows == pytest.approx({trial: -score for trial, score in scheduler.rungs.scores[0].items()})
    assert all(value > 0 for value in rows.values())
    assert max(scheduler.rungs.scores[0], key=lambda trial: scheduler.rungs.scores[0][trial]) == min(
        rows, key=lambda trial: rows[trial]
    )


@pytest.mark.usefixtures("branches_on_paper")
@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_a_search_that_is_killed_again_and_again_ends_as_one_that_was_not(
    create: Callable[..., Tuning],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
) -> None:
    changes: dict[str, Any] = {"scheduler": {"type": scheduler, "num_intervals": 3}, "seeds": [3], "num_trials": 6}
    straight = create(**changes)
    runs = Runs(straight)
    runs.play()
    (tmp_path / "killed").mkdir()
    monkeypatch.chdir(tmp_path / "killed")
    killed = create(**changes)
    count = 0
    for limit in (1, 4, 2, 5, None):
        again = Tuning.open_existing(killed.sweep.path)
        part = Runs(again, limit=limit)
        try:
            part.play()
        except KilledError:
            assert limit is not None
        count += len(part.started)
    assert again.trials() == straight.trials()
    assert count == len(runs.started)
    assert [member.key for member in again.sweep.members] == [member.key for member in straight.sweep.members]


def test_more_trials_may_be_asked_for_and_old_ones_are_promoted(create: Callable[..., Tuning]) -> None:
    tuning = create(num_trials=3, seeds=[3])
    Runs(tuning).play()
    assert len(tuning.trials()) == 3
    again = Tuning.open_existing(tuning.sweep.path)
    again.config = parse_tune({**FILE, "num_trials": 9, "seeds": [3]})
    runs = Runs(again)
    scheduler = runs.play()
    assert isinstance(scheduler, Asha)
    assert len(scheduler.rungs.scores[0]) == 9
    assert all(steps > 100 for trial, _, steps in runs.started if trial is not None and trial < 3)


def test_failures_and_values_that_do_not_go_together(create: Callable[..., Tuning]) -> None:
    space = {"hparams.num_steps": [1, 64], "hparams.num_minibatches": [1, 64]}  # 64 minibatches of 1 x num_envs rows
    tuning = create(num_trials=8, seeds=[0], ranges={}, sweep=space, sampler="random")
    scheduler = Runs(tuning, lambda values, seed, steps: None if values["hparams.num_steps"] == 1 else 1.0).play()
    assert isinstance(scheduler, Asha)
    rows = tuning.trials()
    assert len(rows) == 8
    failed = [row["values"]["hparams.num_steps"] for row in rows if row["state"] == "fail"]
    assert failed
    assert set(failed) == {1}
    assert {row["values"]["hparams.num_steps"] for row in rows if row["scores"]} == {64}


# -- population-based training ----------------------------------------------------------------------------------------


@pytest.fixture
def branches_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches of runs that are only written down: there are no checkpoints to copy."""

    def branch(source: RunDir, name: str, config: Any, seed: int, group: str) -> RunDir:
        target = source.path.parent / name
        target.mkdir(exist_ok=True)
        info = {**json.loads((source.path / "run.json").read_text()), "id": name, "group": group}
        (target / "run.json").write_text(json.dumps(info))
        (target / "metrics.json").write_bytes((source.path / "metrics.json").read_bytes())
        return RunDir(target)

    monkeypatch.setattr("rl_training.experiments.launching.scheduling.pbt.branch_run", branch)


@pytest.mark.usefixtures("branches_on_paper")
def test_a_population_is_drawn_from_the_space_and_stays_in_it(create: Callable[..., Tuning]) -> None:
    """Best near the upper end of the range, where a factor of 10 leads out of it."""
    how = {"type": "pbt", "num_intervals": 4, "replaced": 0.5, "factors": [0.5, 10.0]}
    tuning = create(scheduler=how, seeds=[3], num_trials=6, sampler="qmc")
    scheduler = Runs(tuning, lambda values, seed, steps: values[RATE] + steps).play()
    assert isinstance(scheduler, Population)
    assert scheduler.is_over()
    values = tuning.sweep.info.trials
    # of six up to three are replaced at the end of every interval but the last; equally good ones are not
    assert 6 + 3 < len(values) <= 6 + 3 * 3
    assert all(1e-5 <= trial[RATE] <= 1e-1 for trial in values)
    assert 1e-1 in [trial[RATE] for trial in values]
    assert all(trial["hparams.gamma"] in (0.9, 0.95, 0.99) for trial in values)
    states = [row["state"] for row in tuning.trials()]
    assert (states.count("complete"), states.count("pruned")) == (6, len(values) - 6)
    best = tuning.best()
    assert best is not None
    assert best["trial"] in scheduler.slots


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pruner": "median"}, "'pruner' median ends trials between their seeds, and scheduler asha"),
        (
            {"scheduler": {"type": "asha", "metric": "loss"}},
            "'scheduler.metric' is loss, and the search goes by its own",
        ),
        ({"scheduler": "pbt"}, r"'seeds' has 2 seeds.*write seeds: \[3\]"),
        ({"scheduler": "hyperband"}, "scheduler.type.*one of asha, pbt"),
        ({"scheduler": {"type": "asha", "rungs": 3}}, "did you mean 'num_rungs'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_mistakes_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_tune({**FILE, **changes})


def test_the_scheduler_goes_by_the_metric_of_the_search() -> None:
    config = parse_tune({**FILE, "metric": "loss", "direction": "minimize"})
    assert config.scheduler is not None
    assert (config.scheduler.metric, config.scheduler.direction, config.pruner) == ("loss", "minimize", "none")
