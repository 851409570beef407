"""How a member process knows its group, its run's name and the consent under which it was started.

All of it comes in environment variables from the parent, whatever executor started the process. That the parent is gone
is noticed by the lifeline (`system/lifeline.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rl_training.system.lifeline import follow_parent
from rl_training.system.signals import REQUEUE_VARIABLE
from rl_training.trust.consent import OWN, Consent

VARIABLE = "RL_TRAINING_GROUP"
"""Environment variable of a member: id of the group, id of the sweep (empty for a group) and folder of the group or
sweep, separated by colons."""
NAME_VARIABLE = "RL_TRAINING_RUN_NAME"
"""Environment variable of a new member: the name that its parent has planned for its run directory."""
PAUSE_VARIABLE = "RL_TRAINING_PAUSE_AT"
"""Environment variable of a member: env steps at which it saves and stops, for a scheduler to decide about it."""
CONSENT_VARIABLE = "RL_TRAINING_CONSENT"
"""Environment variable of a member: `own` or `trusted` where the parent has the user's consent to the code that the
sweep names, which then holds on every host its executor uses; `none` allows built-in parts only."""
SUBJECT_VARIABLE = "RL_TRAINING_CONSENT_SUBJECT"
"""What messages call the group or sweep that the consent was given for."""
TRUSTED = ("own", "trusted")
"""Consents under which a member may run the code that its config names."""


@dataclass(frozen=True)
class Membership:
    """The group or sweep to which this process belongs."""

    group: str
    sweep: str | None
    folder: Path
    consent: Consent = OWN
    """Consent under which this process trains."""
    run_name: str | None = None
    """Name of the run directory to make."""
    pause_at: int | None = None
    """Env steps at which to save and stop."""

    @property
    def source(self) -> str | None:
        """Text of the config file with which the group was started."""
        path = self.folder / "configs" / "source.yaml"
        return path.read_text(encoding="utf-8") if path.is_file() else None


def membership_variables(group: str, folder: Path, sweep: str | None, consent: Consent) -> dict[str, str]:
    """Environment variables of a member."""
    return {
        VARIABLE: f"{group}:{sweep or ''}:{folder.absolute()}",
        REQUEUE_VARIABLE: "0",
        CONSENT_VARIABLE: consent.level,
        SUBJECT_VARIABLE: consent.subject,
    }


def join_group() -> Membership | None:
    """The member's side, called once at the start; None in a process that no group has started.

    The variables are removed, so that processes started by this one are not members.
    """
    value, level = os.environ.pop(VARIABLE, None), os.environ.pop(CONSENT_VARIABLE, "none")
    name, pause = os.environ.pop(NAME_VARIABLE, None), os.environ.pop(PAUSE_VARIABLE, None)
    subject = os.environ.pop(SUBJECT_VARIABLE, "this config")
    if value is None:
        return None
    follow_parent()
    group, sweep, folder = value.split(":", 2)
    consent = OWN if level in TRUSTED else Consent("none", subject)
    return Membership(group, sweep or None, Path(folder), consent, name, None if pause is None else int(pause))
