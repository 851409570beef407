"""`Sweep`: many configs, recorded in `<output_dir>/sweeps/<algo>__<env>__<stamp>/`, each frozen as a trial.

Each trial is a group of seeds, each seed an ordinary run. What sweeps and groups share is in `members`; `group_runner`
starts the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_training.config.loading import config_to_mapping, parse_stored
from rl_training.config.searches.sweeps import SweepConfig, trials_of
from rl_training.config.yaml_reader import dump_mapping
from rl_training.experiments.analysis.group_summary import (
    SCHEMA,
    aggregate,
    finished_scores,
    scoring_metric,
    write_summary_file,
)
from rl_training.experiments.launching.groups import SeedGroup, find_run_or_group
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.members import EXECUTOR, MAX_RECORD_BYTES, RunSet, no_record, set_or_run
from rl_training.experiments.launching.trial_configs import (
    PlannedConfig,
    flag_text,
    frozen_values,
    plan_trials,
    with_values,
)
from rl_training.runs.directory import RunDir, public_sha256
from rl_training.runs.names import LATEST, DirectoryKind, check_name, claim_directory, name_part, readable_errors
from rl_training.runs.redaction import Redactor, restore
from rl_training.runs.stored_config import StoredConfig
from rl_training.system.atomic_io import atomic_write
from rl_training.types import RunError

FOLDER, RECORD = "sweeps", "sweep.json"
LATEST_GROUP, LATEST_SWEEP = "latest-group", "latest-sweep"
BASE = "base.yaml"
"""The config that every trial starts from; a trial adds its values."""
PLAN = "trials"
"""Name of the seal of the values of all trials in the record; a trial that was added since has `trials/NUMBER`."""
SEARCH = "tune.json"
"""The record of a search, in the folder of its sweep."""
SUBFOLDERS = ("configs", "logs", "plots")


@dataclass(frozen=True)
class SweepInfo:
    """The contents of `sweep.json` besides the members."""

    id: str
    name: str | None
    algo: str
    env_id: str
    output_dir: str
    """As written in the config."""
    started: str
    argv: list[str]
    jobs: int | None
    retries: int
    trials: list[dict[str, Any]]
    """The values that each trial changes, by dotted key; secrets are `${env:NAME}`."""
    totals: list[int]
    """Env steps of each trial."""
    executor: dict[str, Any] | None = None
    """Where the runs are started, as in a sweep file; None in records of versions without executors."""
    scheduler: dict[str, Any] | None = None
    """How weak trials are ended early, as in a sweep file; None where every trial runs to its end."""


class Sweep(RunSet):
    """One sweep: many configs, each with one or more seeds."""

    directory = DirectoryKind("sweep", RECORD, "`rl sweep FILE` makes one", MAX_RECORD_BYTES)
    folder = FOLDER
    info_type = SweepInfo
    info: SweepInfo
    is_own = False
    """The source of its further trials was written on this machine, so these can be sealed too."""

    def __init__(self, path: Path, info: SweepInfo, members: Sequence[Member], redactor: Redactor) -> None:
        super().__init__(path, info, members, redactor)
        self._valid: dict[str, bool] = {}
        """Which seals are valid, by name, of those that somebody has asked for."""
        self._unwritten: list[dict[str, Any]] = []
        """Trials that were added and are not on disk yet: the next member of the journal brings them."""

    def __repr__(self) -> str:
        return f"Sweep({str(self.path)!r}, trials={len(self.info.trials)})"

    @classmethod
    def create(
        cls,
        sweep: SweepConfig,
        *,
        overrides: Mapping[str, Any] | None = None,
        seeds: Sequence[int] = (),
        argv: Sequence[str] = (),
        source: str | None = None,
        trials: Sequence[Mapping[str, Any]] | None = None,
    ) -> Sweep:
        """A new sweep with the config of every trial checked and frozen. `overrides` hold for all trials; `seeds` and
        `trials` take the place of the file's. Without any trial it is there to grow: see `add_trial`."""
        redactor = Redactor()
        plan = plan_trials(sweep, overrides or {}, seeds, trials_of(sweep) if trials is None else trials, redactor)
        redactor.warn_about_needed()
        base = plan.base
        check_name(base["name"])
        name = f"{name_part(base['algo'])}__{name_part(base['env_id'])}__{datetime.now():%Y%m%d-%H%M%S}"
        with readable_errors(f"cannot create a sweep in output_dir '{base['output_dir']}'"):
            path = claim_directory(Path(restore(base["output_dir"])).expanduser() / FOLDER, name, SUBFOLDERS, "sweep")
            for number, tree in plan.whole.items():
                atomic_write(path / "configs" / trial_file(number), dump_mapping(tree).encode())
            atomic_write(path / "configs" / BASE, dump_mapping(base).encode())
            text = redactor.text(source or "")
            atomic_write(path / "configs" / "source.yaml", text.encode(errors="surrogateescape"))
        info = SweepInfo(
            id=path.name,
            name=base["name"],
            algo=base["algo"],
            env_id=base["env_id"],
            output_dir=base["output_dir"],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            argv=redactor.argv(argv),
            jobs=sweep.parallel_jobs,
            retries=sweep.retries,
            trials=plan.values,
            totals=plan.totals,
            executor=asdict(sweep.executor),
            scheduler=None if sweep.scheduler is None else asdict(sweep.scheduler),
        )
        made = cls(path, info, plan.members, redactor)
        made.planned_here = made.is_own = True
        for number, tree in plan.whole.items():
            made.seal(trial_file(number), tree)
        made.seal(BASE, base)
        made.seal(PLAN, made.plan_mapping())
        made.seal(EXECUTOR, asdict(sweep.executor))
        made.save()
        return made

    def check(self) -> None:
        super().check()
        trials, num_trials = {member.trial for member in self.members}, len(self.info.trials)
        # a search may be killed between a trial and its first run
        fits = trials <= set(range(num_trials)) if self.is_search else trials == set(range(num_trials))
        if not fits or len(self.info.totals) != num_trials:
            raise no_record(self.path / RECORD, self.kind, "trials and members do not agree")

    @property
    def sweep(self) -> str:
        return self.info.id

    @property
    def is_search(self) -> bool:
        """Whether its trials are suggested one by one, by `rl tune`."""
        return (self.path / SEARCH).exists()

    def config_file(self, trial: int | None = None) -> Path:
        """The file of a trial whose config is not just the base with other values, else the base; sweeps of 0.1.0 have
        a file for every trial."""
        file = self.path / "configs" / trial_file(trial or 0)
        return file if file.is_file() else self.path / "configs" / BASE

    def stored_config(self, trial: int | None = None) -> StoredConfig:
        """The config of a trial: its file, or the base with the values of the trial; sealed with both of them."""
        file = self.config_file(trial)
        stored = self.stored(file)
        if file.name != BASE:
            return stored
        if BASE not in self._valid:
            self._valid[BASE] = stored.is_own
        is_own = self._valid[BASE] and self._values_are_own(trial or 0)
        mapping = with_values(stored.mapping, self.info.trials[trial or 0])
        name, subject = self._id(trial_file(trial or 0)), f"{self.kind} '{self.path}'"
        return PlannedConfig(self.kind, name, mapping, None, subject, str(file), sealed=is_own)

    def plan_mapping(self) -> dict[str, Any]:
        """What the seal of the plan covers: the values of every trial."""
        return {"trials": self.info.trials}

    def _values_are_own(self, trial: int) -> bool:
        """Whether the values of a trial carry a valid seal: their own, or that of the plan."""
        name = _added_name(trial) if _added_name(trial) in self.seals else PLAN
        if name not in self._valid:
            mapping: dict[str, Any] = {"values": self.info.trials[trial]}
            if name == PLAN:
                listed = [number for number in range(len(self.info.trials)) if _added_name(number) not in self.seals]
                mapping = {"trials": [self.info.trials[number] for number in listed]}
            stored = StoredConfig(self.kind, self._id(name), mapping, self.seals.get(name), "", "")
            self._valid[name] = stored.is_own
        return self._valid[name]

    def save(self) -> None:
        """Write the whole record; one seal covers the values of all trials again."""
        trials = range(len(self.info.trials))
        if any(_added_name(trial) in self.seals for trial in trials):
            is_own = all(self._values_are_own(trial) for trial in trials)
            for trial in trials:
                self.seals.pop(_added_name(trial), None)
            if is_own:
                self.seal(PLAN, self.plan_mapping())
            self._valid.clear()
        super().save()
        self._unwritten.clear()

    def start_words(self, member: Member) -> list[str]:
        words = super().start_words(member)
        if self.config_file(member.trial).name != BASE:
            return words
        return [*words, *(f"--{key}={flag_text(key, value)}" for key, value in self.values(member).items())]

    def resume_words(self, run: RunDir) -> list[str]:
        """A branch of another run (population-based training) has checkpoints of that run's config."""
        words = super().resume_words(run)
        return [*words, "--allow-changed-config"] if run.info().get("branched") else words

    def values(self, member: Member) -> Mapping[str, Any]:
        """The values that the trial of a member changes, without the seed, which every member has of its own."""
        return {key: value for key, value in self.info.trials[member.trial or 0].items() if key != "seed"}

    def planned_output_dir(self) -> str:
        return self.info.output_dir

    def group_of(self, member: Member) -> str:
        return f"{self.info.id}/{_trial_name(member.trial)}"

    def label(self, member: Member) -> str:
        return f"trial {member.trial} seed {member.seed}"

    def log(self, member: Member) -> Path:
        return self.path / "logs" / f"{_trial_name(member.trial)}_seed{member.seed}.log"

    def total(self, member: Member) -> int:
        return self.info.totals[member.trial or 0]

    def add_trial(self, values: Mapping[str, Any]) -> int:
        """Freeze a further trial of a sweep that grows; returns its number."""
        number = len(self.info.trials)
        base = self.stored(self.path / "configs" / BASE)
        cfg = parse_stored(base.mapping, values, source=base.source)
        tree = {**config_to_mapping(cfg), "base": None}
        frozen = frozen_values(dict(base.mapping), tree, values)
        public = dict(values) if frozen is None else frozen
        sealed = {_added_name(number): {"values": public}}
        if frozen is None:
            with readable_errors(f"cannot write the config of trial {number} in '{self.path}'"):
                atomic_write(self.path / "configs" / trial_file(number), dump_mapping(tree).encode())
            sealed[trial_file(number)] = tree
        for name, mapping in sealed.items():
            self.seals[name] = None
            if self.is_own:
                self.seal(name, mapping)
        self.info.trials.append(public)
        self.info.totals.append(cfg.training.budget)
        seals = {name: self.seals[name] for name in sealed}
        self._unwritten.append({"number": number, "values": public, "total": cfg.training.budget, "seals": seals})
        return number

    def add_member(self, trial: int, seed: int) -> Member:
        """A further run of a trial, appended to the journal, with the trial if it is new: what is written does not
        depend on how many there are."""
        member = Member(seed, public_sha256({**self.stored_config(trial).mapping, "seed": seed}), trial=trial)
        self.members.append(member)
        self.journal.note(member, self._unwritten)
        self._unwritten.clear()
        return member

    def to_run(self, *, retry_failed: bool) -> list[Member]:
        """The members that are not finished; failed ones only with `retry_failed`."""
        return [member for member in self.unfinished() if retry_failed or member.status != "failed"]


def summarize_sweep(sweep: Sweep) -> dict[str, Any]:
    """The final score of every run and the aggregate over the seeds of each trial, best trial first."""
    metrics = {member.key: sweep.final_metrics(member) for member in sweep.members}
    metric = scoring_metric(metrics.values())
    trials: list[dict[str, Any]] = []
    by_trial: dict[int | None, list[Member]] = {}
    for member in sweep.members:
        by_trial.setdefault(member.trial, []).append(member)
    for number, values in enumerate(sweep.info.trials):
        members = by_trial.get(number, [])
        runs: list[dict[str, Any]] = [
            {
                "seed": member.seed,
                "run": member.run,
                "status": member.status,
                "reason": member.reason,
                "env_steps": metrics[member.key].get("env_steps"),
                "return": metrics[member.key].get(metric),
            }
            for member in members
        ]
        scores = finished_scores(runs)
        result = {"num_scores": len(scores), "return": aggregate(scores), "runs": runs}
        trials.append({"trial": number, "values": values, **result})
    trials.sort(key=lambda trial: -trial["return"]["iqm"]["value"] if trial["return"] else float("inf"))
    return {
        "schema": SCHEMA,
        "sweep": sweep.info.id,
        "name": sweep.info.name,
        "metric": metric,
        "trials": trials,
    }


def write_sweep_summary(sweep: Sweep) -> dict[str, Any]:
    """Compute `summary.json` and write it."""
    return write_summary_file(sweep.path, summarize_sweep(sweep))


def find_runs(named: str, output_dir: str | Path) -> RunDir | SeedGroup | Sweep:
    """The run with this path or name or, where no single run fits, the group or the sweep.

    `latest` is a run; the newest group is `latest-group`, the newest sweep `latest-sweep`.
    """
    if named == LATEST_SWEEP:
        return Sweep.open(LATEST, output_dir)
    if named == LATEST_GROUP:
        return SeedGroup.open(LATEST, output_dir)
    found, refusal = None, RunError()
    try:
        found = find_run_or_group(named, output_dir)
    except RunError as error:
        refusal = error
    is_exact = found is not None and (named == LATEST or found.path.name == Path(named).name)
    if found is not None and (is_exact or isinstance(found, SeedGroup)):
        return found
    return set_or_run(Sweep, named, output_dir, found, refusal)


def trial_file(trial: int) -> str:
    return f"{_trial_name(trial)}.yaml"


def _added_name(trial: int) -> str:
    """Name of the seal of the values of a trial that was added after the record was written."""
    return f"{PLAN}/{trial}"


def _trial_name(trial: int | None) -> str:
    return f"trial_{trial or 0:03d}"
