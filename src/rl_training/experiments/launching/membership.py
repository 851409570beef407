"""What a member of a group knows of its parent: the group it belongs to, and whether the parent is still there.

The parent holds one end of a pipe that nobody writes to. The kernel closes it when the parent ends, however it ends;
members read the end of the pipe and stop as after SIGTERM: the step is saved, and nobody trains on unseen.
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
"""Environment variable of a member: the reading end of the pipe (nothing where no parent waits), the group's id, the
sweep's id (nothing outside of one) and the folder of the whole, with colons between."""


BUILT_IN_ONLY = "RL_TRAINING_BUILT_IN_ONLY"
"""Environment variable of a member that was planned elsewhere: the folder of the plan, whose code nobody agreed to."""


@dataclass(frozen=True)
class Membership:
    """The group that this process trains for."""

    group: str
    sweep: str | None
    folder: Path
    consent: Consent = OWN
    """Under which it trains."""

    @property
    def source(self) -> str | None:
        """The text of the file that the group was started with."""
        path = self.folder / "configs" / "source.yaml"
        return path.read_text(encoding="utf-8") if path.is_file() else None


class Lifeline:
    """The parent's side: as long as it is open, members know that somebody looks after them."""

    def __init__(self) -> None:
        self.descriptor, self._held = os.pipe()

    def variables(self, group: str, folder: Path, *, sweep: str | None = None) -> dict[str, str]:
        """What to add to a member's environment; it must inherit `descriptor` too."""
        return {**membership_variable(group, folder, sweep, str(self.descriptor)), REQUEUE_VARIABLE: "0"}

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._held)


def membership_variable(group: str, folder: Path, sweep: str | None, descriptor: str = "") -> dict[str, str]:
    """The environment of a member; without a descriptor, of one that no parent looks after."""
    return {VARIABLE: f"{descriptor}:{group}:{sweep or ''}:{folder}"}


def consent_variable(consent: Consent) -> dict[str, str]:
    """What tells a member under which consent it was started."""
    return {BUILT_IN_ONLY: consent.subject if consent.level == "none" else ""}


def join_group() -> Membership | None:
    """The member's side, called once and early; None in a process that no group has started.

    The variable is taken away, so that what this process starts in its turn is no member.
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
    if select.select([descriptor], [], [], 0)[0]:  # the parent was gone before this process had begun
        sys.exit(EXIT_CODES[signal.SIGTERM])
    threading.Thread(target=_stop_with_parent, args=(descriptor,), name="group-lifeline", daemon=True).start()
    return member


def _stop_with_parent(descriptor: int) -> None:
    with suppress(OSError):
        os.read(descriptor, 1)
    os.write(2, b"the parent of the group is gone: stopping\n")
    os.kill(os.getpid(), signal.SIGTERM)
