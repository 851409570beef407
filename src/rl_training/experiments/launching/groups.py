"""`SeedGroup`: one config with several seeds, recorded in `<output_dir>/groups/<algo>__<env>__<stamp>/`.

What groups and sweeps share is in `members`; `group_runner` starts the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import ResolvedConfig, as_resolved
from rl_training.config.schema import TrainConfig
from rl_training.config.sections.executor import ExecutorConfig
from rl_training.config.yaml_reader import dump_mapping
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.members import EXECUTOR, MAX_RECORD_BYTES, RunSet, set_or_run
from rl_training.runs.directory import RunDir, public_config, public_sha256
from rl_training.runs.names import (
    LATEST,
    DirectoryKind,
    check_name,
    claim_directory,
    name_part,
    parse_run_step,
    readable_errors,
)
from rl_training.runs.redaction import Redactor, with_secrets
from rl_training.system.atomic_io import atomic_write
from rl_training.types import RunError

FOLDER, RECORD = "groups", "group.json"
SUBFOLDERS = ("configs", "logs", "plots")


@dataclass
class GroupInfo:
    """The contents of `group.json` besides the members."""

    id: str
    name: str | None
    algo: str
    env_id: str
    started: str
    argv: list[str]
    jobs: int | None
    """Members that run in parallel, if the user chose a number."""
    init_from: str | None
    total_timesteps: int | None = None
    """The budget to which the finished group was extended; None for the budget of its config."""
    executor: dict[str, Any] | None = None
    """Where the members run, as in a sweep file; None for processes of this host."""


class SeedGroup(RunSet):
    """One group on disk: the same config with several seeds."""

    directory = DirectoryKind("group", RECORD, "`rl train --seed 1,2,3` makes one", MAX_RECORD_BYTES)
    folder = FOLDER
    info_type = GroupInfo
    info: GroupInfo

    def __repr__(self) -> str:
        return f"SeedGroup({str(self.path)!r}, seeds={[member.seed for member in self.members]})"

    @classmethod
    def create(
        cls,
        config: TrainConfig | ResolvedConfig,
        seeds: Sequence[int],
        *,
        argv: Sequence[str] = (),
        source: str | None = None,
        jobs: int | None = None,
        init_from: str | None = None,
        executor: ExecutorConfig | None = None,
    ) -> SeedGroup:
        """A new group with its config frozen: a file that is edited while members wait changes nothing for them.

        Without an `executor` that of the config is used.
        """
        resolved = as_resolved(config)
        cfg = resolved.config
        check_name(cfg.name)
        output_dir = with_secrets(cfg).output_dir  # every variable is there before a member starts
        warm_start = None if init_from is None else pinned(init_from, output_dir)
        redactor = Redactor()
        public = public_config(resolved, redactor)
        redactor.warn_about_needed()
        name = f"{name_part(cfg.algo)}__{name_part(cfg.env_id)}__{datetime.now():%Y%m%d-%H%M%S}"
        with readable_errors(f"cannot create a group in output_dir '{cfg.output_dir}'"):
            path = claim_directory(Path(output_dir).expanduser() / FOLDER, name, SUBFOLDERS, "group")
            frozen = dump_mapping(public)
            atomic_write(path / "configs" / "resolved.yaml", frozen.encode())
            text = frozen if source is None else redactor.text(source)
            atomic_write(path / "configs" / "source.yaml", text.encode(errors="surrogateescape"))
        info = GroupInfo(
            id=path.name,
            name=public["name"],
            algo=public["algo"],
            env_id=public["env_id"],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            argv=redactor.argv(argv),
            jobs=jobs,
            init_from=warm_start,
        )
        members = [Member(seed, public_sha256({**public, "seed": seed})) for seed in seeds]
        group = cls(path, info, members, redactor)
        group.planned_here = True
        group.seal(group.config_file().name, public)
        group.record_executor(executor or cfg.executor)
        group.save()
        return group

    def record_executor(self, executor: ExecutorConfig) -> None:
        """Note where members are started from now on; `save` writes it."""
        recorded = self.redactor.mapping(asdict(executor)) if executor != ExecutorConfig() else None
        self.info = replace(self.info, executor=recorded)
        if recorded is not None:
            self.seal(EXECUTOR, recorded)

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    def config_file(self, trial: int | None = None) -> Path:
        return self.path / "configs" / "resolved.yaml"

    def planned_output_dir(self) -> str:
        return self.config().output_dir

    def group_of(self, member: Member) -> str:
        return self.info.id

    def label(self, member: Member) -> str:
        return f"seed {member.seed}"

    def log(self, member: Member) -> Path:
        return self.path / "logs" / f"seed{member.seed}.log"

    def total(self, member: Member) -> int:
        return self.info.total_timesteps or self._total

    @cached_property
    def _total(self) -> int:
        return self.config().training.budget

    def is_complete(self, member: Member, info: Mapping[str, Any]) -> bool:
        """Whether a finished run has reached the budget of the group, also if it was killed while being extended."""
        total = self.info.total_timesteps
        if total is None:
            return True
        metrics = self.final_metrics(member)
        is_short = metrics.get("env_steps", 0) < total and metrics.get("stop_reason") == "budget spent"
        return info.get("total_timesteps") == total and not is_short

    def start_words(self, member: Member) -> list[str]:
        words = super().start_words(member)
        return [*words, f"--init-from={self.info.init_from}"] if self.info.init_from is not None else words

    def resume_words(self, run: RunDir) -> list[str]:
        total = self.info.total_timesteps
        new = [f"--total-timesteps={total}"] if total not in (None, run.info().get("total_timesteps")) else []
        return [*super().resume_words(run), *new]

    def extend(self, total_timesteps: int) -> None:
        """Give every member a new budget. Only for finished groups, so that all are extended from the same step."""
        if self.info.total_timesteps == total_timesteps:
            return
        left = [member.seed for member in self.unfinished()]
        if left:
            raise RunError(
                f"group '{self.path}' is not finished (seeds {', '.join(map(str, left))}); finish it first with "
                f"`rl resume {self.path}`: members that are extended from different steps do not compare"
            )
        self.info = replace(self.info, total_timesteps=total_timesteps)
        self.observe()
        self.save()


def find_run_or_group(named: str, output_dir: str | Path) -> RunDir | SeedGroup:
    """The run with this path or name or, where no single run fits, the group. `latest` is always a run."""
    run, refusal = None, RunError()
    try:
        run = RunDir.open(named, output_dir=output_dir)
    except RunError as error:
        refusal = error
    if named == LATEST and run is None:
        raise refusal
    if run is not None and (named == LATEST or run.path.name == Path(named).name):
        return run
    return set_or_run(SeedGroup, named, output_dir, run, refusal)


def group_directories(output_dir: Path) -> list[Path]:
    """All groups of an output directory, oldest first."""
    return SeedGroup.directory.all_in(output_dir / FOLDER)


def pinned(init_from: str, output_dir: str) -> str:
    """`RUN[:STEP]` as a path and a step: `latest` would be another run, or another step of it, for every member."""
    named = parse_run_step(init_from)
    run = RunDir.open(named.run, output_dir)
    manager, step = CheckpointManager(run.path), named.checkpoint
    found = manager.latest_step() if step == "latest" else manager.best_step() if step == "best" else step
    if found is None:
        raise RunError(f"--init-from {init_from}: run '{run.path}' has no checkpoint '{step}'")
    return f"{run.path}:{found}"
