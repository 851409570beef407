"""Runs that were planned together: a group of seeds, or a sweep. What is on disk of each, and what to start for it.

A member is an ordinary run directory beside the others, and the run is the truth: it names its group in `run.json`, so
that the record of the whole can be brought up to date from the runs whatever was killed.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from rl_training.config.loading import read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.runs.directory import RunDir
from rl_training.runs.lock import Holder, RunLock
from rl_training.runs.names import age, readable_errors
from rl_training.runs.redaction import Redactor, restore
from rl_training.runs.stored_config import StoredConfig, seal_config
from rl_training.system.atomic_io import atomic_write
from rl_training.trust.consent import OWN, Consent
from rl_training.types import RunError

CONFIG_CODE = 2
"""Exit code of a member whose config cannot run, and of a group of nothing else."""
Status = Literal["waiting", "running", "finished", "stopped", "failed", "killed"]
"""`killed` is a run that nobody has and that never wrote its end."""
MAX_RECORD_BYTES = 2**26


@dataclass
class Member:
    """One run of several."""

    seed: int
    config_sha256: str
    """Hash of its config as `run.json` has it, known before the run exists."""
    run: str | None = None
    """Name of its run directory in the output directory."""
    status: Status = "waiting"
    exit_code: int | None = None
    reason: str | None = None
    """Why it failed, in a line."""
    words: list[str] = field(default_factory=list)
    """The command that was started for it last."""
    process: Holder | None = None
    """The process of that command, dead or alive."""
    trial: int | None = None
    """Which trial of a sweep it belongs to."""

    @property
    def key(self) -> tuple[int | None, int]:
        """What tells it from the other members."""
        return self.trial, self.seed


class RunSet(ABC):
    """The members and their record on disk, open for reading; `lock` before changing it."""

    kind: ClassVar[str]
    record: ClassVar[str]
    """Name of the file that holds the plan."""

    def __init__(self, path: Path, info: Any, members: Sequence[Member], redactor: Redactor) -> None:
        self.path = path
        self.info = info
        self.members = list(members)
        self.redactor = redactor
        self.seals: dict[str, str | None] = {}
        """By the name of each of its files that says what to run: the seal that says that it was written here."""
        self.planned_here = False
        """By this very process, so that the user has just given all of it."""
        self.trusted = False
        """Agreed to by the user on this command line."""
        self._configs: dict[Path, TrainConfig] = {}
        """Frozen configs that were read, by their file."""
        self._owners: dict[str, str | None] = {}
        """Run directories that were looked at, and the group that each names."""

    @property
    def output_dir(self) -> Path:
        return self.path.parent.parent

    @property
    def sweep(self) -> str | None:
        """What members write as their `sweep`."""
        return None

    @abstractmethod
    def config_file(self, trial: int | None = None) -> Path:
        """Where the config of a trial is frozen; a group has but one."""

    def config(self, trial: int | None = None) -> TrainConfig:
        """What the members of a trial train; its seed is the first, secrets stay `${env:NAME}`."""
        file = self.config_file(trial)
        if file not in self._configs:
            stored = self.stored_config(trial)
            self.redactor.mapping(stored.mapping)  # what its references stand for is hidden in logs
            self._configs[file] = stored.read()
        return self._configs[file]

    def stored_config(self, trial: int | None = None) -> StoredConfig:
        """The same as it is on the disk, with what says whose it is."""
        return self.stored(self.config_file(trial))

    def stored(self, path: Path, mapping: Mapping[str, Any] | None = None) -> StoredConfig:
        name, mapping = path.name, read_yaml(path) if mapping is None else mapping
        return StoredConfig(
            self.kind, self._id(name), mapping, self.seals.get(name), f"{self.kind} '{self.path}'", str(path)
        )

    def seal(self, name: str, mapping: Mapping[str, Any]) -> None:
        """Mark one of its files as written here."""
        self.seals[name] = seal_config(self.kind, self._id(name), mapping)

    def _id(self, name: str) -> str:
        return f"{self.info.id}/{name}"

    def consent(self, member: Member) -> Consent:
        """Under which a member is trained: that of its run or, before it has one, of its config; TrustError without."""
        if self.planned_here:
            return OWN
        run = self.find_run(member)
        stored = self.stored_config(member.trial) if run is None else run.stored_config()
        return stored.consent(trust_plugins=self.trusted)

    def require_consent(self, members: Sequence[Member]) -> None:
        """TrustError where some of these were planned elsewhere, ask for code, and nobody has agreed to that."""
        for member in members:
            self.consent(member)

    @abstractmethod
    def group_of(self, member: Member) -> str:
        """What a member writes as its `group`."""

    @abstractmethod
    def label(self, member: Member) -> str:
        """What a person calls a member: `seed 3`."""

    @abstractmethod
    def log(self, member: Member) -> Path:
        """Where everything goes that the member's processes print."""

    @abstractmethod
    def total(self, member: Member) -> int:
        """Env steps that a member trains for."""

    def start_words(self, member: Member) -> list[str]:
        """What to run after `rl` for a member that has no run yet."""
        words = ["train", f"--config={self.config_file(member.trial)}", f"--seed={member.seed}"]
        if Path(restore(self.config(member.trial).output_dir)).expanduser().resolve() != self.output_dir.resolve():
            words.append(f"--output-dir={self.output_dir}")  # it was moved, or this is another folder
        return words

    def resume_words(self, run: RunDir) -> list[str]:
        """What to run after `rl` for one that has."""
        cannot_be_sealed = self.planned_here and None in self.seals.values()
        return ["resume", str(run.path), *(["--trust-plugins"] if self.trusted or cannot_be_sealed else [])]

    def is_complete(self, member: Member, info: Mapping[str, Any]) -> bool:
        """Whether a finished run is all that was asked for."""
        return True

    def record_fields(self) -> dict[str, Any]:
        """What the record holds besides the members."""
        return asdict(self.info)

    def lock(self) -> RunLock:
        """Context manager: this process alone runs it, or RunError names the one that does."""
        return RunLock(self.path / ".lock", self.kind)

    def save(self) -> None:
        """Write the record; whoever reads it meanwhile sees the old one or the new one."""
        record = {**self.record_fields(), "seals": self.seals, "members": [asdict(member) for member in self.members]}
        with readable_errors(f"cannot write {self.record} in '{self.path}'"):
            atomic_write(self.path / self.record, json.dumps(record, indent=2).encode() + b"\n")

    def find_run(self, member: Member) -> RunDir | None:
        """The run directory of a member: the one on record, or the newest that names its group and has its seed."""
        if member.run is not None and (self.output_dir / member.run / "run.json").is_file():
            return RunDir(self.output_dir / member.run, self.redactor)
        part, wanted = f"__seed{member.seed}__", self.group_of(member)
        names = [name for name in names_in(self.output_dir) if part in name]
        paths = [self.output_dir / name for name in names if self._owners.get(name, wanted) == wanted]
        paths = [path for path in paths if (path / "run.json").is_file()]
        for path in sorted(paths, key=lambda path: age(path, "run.json"), reverse=True):
            self._owners[path.name] = _group_in(path)
            if self._owners[path.name] == wanted:
                return RunDir(path, self.redactor)
        return None

    def observe(self) -> None:
        """Bring every member up to date with its run directory."""
        for member in self.members:
            self.observe_member(member)

    def observe_member(self, member: Member) -> None:
        run = self.find_run(member)
        if run is None:
            member.run = None
            if member.status != "failed":  # one can fail before it has a run
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
        """The numbers at the end of a member's run; empty where it has not come so far."""
        if member.run is None:
            return {}
        try:
            metrics = json.loads((self.output_dir / member.run / "metrics.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return metrics if isinstance(metrics, dict) else {}

    def unfinished(self) -> list[Member]:
        return [member for member in self.members if member.status != "finished"]

    def busy(self, member: Member) -> Holder | None:
        """The process that has a member now: its run was resumed by itself, or an earlier parent left it behind."""
        run = self.find_run(member)
        holder = run.holder() if run is not None else None
        if holder is None and member.process is not None and member.process.is_alive():
            return member.process
        return holder

    def command(self, member: Member) -> list[str]:
        """What to run for a member after `rl`: its training, or the rest of it; TrustError where it must not run."""
        self.consent(member)
        run = self.find_run(member)
        return self.start_words(member) if run is None else self.resume_words(run)


def read_record(path: Path, kind: str, record: str, schema: int) -> tuple[dict[str, Any], list[Member]]:
    """What a record says, and its members; RunError says what is wrong with it."""
    file = path / record
    try:
        data = file.read_bytes() if file.stat().st_size <= MAX_RECORD_BYTES else b""
        found = json.loads(data)
        if found["schema"] > schema:
            raise RunError(f"'{file}' was written by a newer version of rl_training; update to read it")
        members = [_member(entry) for entry in found["members"]]
    except OSError as error:
        raise RunError(f"cannot read '{file}': {error.strerror}; check its permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise no_record(file, kind, error) from error
    may_be_empty = found.get("trials") == []  # a sweep that grows
    if (not members and not may_be_empty) or len({member.key for member in members}) < len(members):
        raise no_record(file, kind, "no seeds, or one twice")
    return found, members


def seals_in(record: Mapping[str, Any]) -> dict[str, str | None]:
    """The seals of a record; one of an older version has none."""
    seals = record.get("seals")
    return dict(seals) if isinstance(seals, dict) else {}


def no_record(file: Path, kind: str, why: object) -> RunError:
    return RunError(f"'{file}' does not describe a {kind} ({why}); restore it from a backup")


def directories(folder: Path, record: str) -> list[Path]:
    """All folders that have such a record, oldest first."""
    paths = [folder / name for name in names_in(folder) if (folder / name / record).is_file()]
    return sorted(paths, key=lambda path: age(path, record))


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _group_in(run: Path) -> str | None:
    try:
        group = RunDir(run).info().get("group")
    except RunError:
        return None
    return group if isinstance(group, str) else None


def _member(entry: Mapping[str, Any]) -> Member:
    process = entry["process"]
    member = Member(**{**entry, "process": None if process is None else Holder(**process)})
    inside = member.run is None or (Path(member.run).name == member.run and member.run not in ("", ".", ".."))
    if not isinstance(member.seed, int) or not isinstance(member.trial, int | None) or not inside:
        raise ValueError(f"member {entry!r:.100}")
    return member
