"""What `rl presets`, `algorithms` and `envs` share: names that contain a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rl_training.cli.flags import json_flag, optional_argument
from rl_training.cli.output import note


@dataclass(frozen=True, kw_only=True)
class ListingOptions:
    filter: str | None = optional_argument()
    json: bool = json_flag()


def matching(names: Iterable[str], options: ListingOptions) -> list[str]:
    """The names that contain the FILTER argument, whatever the case."""
    wanted = (options.filter or "").lower()
    return [name for name in names if wanted in name.lower()]


def nothing(kind: str, options: ListingOptions) -> None:
    """Say that no name matches."""
    note(f"no {kind} contains '{options.filter}'" if options.filter is not None else f"no {kind} is installed")
