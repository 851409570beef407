"""Run directories: one folder per run with its config, how it was started, how it ended, and everything it wrote.

The directory is the source of truth; the index is built from it. Checkpoints and logs are written by other modules.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rl_training.config.loading import ResolvedConfig, as_resolved, read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.config.yaml_reader import dump_mapping
from rl_training.runs import index
from rl_training.runs.description import SEAL, git_facts, public_config, public_sha256, run_info, timestamp
from rl_training.runs.lock import Holder, Lost, RunLock, living_holder
from rl_training.runs.names import DirectoryKind, claim_directory, claim_exactly, env_fn_of, name_part, readable_errors
from rl_training.runs.redaction import Redactor, restore
from rl_training.runs.stored_config import StoredConfig
from rl_training.system.atomic_io import atomic_write, fsync_dir, remove_leftovers
from rl_training.system.json_lines import parse_row, plain_row
from rl_training.system.machine import GitQuery
from rl_training.system.place import Place
from rl_training.trust.consent import Consent, scope
from rl_training.types import RunError

__all__ = [
    "CLOCK_KEYS",
    "SUBFOLDERS",
    "RunDir",
    "Status",
    "make_run_dir",
    "metrics_sha256",
    "public_config",
    "public_sha256",
    "run_directories",
]

Status = Literal["running", "finished", "stopped", "failed"]
SUBFOLDERS = ("configs", "logs", "checkpoints", "videos", "plots", "debug")
MAX_INFO_BYTES = 2**23
RUN = DirectoryKind("run", "run.json", "give a path, or the folder with --output-dir", MAX_INFO_BYTES)
CLOCK_KEYS = ("time/", "system/")
"""Prefixes of metrics that depend on the clock; comparisons of runs ignore them."""


def make_run_dir(cfg: TrainConfig) -> Path:
    """Create `<output_dir>/<algo>__<env>__seed<k>__<stamp>[-2]/` with its subfolders; never one that exists."""
    return _make_run_dir(cfg, datetime.now())


def _make_run_dir(cfg: TrainConfig, now: datetime, planned: str | None = None) -> Path:
    with readable_errors(f"cannot create a run in output_dir '{cfg.output_dir}'"):
        root = Path(restore(cfg.output_dir)).expanduser()
        if planned is not None:
            return claim_exactly(root, planned, SUBFOLDERS, "run")
        return claim_directory(root, run_name(cfg.algo, cfg.env_id, cfg.seed, now), SUBFOLDERS, "run")


def run_name(algo: str, env_id: str, seed: int, now: datetime) -> str:
    """`<algo>__<env>__seed<k>__<stamp>`."""
    return f"{name_part(algo)}__{name_part(env_fn_of(env_id) or env_id)}__seed{seed}__{now:%Y%m%d-%H%M%S}"


class RunDir:
    """One run on disk: paths, config, `run.json`, lock."""

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.path = path.absolute()
        self.redactor = redactor or Redactor()
        """Removes this run's secrets from everything else that is written here."""
        self._place: Place | None = None
        """Set while this process holds the run: the directory must not be moved or replaced."""
        self.written: Mapping[str, Any] | None = None
        """The config without its secrets, as this object wrote it to a new run; None for a run that was opened."""

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @classmethod
    def create(
        cls,
        cfg: TrainConfig | ResolvedConfig,
        *,
        source: str | None = None,
        argv: Sequence[str] = (),
        parent: str | None = None,
        group: str | None = None,
        sweep: str | None = None,
        name: str | None = None,
    ) -> RunDir:
        """A new run directory for `cfg` with everything that is known before training starts.

        `cfg` is the config as the user wrote it, with `${env:NAME}` references unresolved. `source` is the text of the
        file it came from; `parent` the run (and step) it was warm-started from; `group` the group of seeds and `sweep`
        the sweep it belongs to; `name` the directory's name where a parent has planned it.
        """
        with GitQuery() as git_query:  # runs in the background while the rest is written
            relations = {"group": group, "sweep": sweep, "parent": parent}
            return cls._create(as_resolved(cfg), git_query, source, argv, relations, name)

    @classmethod
    def _create(
        cls,
        resolved: ResolvedConfig,
        git_query: GitQuery,
        source: str | None,
        argv: Sequence[str],
        relations: Mapping[str, str | None],
        name: str | None,
    ) -> RunDir:
        redactor = Redactor()
        public = public_config(resolved, redactor)
        redactor.warn_about_needed()
        run = cls(_make_run_dir(resolved.config, datetime.now(), name), redactor)
        try:
            run._describe(resolved.config, public, git_query, source, argv, relations)
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)  # an incomplete directory would not be a run
            raise
        run.written = public
        return run

    def _describe(
        self,
        cfg: TrainConfig,
        public: Mapping[str, Any],
        git_query: GitQuery,
        source: str | None,
        argv: Sequence[str],
        relations: Mapping[str, str | None],
    ) -> None:
        """Write the configs and, last, `run.json`: a folder without it is not a run."""
        resolved = dump_mapping(public)
        self._write("configs/resolved.yaml", resolved)
        self._write("configs/source.yaml", resolved if source is None else self.redactor.text(source))
        info = run_info(self.path.name, cfg, public, relations, self.redactor.argv(argv))
        facts, diff = git_facts(git_query.result(), self.redactor)
        self._write("git.diff", diff)
        self._write_json("run.json", {**info, "git": facts})

    @classmethod
    def open(cls, path_or_name: str | Path, output_dir: str | Path = "runs") -> RunDir:
        """An existing run: by path, or within `output_dir` by directory name, id, `name:`, unique prefix or
        `latest`."""
        try:
            path = Path(path_or_name).expanduser()
            if (path / "run.json").is_file():
                return cls(path)
            exists = path.exists()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL byte, `~` of an unknown user
            raise RunError(f"no run {str(path_or_name)[:100]!r}: {error}") from None
        if exists and len(path.parts) != 1:
            raise _not_a_run(path)
        try:
            return cls(RUN.find(path, Path(output_dir).expanduser()))
        except RunError:
            if exists:
                raise _not_a_run(path) from None
            raise

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def videos(self) -> Path:
        return self.path / "videos"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def debug(self) -> Path:
        return self.path / "debug"

    def stored_config(self) -> StoredConfig:
        """The resolved config as stored on disk, with its trust seal."""
        path = self.path / "configs" / "resolved.yaml"
        if not path.is_file():
            raise RunError(f"run '{self.path}' has no configs/resolved.yaml; it cannot be resumed or evaluated")
        info = self.info()
        return StoredConfig(
            "run", str(info.get("id")), read_yaml(path), info.get(SEAL), f"run '{self.path}'", str(path)
        )

    def config(self, *, secrets: bool = True) -> TrainConfig:
        """The resolved config. With `secrets` it can be run, and the conditions of `to_run` apply; without, it can only
        be read: `${env:NAME}` references stay, and no variable needs to be set."""
        if not secrets:
            return self.stored_config().read()
        with self.to_run() as cfg:
            return cfg

    @contextmanager
    def to_run(
        self, *, trust_plugins: bool = False, env_given: bool = False, consent: Consent | None = None
    ) -> Iterator[TrainConfig]:
        """The resolved config, for use inside the context. RunError if the run was cleaned up; TrustError if it was not
        created here, asks for code from outside the package, and the user has not consented to that.

        `trust_plugins` is that consent; `env_given` says that the caller passes the environment. `consent` was given to
        the group or sweep that this run belongs to, perhaps on another host.
        """
        if self.info().get("cleaned"):
            again = f"rl train {self.path / 'configs' / 'resolved.yaml'}"
            raise RunError(f"run '{self.path}' was cleaned up: its checkpoints are gone; train it anew with `{again}`")
        stored = self.stored_config()
        links = [] if stored.is_own else self._links()
        if consent is not None and not links:
            with scope(consent):
                self.redactor.mapping(stored.mapping)
                yield stored.filled(consent)
            return
        with stored.to_run(trust_plugins=trust_plugins, env_given=env_given, further=links) as cfg:
            self.redactor.mapping(stored.mapping)  # hides the values of its references in logs
            yield cfg

    def _links(self) -> list[str]:
        """Symbolic links in the directory: writing into the run would write elsewhere through them. A run never creates
        any, and archives do not contain them."""
        return [
            f"link {Path(folder, name).relative_to(self.path)}"
            for folder, folders, files in os.walk(self.path)
            for name in sorted([*folders, *files])
            if Path(folder, name).is_symlink()
        ]

    def info(self) -> dict[str, Any]:
        """The content of `run.json`."""
        path = self.path / "run.json"
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_INFO_BYTES + 1)
            info = json.loads(data) if len(data) <= MAX_INFO_BYTES else None
        except FileNotFoundError:
            raise _not_a_run(self.path) from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"cannot read '{path}': {error}") from error
        if not isinstance(info, dict):
            raise RunError(f"'{path}' does not describe a run; restore it from a backup or remove the directory")
        return info

    def update_info(self, **fields: Any) -> None:
        """Change fields of `run.json` atomically; concurrent changes by other processes are not lost."""
        self.change_info(lambda info: fields)

    def change_info(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        """Change fields of `run.json` to values computed from the present ones; returns the new content."""
        self.check_place()
        with self._exclusive():
            info = self.info()
            info |= change(info)
            self._write_json("run.json", info)
        return info

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `metrics.json`, the final metrics of the run. Non-finite values become null."""
        row = plain_row(summary, finite=True)
        texts = {key: self.redactor.text(value) for key, value in row.items() if isinstance(value, str)}
        self._write_json("metrics.json", {**row, **texts})

    def finish(self, status: Status = "finished", exit_code: int = 0) -> None:
        """Record how the run ended and the hash of its metrics."""
        digest = metrics_sha256(self.logs / "metrics.jsonl")
        self.update_info(status=status, exit_code=exit_code, ended=timestamp(), metrics_sha256=digest)
        index.record(self.path)

    def rewind(self, step: int) -> None:
        """Remove videos and dreams of later steps than `step`, and temporary files of a killed process.

        Called when a run resumes from `step`. Checkpoints and logs are rewound by their own modules.
        """
        with readable_errors(f"cannot tidy '{self.path}'"):
            for folder in (self.path, self.path / "configs", self.videos):
                if folder.is_dir():
                    remove_leftovers(folder)
            pictures = [*self.videos.glob("step_*.mp4"), *self.videos.glob("dream_*.mp4"), *self.plots.glob("dream_*")]
            for path in pictures:
                number = path.stem.split("_")[1]
                if number.isdecimal() and int(number) > step:
                    path.unlink()
                    fsync_dir(path.parent)

    def lock(self, *, anonymous: bool = False) -> RunLock:
        """Context manager that locks the run for this process, or RunError with the process that holds it. `anonymous`
        also works on a full or read-only disk (see `RunLock`)."""
        with suppress(OSError):
            self._place = Place(self.path)
        return RunLock(self.path / ".lock", anonymous=anonymous)

    def check_place(self) -> None:
        """RunError if the directory was renamed, deleted or replaced since this process locked the run."""
        if self._place is not None:
            self._place.check()

    def is_in_place(self) -> bool:
        """Whether the directory is still where it was when this process locked the run."""
        return self._place is None or self._place.is_there()

    def holder(self, lost: Lost | None = None) -> Holder | None:
        """The process that holds the run now; None if there is none, even where `status` still says running. `lost` is
        what an executor knows about processes that it started."""
        return living_holder(self.path / ".lock", lost)

    def tracking_id(self) -> str:
        """An id for experiment trackers shared by many machines: unique, and stable across resumes."""
        info = self.info()
        digest = hashlib.sha256(f"{info['id']} {info['started']} {info['hardware']['host']}".encode()).hexdigest()
        return f"{info['id'][:100]}-{digest[:8]}"

    def _write(self, name: str, text: str) -> None:
        self.check_place()
        with readable_errors(f"cannot write {name} in '{self.path}'"):
            atomic_write(self.path / name, text.encode(errors="surrogateescape"))

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # no flock on this file system; the write is still atomic
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def metrics_sha256(path: Path) -> str:
    """SHA-256 of a metrics log without clock-dependent metrics: equal for two runs that computed the same.

    Each row is hashed as canonical JSON (sorted keys, no spaces) without its `time/` and `system/` keys, one per line.
    An incomplete last line is ignored.
    """
    digest = hashlib.sha256()
    with suppress(FileNotFoundError), open(path, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            row = parse_row(line)
            if row is not None:  # a damaged line is hashed as it is
                row = {key: value for key, value in row.items() if not key.startswith(CLOCK_KEYS)}
                line = json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
    return digest.hexdigest()


def run_directories(output_dir: Path) -> list[Path]:
    """All runs directly inside `output_dir`, oldest first by the stamp in their name."""
    return RUN.all_in(output_dir)


def _not_a_run(path: Path) -> RunError:
    absolute = path.absolute()
    for folder in absolute.parents:
        if (folder / "run.json").is_file():
            return RunError(f"'{path}' is inside a run, not the run; use '{folder}'")
    if not path.is_dir():
        return RunError(f"'{path}' is a file, not a run directory")
    inside = run_directories(absolute)
    if inside:
        return RunError(
            f"'{path}' holds {len(inside)} runs but is not a run itself; the latest is '{path / inside[-1].name}'"
        )
    return RunError(
        f"'{path}' is not a run: it has no run.json; run directories are made by `rl train`, by default in 'runs'"
    )
