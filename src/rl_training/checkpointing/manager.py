"""The checkpoints of a run: saved atomically, verified before use, retired by rule, with fallback to the one before.

    <run>/checkpoints/step_000000012288/   one checkpoint; see `folder.py`
    <run>/checkpoints/latest, best         text files with the name of a step folder
    <run>/checkpoints/segments/            rows of replay buffers, shared by several checkpoints; see `segments.py`
    <run>/checkpoints/.tmp-*, .old-*       a save, removal or replacement in progress (or interrupted by a crash)

A save writes new segments and a temporary folder, syncs them, reads them back, renames the folder, and only then moves
`latest` and removes what is no longer kept, including segments that no checkpoint lists any more. So at every moment,
however the process ends, either the previous checkpoint or the new one loads completely. One process writes (it holds
the run's lock); any number may read at the same time. Not here: when to save, and which checkpoint is best.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.checkpointing.folder import (
    Checkpoint,
    Manifest,
    flatten_part,
    read_folder,
    read_manifest,
    row_logs,
    step_name,
    verify_folder,
    write_folder,
)
from rl_training.checkpointing.retention import Retention
from rl_training.checkpointing.seal import ChangedConfigError, ForeignCheckpointError, Seal, SealCheck
from rl_training.checkpointing.segments import SavedLog, SegmentStore
from rl_training.checkpointing.state_tree import FlatState, flatten, is_bfloat16, unflatten
from rl_training.checkpointing.step_folders import BEST, LATEST, StepFolders, cure
from rl_training.checkpointing.verified_files import DamagedCheckpointError
from rl_training.system.atomic_io import discard, make_folder, remove_leftovers, temporary_path
from rl_training.system.place import Place
from rl_training.system.terminal_text import printable
from rl_training.types import CheckpointError, StateDict, crossed

__all__ = [
    "ChangedConfigError",
    "Checkpoint",
    "CheckpointManager",
    "DamagedCheckpointError",
    "FlatState",
    "ForeignCheckpointError",
    "Seal",
    "SealCheck",
    "flatten",
    "is_bfloat16",
    "unflatten",
]

READ_ATTEMPTS = 20
SCORE = "score"
"""Metadata key by which `rewind` finds the best of the checkpoints that remain."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(printable(line) + "\n")


class CheckpointManager:
    """Saves, loads and retires the checkpoints of one run directory."""

    def __init__(
        self,
        run_dir: str | Path,
        *,
        keep_last: int = 3,
        keep_best: bool = True,
        keep_every: int = 0,
        report: Callable[[str], None] = _to_stderr,
        sealing: SealCheck | None = None,
    ) -> None:
        """`keep_last`, `keep_best` and `keep_every` decide which checkpoints are kept; see `Retention`. `report`
        receives one line when a damaged checkpoint was skipped.

        With `sealing`, every save records the run and its config, and a checkpoint of another run or config is refused.
        """
        self.retention = Retention(keep_last, keep_best, keep_every)
        self.path = Path(run_dir) / "checkpoints"
        self.folders = StepFolders(self.path)
        self.report = report
        self.sealing = sealing
        self.segments = SegmentStore(self.path / "segments")
        self._verified: dict[int, bool] = {}
        """Steps that this process has verified, and the result."""
        self._needed: dict[tuple[int, int], set[str]] = {}
        """Segments that each checkpoint lists, by step and inode of its folder."""
        self._cleaned = False
        self._place: Place | None = None
        with suppress(OSError):  # a folder that does not exist yet is created by the first save
            self._place = Place(self.path.parent)

    # -- what is there ------------------------------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The steps of all checkpoints on disk, oldest first; whether they are intact is known when they load."""
        return self.folders.steps()

    def latest_step(self) -> int | None:
        """The step that `latest` names, or None if the file is missing or unreadable."""
        return self.folders.pointed(LATEST)

    def best_step(self) -> int | None:
        """The step that `best` names, or None if there is none yet."""
        return self.folders.pointed(BEST)

    def seals(self) -> list[Seal]:
        """The seals of all checkpoints whose manifest can be read, oldest first."""
        found = []
        for step in self.steps():
            with suppress(CheckpointError):
                found.append(read_manifest(self.folders.folder(step), step).seal)
        return [seal for seal in found if seal is not None]

    # -- saving -------------------------------------------------------------------------------------------------------

    def save(
        self,
        parts: Mapping[str, StateDict],
        *,
        step: int,
        metadata: Mapping[str, Any] | None = None,
        best: bool = False,
    ) -> Path:
        """Write the checkpoint of `step`, make it `latest` (and `best`), retire old ones; returns its folder.

        CheckpointError if it cannot be written; the previous checkpoint is then untouched. A checkpoint of the same
        step, which the run saved before it was rewound, is replaced.
        """
        target = self.path / step_name(step)
        flat = {part: flatten_part(part, state) for part, state in parts.items()}
        try:
            self._prepare()
            temporary = temporary_path(self.path)
            try:
                logs = self._write_logs(flat)
                seal = None if self.sealing is None else self.sealing.now
                write_folder(temporary, flat, step, metadata or {}, logs, seal)
                verify_folder(temporary, step, self.segments)
                self.folders.publish(temporary, step)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                with suppress(OSError, CheckpointError):
                    self._clean_segments()
                raise
            for part, state in flat.items():
                for name, log in row_logs(state):
                    self.segments.remember(log, logs[part][name])
            # `best` first: if a crash separates the two, `rewind` drops a `best` newer than `latest`, but nothing would
            # ever correct an older one
            if best:
                self.folders.point(BEST, step)
            self.folders.point(LATEST, step)
        except OSError as error:
            self._cleaned = False
            if self._place is not None:
                self._place.check()  # a folder that was moved or deleted meanwhile is the more useful message
            raise CheckpointError(self._failure(step, flat.values(), error)) from error
        except DamagedCheckpointError as error:
            raise CheckpointError(
                f"the checkpoint of step {step} read back differs from what was written ({error}): the disk or the "
                f"memory is failing, or the state changed during the save{self._remaining()}"
            ) from error
        self._verified[step] = True
        self._retain(step)
        return target

    def auto_save(
        self, state: Mapping[str, StateDict], frequency: int, *, step: int | None = None, best: bool = False
    ) -> Path | None:
        """Save `state` if a multiple of `frequency` env steps has been crossed since the latest checkpoint.

        Call it after every step or rollout; it returns the folder, or None where nothing was due. `step` is read from
        the part "progress" (`Trainer.state_dict()` has one) unless it is given. What decides is the progress of
        `latest` and of `state`, so a resumed run saves where the uninterrupted one would have.
        """
        if step is None:
            if "env_steps" not in state.get("progress", {}):
                raise CheckpointError("auto_save needs `step`, or a part 'progress' with env_steps in the state")
            step = int(state["progress"]["env_steps"])
        if not crossed(self.latest_step() or 0, step, frequency):
            return None
        return self.save(state, step=step, best=best)

    def _write_logs(self, flat: Mapping[str, FlatState]) -> dict[str, dict[str, SavedLog]]:
        """Write the new rows of each part's logs; where all rows of each log are now."""
        return {part: {name: self.segments.write(log) for name, log in row_logs(state)} for part, state in flat.items()}

    def mark_best(self, step: int) -> None:
        """Make `best` name the checkpoint of `step`, which must exist."""
        if step not in self.steps():
            raise CheckpointError(f"cannot mark step {step} as best: {self._offer()}")
        self._write_or_explain(lambda: self.folders.point(BEST, step))

    def rewind(self, step: int) -> None:
        """Remove everything after `step`: newer checkpoints and a newer `best`, which the best score left replaces.

        Called when a run resumes from `step`, so that no later result of the abandoned branch remains.
        """
        steps = self.steps()
        kept = [each for each in steps if each <= step]
        if not kept:
            raise CheckpointError(f"cannot go back to step {step}: {self._offer()}")

        def forget() -> None:
            self._prepare()
            if self.latest_step() != kept[-1]:
                self.folders.point(LATEST, kept[-1])
            if os.path.lexists(self.path / BEST) and self.best_step() not in kept:
                self.folders.point(BEST, self._best_score(kept))
            discard([self.folders.folder(each) for each in steps if each > step])
            self._clean_segments()

        self._write_or_explain(forget)

    # -- loading ------------------------------------------------------------------------------------------------------

    def load_latest(self, parts: Collection[str] | None = None) -> Checkpoint:
        """The newest intact checkpoint: `latest`, or with a report the newest of the others.

        `parts` limits what is read and verified to the named parts. CheckpointError lists the damage if none loads.
        """
        checkpoint, passed_over = self._undisturbed(lambda: self._newest_intact(parts))
        if checkpoint is None and not passed_over:
            raise CheckpointError(f"no checkpoint in {self.path}: {self._offer()}")
        if checkpoint is None:
            raise CheckpointError(f"no checkpoint in {self.path} can be loaded: {'; '.join(passed_over)}")
        if passed_over:
            self.report(f"checkpoints in {self.path}: {'; '.join(passed_over)}; using step {checkpoint.step} instead")
        self._admit(checkpoint, self.report)
        return checkpoint

    def load(self, which: str | int, parts: Collection[str] | None = None) -> Checkpoint:
        """The checkpoint `latest`, `best` or of one step. Only `latest` falls back to another one if it is damaged."""
        if which == LATEST:
            return self.load_latest(parts)
        if which == BEST:
            step = self.best_step()
            if step is None:
                raise CheckpointError(f"no best checkpoint in {self.path} (evaluation sets it): {self._offer()}")
        else:
            try:
                step = int(which)
            except ValueError:
                raise CheckpointError(f"no checkpoint {str(which)[:80]!r}: {self._offer()}") from None
        if step not in self.steps():
            raise CheckpointError(f"no checkpoint of step {step} in {self.path}: {self._offer()}")
        checkpoint, damage = self._undisturbed(lambda: self._read(step, parts))
        if checkpoint is None:
            raise DamagedCheckpointError(f"in {self.path} {damage[0]}; use another one: {self._offer()}")
        self._admit(checkpoint, self.report)
        return checkpoint

    def check_seal(self) -> None:
        """Raise what `load_latest` would for a foreign checkpoint or a changed config, but read only the manifest: for
        use before anything is built from the config."""
        latest = self.latest_step()
        for step in sorted(self.steps(), key=lambda each: (each != latest, -each)):
            with suppress(DamagedCheckpointError):
                self._admit(read_manifest(self.folders.folder(step), step), report=lambda line: None)
                return

    def _admit(self, loaded: Checkpoint | Manifest, report: Callable[[str], None]) -> None:
        if self.sealing is not None:
            place = f"the checkpoint of step {loaded.step} in {self.path}"
            self.sealing.admit(loaded.seal, place, report)

    def _newest_intact(self, parts: Collection[str] | None) -> tuple[Checkpoint | None, list[str]]:
        latest = self.latest_step()
        steps = self.steps()[::-1]
        passed_over = []
        if steps and latest not in steps:
            passed_over.append(f"the file '{LATEST}' is missing or names no checkpoint")
        for step in sorted(steps, key=lambda each: each != latest):
            checkpoint, damage = self._read(step, parts)
            if checkpoint is not None:
                return checkpoint, passed_over
            passed_over += damage
        return None, passed_over

    def _read(self, step: int, parts: Collection[str] | None) -> tuple[Checkpoint | None, list[str]]:
        """The checkpoint, or None and a description of its damage."""
        notes: list[str] = []
        try:
            checkpoint = read_folder(self.folders.folder(step), step, parts, self.segments, notes.append)
        except DamagedCheckpointError as error:
            return None, [f"step {step} is damaged ({error})"]
        for note in notes:
            self.report(f"checkpoints in {self.path}: {note}")
        if parts is None:
            self._verified[step] = True
        return checkpoint, []

    def _undisturbed(
        self, read: Callable[[], tuple[Checkpoint | None, list[str]]]
    ) -> tuple[Checkpoint | None, list[str]]:
        """Read again if a writer moved or removed folders meanwhile: what looks damaged may just have been replaced."""
        for _ in range(READ_ATTEMPTS):
            before = self.folders.inodes()
            result = read()
            if not result[1] or self.folders.inodes() == before:
                break
        return result

    # -- on disk ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the folder and, once per process, clean up after a crash. Only the writer may do this, no reader."""
        self.folders.refuse_link()
        if self._place is not None:
            self._place.check()
        if not self.path.is_dir():
            make_folder(self.path)
        self._place = self._place or Place(self.path.parent)
        if self._cleaned:
            return
        remove_leftovers(self.path)
        self.folders.finish_replacements()
        self._clean_segments()
        self._cleaned = True

    def _clean_segments(self) -> None:
        """Remove the segments that no checkpoint lists."""
        if not os.path.lexists(self.segments.path):
            return
        needed: dict[tuple[int, int], set[str]] = {}
        for step, inode in self.folders.inodes():
            try:
                needed[step, inode] = (
                    self._needed.get((step, inode)) or read_manifest(self.folders.folder(step), step).segments()
                )
            except DamagedCheckpointError:
                continue
            except CheckpointError:  # of a newer format, whose segments this version cannot know
                return
        self._needed = needed
        self.segments.clean(set().union(*needed.values()))

    def _retain(self, saved: int) -> None:
        """Remove the checkpoints that no rule keeps, and the one that the save of `saved` replaced."""
        steps = self.steps()
        best = self.best_step()
        keep = {saved, self.latest_step(), *self.retention.kept(steps, best, self._is_verified)}
        drop = [step for step in steps if step not in keep]
        replaced = self.folders.aside(saved)
        try:
            if best in drop:
                self.folders.point(BEST, None)
            discard([self.folders.folder(step) for step in drop] + [replaced] * os.path.lexists(replaced))
            self._clean_segments()
        except OSError as error:
            self._cleaned = False
            self.report(f"checkpoint of step {saved} saved, but old ones in {self.path} cannot be removed: {error}")

    def _is_verified(self, step: int) -> bool:
        if step not in self._verified:
            try:
                verify_folder(self.folders.folder(step), step, self.segments)
                self._verified[step] = True
            except CheckpointError:
                self._verified[step] = False
        return self._verified[step]

    def _best_score(self, steps: Iterable[int]) -> int | None:
        best, best_score = None, float("-inf")
        for step in steps:
            with suppress(CheckpointError):
                score = read_manifest(self.folders.folder(step), step).metadata.get(SCORE)
                if isinstance(score, (int, float)) and score > best_score:
                    best, best_score = step, score
        return best

    # -- messages -----------------------------------------------------------------------------------------------------

    def _write_or_explain(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            raise CheckpointError(f"cannot write in {self.path}: {error.strerror or error}{cure(error)}") from error

    def _failure(self, step: int, parts: Collection[FlatState], error: OSError) -> str:
        size = sum(array.nbytes for flat in parts for array in flat.arrays.values())
        size += sum(self.segments.missing_bytes(log) for flat in parts for _, log in row_logs(flat))
        need = f"; it needs {size / 1e6:.1f} MB"
        with suppress(OSError):
            need += f", {shutil.disk_usage(self.path).free / 1e6:.1f} MB are free"
        reason = error.strerror or str(error)
        return (
            f"cannot save the checkpoint of step {step} in {self.path}: {reason}{need}{cure(error)}{self._remaining()}"
        )

    def _remaining(self) -> str:
        latest = self.latest_step()
        return "" if latest is None else f"; the checkpoint of step {latest} is intact"

    def _offer(self) -> str:
        steps = self.steps()
        if not steps:
            return "the run has saved none, or this is not a run directory"
        names = [str(step) for step in steps]
        shown = names if len(names) <= 8 else [*names[:3], "...", *names[-4:]]
        return f"there are {LATEST}, {'best, ' if self.best_step() is not None else ''}{', '.join(shown)}"
