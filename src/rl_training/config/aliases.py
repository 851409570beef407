"""The alias table: every spelling of a key that files, sweeps and flags may use, with its canonical one.

Also the layers of a config (a file, its bases, the flags): converted to canonical keys and merged. Each value keeps its
origin and its original spelling, for error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_training.config.fields import FREE_HPARAMS, section_paths
from rl_training.config.sections.executor import executor_section
from rl_training.config.yaml_reader import MAX_DEPTH, Document, plain_copy, shorten, shown
from rl_training.types import ConfigError

Path = tuple[str, ...]

ALIASES: Mapping[str, str] = {
    # "a." moves everything below the section a; "a" renames that key, whatever is below it.
    "experiment.": "",
    "algorithm": "algo",
    "algorithm.name": "algo",
    "algorithm.hparams.": "hparams.",
    "algorithm.": "hparams.",
    "environment": "env_id",
    "environment.name": "env_id",
    "environment.wrapper": "env.wrappers",
    "environment.": "env.",
    "env": "env_id",
    "env.": "env.",
    "total_timesteps": "training.total_timesteps",
    "total_updates": "training.total_updates",
    "dataset": "dataset.path",
    "dataset.": "dataset.",
    "stop_at_return": "training.stop_at_return",
    "num_envs": "env.num_envs",
    "hparams.lr": "hparams.learning_rate",
    "hparams.clip_ratio": "hparams.clip_coef",
    "hparams.value_coef": "hparams.vf_coef",
    "hparams.entropy_coef": "hparams.ent_coef",
}
LONGEST_ALIAS = 2
EXECUTOR_NAMES = (("executor", "env"), ("executor", "options"))
"""Mappings of an executor whose keys are names that others chose: variables, flags of sbatch."""


def canonical_key(key: str, *, own_hparams: bool = False) -> str:
    """The canonical spelling of a dotted key; an unknown key is returned as it is. `-` and `_` are equal.

    `own_hparams` leaves the names of hyperparameters unchanged: for an algorithm outside the package.

    >>> canonical_key("algorithm.lr"), canonical_key("env.num-envs"), canonical_key("experiment.seed")
    ('hparams.learning_rate', 'env.num_envs', 'seed')
    """
    path = tuple(key.split("."))
    return key if len(path) > MAX_DEPTH else ".".join(canonical_path(path, own_hparams=own_hparams))


def canonical_path(path: Path, *, own_hparams: bool = False, section: bool = False) -> Path:
    """`canonical_key` for a key split into parts. `section` says that the path names a mapping, not a value."""
    while path:
        path = _same_dashes(path, own_hparams)
        moved = _apply_alias(path, own_hparams, section)
        if moved == path:
            break
        path = moved
    return path


def _same_dashes(path: Path, own_hparams: bool) -> Path:
    """`-` to `_`, except in names that the user chose: below `kwargs`, for an executor, in hparams of a user's
    algorithm."""
    end = path.index("kwargs") + 1 if "kwargs" in path else len(path)
    end = min(end, 2) if path[:2] in EXECUTOR_NAMES else end
    if own_hparams and path[0] in ("hparams", "algorithm"):
        end = 1
    return (*(part.replace("-", "_") for part in path[:end]), *path[end:])


def _apply_alias(path: Path, own_hparams: bool, section: bool) -> Path:
    """Replace the longest alias that the path starts with, once."""
    for length in range(min(len(path), LONGEST_ALIAS), 0, -1):
        head, rest = ".".join(path[:length]), path[length:]
        if own_hparams and head.startswith("hparams."):
            continue
        if (rest or section) and f"{head}." in ALIASES:
            return (*ALIASES[f"{head}."].split(".")[:-1], *rest)
        if head in ALIASES:
            return (*ALIASES[head].split("."), *rest)
    return path


def spellings(parent: Path, known: Iterable[str]) -> set[str]:
    """Names that are valid in a section, given by its canonical path: its fields and their aliases."""
    names = set(known)
    for alias in ALIASES:
        spelt = tuple(alias.rstrip(".").split("."))
        if canonical_path(spelt[:-1], section=True) != parent:
            continue
        target = canonical_path(spelt)
        if alias.endswith(".") or target[:-1] != parent or target[-1] in names:
            names.add(spelt[-1])
    return names


# -- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """Where a value was given: "file.yaml:7" or "--flag", and its key as spelt there."""

    place: str
    spelt: str


@dataclass
class Layer:
    """Values under canonical keys, with the origin of each and the problems with keys."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Origin] = field(default_factory=dict)
    sections: dict[Path, Origin] = field(default_factory=dict)
    """Origins of the mappings around the values; if several files have one, that of the first."""
    problems: list[str] = field(default_factory=list)


def document_layer(document: Document, *, own_hparams: bool) -> Layer:
    """The layer of a file."""

    def place(path: Path) -> str:
        line = next((document.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in document.lines), None)
        return f"{document.source}:{line}" if line else document.source

    return _Canonical(place, own_hparams).read(document.tree)


def override_layer(overrides: Mapping[str, Any], *, own_hparams: bool) -> Layer:
    """The layer of flags, given as dotted keys to values; messages name the flag."""
    if not all(isinstance(key, str) for key in overrides):
        raise ConfigError("overrides: every key must be text, such as 'hparams.learning_rate'")
    flags = {key: plain_copy(value, f"--{shown(key)}") for key, value in overrides.items()}
    return _Canonical(lambda path: f"--{shown(path[0])}", own_hparams).read(flags)


class _Canonical:
    """Walks over a tree as written and puts each value at its canonical path."""

    def __init__(self, place: Callable[[Path], str], own_hparams: bool) -> None:
        self.place = place
        self.own_hparams = own_hparams
        self.layer = Layer()
        self.sections = section_paths(FREE_HPARAMS) | {()}

    def read(self, tree: Mapping[str, Any]) -> Layer:
        for key, value in tree.items():
            self.visit((key,), tuple(key.split(".")), value)
        return self.layer

    def visit(self, written: Path, spelt: Path, value: Any) -> None:
        """Add a value or section; `written` is its path in the file, `spelt` the same with dotted keys split."""
        if len(spelt) > MAX_DEPTH:
            self.problem(written, f"nested more than {MAX_DEPTH} levels deep")
            return
        section = canonical_path(spelt, own_hparams=self.own_hparams, section=True)
        if value is None and section in self.sections:
            return  # an empty section, for example with all its keys commented out
        if section == ("executor",) and isinstance(value, str):
            value = executor_section(value)
        if isinstance(value, dict) and (value or not section):
            if section:
                self.layer.sections.setdefault(section, self.origin(written))
            for key, item in value.items():
                if self.is_free(section, (*spelt, key), item):
                    self.put((*section, key), (*written, key), item)
                else:
                    self.visit((*written, key), (*spelt, *key.split(".")), item)
        else:
            path = section if isinstance(value, dict) else canonical_path(spelt, own_hparams=self.own_hparams)
            self.put(path, written, value)

    def is_free(self, section: Path, spelt: Path, value: Any) -> bool:
        """Whether a name in `section` was chosen by the user and is kept whole (unlike `algorithm.name`, an alias)."""
        is_own = self.own_hparams and section[:1] == ("hparams",)
        if "kwargs" not in section and section not in EXECUTOR_NAMES and not is_own:
            return False
        path = canonical_path(spelt, own_hparams=self.own_hparams, section=isinstance(value, dict))
        return path == (*section, spelt[-1])

    def put(self, path: Path, written: Path, value: Any) -> None:
        if path in self.layer.origins:
            first = self.layer.origins[path]
            self.problem(written, f"the same as '{first.spelt}' ({first.place}): both are '{'.'.join(path)}'; keep one")
            return
        here = self.layer.tree
        for part in path[:-1]:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                self.problem(written, f"given both as a value, {shorten(here)}, and as a section")
                return
        there = here.get(path[-1])
        if there is not None and value != {}:
            self.problem(written, f"given both as a section and as a value, {shorten(value)}")
            return
        here[path[-1]] = value if there is None else there
        self.layer.origins[path] = self.origin(written)

    def origin(self, written: Path) -> Origin:
        return Origin(self.place(written), shown(".".join(written)))

    def problem(self, written: Path, message: str) -> None:
        self.layer.problems.append(f"{self.place(written)}: '{shown('.'.join(written))}': {message}")


def merged(under: Any, over: Any) -> Any:
    """`over` on top of `under`: mappings are merged key by key, anything else (lists too) is replaced."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def merge(layers: Iterable[Layer]) -> Layer:
    """Later layers on top of earlier ones."""
    result = Layer()
    for layer in layers:
        result.tree = merged(result.tree, layer.tree)
        result.origins = {**result.origins, **layer.origins}
        result.sections = {**layer.sections, **result.sections}
        result.problems += layer.problems
    return result
