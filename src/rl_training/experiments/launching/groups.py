"""A group of seeds on disk: `<output_dir>/groups/<algo>__<env>__<stamp>/`, which says what belongs together.

What groups and sweeps share is in `members`; starting the members is `group_runner`'s work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import ResolvedConfig, as_resolved
from rl_training.config.schema import TrainConfig
from rl_training.config.yaml_reader import dump_mapping
from rl_training.experiments.launching.members import Member, RunSet, directories, no_record, read_record, seals_in
from rl_training.runs.directory import RunDir, public_config, public_sha256
from rl_training.runs.names import (
    Names,
    check_name,
    claim_directory,
    name_part,
    parse_run_step,
    pick,
    readable_errors,
)
from rl_training.runs.redaction import Redactor, with_secrets
from rl_training.system.atomic_io import atomic_write
from rl_training.types import RunError

SCHEMA = 1
FOLDER, RECORD = "groups", "group.json"
SUBFOLDERS = ("configs", "logs", "plots")


@dataclass
class GroupInfo:
    """What `group.json` holds besides the members."""

    id: str
    name: str | None
    algo: str
    env_id: str
    started: str
    argv: list[str]
    jobs: int | None
    """Members at a time, where the user said so."""
    init_from: str | None
    total_timesteps: int | None = None
    """The budget that the finished group was extended to; None for that of its config."""


class SeedGroup(RunSet):
    """One group on disk: the same config with several seeds."""

    kind = "group"
    record = RECORD
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
    ) -> SeedGroup:
        """A new group with its config frozen: a file that is edited while members wait changes nothing for them."""
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
        group.save()
        return group

    @classmethod
    def open(cls, path_or_name: str | Path, output_dir: str | Path = "runs") -> SeedGroup:
        """A group by path, or in `<output_dir>/groups` by its name, the `name:` of its config or a unique prefix."""
        try:
            path = Path(path_or_name).expanduser()
            if not (path / RECORD).is_file():
                path = _find(path, Path(output_dir).expanduser() / FOLDER)
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL byte, the home of an unknown user
            raise RunError(f"no group {str(path_or_name)[:100]!r}: {error}") from None
        info, members, seals = _read(path)
        group = cls(path, info, members, Redactor())
        group.seals = seals
        group.observe()
        return group

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    def config_file(self, trial: int | None = None) -> Path:
        return self.path / "configs" / "resolved.yaml"

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
        return self.config().training.total_timesteps

    def record_fields(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **super().record_fields()}

    def is_complete(self, member: Member, info: Mapping[str, Any]) -> bool:
        """Whether a finished run has come to the budget of the group, also if it was killed on taking it over."""
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
        """A new budget for every member, which all of them begin from their end: unfinished ones come first."""
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
    """The run of this path or name or, where no single run fits, the group. `latest` is always a run."""
    run, refusal = None, RunError()
    try:
        run = RunDir.open(named, output_dir=output_dir)
    except RunError as error:
        refusal = error
    if run is not None and (named == "latest" or run.path.name == Path(named).name):
        return run
    try:
        group = SeedGroup.open(named, output_dir=output_dir)
    except RunError as error:
        if run is not None:
            return run
        looks_like_group = os.path.exists(os.path.join(named, RECORD)) or " fits " in str(error)
        raise error if looks_like_group else refusal from None
    if run is not None and run.info().get("group") != group.info.id:
        raise RunError(f"'{named}' fits run '{run.path.name}' and group '{group.info.id}'; type more of the name")
    return group


def group_directories(output_dir: Path) -> list[Path]:
    """All groups of an output directory, oldest first."""
    return directories(output_dir / FOLDER, RECORD)


def pinned(init_from: str, output_dir: str) -> str:
    """`RUN[:STEP]` as a path and a step: `latest` would be another run, or another step of it, for every member."""
    named = parse_run_step(init_from)
    run = RunDir.open(named.run, output_dir)
    manager, step = CheckpointManager(run.path), named.checkpoint
    found = manager.latest_step() if step == "latest" else manager.best_step() if step == "best" else step
    if found is None:
        raise RunError(f"--init-from {init_from}: run '{run.path}' has no checkpoint '{step}'")
    return f"{run.path}:{found}"


def _find(path: Path, folder: Path) -> Path:
    groups = group_directories(folder.parent)
    if len(path.parts) != 1:
        raise RunError(f"no group '{path}': there is no such directory")
    if not groups:
        raise RunError(f"no group '{path}': '{folder}' holds no groups; `rl train --seed 1,2,3` makes one")
    return pick(str(path), groups, _given_names, "group")


def _given_names(group: Path) -> Names:
    try:
        info = _read(group)[0]
    except RunError:
        return Names()
    return Names(info.name, info.id)


def _read(path: Path) -> tuple[GroupInfo, list[Member], dict[str, str | None]]:
    record, members = read_record(path, "group", RECORD, SCHEMA)
    try:
        info = GroupInfo(**{name: record[name] for name in GroupInfo.__dataclass_fields__})
        return info, members, seals_in(record)
    except KeyError as error:
        raise no_record(path / RECORD, "group", error) from error
