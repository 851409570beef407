"""One small registry, five instances: how a name in a config becomes an object.

A name is a built-in ("ppo"), something a user registered with a decorator, or a dotted path "package.module:attr".
Built-ins are listed as dotted paths too, so that listing and suggesting names imports nothing.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rl_training.types import ConfigError

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def import_attr(path: str, what: str) -> Any:
    """The attribute behind "package.module:attr". Only ever called when something is built, never when it is listed."""
    module_name, _, attr = path.partition(":")
    if not module_name or not attr or module_name.startswith("."):
        raise ConfigError(f"{what} '{path}' is not of the form 'package.module:Name'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{what} '{path}': cannot import '{module_name}' ({error}); is it on PYTHONPATH?") from error
    try:
        return getattr(module, attr)
    except AttributeError:
        raise ConfigError(
            f"{what} '{path}': '{module_name}' has no '{attr}'{did_you_mean(attr, dir(module))}"
        ) from None


PLUGIN_GROUP = "rl_training.plugins"
"""Entry-point group through which an installed package offers its parts."""


def plugins_are_installed() -> bool:
    """Whether any installed package offers parts; nothing is imported."""
    from importlib.metadata import entry_points

    return bool(entry_points(group=PLUGIN_GROUP))


def import_plugins(modules: Iterable[str]) -> None:
    """Import the modules whose decorators register parts, and those that installed packages offer as entry points."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=PLUGIN_GROUP):
        entry.load()
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(f"plugins: cannot import '{module}' ({error}); is it on PYTHONPATH?") from error


class Registry:
    """Names to objects of one kind. Values may be dotted paths, resolved when first asked for."""

    def __init__(self, kind: str, builtin: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(builtin or {})
        self._builtin = frozenset(self._entries)

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@algorithms.register("mine")`. Registering the same object twice is fine, another one is not."""

        def decorate(value: T) -> T:
            self.add(name, value)
            return value

        return decorate

    def add(self, name: str, value: Any) -> None:
        known = self._entries.get(name)
        same = known is value or (getattr(known, "__qualname__", 0) == getattr(value, "__qualname__", 1))
        if known is not None and not same:
            raise ConfigError(f"{self.kind} '{name}' is already registered; choose another name")
        self._entries[name] = value

    def names(self) -> list[str]:
        return sorted(self._entries)

    def is_builtin(self, name: str) -> bool:
        return name in self._builtin

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> Any:
        """The object: from the table, or imported when `name` is a dotted path."""
        if name in self._entries:
            value = self._entries[name]
            if isinstance(value, str):
                value = import_attr(value, self.kind)
                self._entries[name] = value
            return value
        if ":" in name:
            return import_attr(name, self.kind)
        raise ConfigError(
            f"unknown {self.kind} '{name}'{did_you_mean(name, self._entries)} "
            f"(known: {', '.join(self.names())}; your own: 'package.module:Name' or a module in `plugins:`)"
        )


algorithms = Registry(
    "algorithm",
    {name: f"rl_training.hparams.{name}:SPEC" for name in ("random", "constant", "reinforce", "a2c", "ppo")},
)
networks = Registry("network", {"mlp": "rl_training.models.backbones:MLP"})
environments = Registry("environment")
buffers = Registry(
    "buffer",
    {
        "rollout": "rl_training.data.rollout_buffer:RolloutBuffer",
        "replay": "rl_training.data.replay_buffer:ReplayBuffer",
        "episode": "rl_training.data.episode_buffer:EpisodeBuffer",
    },
)
loggers = Registry(
    "logger",
    {
        "jsonl": "rl_training.logging:JsonlSink",
        "console": "rl_training.logging:ConsoleSink",
        "tensorboard": "rl_training.tensorboard:TensorBoardSink",
        "wandb": "rl_training.wandb_sink:WandbSink",
    },
)

register_algorithm = algorithms.register
register_network = networks.register
register_environment = environments.register
register_buffer = buffers.register
register_logger = loggers.register
