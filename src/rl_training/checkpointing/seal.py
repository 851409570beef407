"""The seal of a checkpoint: the run and the config that saved it, recorded in its manifest.

A checkpoint of another run, or one whose config was edited since, is refused with a message that says what differs and
which option accepts it anyway. Not here: damaged files, which `folder.py` finds by their checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rl_training.config.loading import config_to_mapping
from rl_training.config.seal import Change, sealed_changes, sealed_fields
from rl_training.runs.directory import RunDir
from rl_training.types import CheckpointError, ConfigError, RLTrainingError

MAX_NAMED = 8
"""At most this many changed fields are named in an error."""
CHANGED = "was the config, the environment or your own code changed?"
ON_PURPOSE = "--allow-changed-config (in Python allow_changed_config=True)"


class ForeignCheckpointError(CheckpointError):
    """A checkpoint of another run; `stored` and `now` name that run and the one that loads it."""

    def __init__(self, place: str, stored: str, now: str) -> None:
        self.what = f"{place} belongs to run '{stored}', not to this run '{now}'"
        self.stored, self.now = stored, now
        cure = "put this run's own checkpoints back, start a new run from that one's policy with --init-from"
        super().__init__(f"{self.what}: {cure}, or take it on purpose with {ON_PURPOSE}")


class ChangedConfigError(CheckpointError, ConfigError):
    """The config differs from the one that saved the checkpoint; `changes` lists the fields."""

    def __init__(self, place: str, changes: Sequence[Change]) -> None:
        self.what = f"configs/resolved.yaml is not what {place} was saved under: {named(changes)}"
        self.changes = tuple(changes)
        cure = "put the old values back, or go on with the new ones on purpose with"
        super().__init__(f"{self.what}; {cure} {ON_PURPOSE}")


@dataclass(frozen=True)
class Seal:
    """The run that a checkpoint belongs to, and the part of its config that determines its results."""

    run: str
    """The id in run.json, which survives moving or renaming the directory."""
    started: str | None
    """When the run started: runs of two machines may have the same id."""
    config: Mapping[str, Any]
    """The fields of its config that determine its results (`config/seal.py`), without secrets."""

    @classmethod
    def of(cls, run: RunDir) -> Seal:
        """The seal for checkpoints that this run saves now."""
        info = run.info()
        written = run.written if run.written is not None else config_to_mapping(run.config(secrets=False))
        config = sealed_fields(written)
        return cls(str(info.get("id")), info.get("started"), config)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Seal:
        """The inverse of `to_json`; TypeError, KeyError or ValueError for anything else."""
        seal = cls(value["run"], value["started"], value["config"])
        if not (isinstance(seal.run, str) and isinstance(seal.started, str | None) and isinstance(seal.config, dict)):
            raise ValueError("a seal needs a run, its start and a config")
        return seal

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "started": self.started, "config": self.config}

    def belongs_to(self, other: Seal) -> bool:
        """Whether both seals are of the same run."""
        return self.run == other.run and (self.started == other.started or None in (self.started, other.started))

    def changes(self, now: Seal) -> list[Change]:
        """The fields in which the config of `now` differs from this one."""
        return sealed_changes(self.config, now.config)

    def objection(self, now: Seal, place: str) -> ForeignCheckpointError | ChangedConfigError | None:
        """Why a run with the seal `now` must not load the checkpoint at `place`, which has this one; None if it may."""
        if not self.belongs_to(now):
            same_id = self.run == now.run
            stored, here = (f"{seal.run} of {seal.started}" if same_id else seal.run for seal in (self, now))
            return ForeignCheckpointError(place, stored, here)
        changes = self.changes(now)
        return ChangedConfigError(place, changes) if changes else None


@dataclass(frozen=True)
class SealCheck:
    """Which checkpoints a run may load: only its own, or with `allow_changed` any, with a report."""

    now: Seal
    allow_changed: bool = False

    def admit(self, stored: Seal | None, place: str, report: Callable[[str], None]) -> None:
        """Return if the checkpoint at `place` may be loaded, raise otherwise. One without a seal is reported."""
        if stored is None:
            report(
                f"{place} was saved without its run and config (rl_training 0.1.0), so they are not compared; the next "
                "save of the run adds them"
            )
            return
        objection = stored.objection(self.now, place)
        if objection is not None and not self.allow_changed:
            raise objection
        if objection is not None:
            report(f"taken on purpose: {objection.what}")


def named(changes: Sequence[Change]) -> str:
    """The first few changes as text."""
    more = [f"and {len(changes) - MAX_NAMED} more"] if len(changes) > MAX_NAMED else []
    return ", ".join([*map(str, changes[:MAX_NAMED]), *more])


@contextmanager
def fitting(what: str, hint: str = CHANGED) -> Iterator[None]:
    """Around loading a state: errors of torch or NumPy about a state that does not fit become a CheckpointError."""
    try:
        yield
    except RLTrainingError:
        raise
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:400]
        cause = f"({reason or type(error).__name__}); {hint}"
        raise CheckpointError(f"{what} does not fit what this config builds {cause}") from error
