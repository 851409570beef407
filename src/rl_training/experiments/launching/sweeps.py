"""`Sweep`: many configs, recorded in `<output_dir>/sweeps/<algo>__<env>__<stamp>/`, each frozen as a trial.

Each trial is a group of seeds, each seed an ordinary run. What sweeps and groups share is in `members`; `group_runner`
starts the members.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_training.config.loading import (
    ConfigLayers,
    ResolvedConfig,
    config_to_mapping,
    parse_stored,
    read_config,
    read_yaml,
)
from rl_training.config.searches.sweeps import SweepConfig, seeds_of, trials_of
from rl_training.config.yaml_reader import dump_mapping
from rl_training.experiments.analysis.group_summary import (
    SCHEMA,
    aggregate,
    finished_scores,
    scoring_metric,
    write_summary_file,
)
from rl_training.experiments.launching.groups import SeedGroup, find_run_or_group
from rl_training.experiments.launching.members import MAX_RECORD_BYTES, Member, RunSet, no_record, set_or_run
from rl_training.runs.directory import RunDir, public_config, public_sha256
from rl_training.runs.finding import LATEST, DirectoryKind
from rl_training.runs.names import check_name, claim_directory, name_part, readable_errors
from rl_training.runs.redaction import Redactor, restore, with_secrets
from rl_training.system.atomic_io import atomic_write
from rl_training.types import ConfigError, RunError

FOLDER, RECORD = "sweeps", "sweep.json"
LATEST_GROUP, LATEST_SWEEP = "latest-group", "latest-sweep"
BASE = "base.yaml"
"""The config from which further trials of a growing sweep are made."""
SUBFOLDERS = ("configs", "logs", "plots")
MAX_RUNS = 100_000


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
    jobs: int
    retries: int
    trials: list[dict[str, Any]]
    """The values that each trial changes, by dotted key; secrets are `${env:NAME}`."""
    totals: list[int]
    """Env steps of each trial."""


class Sweep(RunSet):
    """One sweep: many configs, each with one or more seeds."""

    directory = DirectoryKind("sweep", RECORD, "`rl sweep FILE` makes one", MAX_RECORD_BYTES)
    folder = FOLDER
    info_type = SweepInfo
    info: SweepInfo
    is_own = False
    """The source of its further trials was written on this machine, so these can be sealed too."""

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
        trials = trials_of(sweep) if trials is None else trials
        base_config = read_config(sweep.base_config)
        resolved = [_trial_config(base_config, overrides or {}, trial, i) for i, trial in enumerate(trials)]
        configs = [one.config for one in resolved]
        if len({cfg.output_dir for cfg in configs}) > 1:
            raise ConfigError("the runs of a sweep lie in one output_dir; it cannot be swept")
        redactor = Redactor()
        public = [public_config(one, redactor) for one in resolved]
        redactor.warn_about_needed()
        members = [
            Member(seed, public_sha256({**tree, "seed": seed}), trial=number)
            for number, tree in enumerate(public)
            for seed in (seeds or seeds_of(sweep) or [tree["seed"]])
        ]
        if len(members) > MAX_RUNS:
            raise ConfigError(f"a sweep of {len(members)} runs is too large; at most {MAX_RUNS}")
        start = resolved[0] if resolved else _trial_config(base_config, overrides or {}, {}, 0)
        first = start.config
        check_name(first.name)
        base = public[0] if public else public_config(start, redactor)
        name = f"{name_part(first.algo)}__{name_part(first.env_id)}__{datetime.now():%Y%m%d-%H%M%S}"
        with readable_errors(f"cannot create a sweep in output_dir '{first.output_dir}'"):
            path = claim_directory(Path(restore(first.output_dir)).expanduser() / FOLDER, name, SUBFOLDERS, "sweep")
            for number, tree in enumerate(public):
                atomic_write(path / "configs" / trial_file(number), dump_mapping(tree).encode())
            if not trials:
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
            trials=[redactor.mapping(trial) for trial in trials],
            totals=[cfg.training.budget for cfg in configs],
        )
        made = cls(path, info, members, redactor)
        made.planned_here = made.is_own = True
        for number, tree in enumerate(public):
            made.seal(trial_file(number), tree)
        if not trials:
            made.seal(BASE, base)
        made.save()
        return made

    def check(self) -> None:
        super().check()
        trials, num_trials = {member.trial for member in self.members}, len(self.info.trials)
        grows = (self.path / "configs" / BASE).exists()  # killed between a trial and its first run
        fits = trials <= set(range(num_trials)) if grows else trials == set(range(num_trials))
        if not fits or len(self.info.totals) != num_trials:
            raise no_record(self.path / RECORD, self.kind, "trials and members do not agree")

    @property
    def sweep(self) -> str:
        return self.info.id

    def config_file(self, trial: int | None = None) -> Path:
        return self.path / "configs" / trial_file(trial or 0)

    def group_of(self, member: Member) -> str:
        return f"{self.info.id}/{_trial_name(member.trial)}"

    def label(self, member: Member) -> str:
        return f"trial {member.trial} seed {member.seed}"

    def log(self, member: Member) -> Path:
        return self.path / "logs" / f"{_trial_name(member.trial)}_seed{member.seed}.log"

    def total(self, member: Member) -> int:
        return self.info.totals[member.trial or 0]

    def add_trial(self, values: Mapping[str, Any]) -> int:
        """Freeze the config of a further trial of a sweep that grows; returns its number."""
        number = len(self.info.trials)
        path = self.path / "configs" / BASE
        cfg = parse_stored(read_yaml(path), values, source=str(path))
        with readable_errors(f"cannot write the config of trial {number} in '{self.path}'"):
            tree = {**config_to_mapping(cfg), "base": None}
            atomic_write(self.path / "configs" / trial_file(number), dump_mapping(tree).encode())
        if self.is_own:
            self.seal(trial_file(number), tree)
        self.info.trials.append(dict(values))
        self.info.totals.append(cfg.training.budget)
        return number

    def add_member(self, trial: int, seed: int) -> Member:
        """A further run of a trial."""
        tree = read_yaml(self.path / "configs" / trial_file(trial))
        member = Member(seed, public_sha256({**tree, "seed": seed}), trial=trial)
        self.members.append(member)
        self.save()
        return member

    def to_run(self, *, retry_failed: bool) -> list[Member]:
        """The members that are not finished; failed ones only with `retry_failed`."""
        return [member for member in self.unfinished() if retry_failed or member.status != "failed"]


def summarize_sweep(sweep: Sweep) -> dict[str, Any]:
    """The final score of every run and the aggregate over the seeds of each trial, best trial first."""
    metrics = {member.key: sweep.final_metrics(member) for member in sweep.members}
    metric = scoring_metric(metrics.values())
    trials: list[dict[str, Any]] = []
    for number, values in enumerate(sweep.info.trials):
        members = [member for member in sweep.members if member.trial == number]
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


def write_slurm_script(sweep: Sweep) -> Path:
    """`slurm.sh` in the sweep's folder: an array job with one task per run, at most `jobs` of them at a time.

    A task that receives a stop signal saves and is queued again; submitting the script again continues what is left.
    """
    folder = sweep.path.absolute()
    words = [sys.executable, "-m", "rl_training", "sweep", "--resume", str(folder)]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={sweep.info.id}",
        f"#SBATCH --array=0-{len(sweep.members) - 1}%{sweep.info.jobs}",
        f"#SBATCH --output={shlex.quote(str(folder / 'logs' / 'slurm_%A_%a.out'))}",
        "#SBATCH --ntasks=1",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
        f'exec {shlex.join(words)} --only "$SLURM_ARRAY_TASK_ID"',
    ]
    script = folder / "slurm.sh"
    with readable_errors(f"cannot write '{script}'"):
        atomic_write(script, "\n".join([*lines, ""]).encode())
        script.chmod(0o755)
    return script


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


def _trial_name(trial: int | None) -> str:
    return f"trial_{trial or 0:03d}"


def _trial_config(
    base: ConfigLayers, overrides: Mapping[str, Any], trial: Mapping[str, Any], number: int
) -> ResolvedConfig:
    """What a trial trains, references as they are; a value that fits the base alone may still not fit beside the
    others of its trial, or a variable not be set."""
    try:
        resolved = base.resolve({**overrides, **trial})
        with_secrets(resolved.config)
        return resolved
    except ConfigError as error:
        raise ConfigError(f"trial {number} ({', '.join(trial)}): {error}") from None
