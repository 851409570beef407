"""Migration of old config layouts: one function per version step, on trees as read from a file.

A step is never changed once released: a file goes through all steps after its version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_training.config.aliases import document_layer
from rl_training.config.schema import CONFIG_VERSION
from rl_training.config.yaml_reader import Document, plain_copy, shorten
from rl_training.types import ConfigError

Tree = dict[str, Any]

OLD_NAMES: Mapping[str, str] = {
    "clip_range": "clip_coef",
    "clip_range_vf": "clip_vf",
    "n_steps": "num_steps",
    "n_epochs": "num_epochs",
}
"""Hyperparameters of version 0 that were renamed; also the first suggestions for an unknown key."""
OLD_PLACES: Mapping[str, tuple[str, str]] = {
    "num_envs": ("env", "num_envs"),
    "total_timesteps": ("training", "total_timesteps"),
    "eval_frequency": ("training", "eval_frequency"),
    "checkpoint_frequency": ("training", "checkpoint_frequency"),
}
"""Top-level keys of version 0 and the section they moved to."""


OLD_DEFAULTS: Mapping[str, Tree] = {"training": {"eval_frequency": 10_000}}
"""Defaults up to version 1 that have changed, for files whose bases may set another value."""


def from_version_0(tree: Tree) -> Tree:
    """Budget and number of environments move from the top level into sections; hyperparameters get whole words."""
    new: Tree = {key: value for key, value in tree.items() if key not in OLD_PLACES}
    nested = tree.get("algorithm")
    algo = tree.get("algo") or (nested.get("name") if isinstance(nested, dict) else nested)
    for section in ("hparams", "algorithm"):
        if isinstance(tree.get(section), dict) and ":" not in str(algo):  # others name their own
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


def from_version_1(tree: Tree) -> Tree:
    """Keep the old defaults of evaluation: none at the start, and one every 10,000 env steps.

    A file with bases leaves the frequency to them; `old_defaults` is the layer below all of them.
    """
    known = document_layer(Document(tree, "config"), own_hparams=True).tree
    training = tree.get("training")
    if not isinstance(known.get("training", {}), dict) or not isinstance(training, dict | None):
        return tree  # the check of the whole file says what is wrong
    wanted = {"eval_at_start": False} | (OLD_DEFAULTS["training"] if not known.get("base") else {})
    new = {name: value for name, value in wanted.items() if name not in known.get("training", {})}
    return {**tree, "training": {**(training or {}), **new}}


def old_defaults(document: Document) -> Document | None:
    """The layer below the bases of an old file; None for a file of the current version."""
    version = document.tree.get("version", CONFIG_VERSION)
    old = isinstance(version, int) and version < 2
    return Document(plain_copy(OLD_DEFAULTS, document.source), document.source) if old else None


def complete_stored(tree: Tree) -> Tree:
    """A complete config, such as a run stores, with what fields meant before they existed: images were flattened."""
    network = tree.get("network")
    if not isinstance(network, dict):
        return tree
    flat = {
        name: {**section, "encoder": {"type": "mlp"}}
        for name, section in network.items()
        if isinstance(section, dict) and name in ("actor", "critic") and "encoder" not in section
    }
    return {**tree, "network": {**network, **flat}}


STEPS: tuple[Callable[[Tree], Tree], ...] = (from_version_0, from_version_1)
"""STEPS[v] takes a tree of version v to version v + 1."""


def migrate(tree: Tree, source: str) -> Tree:
    """The tree in the current layout and version; a tree without a version is assumed to be current."""
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
    """A document in the current layout. Line numbers are kept for keys that did not move."""
    return Document(migrate(document.tree, document.source), document.source, document.lines)
