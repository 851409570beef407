"""Checks the files of a run against its own records: config, logs, checkpoints, versions. Nothing is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.assembly.running.user_parts import missing_objects
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import ForeignCheckpointError, Seal, named
from rl_training.checkpointing.verified_files import DamagedCheckpointError
from rl_training.config.loading import read_yaml
from rl_training.config.seal import Change
from rl_training.runs.directory import RunDir, metrics_sha256, public_sha256
from rl_training.system.json_lines import CHUNK, first_bad_row
from rl_training.system.machine import versions
from rl_training.types import StateDict


@dataclass(frozen=True)
class Difference:
    """The first difference of one kind between two runs."""

    kind: str
    """config, log, file, metric, evaluation or tensor."""
    what: str
    """Name of the metric, path of the tensor, name of the file."""
    env_steps: int | None = None
    stored: Any = None
    again: Any = None

    def __str__(self) -> str:
        at = "" if self.env_steps is None else f" at {self.env_steps:,} env steps"
        values = "" if self.stored is self.again is None else f": {self.stored} stored, {self.again} again"
        return f"{self.kind}{at}: {self.what}{values}"


@dataclass
class VerifyReport:
    """What was compared, and the first difference of each kind; without any, the runs are bit-identical."""

    run: Path
    env_steps: int = 0
    rows: int = 0
    checkpoints: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def reproduced(self) -> bool:
        return not self.differences

    def add(self, difference: Difference) -> None:
        """Keep a difference if it is the first of its kind."""
        if all(known.kind != difference.kind for known in self.differences):
            self.differences.append(difference)


def check_config(run: RunDir, report: VerifyReport) -> bool:
    """Whether the stored config computes the same numbers as the one the run was trained with; adds differences."""
    info = run.info()
    for entry in info.get("config_changes") or ():
        what = f"the run was continued with a changed config on purpose: {', '.join(entry.get('fields', ()))}"
        report.add(Difference("config", what, entry["env_steps"]))
    changes = edited(run)
    now, then = public_sha256(read_yaml(run.path / "configs" / "resolved.yaml")), info.get("config_sha256")
    changed = "configs/resolved.yaml was changed after the start"
    if changes:
        report.add(Difference("config", f"{changed}: {named(changes)}"))
    elif now != then and changes is None:
        report.add(Difference("config", changed, None, then, now))
    elif now != then:
        report.notes.append(f"{changed}, in fields that decide no number")
    return all(difference.kind != "config" for difference in report.differences)


def edited(run: RunDir) -> list[Change] | None:
    """Config fields that differ from those at a checkpoint; None without a checkpoint that recorded them."""
    now = Seal.of(run)
    seals = [seal for seal in CheckpointManager(run.path).seals() if seal.belongs_to(now)]
    return next((changes for seal in seals if (changes := seal.changes(now))), []) if seals else None


def check_log(run: RunDir, report: VerifyReport, covered: Iterable[StateDict]) -> None:
    """Check the logs: recorded damage at a resume, checksums of the prefixes that checkpoints have `covered`, and the
    hash of the metrics at the end."""
    info = run.info()
    for entry in info.get("logs_damage") or ():
        what = f"logs were damaged when the run was resumed: {'; '.join(map(str, entry['files']))}"
        report.add(Difference("log", what, entry["env_steps"]))
    for what in damaged_logs(run.logs, covered):
        report.add(Difference("log", what))
    now = metrics_sha256(run.logs / "metrics.jsonl")
    if info.get("ended") and info.get("metrics_sha256") not in (None, now):
        what = "logs/metrics.jsonl was changed after the end"
        report.add(Difference("log", what, None, info["metrics_sha256"], now))


def damaged_logs(logs: Path, covered: Iterable[StateDict]) -> list[str]:
    """Log files that do not match the checksums in checkpoints, each with the byte range of the first difference."""
    records: dict[str, list[tuple[int, str]]] = {}
    for state in covered:
        for name, sha256 in state.get("sha256", {}).items():
            records.setdefault(name, []).append((int(state["files"][name]), sha256))
    found = []
    for name, prefixes in records.items():
        if (place := first_difference_in(logs / name, sorted(prefixes))) is not None:
            bad = first_bad_row(logs / name) if (logs / name).is_file() else None
            row = "" if bad is None else f"; row {bad} cannot be read"
            where = f"it differs first between bytes {place[0]} and {place[1]}"
            found.append(f"logs/{name} is not what the checkpoints cover: {where}{row}")
    return found


def first_difference_in(path: Path, prefixes: Sequence[tuple[int, str]]) -> tuple[int, int] | None:
    """The longest prefix with the right checksum and the first prefix with a wrong one; one pass over the file."""
    digest, done = hashlib.sha256(), 0
    if not path.is_file():
        return (0, prefixes[-1][0]) if prefixes[-1][0] else None
    with open(path, "rb") as file:
        for length, sha256 in prefixes:
            sound = done
            while done < length and (chunk := file.read(min(CHUNK, length - done))):
                digest.update(chunk)
                done += len(chunk)
            if done < length or digest.hexdigest() != sha256:
                return sound, length
    return None


def check_files(run: RunDir, report: VerifyReport) -> dict[int, StateDict]:
    """Check all checkpoints; returns the intact steps, each with the state of its logs."""
    manager, now = CheckpointManager(run.path, report=lambda line: None), Seal.of(run)
    sound: dict[int, StateDict] = {}
    for step in manager.steps():
        try:
            checkpoint = manager.load(step)
        except DamagedCheckpointError as error:
            report.add(Difference("file", str(error).partition("; use another")[0], step))
            continue
        objection = checkpoint.seal.objection(now, "this checkpoint") if checkpoint.seal is not None else None
        if isinstance(objection, ForeignCheckpointError):
            report.add(Difference("file", objection.what, step))
        else:
            sound[step] = checkpoint.parts.get("logs", {})
    return sound


def compare_versions(run: RunDir, report: VerifyReport) -> None:
    """Note other versions than the run had: bit equality is promised only for the same machine and versions."""
    then, now = run.info().get("versions") or {}, versions()
    changed = [
        f"{name} {then.get(name)} -> {now.get(name)}" for name in {**then, **now} if then.get(name) != now.get(name)
    ]
    if changed:
        report.notes.append(f"other versions than the run had, so bits may differ: {', '.join(changed)}")
    if missing := missing_objects(run.info().get("callbacks"), ()):
        report.notes.append(f"the run had callback objects, which are not here again: {', '.join(missing)}")
    if run.info().get("exact") is False:
        report.notes.append("the environment cannot be resumed exactly; a run that was stopped may differ")
