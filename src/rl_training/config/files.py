"""Finding config files: by path, as a preset of the package, and through the chain of their `base:`.

`ppo/cartpole` is presets/ppo/cartpole.yaml in the package. A base is looked up relative to the file that names it, not
to the working directory, so a config means the same wherever a command is run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rl_training.config.aliases import document_layer, merge, merged
from rl_training.config.migrations import migrate, migrate_document, old_defaults
from rl_training.config.yaml_reader import (
    Document,
    dump_mapping,
    parse_json,
    parse_yaml,
    read_document,
    read_text,
    shorten,
)
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BASES = 32
Chain = tuple[tuple[str, str], ...]
"""The files that led to a base: real path and label of each."""
MAX_NAME = 200
"""Longest name for which a suggestion is searched."""

Kind = Literal["train", "sweep", "tune"]
KINDS: dict[str, str] = {"train": "config for training", "sweep": "sweep file", "tune": "tuning file"}
TRAIN_KEYS = frozenset(
    {"algo", "algorithm", "env_id", "env", "environment", "experiment", "hparams", "network", "buffer", "training"}
    | {"base", "backend", "checkpoint", "logging", "monitor", "callbacks"}
)
"""Top-level keys that only the config of a run has."""
TUNE_KEYS = frozenset({"space", "sampler", "pruner", "metric", "aggregate", "direction"})
"""Keys that only a tuning file has."""


@cache
def _presets() -> dict[str, Path]:
    from importlib import resources

    root = Path(str(resources.files("rl_training") / "presets"))
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}


def preset_names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(_presets())


def preset_path(name: str) -> Path:
    """The file of a preset; ConfigError for a name that is not in the list, so no other path can be reached."""
    if name not in _presets():
        raise ConfigError(f"unknown preset {shorten(name)}{_near_preset(name)} (`rl presets` lists them)")
    return _presets()[name]


def _near_preset(name: str) -> str:
    """A suggestion for an unknown name: the presets of an algorithm, or one with a similar name."""
    of_algorithm = [preset for preset in _presets() if preset.startswith(f"{name[:MAX_NAME]}/")]
    if of_algorithm:
        return f"; there are {', '.join(of_algorithm)}, and for the algorithm alone --algo {name}"
    return did_you_mean(name[:MAX_NAME], _presets())


@dataclass(frozen=True)
class ConfigFile:
    """A config file: its path, and what messages call it."""

    path: Path
    label: str

    def read(self) -> Document:
        document = read_document(self.path, self.label)
        if not document.tree:
            raise ConfigError(
                f"{self.label} is empty; 'rl config show ppo/cartpole' prints a whole config to start from"
            )
        return document


def find_config(name: str | Path) -> ConfigFile:
    """The file at a path, or the preset of that name."""
    text = os.fspath(name)
    if os.path.isfile(text):
        return ConfigFile(Path(os.path.abspath(text)), text)
    if text in _presets():
        return ConfigFile(_presets()[text], f"preset {text}")
    raise ConfigError(_not_found(text))


def _not_found(name: str) -> str:
    shown = shorten(name, MAX_NAME)
    if os.path.isdir(name):
        return f"{shown} is a folder, not a config file"
    if os.path.exists(name):
        return f"{shown} is not a regular file"
    if os.path.isfile(f"{name}.yaml"):
        return f"config file {shown} does not exist; did you mean '{name}.yaml'?"
    if not name.endswith(SUFFIXES):
        return f"no config file or preset {shown}{_near_preset(name)} (`rl presets` lists the presets)"
    folder, base = os.path.split(name)
    try:
        near = os.listdir(folder or ".")[:1000]
    except (OSError, ValueError):
        near = []
    return f"config file {shown} does not exist{did_you_mean(base[:MAX_NAME], near)}"


def find_base(base: str, folder: Path) -> ConfigFile:
    """The file of a `base:`: relative to the folder of the file, below a parent folder that the path starts with
    (`configs/...`), or a preset."""
    head = base.split("/")[0]
    for root in (folder, *(above.parent for above in (folder, *folder.parents) if head and above.name == head)):
        path = os.path.normpath(root / base)
        if base and os.path.isfile(path):
            inside = path.startswith(os.path.join(os.getcwd(), ""))
            return ConfigFile(Path(path), os.path.relpath(path) if inside else path)
    if base in _presets():
        return find_config(base) if not os.path.isfile(base) else ConfigFile(_presets()[base], f"preset {base}")
    near = "" if base.endswith(SUFFIXES) else _near_preset(base)
    raise ConfigError(f"{shorten(base, MAX_NAME)} is neither a file (looked in {folder}) nor a preset{near}")


def with_bases(document: Document, path: Path | None) -> list[Document]:
    """The document in the current layout after all its bases, the deepest first.

    `path` is its file; None for a mapping, whose bases are relative to the working directory.
    """
    found: list[Document] = []
    _add_with_bases(document, path, (), found)
    return found


def _add_with_bases(document: Document, path: Path | None, chain: Chain, found: list[Document]) -> None:
    here = (os.path.realpath(path) if path else "", document.source)
    way = " -> ".join(label for _, label in (*chain, here))
    if path and here[0] in (file for file, _ in chain):
        raise ConfigError(f"a circle of bases: {way}")
    if len(chain) >= MAX_BASES or len(found) >= MAX_BASES:
        raise ConfigError(f"more than {MAX_BASES} bases: {way}")
    check_kind(document, "train")
    below = old_defaults(document)
    document = migrate_document(document)
    bases = document_layer(document, own_hparams=True).tree.get("base")
    bases = [bases] if isinstance(bases, str) else bases or []
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(f"{document.source}: 'base' takes files or names of presets, not {shorten(bases)}")
    if bases and below is not None:
        found.append(below)
    for base in bases:
        try:
            file = find_base(base, path.parent if path else Path.cwd())
        except ConfigError as error:
            raise ConfigError(f"{way}: base {error}") from None
        _add_with_bases(file.read(), file.path, (*chain, here), found)
    found.append(document)


def kind_of(document: Document) -> Kind | None:
    """The kind of a file; None if its keys do not tell."""
    keys = {key.split(".")[0] for key in document.tree}
    if "base_config" in keys:
        return "tune" if keys & TUNE_KEYS else "sweep"
    return "train" if keys & TRAIN_KEYS else None


def check_kind(document: Document, wanted: Kind) -> None:
    """ConfigError that names the right command if a file is of another kind. A sweep's `ranges` may also be tuned."""
    kind = kind_of(document)
    if kind in (None, wanted) or (kind == "sweep" and wanted == "tune" and "trials" not in document.tree):
        return
    name = document.source.removeprefix("preset ")
    cure = f"'rl {kind} {name}' runs it"
    if kind == "train":
        cure += f"; a {KINDS[wanted]} names it as its base_config"
    raise ConfigError(f"{document.source}: this is a {KINDS[kind]}, not a {KINDS[wanted]}; {cure}")


def is_sweep(document: Document) -> bool:
    """True for a file with the keys of a sweep: `base_config`, and one of `sweep`, `ranges`, `trials`."""
    keys = document.tree.keys()
    return "base_config" in keys and not keys.isdisjoint(("sweep", "ranges", "trials"))


def migrate_file(path: str | Path) -> str:
    """The text of a config file converted to the current layout; the file itself is not changed.

    A file in the current layout is returned unchanged. Only the comments at the top are kept.
    """
    path = Path(path)
    text = read_text(path, str(path))
    is_json = path.suffix == ".json"
    document = parse_json(text, str(path)) if is_json else parse_yaml(text, str(path))
    migrated = migrate(document.tree, document.source)
    if migrated == document.tree:
        return text
    below = old_defaults(document)
    if below is not None and "base" in migrated:
        # the current layout has no defaults below the bases: what none of them sets is written into the file
        said = merge(document_layer(one, own_hparams=True) for one in with_bases(document, path)[1:]).tree
        migrated = merged(_unsaid(below.tree, said), migrated)
        migrated = {"version": migrated.pop("version"), **migrated}
    return json.dumps(migrated, indent=2) + "\n" if is_json else header_of(text) + dump_mapping(migrated)


def _unsaid(tree: Mapping[str, Any], said: Any) -> dict[str, Any]:
    """The values of a tree whose keys do not occur in `said`."""
    known = said if isinstance(said, dict) else {}
    inner = {key: _unsaid(value, known.get(key)) for key, value in tree.items() if isinstance(value, dict)}
    values = {key: value for key, value in tree.items() if not isinstance(value, dict) and key not in known}
    return {**{key: value for key, value in inner.items() if value}, **values}


def header_of(text: str) -> str:
    """The comment and empty lines at the top of a YAML text."""
    lines = text.splitlines(keepends=True)
    length = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    return "".join(lines[:length])
