"""What a parsed config asks for from outside the package: code, commands, addresses, files, secrets.

Decided by an allow-list of fields. In some fields any text is harmless, in others it must be the name of a built-in
part; a text in a field that is not listed counts as code. A field that is added later is therefore refused in a stored
config until it is listed here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rl_training.config.schema import TrainConfig
from rl_training.registry import (
    Registry,
    algorithms,
    buffers,
    callbacks,
    dynamics,
    environments,
    loggers,
    networks,
    optimizers,
    rules,
    wrappers,
)

Path = tuple[str, ...]
"""Place of a value in a config; `*` is any element of a list, `**` any place inside a mapping."""
HARMLESS: frozenset[Path] = frozenset(
    {
        ("output_dir",),
        ("name",),
        ("tags", "*"),
        ("device",),
        ("dataset", "path"),  # columns of numbers, read without pickle
        ("env", "agents", "policies", "**"),  # patterns of names
        ("env", "agents", "teams", "**"),
        ("env", "agents", "score"),
        ("executor", "type"),  # a stored run starts no other; groups and sweeps ask about the executor of their record
        ("executor", "address"),
        ("executor", "env", "**"),
        ("executor", "options", "**"),
        ("logging", "info_keys", "*"),
        ("logging", "wandb", "project"),
        ("logging", "wandb", "tags", "*"),
        ("monitor", "rules", "*", "when"),
    }
)
"""Fields in which any text is harmless: nothing is imported, started or opened because of it."""
NAMES: Mapping[Path, Registry] = {
    ("algo",): algorithms,
    ("policies", "**", "algo"): algorithms,
    ("env_id",): environments,
    ("network", "actor", "type"): networks,
    ("network", "critic", "type"): networks,
    ("hparams", "optimizer", "type"): optimizers,
    ("hparams", "dynamics", "type"): dynamics,
    ("buffer", "type"): buffers,
    ("env", "wrappers", "*", "name"): wrappers,
    ("callbacks", "*", "name"): callbacks,
    ("logging", "sinks", "*", "name"): loggers,
    ("league", "opponents", "*"): rules,
    ("league", "eval_opponent"): rules,
}
"""Fields that name a part. Gymnasium's ids are only known where Gymnasium is imported, so `envs/suites.py` checks
those."""
ARGUMENTS: frozenset[Path] = frozenset(
    {
        ("env", "kwargs", "**"),
        ("env", "wrappers", "*", "kwargs", "**"),
        ("network", "actor", "encoder", "keys", "**"),
        ("network", "critic", "encoder", "keys", "**"),
        ("network", "actor", "kwargs", "**"),
        ("network", "critic", "kwargs", "**"),
        ("hparams", "optimizer", "kwargs", "**"),
        ("hparams", "dynamics", "kwargs", "**"),
        ("policies", "**", "hparams", "**"),
        ("hparams", "**"),  # only of installed plugins: the hyperparameters of built-in algorithms are typed fields
    }
)
"""Arguments of built-in parts: plain words are allowed (a map, a mode), but no paths, addresses or names of code."""
WORD = re.compile(r"[A-Za-z0-9_+ -]*")
REFERENCE = "${"


def foreign_code(cfg: TrainConfig, *, env_given: bool = False) -> list[str]:
    """All foreign values of a config, each as "field value". `env_given`: the caller passes the environment itself, so
    `env_id` is not looked at.

    >>> foreign_code(TrainConfig(env_id="my_project.envs:GridWorld"))
    ['env_id my_project.envs:GridWorld']
    """
    found = [f"{'.'.join(path)} {text}" for path, text in _foreign(cfg, (), env_given=env_given)]
    return list(dict.fromkeys(found))


def references(tree: Any) -> list[str]:
    """Texts in a config that refer to environment variables, which an untrusted config must not read either."""
    if isinstance(tree, Mapping):
        return [name for key, value in tree.items() for name in (*references(str(key)), *references(value))]
    if isinstance(tree, list | tuple):
        return [name for value in tree for name in references(value)]
    return [tree] if isinstance(tree, str) and REFERENCE in tree else []


def _foreign(node: Any, path: Path, *, env_given: bool) -> Iterator[tuple[Path, str]]:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        hints = get_type_hints(type(node))
        for item in dataclasses.fields(node):
            value, place = getattr(node, item.name), (*path, item.name)
            if env_given and place == ("env_id",):
                continue
            if isinstance(value, str) and (
                value in _choices(hints[item.name])
                or _is_rule_with_condition(node, item.name)
                or (place not in NAMES and value == item.default)
            ):
                continue
            yield from _foreign(value, place, env_given=env_given)
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _foreign(value, path if path[-1:] == ("**",) else (*path, "**"), env_given=env_given)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _foreign(value, path if path[-1:] == ("**",) else (*path, "*"), env_given=env_given)
    elif not _is_plain(node) and not _is_allowed(str(node), path):
        yield path, str(node)


def _is_allowed(text: str, path: Path) -> bool:
    if path in NAMES:
        return not NAMES[path].is_foreign(text)
    return path in HARMLESS or (path in ARGUMENTS and WORD.fullmatch(text) is not None)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _choices(hint: Any) -> tuple[Any, ...]:
    """The literal choices in a field's type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for option in get_args(hint) for word in _choices(option))


def _is_rule_with_condition(node: Any, field: str) -> bool:
    """Whether the field is the name of an alert rule with a `when`: then it is a label, not a function."""
    return field == "name" and getattr(node, "when", None) is not None
