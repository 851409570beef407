"""`RunSet`: runs that were planned together, the base of groups of seeds and of sweeps. Their record and their state.

A member is an ordinary run directory beside the others. The runs are authoritative: each names its group in `run.json`,
so the record can be brought up to date from them whatever was killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from rl_training.config.loading import read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.experiments.launching.member import Member, MemberJournal, compact, read_journal, record_text
from rl_training.runs.description import public_sha256
from rl_training.runs.directory import RunDir, run_name
from rl_training.runs.lock import Holder, Lost, RunLock
from rl_training.runs.names import DirectoryKind, age, names_in, readable_errors, reserve
from rl_training.runs.redaction import Redactor, restore
from rl_training.runs.stored_config import StoredConfig, seal_config
from rl_training.seeding import MAX_SEED
from rl_training.system.atomic_io import atomic_write
from rl_training.trust.consent import OWN, Consent
from rl_training.types import RunError

CONFIG_CODE = 2
"""Exit code of a member whose config cannot run, and of a group that consists of such members."""
SCHEMA = 1
"""Version of the records of groups and sweeps."""
MAX_RECORD_BYTES = 2**26
EXECUTOR = "executor"
"""Name of the seal of the executor that a record names."""
PLAIN_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]+")
"""Ids of groups and sweeps: file names without anything that a path or a list with colons would split."""


class RunSet(ABC):
    """The members and their record on disk, open for reading; take the `lock` before changing it."""

    directory: ClassVar[DirectoryKind]
    folder: ClassVar[str]
    """Name of the folder in the output directory that holds all of this kind."""
    info_type: ClassVar[type[Any]]
    """The dataclass of `info`: what the record holds besides the members."""

    def __init__(self, path: Path, info: Any, members: Sequence[Member], redactor: Redactor) -> None:
        self.path = path
        self.info = info
        self.members = list(members)
        self.redactor = redactor
        self.seals: dict[str, str | None] = {}
        """Seals by file name: each proves that a file that decides what is run was written on this machine."""
        self.planned_here = False
        """Created by this process, so everything in it was just given by the user."""
        self.trusted = False
        """Agreed to by the user on this command line."""
        self.executor_given = False
        """The executor was named on this command line."""
        self._flags: list[str] | None = None
        self._trees: dict[Path, Mapping[str, Any]] = {}
        """Files of configs that were read; they are frozen."""
        self._configs: dict[int | None, TrainConfig] = {}
        """Frozen configs that were read, by trial."""
        self.journal = MemberJournal(path)
        """What has changed since the record was written."""

    @classmethod
    def open(cls, path_or_name: str | Path, output_dir: str | Path = "runs") -> Self:
        """One by path, or in its folder of `output_dir` by its name, the `name:` of its config or a unique prefix."""
        try:
            path = Path(path_or_name).expanduser()
            if not (path / cls.directory.record).is_file():
                path = cls.directory.find(path, Path(output_dir).expanduser() / cls.folder)
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL byte, the home of an unknown user
            raise RunError(f"no {cls.directory.name} {str(path_or_name)[:100]!r}: {error}") from None
        record, members = read_record(path, cls.directory)
        opened = cls(path, cls.read_info(path, record), members, Redactor())
        opened.journal.generation = record.get("generation", 0)
        seals = record.get("seals")
        opened.seals = dict(seals) if isinstance(seals, dict) else {}  # an older version wrote none
        opened.check()
        opened.observe()
        return opened

    @classmethod
    def read_info(cls, path: Path, record: Mapping[str, Any]) -> Any:
        """What a record holds besides the members, every field of its type; RunError names the first that is not."""
        file = path / cls.directory.record
        try:
            known = cls.info_type.__dataclass_fields__
            needed = [name for name, field in known.items() if field.default is MISSING]
            fields = {name: record[name] for name in known if name in record or name in needed}
            info = TypeAdapter(cls.info_type).validate_json(json.dumps(fields), strict=True)
        except KeyError as error:
            raise no_record(file, cls.directory.name, error) from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise no_record(file, cls.directory.name, what) from None
        if not PLAIN_NAME.fullmatch(info.id):
            raise no_record(file, cls.directory.name, f"id {info.id!r:.100}")
        return info

    def check(self) -> None:
        """RunError where the record contradicts itself, or names a run outside of the output directory."""
        for member in self.members:
            if member.run is not None and self._is_outside(self.output_dir / member.run):
                raise RunError(
                    f"{self.kind} '{self.path}' names run '{member.run}', which is a link out of '{self.output_dir}'; "
                    "move the run there and remove the link"
                )

    def _is_outside(self, run: Path) -> bool:
        """Whether a directory of the output directory is really a link to another place."""
        return run.is_symlink() and run.resolve().parent != self.output_dir.resolve()

    @property
    def kind(self) -> str:
        """What messages call it: `group` or `sweep`."""
        return self.directory.name

    @property
    def output_dir(self) -> Path:
        return self.path.parent.parent

    @property
    def sweep(self) -> str | None:
        """The `sweep` that members record in `run.json`."""
        return None

    @abstractmethod
    def config_file(self, trial: int | None = None) -> Path:
        """The file with which a member of a trial is started; a group has one for all members."""

    def config(self, trial: int | None = None) -> TrainConfig:
        """What the members of a trial train; its seed is the first, secrets stay `${env:NAME}`."""
        if trial not in self._configs:
            stored = self.stored_config(trial)
            self.redactor.mapping(stored.mapping)  # what its references stand for is hidden in logs
            self._configs[trial] = stored.read()
        return self._configs[trial]

    def stored_config(self, trial: int | None = None) -> StoredConfig:
        """The config of a trial as stored on disk, with its seal."""
        return self.stored(self.config_file(trial))

    def stored(self, path: Path, mapping: Mapping[str, Any] | None = None) -> StoredConfig:
        name = path.name
        if mapping is None:
            mapping = self._trees[path] = self._trees.get(path) or read_yaml(path)
        return StoredConfig(
            self.kind, self._id(name), mapping, self.seals.get(name), f"{self.kind} '{self.path}'", str(path)
        )

    def seal(self, name: str, mapping: Mapping[str, Any]) -> None:
        """Seal one of its files as written on this machine."""
        self.seals[name] = seal_config(self.kind, self._id(name), mapping)

    def _id(self, name: str) -> str:
        return f"{self.info.id}/{name}"

    def consent(self, member: Member) -> Consent:
        """The consent under which a member runs, which holds on every host; TrustError without one.

        It belongs to the group or sweep and is given where that was made. A run that was started from it, perhaps on
        another host with another key, has it too, as long as its config is the one that was planned.
        """
        if self.planned_here:
            return OWN
        run = self.find_run(member)
        if run is None:
            return self.stored_config(member.trial).consent(trust_plugins=self.trusted)
        stored = run.stored_config()
        if not stored.is_own and public_sha256(stored.mapping) == member.config_sha256:
            planned = self.stored_config(member.trial)
            if planned.is_own and public_sha256({**planned.mapping, "seed": member.seed}) == member.config_sha256:
                return OWN
        return stored.consent(trust_plugins=self.trusted)

    def executor_is_own(self) -> bool:
        """Whether the recorded executor was written on this machine, or the user trusts the whole record."""
        if self.planned_here or self.trusted or self.info.executor is None:
            return True
        mapping, mark = dict(self.info.executor), self.seals.get(EXECUTOR)
        return StoredConfig(self.kind, self._id(EXECUTOR), mapping, mark, "", "").is_own

    def executor_consent(self) -> Consent:
        """The consent to code that an executor of the user's own needs: of this command line or of the record."""
        is_given = self.executor_given or self.executor_is_own()
        return OWN if is_given else Consent("none", f"{self.kind} '{self.path}'")

    def require_consent(self, members: Sequence[Member]) -> None:
        """Raise TrustError if a member comes from another machine and asks for code that the user has not allowed."""
        for member in members:
            self.consent(member)

    @abstractmethod
    def group_of(self, member: Member) -> str:
        """The `group` that a member records in `run.json`."""

    @abstractmethod
    def label(self, member: Member) -> str:
        """The name of a member in messages: `seed 3`."""

    @abstractmethod
    def log(self, member: Member) -> Path:
        """The file for the output of the member's processes."""

    @abstractmethod
    def total(self, member: Member) -> int:
        """Budget of a member in env steps."""

    def start_words(self, member: Member) -> list[str]:
        """Arguments of `rl` that start a member that has no run yet."""
        file = self.config_file(member.trial).absolute()
        return ["train", f"--config={file}", f"--seed={member.seed}", *self._folder_words()]

    def _folder_words(self) -> list[str]:
        """The flag for the output directory, if that was moved or is relative to another folder."""
        if self._flags is None:
            is_here = Path(restore(self.planned_output_dir())).expanduser().resolve() == self.output_dir.resolve()
            self._flags = [] if is_here else [f"--output-dir={self.output_dir.absolute()}"]
        return self._flags

    @abstractmethod
    def planned_output_dir(self) -> str:
        """The output directory as written in the config."""

    def planned_run(self, member: Member) -> str:
        """Reserve a name for the run directory of a member that starts now: its trial is the number at the end, unless
        another group or sweep has that name since the same second."""
        name = run_name(self.info.algo, self.info.env_id, member.seed, datetime.now())
        with readable_errors(f"cannot create a run in output_dir '{self.output_dir}'"):
            return reserve(self.output_dir, name, (member.trial or 0) + 1, "run")

    def resume_words(self, run: RunDir) -> list[str]:
        """Arguments of `rl` that continue a member's run."""
        return ["resume", str(run.path)]

    def is_complete(self, member: Member, info: Mapping[str, Any]) -> bool:
        """Whether a finished run has reached the budget of its group."""
        return True

    def record_fields(self) -> dict[str, Any]:
        """The fields of the record besides seals and members."""
        return {"schema": SCHEMA, **asdict(self.info)}

    def lock(self) -> RunLock:
        """Context manager that gives this process exclusive use; RunError names the process that has it."""
        return RunLock(self.path / ".lock", self.kind)

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Exclusive use, as by `lock`; a record that was planned just now is removed where nothing could be started."""
        with self.lock():
            try:
                yield
            except BaseException:
                if self.planned_here and all(member.run is None for member in self.members):
                    shutil.rmtree(self.path, ignore_errors=True)
                    with suppress(OSError):  # the folder of all groups or sweeps, if it is empty now
                        self.path.parent.rmdir()
                raise

    def save(self) -> None:
        """Write the whole record atomically; the journal of changes starts anew."""
        generation = self.journal.generation + 1
        members = [compact(member) for member in self.members]
        record = {**self.record_fields(), "generation": generation, "seals": self.seals, "members": members}
        with readable_errors(f"cannot write {self.directory.record} in '{self.path}'"):
            atomic_write(self.path / self.directory.record, record_text(record).encode())
        self.journal.restart(generation, self.members)

    def note(self, member: Member) -> None:
        """Append what has changed about one member to the journal; cheap, however many members there are."""
        self.journal.note(member)

    def find_run(self, member: Member) -> RunDir | None:
        """The run directory of a member: the one on record, if it is there."""
        if member.run is not None and (self.output_dir / member.run / "run.json").is_file():
            return RunDir(self.output_dir / member.run, self.redactor)
        return None

    def adopt_runs(self) -> None:
        """Find the runs that the record does not name: of older versions, of a parent that was killed, of an array job.

        Each run names its group in `run.json`. The output directory is listed once for all members, and the newest run
        of a seed counts.
        """
        without = [member for member in self.members if self.find_run(member) is None]
        if not without:
            return
        wanted = {(self.group_of(member), member.seed): member for member in without}
        seeds = {f"__seed{member.seed}__" for member in without}
        names = [name for name in names_in(self.output_dir) if _seed_part(name) in seeds]
        paths = [self.output_dir / name for name in names if (self.output_dir / name / "run.json").is_file()]
        for path in sorted(paths, key=lambda path: age(path, "run.json")):
            if self._is_outside(path):
                continue
            group, seed = _group_in(path)
            member = wanted.get((group, seed)) if group is not None else None
            if member is not None:
                member.run = path.name

    def observe(self) -> None:
        """Bring every member up to date with its run directory."""
        self.adopt_runs()
        for member in self.members:
            self.observe_member(member)

    def observe_member(self, member: Member) -> None:
        run = self.find_run(member)
        if run is None:
            member.run = None
            if member.status != "failed":  # a member can fail before it has a run
                member.status = "waiting"
            return
        member.run = run.path.name
        try:
            info = run.info()
        except RunError as error:
            member.status, member.reason = "failed", str(error)
            return
        member.exit_code, member.status = info.get("exit_code"), info.get("status", "failed")
        if member.status == "running" and run.holder() is None:
            member.status = "killed"
        if member.status == "finished" and not self.is_complete(member, info):
            member.status = "waiting"

    def final_metrics(self, member: Member) -> dict[str, Any]:
        """The final metrics of a member's run; empty where it has none yet."""
        if member.run is None:
            return {}
        try:
            metrics = json.loads((self.output_dir / member.run / "metrics.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return metrics if isinstance(metrics, dict) else {}

    def unfinished(self) -> list[Member]:
        return [member for member in self.members if member.status != "finished"]

    def busy(self, member: Member, lost: Lost | None = None) -> Holder | None:
        """The process that runs a member now: it was resumed directly, or left behind by an earlier parent. `lost` is
        what an executor knows about processes on other hosts."""
        run = self.find_run(member)
        holder = run.holder(lost) if run is not None else None
        if holder is None and member.process is not None and member.process.is_alive():
            return member.process
        return holder

    def command(self, member: Member) -> list[str]:
        """Arguments of `rl` that start or continue a member; TrustError where it must not run."""
        self.consent(member)
        run = self.find_run(member)
        return self.start_words(member) if run is None else self.resume_words(run)


SetT = TypeVar("SetT", bound=RunSet)


def set_or_run(
    kind: type[SetT], named: str, output_dir: str | Path, run: RunDir | None, refusal: RunError
) -> SetT | RunDir:
    """The group or sweep called `named`, else the `run` of that name or its `refusal`; RunError where both fit and the
    run is not a member."""
    try:
        found = kind.open(named, output_dir)
    except RunError as error:
        if run is not None:
            return run
        looks_like_one = os.path.exists(os.path.join(named, kind.directory.record)) or " fits " in str(error)
        raise error if looks_like_one else refusal from None
    if run is not None and run.info().get(found.kind) != found.info.id:
        raise RunError(
            f"'{named}' fits run '{run.path.name}' and {found.kind} '{found.info.id}'; type more of the name"
        )
    return found


def read_record(path: Path, kind: DirectoryKind) -> tuple[dict[str, Any], list[Member]]:
    """The contents of a record, and its members as the journal has them; RunError says what is wrong with it."""
    file = path / kind.record
    try:
        data = file.read_bytes() if file.stat().st_size <= kind.max_bytes else b""
        found = json.loads(data)
        if found["schema"] > SCHEMA:
            raise RunError(f"'{file}' was written by a newer version of rl_training; update to read it")
        entries, added = read_journal(path, found.get("generation", 0), found["members"])
        members = [_member(entry) for entry in entries]
        _add_trials(found, added)
    except OSError as error:
        raise RunError(f"cannot read '{file}': {error.strerror}; check its permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise no_record(file, kind.name, error) from error
    may_be_empty = found.get("trials") == []  # a sweep that grows
    if (not members and not may_be_empty) or len({member.key for member in members}) < len(members):
        raise no_record(file, kind.name, "no seeds, or one twice")
    return found, members


def _add_trials(record: dict[str, Any], added: Sequence[Mapping[str, Any]]) -> None:
    """Complete a record by the trials of its journal; one that it has already is left out."""
    for trial in added:
        number = len(record["trials"])
        if trial["number"] > number:
            raise ValueError(f"trial {number} is missing")
        if trial["number"] == number:
            record["trials"].append(trial["values"])
            record["totals"].append(trial["total"])
            record["seals"] = {**record["seals"], **trial["seals"]}


def no_record(file: Path, kind: str, why: object) -> RunError:
    return RunError(f"'{file}' does not describe a {kind} ({why}); restore it from a backup")


def _seed_part(name: str) -> str:
    """>>> _seed_part("ppo__CartPole-v1__seed3__20260101-120000")
    '__seed3__'
    """
    found = re.search(r"__seed\d+__", name)
    return found[0] if found else ""


def _group_in(run: Path) -> tuple[str | None, Any]:
    """Group and seed in the record of a run; (None, None) where it cannot be read."""
    try:
        info = RunDir(run).info()
    except RunError:
        return None, None
    group = info.get("group")
    return (group if isinstance(group, str) else None), info.get("seed")


def _member(entry: Mapping[str, Any]) -> Member:
    process = entry.get("process")
    member = Member(**{**entry, "process": None if process is None else Holder(**process)})
    is_inside = member.run is None or (Path(member.run).name == member.run and member.run not in ("", ".", ".."))
    numbers = [member.seed] if member.trial is None else [member.seed, member.trial]
    if not is_inside or not all(type(number) is int and 0 <= number <= MAX_SEED for number in numbers):
        raise ValueError(f"member {entry!r:.100}")
    return member
