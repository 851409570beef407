"""Everything the page of one run shows: facts, progress, config and its differences, logs, episodes, files.

Only files are read; nothing that a config names is imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_training.config.yaml_reader import read_yaml
from rl_training.dashboard.reading.tables import RunRef
from rl_training.dashboard.security import confined
from rl_training.experiments.keeping.filters import flat
from rl_training.experiments.keeping.run_diff import differences, run_differences
from rl_training.runs.directory import RunDir
from rl_training.runs.names import env_fn_of
from rl_training.runs.redaction import Redactor
from rl_training.runs.row import UNSETTLED, describe
from rl_training.system.json_lines import first_bad_row, number_of, steps_of, tail_rows, whole_rows
from rl_training.types import ConfigError, RLTrainingError, RunError

MAX_TEXT = 512 * 1024
"""Bytes of a diff or a log that are shown: its end."""
VIDEO_TYPES = {".mp4": "video/mp4", ".webm": "video/webm"}
IMAGE_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}
OTHER_TYPES = {".svg": "text/plain; charset=utf-8", ".json": "text/plain; charset=utf-8"}
"""Shown as text or not at all: an SVG from a run could hold a script."""
FOLDERS = ("videos", "plots")
MAX_FILES = 500
MAX_CHECKED = 2**25
"""Logs above this size are not searched for damaged rows."""
FACTS = ("status", "name", "algorithm", "environment", "seed", "tags", "notes", "group", "sweep", "parent", "started")
MORE_FACTS = ("ended", "exit_code", "cleaned", "env_steps", "reward", "seconds", "git", "dirty", "config_sha256")


def details(ref: RunRef) -> dict[str, Any]:
    """Facts, progress and what can be done with the run."""
    run = RunDir(ref.path)
    info = run.info()
    row = ref.row
    if row["status"] in UNSETTLED:  # the index learns of a kill or a resume later than the directory
        row = {**row, "status": describe(ref.path, config=False)["status"]}
    total = total_timesteps(run, info)
    holder = run.holder()
    hardware = info.get("hardware") if isinstance(info.get("hardware"), dict) else {}
    return {
        "key": ref.key,
        "path": str(ref.path),
        "facts": {name: row[name] for name in (*FACTS, *MORE_FACTS, "recipe_sha256")},
        "progress": progress(ref.path, row, total),
        "holder": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "host": hardware.get("host") if isinstance(hardware, dict) else None,
        "hardware": hardware,
        "versions": info.get("versions"),
        "exact": info.get("exact"),
        "git": info.get("git"),
        "argv": info.get("argv"),
        "results": results(ref.path, row),
        "checkpoints": checkpoints(ref.path),
        "files": files(ref.path),
        "problems": problems(ref.path),
        "can_resume": not info.get("cleaned") and env_fn_of(str(row["environment"])) is None,
    }


@lru_cache(maxsize=256)
def _first_bad(path: Path, size: int, changed: int) -> int | None:
    return first_bad_row(path)


def problems(run: Path) -> list[str]:
    """Damaged logs, one sentence each; a last line that is still being written is none."""
    found = []
    for name in ("metrics.jsonl", "evals.jsonl", "episodes.jsonl"):
        path = run / "logs" / name
        with suppress(OSError):
            state = path.stat()
            bad = _first_bad(path, state.st_size, state.st_mtime_ns) if state.st_size <= MAX_CHECKED else None
            is_last = bad is not None and state.st_size != whole_rows(path)
            if bad is not None and not (is_last and bad > _num_lines(path)):
                found.append(f"row {bad} of logs/{name} cannot be read and is left out of the curves")
    return found


def _num_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))


def total_timesteps(run: RunDir, info: Mapping[str, Any]) -> int | None:
    """The budget in env steps, where it is known."""
    with suppress(RLTrainingError, OSError):
        budgets = info.get("budgets")
        if isinstance(budgets, list) and budgets and isinstance(budgets[-1], dict):
            found = budgets[-1].get("total_timesteps")
        else:
            found = read_yaml(run.path / "configs" / "resolved.yaml").get("training", {}).get("total_timesteps")
        return found if isinstance(found, int) else None
    return None


def progress(run: Path, row: Mapping[str, Any], total: int | None) -> dict[str, Any]:
    """Env steps, speed over the newest rows of the log, and the time left at that speed."""
    rows = [found for found in tail_rows(run / "logs" / "metrics.jsonl") if steps_of(found) is not None]
    timed = [found for found in rows if number_of(found, "time/elapsed_seconds") is not None]
    steps = steps_of(rows[-1]) if rows else row["env_steps"]
    rate = left = None
    if len(timed) > 1:
        taken = timed[-1]["time/elapsed_seconds"] - timed[0]["time/elapsed_seconds"]
        rate = (timed[-1]["env_steps"] - timed[0]["env_steps"]) / taken if taken > 0 else None
    if rate and total and steps is not None and row["status"] == "running":
        left = max(total - steps, 0) / rate
    return {"env_steps": steps, "total": total, "steps_per_second": rate, "seconds_left": left}


def results(run: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """The final metrics, or the newest ones."""
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        stored = json.loads((run / "metrics.json").read_bytes())
        found = stored if isinstance(stored, dict) else {}
    if row["status"] not in ("finished", "stopped"):
        for line in tail_rows(run / "logs" / "metrics.jsonl"):
            found |= {name: value for name, value in line.items() if value is not None}
    return found


def config_answer(ref: RunRef) -> dict[str, Any]:
    """The config by dotted keys, the fields that are not the default, and the file as it was written."""
    tree = _config(ref)
    values, default = flat(tree), default_config(str(tree.get("algo")), str(tree.get("env_id")))
    changed = [] if default is None else [name for name in values if values[name] != default.get(name)]
    source = text_end(ref.path / "configs" / "source.yaml")
    return {"values": values, "changed": changed, "has_default": default is not None, "source": source}


def default_config(algo: str, env_id: str) -> dict[str, Any] | None:
    """The default values for an algorithm of the package; None for any other, whose code is not imported here."""
    from rl_training.config.loading import config_to_mapping, parse_config
    from rl_training.registry import algorithms

    if algo not in algorithms.names():
        return None
    try:
        return flat(config_to_mapping(parse_config({"algo": algo, "env_id": env_id}, source="defaults")))
    except ConfigError:
        return None


def difference_answer(ref: RunRef, other: RunRef | None) -> dict[str, Any]:
    """How a run differs from another one, as `rl diff`, or from the defaults of its algorithm."""
    if other is not None:
        found = run_differences(RunDir(ref.path), RunDir(other.path))
        return {"with": other.key, "differences": found}
    tree = _config(ref)
    default = default_config(str(tree.get("algo")), str(tree.get("env_id")))
    if default is None:
        raise RunError(f"the defaults of '{tree.get('algo')}' are not known here: it is not part of the package")
    return {"with": "default", "differences": {"config": differences(flat(tree), default)}}


def _config(ref: RunRef) -> dict[str, Any]:
    try:
        return read_yaml(ref.path / "configs" / "resolved.yaml")
    except OSError as error:
        raise RunError(f"run '{ref.key}' has no readable config ({error.strerror})") from None


def text_end(path: Path, limit: int = MAX_TEXT) -> str:
    """The end of a text file without secrets; empty where there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - limit, 0))
            data = file.read(limit)
    except OSError:
        return ""
    text = data.decode(errors="replace")
    text = text if size <= limit else text.partition("\n")[2]
    return Redactor().text(text)


def log_answer(ref: RunRef, tail: int) -> dict[str, Any]:
    """The last lines of the run's own log, and of what a resume from this page printed."""
    names = ("train.log", "resume.log")
    return {name: "\n".join(text_end(ref.path / "logs" / name).splitlines()[-tail:]) for name in names}


def alerts(run: Path) -> list[dict[str, Any]]:
    """The newest alerts of a run, newest first."""
    redactor = Redactor()
    wanted = ("rule", "message", "env_steps", "level", "metric", "value")
    return [
        {name: redactor.text(row[name]) if isinstance(row[name], str) else row[name] for name in wanted if name in row}
        for row in reversed(tail_rows(run / "logs" / "alerts.jsonl"))
    ]


def evaluations(run: Path) -> dict[str, Any]:
    """Evaluations with the return of every episode, and the newest training episodes."""
    evals = [
        {
            "env_steps": steps_of(row),
            "return_mean": number_of(row, "return_mean"),
            "returns": _numbers(row.get("returns")),
            "lengths": _numbers(row.get("lengths")),
        }
        for row in tail_rows(run / "logs" / "evals.jsonl")
    ]
    episodes = [
        {"env_steps": steps_of(row), "return": number_of(row, "return"), "length": number_of(row, "length")}
        for row in tail_rows(run / "logs" / "episodes.jsonl")
    ]
    return {"evaluations": evals, "episodes": episodes}


def _numbers(values: Any) -> list[float]:
    return [v for v in values if isinstance(v, int | float)] if isinstance(values, list) else []


def checkpoints(run: Path) -> list[dict[str, Any]]:
    """Checkpoints, newest first, and which of them are `latest` and `best`."""
    folder, names = run / "checkpoints", {}
    for name in ("latest", "best"):
        with suppress(OSError, UnicodeDecodeError):
            names[name] = (folder / name).read_text()[:100].strip()
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            step = entry.name.removeprefix("step_")
            if entry.name.startswith("step_") and step.isdecimal() and entry.is_dir(follow_symlinks=False):
                marks = [name for name, target in names.items() if target == entry.name]
                found.append({"step": int(step), "marks": marks, "bytes": _size(Path(entry.path))})
    return sorted(found, key=lambda one: -int(one["step"]))


def _size(folder: Path) -> int:
    with suppress(OSError), os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    return 0


def files(run: Path) -> list[dict[str, Any]]:
    """Videos and plots of a run, dreams and predictions among them, newest first; links out of the run are left out."""
    found: list[dict[str, Any]] = []
    for folder in FOLDERS:
        for path in _walk(run / folder):
            kind = kind_of(path)
            if kind is not None and confined(path, [run]):
                state = path.stat()
                name = path.relative_to(run).as_posix()
                found.append({"name": name, "kind": kind, "bytes": state.st_size, "modified": state.st_mtime})
    return sorted(found, key=lambda one: -one["modified"])[:MAX_FILES]


def _walk(folder: Path) -> Sequence[Path]:
    paths: list[Path] = []
    for place, _, names in os.walk(folder):
        paths += [Path(place, name) for name in names]
        if len(paths) > 10 * MAX_FILES:
            break
    return paths


def kind_of(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in VIDEO_TYPES:
        return "video"
    return "image" if suffix in IMAGE_TYPES else "other" if suffix in OTHER_TYPES else None


def file_of(run: Path, name: str) -> tuple[Path, str]:
    """Path and content type of one of the listed files; RunError for any other name. Names are looked up in the
    listing, so that no path is ever made from a request."""
    if not any(found["name"] == name for found in files(run)):
        raise RunError("no such file in this run")
    path = run / name
    types = {**VIDEO_TYPES, **IMAGE_TYPES, **OTHER_TYPES}
    return path, types[path.suffix.lower()]
