"""Builds environments from a name and a config: base, wrappers, space conversion, frame stack, episode log, vector.

The stack, inside out: the environment with its time limit, `env.wrappers` in order, `ConvertSpaces` and the action mask
where the spaces need them, `FrameStack` where asked for, `EpisodeLog`. Plain environments get only the last.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from rl_training.config.schema import EnvConfig, TrainConfig, WrapperConfig
from rl_training.envs import suites
from rl_training.envs.box2d import free_shapes
from rl_training.envs.calls import constructing
from rl_training.envs.episode_log import EpisodeLog
from rl_training.envs.games.seat import Seat
from rl_training.envs.games.turns import has_turns
from rl_training.envs.masks import with_action_mask
from rl_training.envs.multi_agent.build import cannot_render, host_team, joined
from rl_training.envs.multi_agent.sources import TeamSource
from rl_training.envs.preprocessing.atari import atari_entry
from rl_training.envs.preprocessing.rendering import prepare_rendering, with_real_frame_rate
from rl_training.envs.spaces import Space, convert_spaces, space_spec
from rl_training.envs.suites import Env
from rl_training.envs.vector.native import make_native
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.envs.wrappers import FrameStack
from rl_training.registry import (
    check_kwargs,
    import_own,
    import_plugins,
    is_jax_env,
    is_jax_team,
    parameters_of,
    wrappers,
)
from rl_training.runs.spaces import describe as describe_space
from rl_training.runs.spaces import fits
from rl_training.seeding import stream
from rl_training.system.error_text import describe
from rl_training.types import ConfigError, EnvError, RLTrainingError, StateDict

Vector = VectorEnv[Any, Any, Any]


@dataclass(frozen=True)
class EnvThunk:
    """Builds one environment of a run when called. Picklable if `env` is, so that workers can build it."""

    env: str | suites.Source
    """Name, Gymnasium spec, or a class or function that makes one."""
    cfg: EnvConfig = field(default_factory=EnvConfig)
    """Wrappers, keyword arguments and time limit."""
    seed: int = 0
    """Root seed of the run."""
    index: int = 0
    """Index among the environments of the run."""
    training: bool = True
    """False leaves out the train-only wrappers and seeds resets from a separate stream."""
    render_mode: str | None = None
    """Gymnasium render mode, such as "rgb_array"."""
    plugins: tuple[str, ...] = ()
    """Modules to import first, so that their environments are registered in worker processes too."""

    @property
    def name(self) -> str:
        """Name for messages."""
        return suites.name_of(self.env)

    def __call__(self) -> EpisodeLog:
        with constructing(self.index, self.name):
            return self._build()

    def _build(self) -> EpisodeLog:
        import_plugins(self.plugins)
        atari_entry(self.cfg)
        render_mode = self.render_mode or wanted_render_mode(self.cfg.wrappers)
        env = suites.make_replayable(build_base(self.env, self.cfg, render_mode))
        env = apply_wrappers(env, self.cfg.wrappers, training=self.training)
        env = with_action_mask(convert_spaces(env))
        if self.cfg.frame_stack > 1:
            env = FrameStack(env, self.cfg.frame_stack)
        seed = self.seed if self.training else evaluation_root(self.seed)
        strategy, reseed_steps = suites.strategy_of(env), suites.reseed_steps_of(env)
        return EpisodeLog(env, seed=seed, index=self.index, strategy=strategy, reseed_steps=reseed_steps)


def evaluation_root(seed: int) -> int:
    """Root seed for resets of an evaluation environment that get no explicit seed; independent of training's."""
    return int(stream(seed, "evaluation resets").integers(2**32))


def spec_text(env_id: str) -> str | None:
    """Gymnasium's record of a registered environment as JSON; None where there is none, or it cannot be written."""
    try:
        return gym.spec(env_id).to_json()
    except (gym.error.Error, TypeError, ValueError, ImportError):
        return None


# -- one environment --------------------------------------------------------------------------------------------------


def make_env(
    env: str | Callable[..., Any],
    cfg: EnvConfig | None = None,
    *,
    seed: int = 0,
    index: int = 0,
    training: bool = True,
    render_mode: str | None = None,
) -> Env:
    """One wrapped environment, as environment `index` of a run with this seed would be.

    `env` is a Gymnasium id, a registered name, "package.module:Class", or a class or function that makes one.
    """
    return EnvThunk(env, cfg or EnvConfig(), seed, index, training, render_mode)()


def build_base(env: str | suites.Source, cfg: EnvConfig, render_mode: str | None) -> Env:
    """The base environment with its time limit; any failure is raised as one ConfigError or EnvError."""
    name = suites.name_of(env)
    if render_mode is not None:
        prepare_rendering()
    source = suites.find(env)
    kwargs = dict(cfg.kwargs)
    if "max_episode_steps" in kwargs:
        raise ConfigError("env.kwargs: max_episode_steps does not belong here; set env.max_episode_steps")
    suite = suites.suite_of(source) if isinstance(source, EnvSpec) else None
    try:
        if suite is not None:
            suites.prepare(suite)
        with warnings.catch_warnings():
            # Box2D's import warns from C about SWIG's types; where warnings are errors, that crashes the interpreter
            warnings.filterwarnings("ignore", "builtin type .* has no __module__ attribute", DeprecationWarning)
            built = with_real_frame_rate(_build(source, name, kwargs, cfg, render_mode))
        free_shapes()
    except RLTrainingError:
        raise
    except (DependencyNotInstalled, ImportError) as error:
        raise suites.missing_extra(name, suite.extra if suite else None, error) from error
    except Exception as error:
        raise EnvError(f"environment '{name}' failed while it was built: {describe(error)}") from error
    if render_mode is not None and built.render_mode != render_mode:
        raise EnvError(
            f"environment '{name}' was asked for render_mode {render_mode!r} and has {built.render_mode!r}; "
            "give its class or function a `render_mode` parameter"
        )
    return built


def _build(source: suites.Source, name: str, kwargs: dict[str, Any], cfg: EnvConfig, render_mode: str | None) -> Env:
    max_episode_steps = cfg.max_episode_steps
    if isinstance(source, EnvSpec):
        entry_point = source.entry_point
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        if render_mode == "rgb_array":
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # renders off-screen: no display is needed
        check_kwargs(creator, {**source.kwargs, **kwargs}, f"environment '{name}'", "env.kwargs")
        made = gym.make(source, max_episode_steps, disable_env_checker=True, **kwargs)
        return joined(made, cfg, name) or made
    creator = source.signature if isinstance(source, TeamSource) else source
    if render_mode is not None and "render_mode" in (parameters_of(creator) or ()):
        kwargs["render_mode"] = render_mode
    check_kwargs(creator, kwargs, f"environment '{name}'", "env.kwargs")
    built = source(**kwargs)
    if is_jax_team(built):
        built = host_team(source, kwargs, name, render_mode, max_episode_steps)
    if has_turns(built):
        built = Seat(built, name)
    elif (team := joined(built, cfg, name)) is not None:
        return team
    if is_jax_env(built):
        max_episode_steps = built.max_episode_steps if max_episode_steps is None else max_episode_steps
        built = import_own("rl_training.jax.envs.gym_adapter:GymEnv", "adapter")(source, kwargs, render_mode)
        if render_mode is not None and built.render_mode is None:
            raise EnvError(cannot_render(name))
    if not isinstance(built, gym.Env):
        raise EnvError(
            f"environment '{name}' made a {type(built).__module__}.{type(built).__qualname__}, not a gymnasium.Env; "
            "derive your class from gymnasium.Env (the old `gym` package does not fit) or, for several agents, "
            "give it the methods of PettingZoo's ParallelEnv"
        )
    return built if max_episode_steps is None else TimeLimit(built, max_episode_steps)


# -- wrappers ---------------------------------------------------------------------------------------------------------


def apply_wrappers(env: Env, stack: Iterable[WrapperConfig], *, training: bool = True) -> Env:
    """The configured stack around `env`, innermost first; train-only ones are left out of evaluation."""
    for config in stack:
        if config.train_only and not training:
            continue
        env = _apply(env, config)
    return env


def wanted_render_mode(stack: Iterable[WrapperConfig]) -> str | None:
    """The render mode that a wrapper needs the environment to be built with; a class says so in `wants_render_mode`."""
    modes = (getattr(wrappers.get(config.name), "wants_render_mode", None) for config in stack)
    return next((mode for mode in modes if mode is not None), None)


def _apply(env: Env, config: WrapperConfig) -> Env:
    name = config.name
    wrapper = wrappers.get(name)
    if not callable(wrapper):
        raise ConfigError(f"wrapper '{name}' is a {type(wrapper).__name__}; it must be a class or a function")
    check_kwargs(wrapper, config.kwargs, f"wrapper '{name}'", "env.wrappers")
    try:
        wrapped = wrapper(env, **config.kwargs)
    except RLTrainingError:
        raise
    except Exception as error:
        raise EnvError(f"wrapper '{name}' failed around {env}: {describe(error)}") from error
    if not isinstance(wrapped, gym.Env):
        raise EnvError(f"wrapper '{name}' made a {type(wrapped).__qualname__}, not a gymnasium.Env")
    return wrapped


class EnvironmentFactory:
    """The same as `make_env`, in two steps, for environments built by hand."""

    @staticmethod
    def create_env(name: str | Callable[..., Any], config: EnvConfig | Mapping[str, Any] | None = None) -> Env:
        """The environment `name` as `config` describes it; a mapping has the keys of the `env:` section."""
        if not isinstance(config, EnvConfig):
            section = dict(config or {})
            section["wrappers"] = tuple(map(_as_wrapper, section.get("wrappers", ())))
            check_kwargs(EnvConfig, section, "an environment", "env")
            try:
                config = EnvConfig(**section)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"env: {error}") from error
        return make_env(name, config)

    @staticmethod
    def apply_wrappers(env: Env, wrapper_config: Iterable[str | Mapping[str, Any] | WrapperConfig]) -> Env:
        """The wrappers around `env`, innermost first: names, `{name:, kwargs:}` mappings or `WrapperConfig`s."""
        return apply_wrappers(env, map(_as_wrapper, wrapper_config))


def _as_wrapper(item: str | Mapping[str, Any] | WrapperConfig) -> WrapperConfig:
    if isinstance(item, WrapperConfig):
        return item
    fields = {"name": item} if isinstance(item, str) else dict(item)
    check_kwargs(WrapperConfig, fields, "a wrapper", "env.wrappers")
    if not isinstance(fields.get("name"), str):
        raise ConfigError(f"env.wrappers: a wrapper needs a name, not {item!r}")
    return WrapperConfig(**fields)


# -- many environments ------------------------------------------------------------------------------------------------


def make_vector_env(
    cfg: TrainConfig,
    num_envs: int | None = None,
    *,
    training: bool = True,
    env_fn: Callable[[], Env] | None = None,
    state: StateDict | None = None,
    render_mode: str | None = None,
    first_index: int = 0,
) -> Vector:
    """The vector environment of a run; `num_envs` None takes the config's. `first_index` is the index of its first
    environment among those of the run, where this is one of several that make them up.

    Everything returned has `state_dict()`, `load_state_dict(state)` and `exact`. With `state`, the first `reset()`
    continues the open episodes. Evaluation (`training=False`) of a native run uses sync environments, because each of
    its episodes needs its own seed.
    """
    num_envs = cfg.env.num_envs if num_envs is None else num_envs
    if num_envs < 1:
        raise ConfigError(f"num_envs must be at least 1, not {num_envs}")
    import_plugins(cfg.plugins)
    source = suites.find(env_fn if env_fn is not None else cfg.env_id)
    vectorization = cfg.env.vectorization
    if vectorization == "native" and training:
        vector: Any = make_native(source, cfg.env, num_envs, cfg.seed, render_mode)
    else:
        thunks = [
            EnvThunk(source, cfg.env, cfg.seed, index, training, render_mode, cfg.plugins)
            for index in range(first_index, first_index + num_envs)
        ]
        vector = _workers(thunks, cfg.env) if vectorization == "async" else ResumableSyncVectorEnv(thunks)
    if state is not None:
        vector.load_state_dict(state)
    return vector  # type: ignore[no-any-return]


def check_evaluation_spaces(cfg: TrainConfig, vector: Vector, env_fn: Callable[[], Env] | None = None) -> None:
    """Refuse a run whose evaluation would see other spaces than its training.

    They can differ where training uses a native vector environment or wrappers that evaluation leaves out; only then is
    an evaluation environment built and looked at.
    """
    if cfg.env.vectorization != "native" and not any(wrapper.train_only for wrapper in cfg.env.wrappers):
        return
    env = make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed, training=False)
    env.close()
    pairs: tuple[tuple[str, Space, Space], ...] = (
        ("observations", vector.single_observation_space, env.observation_space),
        ("actions", vector.single_action_space, env.action_space),
    )
    for what, training, evaluation in pairs:
        ours, theirs = space_spec(training), space_spec(evaluation)
        if fits(ours, theirs, bounds=what == "actions"):
            continue
        texts = (describe_space(ours), describe_space(theirs))
        one, other = texts if texts[0] != texts[1] else (str(training), str(evaluation))
        raise ConfigError(
            f"environment '{cfg.env_id}': {what} of training are {one}, those of evaluation {other}; make them the "
            "same (env.vectorization: sync, no train_only on wrappers that change spaces), or set "
            "training.num_eval_episodes: 0"
        )


def _workers(thunks: list[EnvThunk], cfg: EnvConfig) -> Vector:
    # imported lazily: worker processes import this module to build environments and need no vector environment
    from rl_training.envs.workers.vector import WorkerVectorEnv

    return WorkerVectorEnv(
        thunks, num_workers=cfg.num_workers, step_timeout=cfg.step_timeout, restart=cfg.worker_restart
    )
