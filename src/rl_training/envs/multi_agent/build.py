"""From an environment of several agents, of whichever kind, to a `JointEnv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from rl_training.config.schema import EnvConfig
from rl_training.envs.multi_agent.joint import JointEnv
from rl_training.envs.multi_agent.mpe import direct
from rl_training.envs.multi_agent.repairs import repaired
from rl_training.envs.multi_agent.simultaneous import as_simultaneous
from rl_training.registry import import_own
from rl_training.types import ConfigError, EnvError


def joined(built: Any, cfg: EnvConfig, name: str) -> JointEnv | None:
    """All agents of `built` as one environment; None where it has a single agent."""
    team = as_simultaneous(repaired(direct(built)), name)
    if team is None:
        return None
    unused = {"env.wrappers": bool(cfg.wrappers), "env.frame_stack": cfg.frame_stack > 1}
    if used := [field for field, is_used in unused.items() if is_used]:
        raise ConfigError(
            f"{', '.join(used)} is for environments of a single agent, and '{name}' has {len(team.possible_agents)}; "
            "wrap it in a function of your own, given as env_id: 'package.module:function'"
        )
    if cfg.vectorization == "native":
        raise ConfigError(f"env.vectorization: native is for environments of a single agent, not '{name}'; take sync")
    # a Gymnasium environment has its time limit inside already
    limit = None if isinstance(built, gym.Env) else cfg.max_episode_steps
    return JointEnv(team, cfg.agents, name=name, max_episode_steps=limit)


def host_team(
    creator: Callable[..., Any],
    kwargs: Mapping[str, Any],
    name: str,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
) -> Any:
    """Your own JAX environment of several agents, stepped in Python; `max_episode_steps` replaces its time limit."""
    adapter = import_own("rl_training.jax.envs.team_adapter:HostTeam", "adapter")
    team = adapter(creator, kwargs, name, render_mode, max_episode_steps)
    if render_mode is not None and team.render_mode is None:
        raise EnvError(cannot_render(name))
    return team


def cannot_render(name: str) -> str:
    """What is said of a JAX environment without pictures."""
    return (
        f"environment '{name}' cannot render; give its class a method render(state) that returns a (height, width, 3) "
        "uint8 image of the state of one environment"
    )


def make_joint(env: Any, cfg: EnvConfig | None = None, *, name: str = "") -> JointEnv:
    """`joined` for an environment that must have several agents."""
    team = joined(env, cfg or EnvConfig(), name or type(env).__name__)
    if team is None:
        raise ConfigError(
            f"{name or type(env).__name__} is no environment of several agents: it has neither PettingZoo's methods "
            "nor Tuple spaces and n_agents"
        )
    return team
