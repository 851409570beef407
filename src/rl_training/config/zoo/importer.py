"""Hyperparameter files of the SB3 Zoo as configs of this package: `rl config import-zoo ppo.yml --env CartPole-v1`.

A key that a file leaves out gets Stable-Baselines3's default, so that the config means what the file means there. A key
without a counterpart is reported with the reason. Nothing in a file is evaluated or imported.
"""

from __future__ import annotations

import re
from pathlib import Path

from rl_training.config.loading import parse_config
from rl_training.config.schema import CONFIG_VERSION
from rl_training.config.yaml_reader import Document, shorten, shown
from rl_training.config.zoo.entry import EntryReader, Imported
from rl_training.config.zoo.tables import DEFAULTS, REASONS
from rl_training.config.zoo.values import read_zoo
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

__all__ = ["Imported", "algorithm_of", "import_zoo", "imported"]

ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")
FAMILIES = ("atari", "default")
"""Entries that are not environments: one applies to every Atari game, the other to all that the file does not name."""
ATARI = re.compile(r"ALE/.*|\w+NoFrameskip-v\d+")


def algorithm_of(path: str | Path, given: str | None = None) -> str:
    """The algorithm of a file: as given, or taken from the file name (ppo.yml)."""
    algo = (given or Path(path).stem).lower()
    if algo not in ALGORITHMS:
        cure = "" if given else "; the file's name does not say which, give it with --algo"
        raise ConfigError(
            f"{path}: cannot import '{shown(algo)}'{did_you_mean(algo[:64], ALGORITHMS)} "
            f"(known: {', '.join(ALGORITHMS)}){cure}"
        )
    return algo


def import_zoo(
    path: str | Path, *, algo: str | None = None, env_id: str | None = None
) -> tuple[list[Imported], list[str]]:
    """The configs in a file, of one environment or of all that it names, and the errors of those that failed."""
    name = algorithm_of(path, algo)
    document = read_zoo(path)
    if not document.tree:
        raise ConfigError(f"{document.source}: empty; expected environment ids with their hyperparameters")
    if env_id is not None:
        return [imported(document, _entry_for(document, env_id), env_id, name)], []
    ids = [key for key in document.tree if key not in FAMILIES]
    if not ids:
        raise ConfigError(
            f"{document.source}: names no environment, only {', '.join(document.tree)}; say which (--env)"
        )
    found: list[Imported] = []
    problems: list[str] = []
    for key in ids:
        try:
            found.append(imported(document, key, key, name))
        except ConfigError as error:
            problems.append(str(error))
    return found, problems


def _entry_for(document: Document, env_id: str) -> str:
    """The key of the entry that applies to an environment, found in the way the Zoo does."""
    tree = document.tree
    if env_id in tree and env_id not in FAMILIES:
        return env_id
    if "atari" in tree and ATARI.fullmatch(env_id):
        return "atari"
    if "default" in tree and env_id not in FAMILIES:
        return "default"
    names = [name for name in tree if name not in FAMILIES]
    raise ConfigError(
        f"{document.source}: no environment '{shown(env_id)}'{did_you_mean(env_id[:64], names)} (it has {_few(names)})"
    )


def _few(names: list[str]) -> str:
    return ", ".join(map(shown, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def imported(document: Document, entry: str, env_id: str, algo: str) -> Imported:
    """One entry as a config; ConfigError for a value that the Zoo would not accept either."""
    values = document.tree[entry]
    line = document.lines.get((entry,))
    place = f"{document.source}:{line}: {shown(entry)}" if line else f"{document.source}: {shown(entry)}"
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: expected hyperparameters, lines of 'key: value', got {shorten(values)}")
    result = Imported(env_id, algo, document.source)
    result.tree = {"version": CONFIG_VERSION, "algo": algo, "env_id": env_id}
    reader = EntryReader(result, {**DEFAULTS[algo], **values}, place)
    reader.read()
    for key in values:
        if key not in reader.seen:
            result.dropped.setdefault(shown(key), REASONS.get(key, f"{algo} has no counterpart here"))
    parse_config(result.tree, source=place)
    return result
