"""Environment families: lookup by name, the extras they need, their versions, and how each one resumes.

`find` turns a name into something that can be built, or raises an error that suggests what to type instead.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, registry

from rl_training.envs.multi_agent.sources import TeamSource, source_of, team_ids
from rl_training.envs.preprocessing.rendering import prepare_rendering
from rl_training.registry import did_you_mean, environments
from rl_training.runs.names import env_fn_of
from rl_training.trust.consent import require
from rl_training.types import ConfigError, EnvError

Env = gym.Env[Any, Any]
Strategy = Literal["replay", "restart"]
"""replay: the open episode is stepped again, exactly. restart: it is dropped at resume, which is then not exact."""
Source = EnvSpec | Callable[..., Any]
"""What an environment is built from: a Gymnasium spec, or a class or function that makes one."""


@dataclass(frozen=True)
class Suite:
    """One family of Gymnasium environments."""

    name: str
    modules: tuple[str, ...]
    """Module prefixes of its entry points."""
    extra: str | None = None
    """Extra of this package that installs it; None if it needs none."""
    package: str | None = None
    """Import name of the library that the extra installs."""
    ids: str | None = None
    """Pattern of its ids, if they are registered only when `package` is imported."""
    keeps_old_versions: bool = False
    """Older versions stay usable, because published results name them."""
    render_extra: str | None = None
    """Extra that rendering needs."""
    reseed_steps: int = 0
    """Where seeding a reset is expensive: a reset is seeded only after that many steps since the last seeded one."""
    shown: str = ".*"
    """Pattern of the ids that are listed, where a suite registers thousands."""
    draws_with_gl: bool = False
    """Rendering needs OpenGL, whose library is chosen when the suite is imported."""


SUITES = (
    Suite("classic control", ("gymnasium.envs.classic_control",), render_extra="classic"),
    Suite("toy text", ("gymnasium.envs.toy_text",), render_extra="classic"),
    Suite("box2d", ("gymnasium.envs.box2d",), extra="box2d", package="Box2D", render_extra="box2d"),
    Suite(
        "mujoco",
        ("gymnasium.envs.mujoco",),
        extra="mujoco",
        package="mujoco",
        keeps_old_versions=True,
        draws_with_gl=True,
    ),
    Suite(
        "atari",
        ("ale_py",),
        extra="atari",
        package="ale_py",
        ids=r"ALE/.*|\w+(NoFrameskip|Deterministic)-v\d+",
        keeps_old_versions=True,
        reseed_steps=10_000,  # a seeded reset reloads the ROM: 0.1 s, against some 8 s for as many steps
    ),
    Suite("dm_control", ("shimmy",), extra="dm-control", package="shimmy", ids=r"dm_control/.*", draws_with_gl=True),
    Suite("minigrid", ("minigrid",), extra="minigrid", package="minigrid", ids=r"(MiniGrid|BabyAI)-.*"),
    Suite(
        "level-based foraging",
        ("lbforaging",),
        extra="multi-agent",
        package="lbforaging",
        ids=r"Foraging-.*",
        shown=r"Foraging(-coop)?-8x8-[23]p-[123]f-v3",  # of some 2,000: any size, players, food and sight
    ),
    Suite("games", ("rl_training.envs.games",)),
    Suite("jax", ("gymnasium.envs.phys2d", "gymnasium.envs.tabular"), extra="jax", package="jax"),
    Suite(
        "probes",
        tuple(f"rl_training.envs.probes.{name}" for name in ("catch", "control", "exploration", "goals", "memory")),
    ),
)

TEAMS = "several agents"
"""Heading of the environments of several agents whose names are those of modules."""
ADAPTERS = frozenset({"GymV21Environment-v0", "GymV26Environment-v0", "dm_control/compatibility-env-v0"})
"""Ids of shimmy that stand for no environment but take one."""
# Gymnasium's own wrappers that carry state over a reset: a replay of the open episode cannot rebuild them
STATEFUL_WRAPPERS = frozenset({"NormalizeObservation", "NormalizeReward"})


# -- from a name to a source ------------------------------------------------------------------------------------------


def find(env: str | Source) -> Source:
    """The source behind a registered name, "package.module:Class", or Gymnasium id; anything else passes through."""
    if not isinstance(env, str):
        return env
    if (name := env_fn_of(env)) is not None:
        raise ConfigError(
            f"environment '{env}' was made by the function '{name}', which cannot be stored in a file; pass it again "
            "from Python, as env_fn=... of train, resume or evaluate"
        )
    if environments.is_builtin(env) and importlib.util.find_spec("jax") is None:
        raise missing_extra(env, "jax", ImportError("No module named 'jax'"))
    if env in environments:
        return _callable(environments.get(env), env)
    if (team := source_of(env)) is not None:
        return team
    module, _, name = env.rpartition(":")
    if module and _split(name)[1] is None:
        return _callable(environments.get(env), env)
    if module:
        _import_for(env, module)
    return find_spec(name)


def _callable(value: Any, name: str) -> Callable[..., Any]:
    if not callable(value):
        raise ConfigError(f"environment '{name}' is a {type(value).__name__}, not a class or a function that makes one")
    return value  # type: ignore[no-any-return]


def _import_for(env: str, module: str) -> None:
    require("environment", env)
    try:
        importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # the last two: relative names, names with odd characters
        raise ConfigError(f"environment '{env}': cannot import '{module}' ({error}); is it on PYTHONPATH?") from error


def find_spec(env_id: str) -> EnvSpec:
    """The Gymnasium spec of an id, ready for `gymnasium.make`; ConfigError for old versions and misspelt ids."""
    if env_id not in registry:
        _register_suite_of(env_id)
    spec = registry.get(env_id)
    newest = _newest_version(env_id)
    if spec is None or (newest is not None and _is_removed(spec)):
        raise _unknown(env_id, newest)
    suite = suite_of(spec)
    if not is_built_in(spec):
        require("environment", env_id)
    if newest is not None and not (suite and suite.keeps_old_versions):
        raise ConfigError(f"environment '{env_id}' is an old version; use '{newest.id}'{_limit_hint(spec, newest)}")
    spec = copy.copy(spec)
    spec.order_enforce = False  # EpisodeLog refuses a step without a reset: one layer less
    return spec


def _is_removed(spec: EnvSpec) -> bool:
    """Whether Gymnasium has removed the environment: it keeps the id, with an entry point that only raises."""
    return callable(spec.entry_point) and getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _register_suite_of(env_id: str) -> None:
    """Import the package that registers ids of this form; ConfigError with the pip command if it is missing."""
    for suite in SUITES:
        if suite.ids is not None and re.fullmatch(suite.ids, env_id):
            try:
                _register(suite)
            except ImportError as error:
                raise missing_extra(env_id, suite.extra, error) from error


def _register(suite: Suite) -> None:
    """Import the package of a suite, which registers its ids."""
    assert suite.package is not None
    prepare(suite)
    gym.register_envs(importlib.import_module(suite.package))


def prepare(suite: Suite) -> None:
    """Set up the library of a suite before its first use: how MuJoCo renders, and that ALE prints no banner."""
    if suite.draws_with_gl:
        prepare_rendering()
    if suite.package == "ale_py":
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _split(env_id: str) -> tuple[str, int | None]:
    """Split an id into name and version: ("CartPole", 1) for "CartPole-v1"; the version may be None."""
    name, dash, version = env_id.rpartition("-v")
    return (name, int(version)) if dash and re.fullmatch("[0-9]{1,9}", version) else (env_id, None)


def _newest_version(env_id: str) -> EnvSpec | None:
    """The spec that replaced this one, or None if there is no newer version."""
    name, version = _split(env_id)
    newer = [spec for spec in registry.values() if _split(spec.id)[0] == name and spec.version is not None]
    newest = max(newer, key=lambda spec: spec.version or 0, default=None)
    if newest is None or version is None or version >= (newest.version or 0):
        return None
    return newest


def _unknown(env_id: str, newest: EnvSpec | None) -> ConfigError:
    if newest is not None:
        return ConfigError(f"environment '{env_id}' is an old version that was removed; use '{newest.id}'")
    known = [*_newest_ids(), *environments.names()]
    lowered = {name.lower(): name for name in known}
    close = lowered.get(env_id.lower()) or lowered.get(env_id.lower() + "-v0")
    same_name = [name for name in known if _split(name)[0].lower() == _split(env_id)[0].lower()]
    if close or same_name:
        hint = f"; did you mean '{close or same_name[-1]}'?"
    else:
        hint = did_you_mean(env_id, known)
    return ConfigError(
        f"unknown environment '{env_id}'{hint} (`rl envs` lists them; your own: 'package.module:Class', "
        "or an id that a module in `plugins:` registers)"
    )


def _limit_hint(old: EnvSpec, new: EnvSpec) -> str:
    if old.max_episode_steps in (None, new.max_episode_steps):
        return ""
    return f" (with env.max_episode_steps: {old.max_episode_steps} for the old limit)"


# -- properties of a source -------------------------------------------------------------------------------------------


def name_of(env: str | Source) -> str:
    """Name of an environment for messages."""
    if isinstance(env, str):
        return env
    if isinstance(env, EnvSpec):
        return env.id
    if isinstance(env, TeamSource):
        return env.name
    return getattr(env, "__qualname__", None) or type(env).__qualname__


def suite_of(spec: EnvSpec) -> Suite | None:
    """The suite that a spec belongs to, by its entry point."""
    return next((suite for suite in SUITES if _module_of(spec.entry_point).startswith(suite.modules)), None)


def _module_of(entry_point: Any) -> str:
    """The module that defines an entry point, which is text, a function, or a `partial` of a function."""
    if isinstance(entry_point, str):
        return entry_point
    function = entry_point.func if isinstance(entry_point, partial) else entry_point
    return str(getattr(function, "__module__", ""))


def is_built_in(spec: EnvSpec) -> bool:
    """Whether a spec is one that Gymnasium, an extra of this package or the package itself registers."""
    suite = suite_of(spec)
    if suite is None or (suite.ids is not None and not re.fullmatch(suite.ids, spec.id)):
        return False
    modules = [_module_of(point) for point in (spec.entry_point, spec.vector_entry_point) if point]
    return all(re.match(rf"({'|'.join(map(re.escape, suite.modules))})([.:]|$)", module) for module in modules)


def missing_extra(env_id: str, extra: str | None, error: BaseException) -> ConfigError:
    """ConfigError for an environment whose library is not installed, with the pip command."""
    if extra is None:
        return ConfigError(f"environment '{env_id}' needs a library that is not installed: {error}")
    return ConfigError(f"environment '{env_id}' needs an extra: pip install 'rl-training[{extra}]' ({error})")


def render_error(env: Env, error: BaseException) -> ConfigError:
    """ConfigError for an environment that cannot render, with the pip command."""
    spec = env.unwrapped.spec
    suite = suite_of(spec) if spec else None
    extra = suite.render_extra if suite else None
    cure = f"pip install 'rl-training[{extra}]'" if extra else "install it"
    return ConfigError(f"rendering {spec.id if spec else env} needs a library that is missing: {cure} ({error})")


def strategy_of(env: Env) -> Strategy:
    """How this stack resumes: restart if any layer declares it, replay otherwise.

    An environment or wrapper declares it with a class attribute `resume_strategy = "restart"`, Gymnasium with
    `nondeterministic=True` in the spec.
    """
    layer: Any = env
    while True:
        declared = getattr(layer, "resume_strategy", "replay")
        if declared not in ("replay", "restart"):
            raise EnvError(f"{type(layer).__name__}.resume_strategy is {declared!r}; it must be 'replay' or 'restart'")
        if declared == "restart" or type(layer).__name__ in STATEFUL_WRAPPERS:
            return "restart"
        if not isinstance(layer, gym.Wrapper):
            break
        layer = layer.env
    return "restart" if layer.spec is not None and layer.spec.nondeterministic else "replay"


def reseed_steps_of(env: Env) -> int:
    """Steps from one seeded reset to the next; 0 where every reset is seeded."""
    spec = env.unwrapped.spec
    suite = suite_of(spec) if spec else None
    return suite.reseed_steps if suite else 0


class FreshWorld(gym.Wrapper[Any, Any, Any, Any]):
    """A new physics world before each reset.

    BipedalWalker reuses one b2World, and the order of its freed contacts affects the next episode: the same seed and
    actions then give different bits. With a new world an episode depends on its seed and actions alone.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        walker: Any = self.unwrapped
        walker._destroy()
        walker.world = type(walker.world)()
        return self.env.reset(seed=seed, options=options)


def make_replayable(env: Env) -> Env:
    """Wrap environments whose episodes are known to depend on more than their seed and actions."""
    kind = type(env.unwrapped)
    if kind.__module__ == "gymnasium.envs.box2d.bipedal_walker" and kind.__name__ == "BipedalWalker":
        return FreshWorld(env)
    return env


# -- listing ----------------------------------------------------------------------------------------------------------


def _newest_ids() -> list[str]:
    newest: dict[str, int] = {}
    for spec in registry.values():
        newest[_split(spec.id)[0]] = max(newest.get(_split(spec.id)[0], -1), spec.version or 0)

    def is_newest(spec: EnvSpec) -> bool:
        name, version = _split(spec.id)
        return version is None or version >= newest[name]

    return sorted(spec.id for spec in registry.values() if is_newest(spec) and not _is_removed(spec))


@dataclass(frozen=True)
class SuiteListing:
    """One suite for `rl envs`: its ids and, if its library is missing, the extra that installs it."""

    name: str
    ids: tuple[str, ...]
    missing_extra: str | None = None


def reward_threshold(env_id: str) -> float | None:
    """The mean return at which Gymnasium calls an environment solved; None if it is not registered or has none.

    Reads the registry only and imports nothing, not even for "module:Name-v0".
    """
    spec = registry.get(env_id.rpartition(":")[2])
    threshold = spec.reward_threshold if spec is not None else None
    return None if threshold is None else float(threshold)


def _is_installed(suite: Suite) -> bool:
    return suite.package is not None and importlib.util.find_spec(suite.package) is not None


def list_envs() -> list[SuiteListing]:
    """Every known id by suite, newest versions only, the user's registered ones last.

    Suites whose ids are known only when they are imported are imported, where they are installed.
    """
    missing = {suite.name: suite.extra for suite in SUITES if suite.package is not None and not _is_installed(suite)}
    for suite in SUITES:
        if suite.ids is not None and suite.name not in missing:
            _register(suite)
    by_suite: dict[str, list[str]] = {suite.name: [] for suite in SUITES}
    by_suite[TEAMS] = team_ids()
    if importlib.util.find_spec("mpe2") is None:
        missing[TEAMS] = "multi-agent"
    by_suite["registered"] = []
    for name in environments.names():
        by_suite["jax" if environments.is_builtin(name) else "registered"].append(name)
    for env_id in _newest_ids():
        family = suite_of(registry[env_id])
        if env_id not in ADAPTERS and (family is None or re.fullmatch(family.shown, env_id)):
            by_suite[family.name if family else "registered"].append(env_id)
    return [
        SuiteListing(name, tuple(ids), missing.get(name)) for name, ids in by_suite.items() if ids or name in missing
    ]
