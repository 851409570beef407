"""What every section of a config shares: pydantic's settings, the largest sizes, and parts by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_training.hparams.base import STRICT, Json

MAX_PARTS = 10**6
"""Largest number of environments, stacked frames or units of a layer."""
SECTION = STRICT
"""pydantic settings of every section. pydantic does not parse the sentences under the fields, which would slow down the
first load; `fields.py` does."""


@dataclass(frozen=True)
class PartConfig:
    """A part by name, built in or your own, with its arguments: `{name: "my_pkg.my_mod:Thing", kwargs: {x: 1}}`."""

    __pydantic_config__ = SECTION

    name: str
    """Registered name or dotted path "package.module:Name"."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments it is built with."""
