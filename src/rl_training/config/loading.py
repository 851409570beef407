"""Config files, presets, mappings and flags to a TrainConfig, and back. Strict: every problem at once, with its place.

The way of a config: find the file and its bases (`config_files`), read them (`config_yaml`), bring them to today's
version (`migrations`), bring all keys to one spelling and merge (`config_keys`), check (`config_resolution`,
`config_validation`). Hyperparameters of an algorithm outside the package stay a mapping until something is built.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config.aliases import Origin, canonical_key, canonical_path, document_layer
from rl_training.config.fields import FREE_HPARAMS, FieldDoc, field_docs, hint_at, hints_of, options_of
from rl_training.config.files import find_config, migrate_file, preset_names, preset_path, with_bases
from rl_training.config.migrations import migrate_document
from rl_training.config.resolution import resolve
from rl_training.config.schema import TrainConfig
from rl_training.config.validation import MAX_NAME, Problem, check, located, raise_problems
from rl_training.config.yaml_reader import (
    MAX_DEPTH,
    NULLS,
    Document,
    dump_mapping,
    parse_yaml_value,
    plain_copy,
    read_yaml,
    resolve_scalar,
    shown,
)
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

__all__ = [
    "FieldDoc",
    "canonical_key",
    "changed_config",
    "check_hparams",
    "config_sha256",
    "config_to_mapping",
    "dump_yaml",
    "field_docs",
    "load_config",
    "migrate_file",
    "parse_config",
    "parse_override_value",
    "parse_stored",
    "preset_names",
    "preset_path",
    "read_yaml",
    "validate_config",
]


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """The config in a file or a preset (`ppo/cartpole`), with `overrides` (dotted keys, any spelling) on top."""
    found = find_config(path)
    return resolve(with_bases(found.read(), found.path), overrides)


def parse_config(
    mapping: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "config"
) -> TrainConfig:
    """The same from a mapping in any spelling; messages call it `source`."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{source}: expected a mapping, got {type(mapping).__name__}")
    return resolve(with_bases(Document(plain_copy(mapping, source), source), None), overrides)


def parse_stored(
    mapping: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "config"
) -> TrainConfig:
    """The same from a config that was found on a disk: of a run, a group, a captured update. Those are whole, so a
    `base:`, which would read a file that does not belong to them, is refused."""
    document = migrate_document(Document(plain_copy(mapping, source), source))
    if document_layer(document, own_hparams=True).tree.get("base"):
        raise ConfigError(f"{source}: 'base' in the config of a run, which holds every value itself; remove the line")
    return parse_config(document.tree, overrides, source=source)


def changed_config(cfg: str | Path | Mapping[str, Any], changes: Mapping[str, Any], *, source: str) -> TrainConfig:
    """A file, preset or mapping with `changes` on top, which are spelt as in a file; messages call them `source`."""
    if isinstance(cfg, Mapping):
        documents = with_bases(Document(plain_copy(cfg, "config"), "config"), None)
    else:
        found = find_config(cfg)
        documents = with_bases(found.read(), found.path)
    if "base" in changes:
        raise ConfigError(f"{source}: a base belongs in a file; give its name as the config instead")
    return resolve([*documents, Document(plain_copy(changes, source), source)])


def validate_config(cfg: TrainConfig) -> TrainConfig:
    """A config built in Python, checked as strictly as a file; numbers and lists get their canonical types."""
    return parse_config(config_to_mapping(cfg), source=type(cfg).__name__)


def config_to_mapping(cfg: TrainConfig) -> dict[str, Any]:
    """Every field as plain JSON values, `version` first."""
    tree: dict[str, Any] = plain_copy(cfg, type(cfg).__name__)
    return {"version": tree.pop("version"), **tree}


def dump_yaml(cfg: TrainConfig) -> str:
    """YAML text that loads back to an equal config."""
    return dump_mapping(config_to_mapping(cfg))


def config_sha256(cfg: TrainConfig) -> str:
    """Hash of every field, the same however the config was written (1 or 1.0, lists or tuples)."""
    tree = config_to_mapping(validate_config(cfg))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def check_hparams(hparams_type: type, values: Mapping[str, Any], *, algo: str) -> Any:
    """Hyperparameters of an algorithm outside the package as its own dataclass, checked like a file's.

    The aliases of the package (`lr`) apply where the class has the field they stand for and none of their name.
    """
    source = f"hparams of '{algo}'"
    tree = plain_copy(values, source)
    if not dataclasses.is_dataclass(hparams_type):
        return tree
    fields = hints_of(hparams_type)
    for name in [name for name in tree if name not in fields]:
        meant = canonical_path(("hparams", name))[-1]
        if meant in fields and meant not in tree:
            tree[meant] = tree.pop(name)
    # pydantic silently drops what a dataclass without our config does not know
    unknown = [
        Problem((name,), did_you_mean(name[:MAX_NAME], fields), "unknown key ") for name in tree if name not in fields
    ]
    known = {name: value for name, value in tree.items() if name in fields}
    result, problems = check(hparams_type, known, lambda value: value)
    origins: dict[tuple[str, ...], Origin] = {(name,): Origin(source, f"hparams.{name}") for name in tree}
    raise_problems(located(problem, origins, source) for problem in [*unknown, *problems])
    return result


def parse_override_value(text: str, key: str | None = None) -> Any:
    """A flag's text as YAML: `3e-4`, `true`, `[64, 64]`, `{type: linear, start: 3e-4, end: 0}`, or plain text.

    With its `key`, the value of a text field is kept as typed (`--name 007`), a list of texts is split at commas, and
    messages name the flag.
    """
    place = f"--{shown(key)}" if key else "value"
    hint = hint_at(canonical_path(tuple(key.split("."))), FREE_HPARAMS) if key and key.count(".") < MAX_DEPTH else Any
    bracketed = text.startswith(("[", "{", '"', "'"))
    value: Any = text
    if str in options_of(hint):
        value = None if type(None) in options_of(hint) and text in NULLS - {""} else text
    elif hint == tuple[str, ...] and not bracketed:
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif bracketed:
        value, _ = parse_yaml_value(text, place, numbered=False)
    elif text:
        try:
            value = resolve_scalar(text)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from None
    return plain_copy(value, place)
