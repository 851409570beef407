"""Layers of one config (bases, file, flags) to a checked config, or to every problem with them.

The hparams class is looked up by `algo` first; then the whole tree is checked. No user code is imported. What comes out
is a `ResolvedConfig`, which everything after the loader passes on: a config is read and checked once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_training.config.aliases import Layer, document_layer, merge, merged, override_layer
from rl_training.config.fields import FREE_HPARAMS
from rl_training.config.fitting import steps_for_buffer
from rl_training.config.schema import (
    DATASET_ENV,
    BufferConfig,
    EnvConfig,
    TrainConfig,
    builtin_spec,
)
from rl_training.config.validation import MAX_NAME, Problem, check, located, raise_problems, root_type
from rl_training.config.yaml_reader import Document, plain_copy, shorten
from rl_training.registry import (
    Registry,
    algorithms,
    buffers,
    callbacks,
    did_you_mean,
    dynamics,
    installed_plugins,
    loggers,
    networks,
    networks_for,
    optimizers,
    wrappers,
)

PLAIN_STACK = "gym"
"""As `environment.wrapper`: no further wrappers."""
NAMED_PARTS = {
    ("algo",): algorithms,
    ("network", "actor", "type"): networks,
    ("network", "critic", "type"): networks,
    ("hparams", "optimizer", "type"): optimizers,
    ("hparams", "dynamics", "type"): dynamics,
    ("buffer", "type"): buffers,
}
"""Fields that hold the name of a part, and where it is looked up."""
NETWORK_PARTS = ("encoder", "memory")
"""Sections of a network for which a plain name stands: `memory: gru` is `memory: {type: gru}`."""
PART_LISTS = {("env", "wrappers"): wrappers, ("callbacks",): callbacks, ("logging", "sinks"): loggers}


@dataclass(frozen=True)
class ResolvedConfig:
    """A config that was read and checked, with where it came from. Pass it on instead of reading the file again."""

    config: TrainConfig
    source: str
    """What messages call it: a path, `preset ppo/cartpole`, `the command line`."""
    path: Path | None = None
    """The file it was read from, its bases aside."""
    text: str | None = None
    """That file as it was written."""

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """Every field as plain JSON values, `version` first. Shared: copy it before changing it."""
        return config_to_mapping(self.config)

    @cached_property
    def sha256(self) -> str:
        """Hash of every field but those of execution, the same however the config was written (1 or 1.0, lists or
        tuples)."""
        return hash_of(self.mapping)

    def with_values(self, changes: Mapping[str, Any]) -> ResolvedConfig:
        """The same with `changes` (dotted keys) on top, checked again without reading any file."""
        config = resolve([Document(self.mapping, self.source)], changes)
        return dataclasses.replace(self, config=config)


@dataclass(frozen=True)
class ConfigLayers:
    """A config file as read, with everything it builds on; resolved once per set of flags, as a sweep needs it."""

    documents: tuple[Document, ...]
    """In today's layout, the deepest base first."""
    path: Path | None = None
    text: str | None = None
    """The file as it was written, its bases aside."""

    def resolve(self, overrides: Mapping[str, Any] | None = None) -> ResolvedConfig:
        """The config with `overrides` (dotted keys, any spelling) on top; ConfigError with every problem."""
        return ResolvedConfig(resolve(self.documents, overrides), self.documents[-1].source, self.path, self.text)


EXECUTION = (("env", "runners"), ("executor",))
"""Fields and sections that say where and by how many processes a run is executed: no part of its hash, and free at a
resume."""


def hash_of(mapping: Mapping[str, Any]) -> str:
    """SHA-256 of a complete config without the fields of execution."""
    import hashlib  # OpenSSL takes longer to load than this module, and help pages need no hash

    tree = mapping
    for path in EXECUTION:
        tree = without(tree, path)
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def without(tree: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """A copy of a tree that lacks the value at a path, if it has one."""
    first, *rest = path
    if not rest or not isinstance(tree.get(first), Mapping):
        return {key: value for key, value in tree.items() if key != first or rest}
    return {**tree, first: without(tree[first], rest)}


def config_to_mapping(cfg: TrainConfig) -> dict[str, Any]:
    """Every field as plain JSON values, `version` first."""
    tree: dict[str, Any] = plain_copy(cfg, type(cfg).__name__)
    if cfg.training.total_updates is not None:  # offline: no env steps, and a config that gives them is refused
        tree["training"].pop("total_timesteps")
    return {"version": tree.pop("version"), **tree}


def resolve(documents: Sequence[Document], overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """The config of documents, the deepest base first, with flags on top; ConfigError with every problem."""
    layer = merged_layer(documents, overrides or {})
    cfg, problems = check_tree(layer.tree)
    origins = {**layer.sections, **layer.origins}
    source = documents[-1].source
    raise_problems([*layer.problems, *(located(problem, origins, source) for problem in problems)])
    assert cfg is not None
    return cfg


def merged_layer(documents: Sequence[Document], overrides: Mapping[str, Any]) -> Layer:
    """All layers under canonical keys. Whose names `hparams` holds depends on the algorithm, so that is found first."""

    def read(own_hparams: bool) -> Layer:
        layers = [document_layer(document, own_hparams=own_hparams) for document in documents]
        flags = override_layer(overrides, own_hparams=own_hparams)
        if "base" in flags.tree:
            flags.problems.append("--base: a base belongs in a file; give its name as the config instead")
        return merge([*layers, flags])

    layer = read(own_hparams=True)
    if is_builtin(layer.tree):
        layer = read(own_hparams=False)
    layer.tree.pop("base", None)
    return layer


def is_builtin(tree: Mapping[str, Any]) -> bool:
    """True if the algorithm of a tree is one of the package's."""
    algo = tree.get("algo", TrainConfig.algo)
    return isinstance(algo, str) and algorithms.is_builtin(algo)


def check_tree(tree: dict[str, Any]) -> tuple[TrainConfig | None, list[Problem]]:
    """The config of a tree under canonical keys, or every problem with it."""
    tree = _with_first_names(_with_part_names(tree))
    spec = builtin_spec(tree.get("algo", TrainConfig.algo)) if is_builtin(tree) else None
    steps_given = value_at(tree, ("hparams", "num_steps")) is not None
    if spec and spec.network and isinstance(tree.get("network"), dict):
        tree = {**tree, "network": merged(thawed(spec.network), tree["network"])}

    def build(values: Any) -> TrainConfig:
        given = {item.name: getattr(values, item.name) for item in dataclasses.fields(values)}
        given = {name: value for name, value in given.items() if value is not None}
        size = given.get("buffer", BufferConfig()).size
        if size is not None and steps_given and "hparams" in given and spec is not None and spec.kind == "on_policy":
            num_envs = given.get("env", EnvConfig()).num_envs
            steps_for_buffer(size, given["hparams"].num_steps, num_envs, may_change=False)
        return TrainConfig(**given)

    unknown_names = _unknown_names(tree)
    if spec is not None and spec.kind == "offline":
        tree = {"env_id": DATASET_ENV, **{name: value for name, value in tree.items() if value is not None}}
        given, online = (
            value_at(tree, path) for path in (("training", "total_timesteps"), ("dataset", "online_share"))
        )
        if given is not None and online is None:
            what = f": '{spec.name}' is offline and steps no environment: give training.total_updates instead"
            unknown_names.append(Problem(("training", "total_timesteps"), what))
            rest = {name: value for name, value in tree["training"].items() if name != "total_timesteps"}
            tree = {**tree, "training": rest}  # so that the same is not said twice
    hparams: Any = spec.hparams if spec else FREE_HPARAMS
    cfg, problems = check(root_type(hparams), tree, build)
    return (None if unknown_names else cfg), [*unknown_names, *problems]


def thawed(tree: Any) -> Any:
    """A tree of defaults as a file would spell it: dicts and lists."""
    if isinstance(tree, Mapping):
        return {key: thawed(value) for key, value in tree.items()}
    return list(tree) if isinstance(tree, tuple) else tree


def _with_part_names(tree: dict[str, Any]) -> dict[str, Any]:
    """Plain names of parts spelt out: in lists of parts, which may be a single part, and `memory: gru` of a network."""
    for path in PART_LISTS:
        parts = value_at(tree, path)
        if isinstance(parts, str | dict):
            parts = [parts]
        if isinstance(parts, list):
            parts = [part for part in parts if part != PLAIN_STACK or path != ("env", "wrappers")]
            named: Any = [{"name": part} if isinstance(part, str) else part for part in parts]
            for key in reversed(path):
                named = {key: named}
            tree = merged(tree, named)
    for backbone in ("actor", "critic"):
        for part in NETWORK_PARTS:
            name = value_at(tree, ("network", backbone, part))
            if isinstance(name, str):
                tree = merged(tree, {"network": {backbone: {part: {"type": name}}}})
    return tree


def _with_first_names(tree: dict[str, Any]) -> dict[str, Any]:
    """Second names of parts (`buffer.type: trajectory`) as their first."""
    for path, registry in NAMED_PARTS.items():
        name = value_at(tree, path)
        if isinstance(name, str) and name in registry.aliases:
            named: Any = registry.aliases[name]
            for key in reversed(path):
                named = {key: named}
            tree = merged(tree, named)
    return tree


def value_at(tree: Any, path: Sequence[str]) -> Any:
    """The value at a path, None where there is none."""
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _unknown_names(tree: dict[str, Any]) -> list[Problem]:
    """Names of parts, not dotted paths, that nothing has registered. With plugins they may be known later."""
    named: list[tuple[tuple[str | int, ...], Any, Registry]]
    ours = algorithms.is_builtin(str(tree.get("algo", TrainConfig.algo)))  # hparams of another one mean what it says
    named = [
        (path, value_at(tree, path), registry) for path, registry in NAMED_PARTS.items() if ours or path[0] != "hparams"
    ]
    for path, registry in PART_LISTS.items():
        parts = value_at(tree, path)
        for i, part in enumerate(parts if isinstance(parts, list) else ()):
            named.append(((*path, i, "name"), value_at(part, ("name",)), registry))
    backend = "jax" if tree.get("backend") == "jax" else "torch"
    unknown = [
        Problem(path, _unknown_name(name, registry, backend))
        for path, name, registry in named
        if isinstance(name, str) and ":" not in name and name not in registry
    ]
    return unknown if unknown and not tree.get("plugins") and not installed_plugins() else []


def _unknown_name(name: str, registry: Registry, backend: str) -> str:
    if registry is networks and len(name) <= MAX_NAME and "." not in name:
        return f": unknown network {shorten(name)}{did_you_mean(name, networks.names())} ({networks_for(backend)})"
    module, dot, attribute = name.rpartition(".")
    own = f"'{module}:{attribute}'" if dot and len(name) <= MAX_NAME else "'package.module:Name' or through `plugins:`"
    near = did_you_mean(name, registry.names()) if len(name) <= MAX_NAME else ""
    return f": unknown {registry.kind} {shorten(name)}{near} ({registry.known()}your own: {own})"
