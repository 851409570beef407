"""Run directories: one folder per run that says what was run, with what, how it ended, and holds all it made.

The directory is the truth; indexes and tables are built from it. Checkpoints and logs are written by their own modules.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rl_training.config.loading import ResolvedConfig, as_resolved, read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.config.yaml_reader import dump_mapping
from rl_training.registry import did_you_mean
from rl_training.runs import index
from rl_training.runs.foreign_code import foreign_code
from rl_training.runs.lock import Holder, RunLock, read_holder
from rl_training.runs.names import Names, age, claim_directory, env_fn_of, name_part, pick, readable_errors
from rl_training.runs.redaction import Redactor, restore
from rl_training.runs.stored_config import StoredConfig, seal_config
from rl_training.system.atomic_io import atomic_write, fsync_dir, remove_leftovers
from rl_training.system.json_lines import parse_row, plain_row
from rl_training.system.machine import GitQuery, GitState, hardware, versions
from rl_training.system.place import Place
from rl_training.trust.consent import FLAG, current
from rl_training.types import RunError

Status = Literal["running", "finished", "stopped", "failed"]
SUBFOLDERS = ("configs", "logs", "checkpoints", "videos", "plots", "debug")
MAX_INFO_BYTES = 2**23
SEAL = "trust_seal"
"""Field of `run.json` that says that a run was made here; see `trust`."""
CLOCK_KEYS = ("time/", "system/")
"""Metrics that depend on the clock begin with these; equality leaves them out."""


def make_run_dir(cfg: TrainConfig) -> Path:
    """Create `<output_dir>/<algo>__<env>__seed<k>__<stamp>[-2]/` with its subfolders; never one that exists."""
    return _make_run_dir(cfg, datetime.now())


def _make_run_dir(cfg: TrainConfig, now: datetime) -> Path:
    environment = name_part(env_fn_of(cfg.env_id) or cfg.env_id)
    name = f"{name_part(cfg.algo)}__{environment}__seed{cfg.seed}__{now:%Y%m%d-%H%M%S}"
    with readable_errors(f"cannot create a run in output_dir '{cfg.output_dir}'"):
        return claim_directory(Path(restore(cfg.output_dir)).expanduser(), name, SUBFOLDERS, "run")


def public_config(cfg: TrainConfig | ResolvedConfig, redactor: Redactor) -> dict[str, Any]:
    """Every value of a config without its secrets, as a run directory keeps it."""
    # every value is in here, so what the file built on is no longer asked for
    tree: dict[str, Any] = redactor.mapping({**as_resolved(cfg).mapping, "base": None})
    return tree


def public_sha256(public: Mapping[str, Any]) -> str:
    """The `config_sha256` of `run.json`."""
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()


class RunDir:
    """One run on disk: paths, config, `run.json`, lock."""

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.path = path.absolute()
        self.redactor = redactor or Redactor()
        """Hides this run's secrets in whatever else is written here."""
        self._place: Place | None = None
        """Set while this process has the run: it must stay where it is."""
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
    ) -> RunDir:
        """A new run directory for `cfg` with everything written that is known before training starts.

        `cfg` is the config as it was written: what it says as `${env:NAME}` is kept as that.
        `source` is the text of the file the config came from; `parent` the run (and step) it was warm-started from;
        `group` the group of seeds and `sweep` the sweep it belongs to.
        """
        with GitQuery() as git_query:  # answers while the rest is written
            relations = {"group": group, "sweep": sweep, "parent": parent}
            return cls._create(as_resolved(cfg), git_query, source, argv, relations)

    @classmethod
    def _create(
        cls,
        resolved: ResolvedConfig,
        git_query: GitQuery,
        source: str | None,
        argv: Sequence[str],
        relations: Mapping[str, str | None],
    ) -> RunDir:
        redactor = Redactor()
        public = public_config(resolved, redactor)
        redactor.warn_about_needed()
        run = cls(make_run_dir(resolved.config), redactor)
        try:
            run._describe(resolved.config, public, git_query, source, argv, relations)
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)  # half a description is no run
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
        """Write the configs and, last, `run.json`: a folder without it is no run."""
        resolved = dump_mapping(public)
        self._write("configs/resolved.yaml", resolved)
        self._write("configs/source.yaml", resolved if source is None else self.redactor.text(source))
        info: dict[str, Any] = {
            "id": self.path.name,
            "name": public["name"],
            **{field: public[field] for field in ("algo", "env_id", "seed", "tags")},
            "status": "running",
            "started": _now(),
            "ended": None,
            "exit_code": None,
            "config_sha256": public_sha256(public),
            "metrics_sha256": None,
            SEAL: sealed(self.path.name, public, cfg),
            **relations,
            "versions": versions(),
            "hardware": hardware(),
            "threads": cfg.training.num_threads,
            "exact": None,
            "argv": self.redactor.argv(argv),
        }
        facts, diff = _git_facts(git_query.result(), self.redactor)
        self._write("git.diff", diff)
        self._write_json("run.json", {**info, "git": facts})

    @classmethod
    def open(cls, path_or_name: str | Path, output_dir: str | Path = "runs") -> RunDir:
        """An existing run by path, or inside `output_dir` by directory name, id, `name:`, unique prefix or
        `latest`."""
        try:
            path = Path(path_or_name).expanduser()
            if (path / "run.json").is_file():
                return cls(path)
            exists = path.exists()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL byte, the home of an unknown user
            raise RunError(f"no run {str(path_or_name)[:100]!r}: {error}") from None
        if exists and len(path.parts) != 1:
            raise _not_a_run(path)
        try:
            return cls(_find(path, Path(output_dir).expanduser()))
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
        """The resolved config as it is on the disk, with what says whose it is."""
        path = self.path / "configs" / "resolved.yaml"
        if not path.is_file():
            raise RunError(f"run '{self.path}' has no configs/resolved.yaml; it cannot be resumed or evaluated")
        info = self.info()
        return StoredConfig(
            "run", str(info.get("id")), read_yaml(path), info.get(SEAL), f"run '{self.path}'", str(path)
        )

    def config(self, *, secrets: bool = True) -> TrainConfig:
        """The resolved config: with its secrets where it may run (see `to_run`); without `secrets`, to read it: the
        `${env:NAME}` references stay, and no variable needs to be set."""
        if not secrets:
            return self.stored_config().read()
        with self.to_run() as cfg:
            return cfg

    @contextmanager
    def to_run(self, *, trust_plugins: bool = False, env_given: bool = False) -> Iterator[TrainConfig]:
        """The resolved config, to be run inside: RunError where that cannot be done, TrustError where the run was not
        made here, asks for code that is not part of the package, and nobody has agreed to it.

        `trust_plugins` is that agreement; `env_given` says that the user brings the environment.
        """
        if self.info().get("cleaned"):
            again = f"rl train {self.path / 'configs' / 'resolved.yaml'}"
            raise RunError(f"run '{self.path}' was cleaned up: its checkpoints are gone; train it anew with `{again}`")
        stored = self.stored_config()
        links = [] if stored.is_own else self._links()
        with stored.to_run(trust_plugins=trust_plugins, env_given=env_given, further=links) as cfg:
            self.redactor.mapping(stored.mapping)  # what its references stand for is hidden in logs
            yield cfg

    def _links(self) -> list[str]:
        """Symbolic links among the files of the run, through which writing into it would write elsewhere. A run never
        makes any, and an archive cannot hold them."""
        return [
            f"link {Path(folder, name).relative_to(self.path)}"
            for folder, folders, files in os.walk(self.path)
            for name in sorted([*folders, *files])
            if Path(folder, name).is_symlink()
        ]

    def info(self) -> dict[str, Any]:
        """What `run.json` says."""
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
        """Change fields of `run.json`, atomically and without losing what another process changes meanwhile."""
        self.change_info(lambda info: fields)

    def change_info(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        """The same where the new values depend on those that are there; what `run.json` then says."""
        self.check_place()
        with self._exclusive():
            info = self.info()
            info |= change(info)
            self._write_json("run.json", info)
        return info

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `metrics.json`, the final numbers of the run. NaN and infinities become null."""
        row = plain_row(summary, finite=True)
        texts = {key: self.redactor.text(value) for key, value in row.items() if isinstance(value, str)}
        self._write_json("metrics.json", {**row, **texts})

    def finish(self, status: Status = "finished", exit_code: int = 0) -> None:
        """Record how the run ended and the hash of its metrics."""
        digest = metrics_sha256(self.logs / "metrics.jsonl")
        self.update_info(status=status, exit_code=exit_code, ended=_now(), metrics_sha256=digest)
        index.record(self.path)

    def rewind(self, step: int) -> None:
        """Forget what came after `step`, and what a killed process was writing. Checkpoints and logs do it themselves.

        Called when a run goes on from `step`: videos of later steps will be made again.
        """
        with readable_errors(f"cannot tidy '{self.path}'"):
            for folder in (self.path, self.path / "configs", self.videos):
                if folder.is_dir():
                    remove_leftovers(folder)
            for path in self.videos.glob("step_*.mp4"):
                number = path.stem.removeprefix("step_")
                if number.isdecimal() and int(number) > step:
                    path.unlink()
                    fsync_dir(self.videos)

    def lock(self, *, anonymous: bool = False) -> RunLock:
        """Context manager: this process has the run, or RunError names the one that has it. `anonymous` works on a full
        or read-only disk too (see `RunLock`)."""
        with suppress(OSError):
            self._place = Place(self.path)
        return RunLock(self.path / ".lock", anonymous=anonymous)

    def check_place(self) -> None:
        """RunError if the directory was renamed, deleted or replaced since this process has the run."""
        if self._place is not None:
            self._place.check()

    def is_in_place(self) -> bool:
        """Whether the directory is still where it was when this process took the run."""
        return self._place is None or self._place.is_there()

    def holder(self) -> Holder | None:
        """The process that has the run now; None where `status` still says running but nobody is."""
        holder = read_holder(self.path / ".lock")
        return holder if holder is not None and holder.is_alive() else None

    def tracking_id(self) -> str:
        """An id for trackers shared by many machines: stable over resumes, other than any other run's."""
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
            with suppress(OSError):  # a file system without flock: the write is still atomic
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def sealed(run_id: str, public: Mapping[str, Any], cfg: TrainConfig) -> str | None:
    """The seal of a run that is made now; where there can be none and it will be missed, that is said."""
    seal = seal_config("run", run_id, public)
    if seal is None and current().level == "own" and foreign_code(cfg):
        warnings.warn(
            "the key that marks runs as yours cannot be written to your config directory, so this run will ask once "
            f"whether you trust its code: then {FLAG}",
            UserWarning,
            stacklevel=2,
        )
    return seal


def metrics_sha256(path: Path) -> str:
    """SHA-256 of a metrics log without what depends on the clock: equal for two runs that computed the same.

    Each row counts as canonical JSON (sorted keys, no spaces) without its `time/` and `system/` keys, one per line.
    A last line that was cut off counts as missing.
    """
    digest = hashlib.sha256()
    with suppress(FileNotFoundError), open(path, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            row = parse_row(line)
            if row is not None:  # a damaged one counts as it is
                row = {key: value for key, value in row.items() if not key.startswith(CLOCK_KEYS)}
                line = json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
    return digest.hexdigest()


def run_directories(output_dir: Path) -> list[Path]:
    """All runs directly inside `output_dir`, oldest first by the stamp in their name."""
    try:
        entries = [entry for entry in output_dir.iterdir() if (entry / "run.json").is_file()]
    except OSError:
        return []
    return sorted(entries, key=lambda path: age(path, "run.json"))


def _find(path: Path, output_dir: Path) -> Path:
    if len(path.parts) > 1:
        near = did_you_mean(path.name, [run.name for run in run_directories(path.parent)])
        raise RunError(f"no run '{path}': there is no such directory{near}")
    name = str(path)
    runs = run_directories(output_dir)
    if not runs:
        raise RunError(f"no run '{name}': '{output_dir}' holds no runs; give a path, or the folder with --output-dir")
    if name == "latest":
        return runs[-1]
    return pick(name, runs, _given_names, "run")


def _given_names(run: Path) -> Names:
    try:
        info = RunDir(run).info()
    except RunError:
        return Names()
    name, run_id = info.get("name"), info.get("id")
    return Names(name if isinstance(name, str) else None, run_id if isinstance(run_id, str) else None)


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
            f"'{path}' holds {len(inside)} runs and is none itself; the latest is '{path / inside[-1].name}'"
        )
    return RunError(
        f"'{path}' is no run: it has no run.json; run directories are made by `rl train`, by default in 'runs'"
    )


def _git_facts(state: GitState | None, redactor: Redactor) -> tuple[dict[str, Any] | None, str]:
    """The `git` entry of run.json and the diff to store; its hash is of the diff as stored."""
    if state is None:
        return None, ""
    diff = redactor.diff(state.diff)
    facts = {
        "commit": state.commit,
        "branch": state.branch,
        "dirty": bool(state.diff) or state.truncated,
        "diff_sha256": hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest() if diff else None,
        "diff_truncated": state.truncated,
        "diff_redacted": diff != state.diff,
        "untracked": [redactor.text(name) for name in state.untracked],
    }
    return facts, diff


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
