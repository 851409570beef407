"""A group of seeds on disk: `<output_dir>/groups/<algo>__<env>__<stamp>/`, which says what belongs together.

Its members are ordinary run directories beside it, and they are the truth: each names its group in `run.json`, so that
`group.json` can be brought up to date from them whatever was killed. Starting the members is `group_runner`'s work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rl_training.atomic_io import atomic_write
from rl_training.checkpointing import CheckpointManager
from rl_training.config import TrainConfig
from rl_training.config_loading import parse_config, read_yaml
from rl_training.config_yaml import dump_mapping
from rl_training.run_lock import Holder, RunLock
from rl_training.run_names import age, claim_directory, name_part, pick, readable_errors
from rl_training.runs import RunDir, public_config, public_sha256
from rl_training.secrets import Redactor, with_secrets
from rl_training.types import RunError

Status = Literal["waiting", "running", "finished", "stopped", "failed", "killed"]
"""`killed` is a run that nobody has and that never wrote its end."""
SCHEMA = 1
FOLDER, RECORD = "groups", "group.json"
SUBFOLDERS = ("configs", "logs", "plots")
MAX_RECORD_BYTES = 2**26


@dataclass
class Member:
    """One seed of a group."""

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


class SeedGroup:
    """One group on disk, open for reading; `lock` before changing it."""

    def __init__(self, path: Path, info: GroupInfo, members: Sequence[Member], redactor: Redactor) -> None:
        self.path = path
        self.info = info
        self.members = list(members)
        self.redactor = redactor
        self._strangers: set[str] = set()
        """Run directories that were looked at and belong to nobody here."""

    def __repr__(self) -> str:
        return f"SeedGroup({str(self.path)!r}, seeds={[member.seed for member in self.members]})"

    @classmethod
    def create(
        cls,
        cfg: TrainConfig,
        seeds: Sequence[int],
        *,
        argv: Sequence[str] = (),
        source: str | None = None,
        jobs: int | None = None,
        init_from: str | None = None,
    ) -> SeedGroup:
        """A new group with its config frozen: a file that is edited while members wait changes nothing for them."""
        cfg = with_secrets(cfg)
        warm_start = None if init_from is None else pinned(init_from, cfg.output_dir)
        redactor = Redactor()
        public = public_config(cfg, redactor)
        redactor.warn_about_needed()
        name = f"{name_part(cfg.algo)}__{name_part(cfg.env_id)}__{datetime.now():%Y%m%d-%H%M%S}"
        with readable_errors(f"cannot create a group in output_dir '{cfg.output_dir}'"):
            path = claim_directory(Path(cfg.output_dir).expanduser() / FOLDER, name, SUBFOLDERS, "group")
            resolved = dump_mapping(public)
            atomic_write(path / "configs" / "resolved.yaml", resolved.encode())
            text = resolved if source is None else redactor.text(source)
            atomic_write(path / "configs" / "source.yaml", text.encode(errors="surrogateescape"))
        info = GroupInfo(
            id=path.name,
            name=public["name"],
            algo=cfg.algo,
            env_id=cfg.env_id,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            argv=redactor.argv(argv),
            jobs=jobs,
            init_from=warm_start,
        )
        members = [Member(seed, public_sha256({**public, "seed": seed})) for seed in seeds]
        group = cls(path, info, members, redactor)
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
        info, members = _read(path)
        group = cls(path, info, members, Redactor())
        group.observe()
        return group

    @property
    def output_dir(self) -> Path:
        return self.path.parent.parent

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    def config(self) -> TrainConfig:
        """The config of the members, whose seed is that of the first; secrets stay `${env:NAME}`."""
        path = self.path / "configs" / "resolved.yaml"
        return parse_config(read_yaml(path), source=str(path))

    def log(self, member: Member) -> Path:
        """Where everything goes that the member's processes print."""
        return self.path / "logs" / f"seed{member.seed}.log"

    def lock(self) -> RunLock:
        """Context manager: this process alone runs the group, or RunError names the one that does."""
        return RunLock(self.path / ".lock", "group")

    def save(self) -> None:
        """Write `group.json`; whoever reads it meanwhile sees the old one or the new one."""
        members = [asdict(member) for member in self.members]
        record = {"schema": SCHEMA, **asdict(self.info), "members": members}
        with readable_errors(f"cannot write {RECORD} in '{self.path}'"):
            atomic_write(self.path / RECORD, json.dumps(record, indent=2).encode() + b"\n")

    # -- members ------------------------------------------------------------------------------------------------------

    def find_run(self, member: Member) -> RunDir | None:
        """The run directory of a member: the one on record, or the newest that names this group and has its seed."""
        if member.run is not None and (self.output_dir / member.run / "run.json").is_file():
            return RunDir(self.output_dir / member.run, self.redactor)
        part = f"__seed{member.seed}__"
        names = [name for name in _names_in(self.output_dir) if part in name and name not in self._strangers]
        paths = [self.output_dir / name for name in names if (self.output_dir / name / "run.json").is_file()]
        for path in sorted(paths, key=lambda path: age(path, "run.json"), reverse=True):
            if _group_of(path) == self.info.id:
                return RunDir(path, self.redactor)
            self._strangers.add(path.name)
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
        if member.status == "finished" and not self._is_extended(member, info.get("total_timesteps")):
            member.status = "waiting"

    def _is_extended(self, member: Member, budget: int | None) -> bool:
        """Whether a finished run has come to the budget of the group, also if it was killed on taking it over."""
        total = self.info.total_timesteps
        if total is None:
            return True
        metrics = self.final_metrics(member)
        is_short = metrics.get("env_steps", 0) < total and metrics.get("stop_reason") == "budget spent"
        return budget == total and not is_short

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
        """What to run for a member after `rl`: its training, or the rest of it."""
        run = self.find_run(member)
        if run is not None:
            total = self.info.total_timesteps
            new = [f"--total-timesteps={total}"] if total not in (None, run.info().get("total_timesteps")) else []
            return ["resume", str(run.path), *new]
        words = ["train", f"--config={self.path / 'configs' / 'resolved.yaml'}", f"--seed={member.seed}"]
        if Path(self.config().output_dir).expanduser().resolve() != self.output_dir.resolve():
            words.append(f"--output-dir={self.output_dir}")  # the group was moved, or this is another folder
        return [*words, f"--init-from={self.info.init_from}"] if self.info.init_from is not None else words

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
    folder = output_dir / FOLDER
    paths = [folder / name for name in _names_in(folder) if (folder / name / RECORD).is_file()]
    return sorted(paths, key=lambda path: age(path, RECORD))


def pinned(init_from: str, output_dir: str) -> str:
    """`RUN[:STEP]` as a path and a step: `latest` would be another run, or another step of it, for every member."""
    name, _, step = init_from.partition(":") if not Path(init_from).exists() else (init_from, "", "")
    run = RunDir.open(name, output_dir)
    manager = CheckpointManager(run.path)
    found = {"": manager.latest_step(), "latest": manager.latest_step(), "best": manager.best_step()}.get(step, step)
    if found is None:
        raise RunError(f"--init-from {init_from}: run '{run.path}' has no checkpoint '{step or 'latest'}'")
    return f"{run.path}:{found}"


def _find(path: Path, folder: Path) -> Path:
    groups = group_directories(folder.parent)
    if len(path.parts) != 1:
        raise RunError(f"no group '{path}': there is no such directory")
    if not groups:
        raise RunError(f"no group '{path}': '{folder}' holds no groups; `rl train --seed 1,2,3` makes one")
    return pick(str(path), groups, _given_name, "group")


def _given_name(group: Path) -> str | None:
    try:
        return _read(group)[0].name
    except RunError:
        return None


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _group_of(run: Path) -> str | None:
    try:
        group = RunDir(run).info().get("group")
    except RunError:
        return None
    return group if isinstance(group, str) else None


def _read(path: Path) -> tuple[GroupInfo, list[Member]]:
    """The record of a group; RunError says what is wrong with it."""
    file = path / RECORD
    try:
        data = file.read_bytes() if file.stat().st_size <= MAX_RECORD_BYTES else b""
        record = json.loads(data)
        if record["schema"] > SCHEMA:
            raise RunError(f"'{file}' was written by a newer version of rl_training; update to read it")
        members = [_member(entry) for entry in record["members"]]
        known = {name: record[name] for name in GroupInfo.__dataclass_fields__}
    except OSError as error:
        raise RunError(f"cannot read '{file}': {error.strerror}; check its permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"'{file}' does not describe a group ({error}); restore it from a backup") from error
    if not members or len({member.seed for member in members}) < len(members):
        raise RunError(f"'{file}' does not describe a group (no seeds, or one twice); restore it from a backup")
    return GroupInfo(**known), members


def _member(entry: Mapping[str, Any]) -> Member:
    process = entry["process"]
    member = Member(**{**entry, "process": None if process is None else Holder(**process)})
    inside = member.run is None or (Path(member.run).name == member.run and member.run not in ("", ".", ".."))
    if not isinstance(member.seed, int) or not inside:
        raise ValueError(f"member {entry!r:.100}")
    return member
