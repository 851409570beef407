"""One small registry, an instance per kind of part: how a name in a config becomes an object.

A name is a built-in ("ppo"), something a user registered with a decorator, or a dotted path "package.module:attr".
Built-ins are listed as dotted paths too, so that listing and suggesting names imports nothing.

Everything that a config names is imported here or in `envs/suites.py`, behind the gate of `consent`: where a config was
found on a disk and nobody has agreed to its code, only built-in parts and those of installed plugins can be had.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from rl_training.trust.consent import require
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


MOVED = {
    "rl_training.callbacks": "rl_training.training.callbacks",
    "rl_training.debugging": "rl_training.monitoring.debug_mode",
    "rl_training.monitoring": "rl_training.monitoring.alerts",
    "rl_training.logging": "rl_training.logging.logger",
    "rl_training.tensorboard": "rl_training.logging.tensorboard",
    "rl_training.wandb_sink": "rl_training.logging.wandb_sink",
    "rl_training.models.backbones": "rl_training.models.backbones.mlp",
    "rl_training.envs.goal_probes": "rl_training.envs.probes.goals",
    "rl_training.jax.nets": "rl_training.jax.models.networks",
}
"""Modules of version 0.1.0 that hold parts which a config can name, and where those parts are now."""


def present_path(path: str) -> str:
    """The dotted path under which a part of the package is found today; other paths stay as they are.

    >>> present_path("rl_training.tensorboard:TensorBoardSink")
    'rl_training.logging.tensorboard:TensorBoardSink'
    """
    module, separator, attr = path.partition(":")
    return MOVED.get(module, module) + separator + attr


def import_attr(path: str, what: str) -> Any:
    """The attribute behind "package.module:attr" that a config names, if its code may run here.

    Only ever called when something is built, never when it is listed.
    """
    require(what, path)
    return import_own(path, what)


def import_own(path: str, what: str) -> Any:
    """The same for a path that stands in code: in the package, or in what a registered part says of itself. There is no
    gate in front of it, so it must never be given text from a config."""
    module_name, _, attr = present_path(path).partition(":")
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


def installed_plugins() -> tuple[EntryPoint, ...]:
    """What installed packages offer; nothing is imported."""
    return _offered(tuple(sys.path))


@cache  # a look at every installed package takes milliseconds, and each environment of a run asks
def _offered(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points

    return tuple(entry_points(group=PLUGIN_GROUP))


def import_plugins(modules: Iterable[str]) -> None:
    """Import the modules whose decorators register parts, and those that installed packages offer as entry points."""
    for entry in installed_plugins():
        try:
            entry.load()
        except (ImportError, AttributeError) as error:
            package = entry.dist.name if entry.dist else "an installed package"
            raise ConfigError(
                f"{package} offers the plugin '{entry.name}', but '{entry.value}' cannot be imported ({error}); "
                "mend or uninstall that package"
            ) from error
    for module in modules:
        require("plugins", module)
        try:
            importlib.import_module(module)
        except (ImportError, TypeError, ValueError) as error:  # the last two: relative names, names with odd characters
            cure = "list the module alone" if ":" in module else "is it on PYTHONPATH?"
            raise ConfigError(f"plugins: cannot import '{module}' ({error}); {cure}") from error


# -- building a part, with messages for its author --------------------------------------------------------------------


def parameters_of(creator: Any) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of a class or function; None where Python cannot tell."""
    try:
        return inspect.signature(creator).parameters
    except (TypeError, ValueError):
        return None


def check_kwargs(creator: Any, kwargs: Mapping[str, Any], what: str, where: str) -> None:
    """Refuse arguments that `creator` does not take, before it runs."""
    parameters = parameters_of(creator)
    if parameters is None or any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in kwargs:
        if key not in parameters:
            takes = ", ".join(parameters) or "none"
            raise ConfigError(f"{where}: {what} takes no '{key}'{did_you_mean(key, parameters)} (it takes: {takes})")


def check_call(
    creator: Any, what: str, arguments: Mapping[str, Any] | None = None, kwargs: Mapping[str, Any] | None = None
) -> None:
    """Refuse to call `creator` with positional `arguments` (their keys are what the docs call them) and `kwargs`."""
    arguments, kwargs = arguments or {}, kwargs or {}
    if not callable(creator):
        raise ConfigError(f"{what} is a {type(creator).__name__}; it must be a class or a function that makes one")
    if parameters_of(creator) is None:
        return
    try:
        inspect.signature(creator).bind(*arguments.values(), **kwargs)
    except TypeError as error:
        given = ", ".join([*arguments, *(f"{key}=" for key in kwargs)])
        raise ConfigError(f"{what} is called with ({given}) and does not take that: {error}") from None


def check_methods(part: Any, methods: Iterable[str], what: str, cure: str) -> None:
    """Refuse a part that lacks one of the methods it will be asked for."""
    for method in methods:
        if not callable(getattr(part, method, None)):
            raise ConfigError(f"{what} has no {method}(); {cure}")


def is_jax_env(value: Any) -> bool:
    """Whether a class or an object is an environment of the JAX lane, not Gymnasium's: it has `init`, `obs`, `step`."""
    return all(callable(getattr(value, method, None)) for method in ("init", "obs", "step"))


def is_jax_team(value: Any) -> bool:
    """Whether such a class or object has several agents: it says who they are, or what their critics see."""
    return is_jax_env(value) and (hasattr(value, "agents") or callable(getattr(value, "critic_state", None)))


def _same(known: Any, value: Any) -> bool:
    """Whether two objects are one piece of code, imported twice: reloaded, or as a script and as a module."""
    if known is value:
        return True
    modules = {getattr(known, "__module__", None), getattr(value, "__module__", None)}
    same_name = getattr(known, "__qualname__", 0) == getattr(value, "__qualname__", 1)
    return same_name and (len(modules) == 1 or "__main__" in modules)


def _installed_packages() -> set[str]:
    """Packages that offer plugins as entry points: installing one is agreeing to its code."""
    return {entry.value.partition(":")[0].split(".")[0] for entry in installed_plugins()}


def _calling_module() -> str:
    """The module from which this one was called."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


class Registry:
    """Names to objects of one kind. Values may be dotted paths, resolved when first asked for.

    `aliases` are second names of built-in parts; a config is read with the first.
    """

    def __init__(
        self, kind: str, builtin: dict[str, str] | None = None, aliases: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.aliases: Mapping[str, str] = dict(aliases or {})
        self._entries: dict[str, Any] = dict(builtin or {})
        self._builtin = frozenset(self._entries)
        self._paths = frozenset(self._entries.values())
        """The dotted paths of the built-in ones, which a config may spell out."""
        self._registered_by: dict[str, str] = {}
        """Names to the modules that registered them."""

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@algorithms.register("mine")`. Registering the same object twice is fine, another one is not."""

        def decorate(value: T) -> T:
            self.add(name, value)
            return value

        return decorate

    def add(self, name: str, value: Any) -> None:
        known = self._entries.get(self.aliases.get(name, name))
        if known is not None and not _same(known, value):
            raise ConfigError(f"{self.kind} '{name}' is already registered; choose another name")
        self._entries[name] = value
        self._registered_by.setdefault(name, _calling_module())

    @contextmanager
    def override(self, name: str, value: Any) -> Iterator[None]:
        """Inside, `name` stands for `value` instead of what is registered, to try a part without registering it."""
        before = dict(self._entries)
        self._entries[name] = value
        try:
            yield
        finally:
            self._entries = before

    def names(self) -> list[str]:
        return sorted(self._entries)

    def is_builtin(self, name: str) -> bool:
        return name in self._builtin

    def is_foreign(self, name: str) -> bool:
        """Whether a name stands for code that is neither the package's own nor an installed plugin's; unknown names do
        not stand for anything."""
        if name in self._builtin:
            return False
        if name in self._entries:
            return self._registered_by.get(name, "").split(".")[0] not in _installed_packages()
        return ":" in name and present_path(name) not in self._paths

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> Any:
        """The object: from the table, or imported when `name` is a dotted path; TrustError where it may not run."""
        if self.is_foreign(name):
            require(self.kind, name)
        if name in self._entries:
            value = self._entries[name]
            if isinstance(value, str):
                value = import_own(value, self.kind)
                self._entries[name] = value
            return value
        if ":" in name:
            return import_own(name, self.kind)
        raise ConfigError(
            f"unknown {self.kind} '{name}'{did_you_mean(name, self._entries)} "
            f"({self.known()}your own: 'package.module:Name' or a module in `plugins:`)"
        )

    def known(self) -> str:
        """ "known: a, b; " for messages, or an empty string where nothing is registered."""
        return f"known: {', '.join(self.names())}; " if self._entries else ""


class RuleRegistry(Registry):
    """Rules of games: built-in ones by name, functions of yours as "rule:package.module:function"."""

    PREFIX = "rule:"

    def is_foreign(self, name: str) -> bool:
        return super().is_foreign(name.removeprefix(self.PREFIX))

    def is_rule(self, name: str) -> bool:
        """Whether a text names a rule: a registered one, or one of yours."""
        return name in self or name.startswith(self.PREFIX)

    def get(self, name: str) -> Any:
        if not self.is_rule(name):
            raise ConfigError(
                f"unknown rule '{name}'{did_you_mean(name, self.names())} ({self.known()}your own: "
                "'rule:package.module:function')"
            )
        return super().get(name.removeprefix(self.PREFIX))


class RegistryView(Mapping[str, Any]):
    """A registry as a read-only mapping: names to parts, each imported when it is first asked for.

    Iteration, `len` and `in` import nothing. New entries come through `register`, not through the view.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getitem__(self, name: str) -> Any:
        if name not in self._registry:
            known = self._registry.names()
            raise KeyError(f"unknown {self._registry.kind} '{name}'{did_you_mean(name, known)}")
        return self._registry.get(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._registry

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.names())

    def __len__(self) -> int:
        return len(self._registry.names())

    def __repr__(self) -> str:
        return f"<{len(self)} of kind {self._registry.kind}: {', '.join(self)}>"


ALGORITHMS = (
    *("random", "constant", "reinforce", "a2c", "impala", "ppo", "pqn", "dqn", "ddpg", "td3", "sac", "crossq"),
    *("pets", "mbpo", "dreamer", "planet", "dynamics"),
    *("bc", "td3_bc", "iql", "cql", "rebrac", "awac", "dt"),
    *("ippo", "mappo", "vdn", "qmix", "pqn_vdn"),
)
algorithms = Registry(
    "algorithm",
    {name: f"rl_training.hparams.{name}:SPEC" for name in ALGORITHMS},
)
COMPOSED_NETWORKS = ("lstm", "rnn", "transformer", "nature", "small", "impala", "grid")
"""Shorthand types of composed backbones; both backends build them from encoder, layers and memory."""
networks = Registry(
    "network",
    {
        "mlp": "rl_training.models.backbones.mlp:MLP",
        **{name: f"rl_training.jax.models.networks:{name}" for name in ("cnn", "gru")},  # torch builds them by name
        **dict.fromkeys(COMPOSED_NETWORKS, "rl_training.models.backbones.composed:Backbone"),
    },
)


def networks_for(backend: str) -> str:
    """What `network.actor.type` can be with a backend, in words for messages."""
    own = "'package.module:function'" if backend == "jax" else "'package.module:Class'"
    return f"backend {backend} has: {', '.join(networks.names())}; your own: {own}"


environments = Registry(
    "environment",
    {  # written in JAX; the host lane steps them through an adapter
        "RLJax/Catch-v0": "rl_training.jax.envs.catch:Catch",
        "RLJax/FourRooms-v0": "rl_training.jax.envs.four_rooms:FourRooms",
        "RLJax/DeepSea-v0": "rl_training.jax.envs.deep_sea:DeepSea",
    },
)
rules = RuleRegistry(
    "rule",
    {
        name: f"rl_training.envs.games.rules:{name}"
        for name in ("random", "perfect_tictactoe", "careless_tictactoe", "connect_four_lookahead")
    },
)
wrappers = Registry(
    "wrapper",
    {
        "action_mask": "rl_training.envs.masks:ActionMask",
        "action_repeat": "rl_training.envs.preprocessing.action_repeat:ActionRepeat",
        "atari": "rl_training.envs.preprocessing.atari:Atari",
        "clip_action": "gymnasium.wrappers:ClipAction",
        "clip_reward": "rl_training.envs.wrappers:clip_reward",
        "dm_control": "gymnasium.wrappers:FlattenObservation",
        "episode_statistics": "gymnasium.wrappers:RecordEpisodeStatistics",
        "flatten_observation": "gymnasium.wrappers:FlattenObservation",
        "frame_stack": "rl_training.envs.wrappers:FrameStack",
        "minigrid": "rl_training.envs.preprocessing.minigrid:MiniGrid",
        "normalize_obs": "rl_training.envs.wrappers:NormalizeObservations",
        "normalize_reward": "rl_training.envs.wrappers:NormalizeRewards",
        "pixels": "rl_training.envs.preprocessing.pixels:Pixels",
        "rescale_action": "rl_training.envs.wrappers:rescale_action",
        "scale_reward": "rl_training.envs.wrappers:scale_reward",
        "select_observation": "rl_training.envs.preprocessing.partial:SelectObservation",
        "sticky_action": "gymnasium.wrappers:StickyAction",
        "time_aware": "gymnasium.wrappers:TimeAwareObservation",
        "time_limit": "gymnasium.wrappers:TimeLimit",
    },
)
buffers = Registry(
    "buffer",
    {
        "rollout": "rl_training.data.rollout_buffer:RolloutBuffer",
        "replay": "rl_training.data.replay_buffer:ReplayBuffer",
        "prioritized": "rl_training.data.prioritized:PrioritizedReplayBuffer",
        "frames": "rl_training.data.frame_buffer:FrameReplayBuffer",
        "her": "rl_training.data.her:HindsightReplayBuffer",
        "episode": "rl_training.data.episode_buffer:EpisodeBuffer",
    },
    aliases={"trajectory": "rollout", "uniform": "replay"},
)
loggers = Registry(
    "logger",
    {
        "jsonl": "rl_training.logging.logger:JsonlSink",
        "console": "rl_training.logging.logger:ConsoleSink",
        "tensorboard": "rl_training.logging.tensorboard:TensorBoardSink",
        "wandb": "rl_training.logging.wandb_sink:WandbSink",
    },
)
callbacks = Registry("callback")
optimizers = Registry(
    "optimizer",
    {
        "adam": "rl_training.models.optimization:Adam",
        "adamw": "torch.optim:AdamW",
        "laprop": "rl_training.models.laprop:LaProp",
        "rmsprop": "torch.optim:RMSprop",
    },
)
OPTAX_NAMES = ("adamw", "rmsprop")
"""Names that stand for the optax function of that name with backend jax."""
dynamics = Registry(
    "dynamics",
    {
        "rssm": "rl_training.dynamics.rssm:RSSM",
        "deterministic": "rl_training.dynamics.deterministic:Deterministic",
        "stochastic": "rl_training.dynamics.stochastic:Stochastic",
        "ensemble": "rl_training.dynamics.ensemble:Ensemble",
    },
)
executors = Registry(
    "executor",
    {
        "local": "rl_training.distributed.local_executor:LocalExecutor",
        "threads": "rl_training.experiments.launching.member_threads:ThreadExecutor",
        "slurm": "rl_training.distributed.slurm_executor:SlurmExecutor",
        "ray": "rl_training.distributed.ray_executor:RayExecutor",
    },
)

register_algorithm = algorithms.register
register_network = networks.register
register_environment = environments.register
register_wrapper = wrappers.register
register_buffer = buffers.register
register_logger = loggers.register
register_callback = callbacks.register
register_optimizer = optimizers.register
register_dynamics = dynamics.register
register_executor = executors.register

ALGORITHM_REGISTRY = RegistryView(algorithms)
"""Algorithm names to their `AlgorithmSpec`."""
NETWORK_REGISTRY = RegistryView(networks)
"""Backbone names to their classes; those of JAX alone are functions."""
ENVIRONMENT_REGISTRY = RegistryView(environments)
"""Environments registered here by name. Gymnasium's own ids are not in it: see `rl_training.envs.list_envs`."""
