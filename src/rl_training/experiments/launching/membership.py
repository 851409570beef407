"""How a member process knows its group, and notices that the parent is gone.

The parent holds the writing end of a pipe and never writes. The kernel closes it when the parent ends, whatever the
cause; members then read end-of-file and stop as after SIGTERM: they save, and no process is left training unattended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_training.system.signals import EXIT_CODES, REQUEUE_VARIABLE
from rl_training.trust.consent import OWN, Consent

VARIABLE = "RL_TRAINING_GROUP"
"""Environment variable of a member: descriptor of the pipe's reading end (empty without a parent), id of the group, id
of the sweep (empty for a group) and folder of the group or sweep, separated by colons."""
BUILT_IN_ONLY = "RL_TRAINING_BUILT_IN_ONLY"
"""Environment variable of a member planned on another machine, whose code the user has not allowed: what to name in
errors."""


@dataclass(frozen=True)
class Membership:
    """The group or sweep to which this process belongs."""

    group: str
    sweep: str | None
    folder: Path
    consent: Consent = OWN
    """Consent under which this process trains."""

    @property
    def source(self) -> str | None:
        """Text of the config file with which the group was started."""
        path = self.folder / "configs" / "source.yaml"
        return path.read_text(encoding="utf-8") if path.is_file() else None


class Lifeline:
    """The parent's side of the pipe: members run as long as it is open."""

    def __init__(self) -> None:
        self.descriptor, self._held = os.pipe()

    def variables(self, group: str, folder: Path, *, sweep: str | None = None) -> dict[str, str]:
        """Environment variables for a member, which must also inherit `descriptor`."""
        return {**membership_variable(group, folder, sweep, str(self.descriptor)), REQUEUE_VARIABLE: "0"}

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._held)


def membership_variable(group: str, folder: Path, sweep: str | None, descriptor: str = "") -> dict[str, str]:
    """Environment variables of a member; without a descriptor it has no parent to watch."""
    return {VARIABLE: f"{descriptor}:{group}:{sweep or ''}:{folder}"}


def consent_variable(consent: Consent) -> dict[str, str]:
    """Environment variable that tells a member the consent under which it was started."""
    return {BUILT_IN_ONLY: consent.subject if consent.level == "none" else ""}


def join_group() -> Membership | None:
    """The member's side, called once at the start; None in a process that no group has started.

    The variables are removed, so that processes started by this one are not members.
    """
    value, subject = os.environ.pop(VARIABLE, None), os.environ.pop(BUILT_IN_ONLY, "")
    if value is None:
        return None
    number, group, sweep, folder = value.split(":", 3)
    consent = Consent("none", subject) if subject else OWN
    member = Membership(group, sweep or None, Path(folder), consent)
    if not number:
        return member
    descriptor = int(number)
    os.set_inheritable(descriptor, False)
    if select.select([descriptor], [], [], 0)[0]:  # the parent died before this process started
        sys.exit(EXIT_CODES[signal.SIGTERM])
    threading.Thread(target=_stop_with_parent, args=(descriptor,), name="group-lifeline", daemon=True).start()
    return member


def _stop_with_parent(descriptor: int) -> None:
    with suppress(OSError):
        os.read(descriptor, 1)
    os.write(2, b"the parent of the group is gone: stopping\n")
    os.kill(os.getpid(), signal.SIGTERM)
