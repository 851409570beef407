"""`Tuning`: a hyperparameter search on disk, which is a sweep whose trials are suggested one by one by an Optuna study.

The folder is that of a sweep (`<output_dir>/sweeps/...`), so all tools for sweeps work on it; beside `sweep.json` lie
`tune.json` (what is searched, and how) and `study.journal` (Optuna's own record). One process runs a search.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config.searches.sweeps import SweepConfig
from rl_training.config.searches.tuning import TuneConfig, parse_tune
from rl_training.config.yaml_reader import dump_mapping
from rl_training.experiments.analysis import statistics
from rl_training.experiments.keeping.filters import find_key
from rl_training.experiments.launching.auto_tuner import (
    add_running,
    ask,
    ask_with_scores,
    decoded,
    distributions,
    encoded,
    make_study,
    optuna_here,
)
from rl_training.experiments.launching.group_runner import GroupRunner
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.sweeps import BASE, SEARCH, Sweep
from rl_training.runs.names import readable_errors
from rl_training.runs.row import REWARDS
from rl_training.system.atomic_io import atomic_write
from rl_training.types import ConfigError, RunError

RECORD, JOURNAL = SEARCH, "study.journal"
TRIAL, BRANCH = "trial", "branch"
"""User attributes of an Optuna trial: its number in the sweep, and whether it goes on from another trial's weights."""
AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "iqm": statistics.iqm,
    "mean": statistics.mean,
    "median": statistics.median,
    "min": lambda scores: scores.min(axis=-1),
    "max": lambda scores: scores.max(axis=-1),
}


class Tuning:
    """One search: asks the study for trials, runs them by a `GroupRunner`, and reports their scores to the study."""

    def __init__(self, sweep: Sweep, config: TuneConfig, *, journal: Path | None = None) -> None:
        """`journal` is the study's record; by default that of the sweep's own folder."""
        self.sweep = sweep
        self.config = config
        with optuna_here():
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            storage = JournalStorage(JournalFileBackend(str(journal or sweep.path.absolute() / JOURNAL)))
            self.study = make_study(
                direction=config.direction, pruner=config.pruner, storage=storage, name=sweep.info.id
            )
        self.space = distributions({**config.ranges, **config.sweep})
        self.open: dict[int, Any] = {}
        """Unfinished trials: number in the sweep to Optuna trial."""

    @classmethod
    def create(
        cls,
        config: TuneConfig,
        *,
        overrides: Mapping[str, Any] | None = None,
        argv: Sequence[str] = (),
        source: str | None = None,
    ) -> Tuning:
        """A new search; `overrides` apply to every trial."""
        taken = sorted({*config.ranges, *config.sweep} & set(overrides or {}))
        if taken:
            raise ConfigError(f"{', '.join(taken)}: searched, and given as a flag; drop one of the two")
        with optuna_here():  # before there is a folder
            plan = SweepConfig(
                config.base_config,
                parallel_jobs=config.parallel_jobs,
                retries=config.retries,
                executor=config.executor,
                scheduler=config.scheduler,
            )
            sweep = Sweep.create(plan, overrides=overrides, argv=argv, source=source, trials=[])
        with readable_errors(f"cannot write {RECORD} in '{sweep.path}'"):
            record = {**dataclasses.asdict(config), "base_config": "configs/base.yaml"}
            text = json.dumps(record, indent=2)
            atomic_write(sweep.path / RECORD, text.encode() + b"\n")
        sweep.seal(RECORD, json.loads(text))
        sweep.save()
        return cls(sweep, config)

    @classmethod
    def open_existing(cls, path_or_name: str | Path, output_dir: str | Path = "runs") -> Tuning:
        """A search by path, name or `latest`."""
        sweep = Sweep.open(path_or_name, output_dir)
        try:
            record = json.loads((sweep.path / RECORD).read_bytes())
            parts = (sweep.stored(sweep.path / RECORD, dict(record)), sweep.stored(sweep.path / "configs" / BASE))
            sweep.is_own = all(part.is_own for part in parts)
            record["base_config"] = str(sweep.path.absolute() / "configs" / "base.yaml")
            return cls(sweep, parse_tune(record, source=str(sweep.path / RECORD)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"'{sweep.path}' is not a search that `rl tune` can continue ({error})") from error

    @classmethod
    def open_copy(cls, sweep: Sweep, folder: Path) -> Tuning:
        """A search whose record and journal were copied to `folder`, to look at: opening a study writes into its
        journal, which a search that is running reads."""
        try:
            record = json.loads((folder / RECORD).read_bytes())
            record["base_config"] = str(sweep.path.absolute() / "configs" / "base.yaml")
            return cls(sweep, parse_tune(record, source=str(sweep.path / RECORD)), journal=folder / JOURNAL)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"'{sweep.path}' is not a search that can be read ({error})") from error

    # -- running ------------------------------------------------------------------------------------------------------

    def feed(self, runner: GroupRunner) -> list[Member]:
        """The members to start next; polled by the `GroupRunner` while the search runs."""
        new: list[Member] = []
        retried = {member.key for member in runner.waiting}
        for number, trial in list(self.open.items()):
            new += self._go_on(number, trial, retried)
        while len(self.open) < runner.parallel() and self.num_asked() < self.config.num_trials:
            new += self.begin()
        return new

    def resume(self) -> list[Member]:
        """Reopen the trials that were unfinished when the search stopped; returns the members to continue."""
        from optuna.trial import Trial, TrialState

        waiting: list[Member] = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = Trial(self.study, frozen._trial_id)
            number = frozen.user_attrs.get(TRIAL)
            if number is None or number >= len(self.sweep.info.trials):  # killed before the trial was recorded
                waiting += self._add(trial)
                continue
            self.open[number] = trial
            members = self._members(number)
            waiting += [member for member in members[-1:] if member.status != "finished"]
            known = {member.seed for member in members}
            waiting += [self.sweep.add_member(number, seed) for seed in self._first_seeds() if seed not in known]
        return waiting

    def num_asked(self) -> int:
        return len(self.study.get_trials(deepcopy=False))

    def _first_seeds(self) -> tuple[int, ...]:
        """The seeds with which a trial begins: the first alone, or all of them side by side with a scheduler."""
        return self.config.seeds[:1] if self.config.scheduler is None else self.config.seeds

    def begin(self) -> list[Member]:
        """Ask for a further trial; the members to start, none if its values do not go together."""
        asking = ask if self.config.scheduler is None else ask_with_scores
        return self._add(asking(self.study, self.space, self.config.sampler, self.config.draw_seed))

    def _add(self, trial: Any) -> list[Member]:
        """Record a trial and add its first seeds; a trial whose config is invalid counts as failed."""
        from optuna.trial import TrialState

        trial.set_user_attr(TRIAL, len(self.sweep.info.trials))
        try:
            number = self.sweep.add_trial(self._values(trial))
        except ConfigError as error:
            trial.set_user_attr(TRIAL, None)
            trial.set_user_attr("reason", str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            return []
        self.open[number] = trial
        return [self.sweep.add_member(number, seed) for seed in self._first_seeds()]

    def _values(self, trial: Any) -> dict[str, Any]:
        """The values of a trial; RunError where the study's journal sets a key that is not searched."""
        values = decoded(trial.params)
        for key, value in values.items():
            searched = key in self.config.ranges or value in self.config.sweep.get(key, ())
            if not searched or (key in self.config.ranges and not isinstance(value, int | float)):
                raise RunError(
                    f"'{self.sweep.path / JOURNAL}' sets {key}, which is not searched; restore it from a backup"
                )
        return values

    def _go_on(self, number: int, trial: Any, retried: set[Any]) -> list[Member]:
        """Add the next seed of a trial whose latest seed has ended, or close the trial."""
        from optuna.trial import TrialState

        members = self._members(number)
        latest = members[-1]
        if latest.status in ("failed", "killed") and latest.key not in retried:
            self._close(number, trial, None, TrialState.FAIL)
        if latest.status != "finished" or number not in self.open:
            return []
        scores = [self.score(member) for member in members]
        if scores[-1] is None:
            self._close(number, trial, None, TrialState.FAIL)
            return []
        with optuna_here():
            trial.report(scores[-1], step=len(scores) - 1)
        if len(scores) == len(self.config.seeds):
            self._close(number, trial, self.aggregate(scores), TrialState.COMPLETE)
            return []
        with optuna_here():
            is_worse = trial.should_prune()
        if is_worse:
            self._close(number, trial, None, TrialState.PRUNED)
            return []
        return [self.sweep.add_member(number, self.config.seeds[len(scores)])]

    def _close(self, number: int, trial: Any, value: float | None, state: Any) -> None:
        del self.open[number]
        self.study.tell(trial, value, state)

    # -- with a scheduler ---------------------------------------------------------------------------------------------

    def tell(self, number: int, stage: int, value: float | None, *, is_last: bool) -> None:
        """Report the value of a trial at the end of a rung or interval; None where it failed. A trial that is closed,
        and a value that was reported before, stay as they are."""
        from optuna.trial import TrialState

        if (trial := self.open.get(number)) is None:
            return
        if value is None:
            self._close(number, trial, None, TrialState.FAIL)
            return
        with optuna_here():
            trial.report(value, step=stage)
        if is_last:
            self._close(number, trial, value, TrialState.COMPLETE)

    def prune(self, number: int) -> None:
        """Close a trial that does not go on; it counts with its last value."""
        from optuna.trial import TrialState

        if (trial := self.open.get(number)) is not None:
            self._close(number, trial, None, TrialState.PRUNED)

    def branches(self) -> set[int]:
        """The trials that go on from the weights of others."""
        attributes = [frozen.user_attrs for frozen in self.study.get_trials(deepcopy=False)]
        return {found[TRIAL] for found in attributes if found.get(BRANCH)}

    def add_branch(self, number: int, values: Mapping[str, Any]) -> None:
        """Add a trial of the sweep that goes on from another one to the study, once."""
        if number not in self.branches():
            attributes = {TRIAL: number, BRANCH: True}
            self.open[number] = add_running(self.study, encoded(values, self.space), self.space, attributes)

    def _members(self, number: int) -> list[Member]:
        return [member for member in self.sweep.members if member.trial == number]

    # -- results ------------------------------------------------------------------------------------------------------

    def score(self, member: Member) -> float | None:
        """The final value of the tuned metric in a run; None where it is missing or not finite."""
        metrics = self.sweep.final_metrics(member)
        column = find_key(self.config.metric).column
        names = {"reward": REWARDS, "loss": ("train/loss",)}.get(column, (self.config.metric,))
        value = next((metrics[name] for name in names if metrics.get(name) is not None), None)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def aggregate(self, scores: Sequence[float | None]) -> float:
        return float(AGGREGATES[self.config.aggregate](np.array(scores, np.float64)))

    def trials(self) -> list[dict[str, Any]]:
        """Every trial with its values, state and scores of its seeds (with a scheduler: its rungs or intervals); best
        first, trials without a value last. A trial that is paused may still be promoted."""
        from optuna.trial import TrialState

        found = []
        for frozen in self.study.get_trials(deepcopy=False):
            scores = [frozen.intermediate_values[step] for step in sorted(frozen.intermediate_values)]
            is_complete = frozen.state is TrialState.COMPLETE  # a pruned trial has the score of its last seed
            is_paused = self.config.scheduler is not None and frozen.state is TrialState.RUNNING and bool(scores)
            found.append(
                {
                    "trial": frozen.user_attrs.get(TRIAL),
                    "state": "paused" if is_paused else frozen.state.name.lower(),
                    "value": frozen.value if is_complete else None,
                    "values": decoded(frozen.params),
                    "scores": scores,
                    "reason": frozen.user_attrs.get("reason"),
                }
            )
        sign = -1.0 if self.config.direction == "maximize" else 1.0
        return sorted(found, key=lambda row: math.inf if row["value"] is None else sign * row["value"])

    def best(self) -> dict[str, Any] | None:
        """The best trial that ran all its seeds."""
        return next((row for row in self.trials() if row["value"] is not None), None)

    def importance(self) -> dict[str, float]:
        """Importance of each key for the score, largest first; they sum to 1.

        PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255); empty while there are too few trials.
        """
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
        from optuna.trial import TrialState

        done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len({trial.value for trial in done}) < 4:
            return {}
        with optuna_here():
            return dict(get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator()))

    def export_best(self, target: str | Path) -> Path:
        """Write the config of the best trial to a file for `rl train`."""
        best, path = self.best(), Path(target).expanduser()
        if best is None:
            raise RunError(f"'{self.sweep.path}' has no trial that ran all its seeds yet; there is no best one")
        tree = self.sweep.stored_config(best["trial"]).mapping
        with readable_errors(f"cannot write '{path}'"):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, dump_mapping(tree).encode())
        return path
