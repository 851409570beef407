"""JAX environments: `find` says whether an id has one, `make` builds it; see the README of this folder.

Those of several agents have their own table, `TEAM_TWINS`, and `find_team` and `make_team`. Importing this module does
not import jax: environments are imported lazily, when they are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rl_training.registry import (
    check_call,
    check_kwargs,
    did_you_mean,
    environments,
    import_own,
    is_jax_env,
    is_jax_team,
    parameters_of,
)
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from rl_training.jax.types import JaxEnv, JaxTeamEnv


class EnvEntry(NamedTuple):
    """The creator of an environment, as a registered name or "package.module:Class", and the arguments of the id."""

    creator: str
    kwargs: Mapping[str, Any] = {}


def _ours(path: str, **kwargs: Any) -> EnvEntry:
    return EnvEntry(f"rl_training.jax.envs.{path}", kwargs)


TWINS = {
    "CartPole-v1": _ours("cartpole:CartPole"),
    "Acrobot-v1": _ours("acrobot:Acrobot"),
    "MountainCar-v0": _ours("mountain_car:MountainCar"),
    "MountainCarContinuous-v0": _ours("mountain_car:MountainCarContinuous"),
    "Pendulum-v1": _ours("pendulum:Pendulum"),
    "RLProbe/ConstantReward-v0": _ours("probes:ConstantReward"),
    "RLProbe/RewardIsObs-v0": _ours("probes:RewardIsObs"),
    "RLProbe/TwoSteps-v0": _ours("probes:Chain", length=2),
    "RLProbe/Chain-v0": _ours("probes:Chain", length=5),
    "RLProbe/OneState-v0": _ours("probes:OneState"),
    "RLProbe/Counting-v0": _ours("probes:Counting"),
    "RLProbe/TwoArms-v0": _ours("probes:TwoArms"),
    "RLProbe/SoftBandit-v0": _ours("probes:TwoArms"),
    "RLProbe/ObsTimesAction-v0": _ours("probes:ObsTimesAction"),
    "RLProbe/StaySwitch-v0": _ours("probes:StaySwitch"),
    "RLProbe/CueMemory-v0": _ours("probes:CueMemory"),
    "RLProbe/Catch-v0": _ours("catch:Catch"),
    "RLProbe/DeepSea-v0": _ours("deep_sea:DeepSea"),
    "RLProbe/HiddenCue-v0": _ours("probes:HiddenCue"),
    "RLProbe/MaskedArms-v0": _ours("probes:MaskedArms"),
    "RLProbe/MultiDiscrete-v0": _ours("probes:Combination", target=(1, 2), nvec=(2, 3)),
    "RLProbe/MultiBinary-v0": _ours("probes:Combination", target=(1, 0, 1), nvec=None),
    "RLProbe/DictObs-v0": _ours("probes:DictObs"),
    "RLProbe/Target-v0": _ours("probes:Target"),
    "RLProbe/LQR-v0": _ours("probes:LinearQuadratic"),
    "RLGame/TicTacToe-v0": _ours("tictactoe:TicTacToe"),
}
"""Gymnasium ids with a JAX twin of the same dynamics. Environments that exist only in JAX are in the registry."""

AGAINST_RANDOM = frozenset({"RLGame/TicTacToe-v0"})
"""Games among them; the opponent moves uniformly at random, so there is no league."""
TEAM_TWINS = {
    "mpe2/simple_spread_v3": _ours("simple_spread:SimpleSpread"),
    "RLTeam/TwoStepGame-v0": _ours("team_probes:TwoStepGame"),
}
"""Environments of several agents with a JAX twin of the same dynamics."""


def find(env_id: str) -> EnvEntry | None:
    """The JAX environment of a Gymnasium id, a registered name or "package.module:Class"; None if there is none.

    Your own class is a JAX environment if it has `init`, `obs` and `step`; its module is imported to find out.
    """
    if env_id in TWINS:
        return TWINS[env_id]
    own = _own(env_id)
    return EnvEntry(env_id) if is_jax_env(own) and not is_jax_team(own) else None


def find_team(env_id: str) -> EnvEntry | None:
    """The same for environments of several agents: your own class has `agents` and `critic_state` beside the three."""
    if env_id in TEAM_TWINS:
        return TEAM_TWINS[env_id]
    return EnvEntry(env_id) if is_jax_team(_own(env_id)) else None


def _own(env_id: str) -> Any:
    """What a registered name or "package.module:Class" stands for; None for any other id."""
    is_dotted = env_id.rpartition(":")[2].isidentifier() and ":" in env_id  # "module:Id-v0" is Gymnasium's
    return environments.get(env_id) if env_id in environments or is_dotted else None


def make(env_id: str, kwargs: Mapping[str, Any] | None = None, max_episode_steps: int | None = None) -> JaxEnv:
    """The environment of an id with its time limit, which `max_episode_steps` replaces."""
    from rl_training.jax.checks import check_env, check_team
    from rl_training.jax.envs.base import TimeLimit

    entry = find(env_id)
    if entry is None:
        known = [*TWINS, *(name for name in environments.names() if environments.is_builtin(name))]
        raise ConfigError(
            f"environment '{env_id}' has no form in JAX{did_you_mean(env_id, known)} (known: {', '.join(known)}; your "
            "own: 'package.module:Class' with init, obs and step); use lane: host to run it through Gymnasium"
        )
    own = env_id in TWINS
    creator = import_own(entry.creator, "environment") if own else environments.get(entry.creator)
    kwargs = {**entry.kwargs, **(kwargs or {})}
    check_kwargs(creator, kwargs, f"environment '{env_id}'", "env.kwargs")
    check_call(creator, f"environment '{env_id}'", kwargs=kwargs)
    env: JaxEnv = creator(**kwargs)
    if is_jax_team(env):  # agents that the class does not have, only the object
        check_team(cast("JaxTeamEnv", env), f"environment '{env_id}'")
    for name in ("observation_space", "action_space", "max_episode_steps"):
        if not hasattr(env, name):
            raise ConfigError(
                f"environment '{env_id}' has no {name}; the compiled lane needs it beside init, obs and step"
            )
    if not own and not environments.is_builtin(env_id):
        check_env(env, f"environment '{env_id}'")
    limit = env.max_episode_steps if max_episode_steps is None else max_episode_steps
    return env if limit is None else TimeLimit(env, limit)


def team_refusal(env_id: str, kwargs: Mapping[str, Any]) -> str | None:
    """Which argument of a team environment its JAX twin does not have; None where it has them all. Your own environment
    in JAX is no twin: an argument that it does not have is an error wherever it runs."""
    if env_id not in TEAM_TWINS:
        return None
    parameters = parameters_of(import_own(TEAM_TWINS[env_id].creator, "environment")) or {}
    missing = [name for name in kwargs if name not in parameters]
    return f"env.kwargs.{missing[0]} is not in the JAX form of '{env_id}'" if missing else None


def make_team(env_id: str, kwargs: Mapping[str, Any] | None = None, max_episode_steps: int | None = None) -> JaxTeamEnv:
    """The JAX form of an environment of several agents. `max_episode_steps` is a further time limit for a twin, whose
    own is an argument of the environment; it replaces that of your own environment."""
    from rl_training.jax.checks import check_team
    from rl_training.jax.envs.teams import TeamTimeLimit

    kwargs, what = kwargs or {}, f"environment '{env_id}'"
    is_twin = env_id in TEAM_TWINS
    creator = import_own(TEAM_TWINS[env_id].creator, "environment") if is_twin else environments.get(env_id)
    check_kwargs(creator, kwargs, what, "env.kwargs")
    check_call(creator, what, kwargs=kwargs)
    env: JaxTeamEnv = creator(**kwargs)
    if not is_twin:
        check_team(env, what)
        limit = env.max_episode_steps if max_episode_steps is None else max_episode_steps
        return env if limit is None else TeamTimeLimit(env, limit)
    limits = [limit for limit in (env.max_episode_steps, max_episode_steps) if limit is not None]
    return TeamTimeLimit(env, min(limits)) if limits else env
