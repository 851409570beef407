"""What a contest consists of: measures and contestants."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

PACKAGE_VENV = ".venv"


@dataclass(frozen=True)
class Measure:
    """A column of a contest's table: a number that a contestant prints, or that the runner finds out about it."""

    key: str
    title: str
    better: Literal["higher", "lower"] | None = None
    """Which way is faster or smaller; None shows the number without a comparison."""
    digits: int = 0
    goal: float | None = None
    """How many times better than the best peer the first contestant wants to be."""
    limit: float | None = None
    """What its median shall reach, or stay under, whoever else takes part."""
    floor: float | None = None
    """What every single run must reach. A contestant that falls short has no ratio, and nobody is compared with it."""


@dataclass(frozen=True)
class Contestant:
    """A command that prints one JSON value. `{settings}`, `{seed}`, `{scratch}` and any `{setting}` are filled in."""

    name: str
    command: tuple[str, ...]
    """Arguments of the interpreter."""
    peer: bool = False
    """What the others are compared with."""
    venv: str = PACKAGE_VENV
    """The environment it runs in, a folder of the clone."""
    cores: int | None = None
    """Stays on so many cores, the first that the runner may use; None takes them all."""
    settings: dict[str, Any] = field(default_factory=dict)
    """On top of the contest's."""
    check: tuple[str, ...] = ()
    """A second command, outside the measured time, that reads the JSON of the first and prints more."""


@dataclass(frozen=True)
class Contest:
    """Contestants that take turns with the same settings."""

    name: str
    title: str
    text: str
    """What is compared, for the docs."""
    measures: tuple[Measure, ...]
    """The first one is the point of the contest."""
    contestants: tuple[Contestant, ...]
    algorithm: tuple[tuple[str, str, str], ...] = ()
    """What each side runs, to the letter: (what, this package's, the peers'); for the docs."""
    settings: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    """Settings of a trial of the machinery, not of the speed."""
    rival: str = "the best peer"
    """Whom the first contestant wants to beat, for the docs."""
    max_repeats: int = 100


Peer = partial(Contestant, peer=True, venv=".venv-peers")
JaxPeer = partial(Contestant, peer=True, venv=".venv-peers-jax")
