"""Old config layouts to today's, one function per version step, on trees as read from a file.

A step is never changed once released: files of every version go through all the steps after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_training.config import CONFIG_VERSION
from rl_training.config_yaml import Document, dump_mapping, parse_json, parse_yaml, read_text, shorten
from rl_training.types import ConfigError

Tree = dict[str, Any]

OLD_NAMES: Mapping[str, str] = {
    "clip_range": "clip_coef",
    "clip_range_vf": "clip_vf",
    "n_steps": "num_steps",
    "n_epochs": "num_epochs",
}
"""Hyperparameters of version 0 that have another name since; also what an unknown key is first compared with."""
OLD_PLACES: Mapping[str, tuple[str, str]] = {
    "num_envs": ("env", "num_envs"),
    "total_timesteps": ("training", "total_timesteps"),
    "eval_frequency": ("training", "eval_frequency"),
    "checkpoint_frequency": ("training", "checkpoint_frequency"),
}
"""Top-level keys of version 0 and the section they moved to."""


def from_version_0(tree: Tree) -> Tree:
    """Budget and number of environments move from the top level into sections; hyperparameters get whole words."""
    new: Tree = {key: value for key, value in tree.items() if key not in OLD_PLACES}
    nested = tree.get("algorithm")
    algo = tree.get("algo") or (nested.get("name") if isinstance(nested, dict) else nested)
    for section in ("hparams", "algorithm"):
        if isinstance(tree.get(section), dict) and ":" not in str(algo):  # the names of a user's algorithm are its own
            new[section] = _renamed(tree[section], section)
    for old, (section, name) in OLD_PLACES.items():
        if old not in tree:
            continue
        values = new.get(section)
        if values is not None and not isinstance(values, dict):
            raise ConfigError(f"'{section}' must be a mapping, not {shorten(values)}")
        if name in (values or {}):
            raise ConfigError(f"'{old}' and '{section}.{name}' are the same since version 1; keep one")
        new[section] = {**(values or {}), name: tree[old]}
    return new


def _renamed(values: Tree, section: str) -> Tree:
    new: Tree = {}
    for key, value in values.items():
        name = OLD_NAMES.get(key, key)
        if name != key and name in values:
            raise ConfigError(f"'{section}.{key}' and '{section}.{name}' are the same since version 1; keep one")
        new[name] = value
    return new


STEPS: tuple[Callable[[Tree], Tree], ...] = (from_version_0,)
"""STEPS[v] takes a tree of version v to version v + 1."""


def migrate(tree: Tree, source: str) -> Tree:
    """The tree in today's layout with today's version; a tree without a version is taken to be today's."""
    version = tree.get("version", CONFIG_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise ConfigError(
            f"{source}: 'version' must be a whole number from 0 to {CONFIG_VERSION}, not {shorten(version)}"
        )
    if version > CONFIG_VERSION:
        raise ConfigError(
            f"{source}: version {version} is newer than this rl_training, which reads up to {CONFIG_VERSION}; "
            "upgrade with: pip install -U rl-training"
        )
    for step in STEPS[version:]:
        try:
            tree = step(tree)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    if version == CONFIG_VERSION:
        return tree
    return {"version": CONFIG_VERSION} | {key: value for key, value in tree.items() if key != "version"}


def migrate_document(document: Document) -> Document:
    """A document in today's layout. Lines stay known for the keys that kept their place."""
    return Document(migrate(document.tree, document.source), document.source, document.lines)


def migrate_file(path: str | Path) -> str:
    """The text of a config file rewritten in today's layout; the file itself is left alone.

    A file that is already in today's layout comes back as it is. Of the comments only those at the top are kept.
    """
    path = Path(path)
    text = read_text(path, str(path))
    is_json = path.suffix == ".json"
    document = parse_json(text, str(path)) if is_json else parse_yaml(text, str(path))
    migrated = migrate(document.tree, document.source)
    if migrated == document.tree:
        return text
    return json.dumps(migrated, indent=2) + "\n" if is_json else header_of(text) + dump_mapping(migrated)


def header_of(text: str) -> str:
    """The comment and empty lines at the top of a YAML text."""
    lines = text.splitlines(keepends=True)
    length = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    return "".join(lines[:length])
