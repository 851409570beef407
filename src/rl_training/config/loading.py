"""Config files, presets, mappings and flags to a checked config, and back. Strict: every problem with its place.

The steps: find the file and its bases (`files`), read them (`yaml_reader`), bring them to today's version
(`migrations`), bring all keys to one spelling and merge (`aliases`), check (`resolution`, `validation`).
`resolve_config` returns a record that is passed on, so that a command reads a config once; `load_config` returns its
TrainConfig. Hyperparameters of an algorithm outside the package stay a mapping until something is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config.aliases import Origin, canonical_key, canonical_path, document_layer
from rl_training.config.fields import FREE_HPARAMS, FieldDoc, field_docs, hint_at, hints_of, options_of
from rl_training.config.files import find_config, migrate_file, preset_names, preset_path, with_bases
from rl_training.config.migrations import complete_stored, migrate_document
from rl_training.config.resolution import ConfigLayers, ResolvedConfig, config_to_mapping
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
    "ConfigLayers",
    "FieldDoc",
    "ResolvedConfig",
    "as_resolved",
    "canonical_key",
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
    "read_config",
    "read_yaml",
    "resolve_changed",
    "resolve_config",
    "resolve_mapping",
    "validate_config",
]


def read_config(path: str | Path) -> ConfigLayers:
    """A file or a preset (`ppo/cartpole`) and what it builds on, read but not yet checked."""
    found = find_config(path)
    document = found.read()
    return ConfigLayers(tuple(with_bases(document, found.path)), found.path, document.text)


def resolve_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> ResolvedConfig:
    """The config in a file or a preset, with `overrides` (dotted keys, any spelling) on top."""
    return read_config(path).resolve(overrides)


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """The TrainConfig of `resolve_config`."""
    return resolve_config(path, overrides).config


def resolve_mapping(
    mapping: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "config"
) -> ResolvedConfig:
    """The config in a mapping in any spelling; messages call it `source`."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{source}: expected a mapping, got {type(mapping).__name__}")
    documents = with_bases(Document(plain_copy(mapping, source), source), None)
    return ConfigLayers(tuple(documents)).resolve(overrides)


def parse_config(
    mapping: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "config"
) -> TrainConfig:
    """The TrainConfig of `resolve_mapping`."""
    return resolve_mapping(mapping, overrides, source=source).config


def parse_stored(
    mapping: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "config"
) -> TrainConfig:
    """The config of a run, a group or a captured update as found on disk. Those are whole, so a `base:`, which would
    read a file that does not belong to them, is refused."""
    document = migrate_document(Document(plain_copy(mapping, source), source))
    if document_layer(document, own_hparams=True).tree.get("base"):
        raise ConfigError(f"{source}: 'base' in the config of a run, which holds every value itself; remove the line")
    return parse_config(complete_stored(document.tree), overrides, source=source)


def resolve_changed(cfg: str | Path | Mapping[str, Any], changes: Mapping[str, Any], *, source: str) -> ResolvedConfig:
    """A file, preset or mapping with `changes` on top, which are spelt as in a file; messages call them `source`."""
    if isinstance(cfg, Mapping):
        layers = ConfigLayers(tuple(with_bases(Document(plain_copy(cfg, "config"), "config"), None)))
    else:
        layers = read_config(cfg)
    if "base" in changes:
        raise ConfigError(f"{source}: a base belongs in a file; give its name as the config instead")
    on_top = Document(plain_copy(changes, source), source)
    return dataclasses.replace(layers, documents=(*layers.documents, on_top)).resolve()


def as_resolved(cfg: TrainConfig | ResolvedConfig) -> ResolvedConfig:
    """A config built in Python, checked as strictly as a file; one that was resolved before comes back as it is."""
    if isinstance(cfg, ResolvedConfig):
        return cfg
    return resolve_mapping(config_to_mapping(cfg), source=type(cfg).__name__)


def validate_config(cfg: TrainConfig) -> TrainConfig:
    """The TrainConfig of `as_resolved`: numbers and lists have their canonical types."""
    return as_resolved(cfg).config


def dump_yaml(cfg: TrainConfig) -> str:
    """YAML text that loads back to an equal config."""
    return dump_mapping(config_to_mapping(cfg))


def config_sha256(cfg: TrainConfig) -> str:
    """Hash of every field, the same however the config was written (1 or 1.0, lists or tuples)."""
    return as_resolved(cfg).sha256


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
