"""Environments of PettingZoo and mpe2 by name: `mpe2/simple_spread_v3`, `pettingzoo/sisl/pursuit_v5`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rl_training.envs.probes.teams import TEAM_PROBES
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

EXTRA = "multi-agent"
"""Extra of this package that installs both."""
NAME = re.compile(r"(mpe2|pettingzoo/[a-z0-9_]+)/([a-z0-9_]+)")
FAMILIES = ("atari", "butterfly", "classic", "sisl")


@contextmanager
def old_way() -> Iterator[None]:
    """Inside, PettingZoo does not point to its new registry; the functions of its modules are in every version."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The old environment creation API", DeprecationWarning)
        yield


@dataclass(frozen=True)
class TeamSource:
    """Makes the environment of a name. Picklable, so that workers can make it too."""

    name: str

    def __call__(self, **kwargs: Any) -> Any:
        with old_way():
            return self.creator(**kwargs)

    @cached_property
    def creator(self) -> Any:
        """The function of the library that makes the environment: its parallel form where it has one."""
        module = self._module()
        return getattr(module, "parallel_env", None) or module.env

    @cached_property
    def signature(self) -> Any:
        """The class whose arguments the environment takes, for messages."""
        return getattr(self._module(), "raw_env", self.creator)

    def _module(self) -> Any:
        folder, name = self.name.rsplit("/", 1)
        package = folder.replace("/", ".")
        root = package.partition(".")[0]
        if importlib.util.find_spec(root) is None:
            raise ConfigError(
                f"environment '{self.name}' needs an extra: pip install 'rl-training[{EXTRA}]' "
                f"(No module named '{root}')"
            )
        if root == "pettingzoo" and package.partition(".")[2] not in FAMILIES:
            moved = "; PettingZoo's mpe is a package of its own now: mpe2/..." if package.endswith(".mpe") else ""
            raise ConfigError(f"unknown environment '{self.name}': PettingZoo has {', '.join(FAMILIES)}{moved}")
        known = names_in(package)
        if name not in known:
            raise ConfigError(
                f"unknown environment '{self.name}'{did_you_mean(name, known)} (in {folder}: {', '.join(known)})"
            )
        try:
            with old_way():
                return importlib.import_module(f"{package}.{name}")
        except ImportError as error:
            raise ConfigError(f"environment '{self.name}' needs a library that is not installed: {error}") from error


def source_of(name: str) -> TeamSource | type[Any] | None:
    """The source of a name of this form, or the probe of that name; None for any other name."""
    return TeamSource(name) if NAME.fullmatch(name) else TEAM_PROBES.get(name)


def names_in(package: str) -> list[str]:
    """Names of the environments of `mpe2` or of a family of PettingZoo; nothing of them is imported."""
    spec = importlib.util.find_spec(package)
    places = getattr(spec, "submodule_search_locations", None)
    return sorted(m.name for m in pkgutil.iter_modules(places) if re.search(r"_v\d+$", m.name)) if places else []


def team_ids() -> list[str]:
    """All names that can be given where the libraries are installed."""
    found = [f"mpe2/{name}" for name in names_in("mpe2")] if importlib.util.find_spec("mpe2") else []
    if importlib.util.find_spec("pettingzoo"):
        found += [f"pettingzoo/{family}/{name}" for family in FAMILIES for name in names_in(f"pettingzoo.{family}")]
    return [*found, *TEAM_PROBES]
