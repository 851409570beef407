"""Whose checkpoint it is: the run and the config that it was saved under, kept in its manifest.

A checkpoint that was taken from another run, or that lies beside a config that was edited since, is refused with what
differs and how to go on on purpose. Not here: damaged files, which `checkpoint_folder` finds by their checksums.
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
"""Changed fields that an error names."""
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
    """A config that is not the one its checkpoint was saved under; `changes` says where."""

    def __init__(self, place: str, changes: Sequence[Change]) -> None:
        self.what = f"configs/resolved.yaml is not what {place} was saved under: {named(changes)}"
        self.changes = tuple(changes)
        cure = "put the old values back, or go on with the new ones on purpose with"
        super().__init__(f"{self.what}; {cure} {ON_PURPOSE}")


@dataclass(frozen=True)
class Seal:
    """The run that a checkpoint belongs to, and what decides its numbers."""

    run: str
    """The id in run.json, which a run keeps when its directory is moved or renamed."""
    started: str | None
    """When it was made: runs of two machines may have the same id."""
    config: Mapping[str, Any]
    """The sealed fields of its config, without secrets."""

    @classmethod
    def of(cls, run: RunDir) -> Seal:
        """The seal under which a run saves now."""
        info = run.info()
        written = run.written if run.written is not None else config_to_mapping(run.config(secrets=False))
        config = sealed_fields(written)
        return cls(str(info.get("id")), info.get("started"), config)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Seal:
        """What `to_json` gave; TypeError, KeyError or ValueError for anything else."""
        seal = cls(value["run"], value["started"], value["config"])
        if not (isinstance(seal.run, str) and isinstance(seal.started, str | None) and isinstance(seal.config, dict)):
            raise ValueError("a seal needs a run, its start and a config")
        return seal

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "started": self.started, "config": self.config}

    def belongs_to(self, other: Seal) -> bool:
        """Whether both are of one run."""
        return self.run == other.run and (self.started == other.started or None in (self.started, other.started))

    def changes(self, now: Seal) -> list[Change]:
        """Where the config of `now` differs from this one's."""
        return sealed_changes(self.config, now.config)

    def objection(self, now: Seal, place: str) -> ForeignCheckpointError | ChangedConfigError | None:
        """Why a run that saves under `now` must not load the checkpoint at `place`, which has this seal."""
        if not self.belongs_to(now):
            same_id = self.run == now.run
            stored, here = (f"{seal.run} of {seal.started}" if same_id else seal.run for seal in (self, now))
            return ForeignCheckpointError(place, stored, here)
        changes = self.changes(now)
        return ChangedConfigError(place, changes) if changes else None


@dataclass(frozen=True)
class SealCheck:
    """How a run takes the checkpoints that it loads: its own, or with `allow_changed` any, which is reported."""

    now: Seal
    allow_changed: bool = False

    def admit(self, stored: Seal | None, place: str, report: Callable[[str], None]) -> None:
        """Let the checkpoint at `place` be used, or raise why not. One without a seal is taken with a note."""
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
    """Changes in words, the first few of them."""
    more = [f"and {len(changes) - MAX_NAMED} more"] if len(changes) > MAX_NAMED else []
    return ", ".join([*map(str, changes[:MAX_NAMED]), *more])


@contextmanager
def fitting(what: str, hint: str = CHANGED) -> Iterator[None]:
    """Within the block a state is loaded; where it does not fit, CheckpointError says so instead of torch or NumPy."""
    try:
        yield
    except RLTrainingError:
        raise
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:400]
        cause = f"({reason or type(error).__name__}); {hint}"
        raise CheckpointError(f"{what} does not fit what this config builds {cause}") from error
