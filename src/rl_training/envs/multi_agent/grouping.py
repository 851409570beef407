"""Which policy plays which agent, and which agents are a team: from names and patterns to lists of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

SHARED = "agents"
"""Name of the policy that plays all agents."""

Groups = dict[str, tuple[str, ...]]


def policies_of(agents: Sequence[str], cfg: AgentsConfig, env: str) -> Groups:
    """The agents of each policy, in the order of the environment; ConfigError where that is not everybody, once."""
    if not isinstance(cfg.policies, str):
        groups = matched(agents, cfg.policies, "policies", env)
    elif cfg.policies == "shared":
        groups = {SHARED: tuple(agents)}
    else:
        groups = {agent: (agent,) for agent in agents}
    if cfg.score is not None and cfg.score not in groups:
        near = did_you_mean(cfg.score, groups)
        raise ConfigError(f"env.agents.score '{cfg.score}' is none of the policies ({', '.join(groups)}){near}")
    return groups


def teams_of(agents: Sequence[str], cfg: AgentsConfig, env: str) -> Groups:
    """The agents of each team."""
    if cfg.teams is not None:
        return matched(agents, cfg.teams, "teams", env)
    return {"all": tuple(agents)} if isinstance(cfg.policies, str) else policies_of(agents, cfg, env)


def matched(agents: Sequence[str], patterns: Mapping[str, Sequence[str]], what: str, env: str) -> Groups:
    """Agents by the names whose patterns they match."""
    owners = {
        agent: [name for name, some in patterns.items() if any(fnmatchcase(agent, pattern) for pattern in some)]
        for agent in agents
    }
    listed = ", ".join(agents)
    for agent, names in owners.items():
        if not names:
            raise ConfigError(
                f"env.agents.{what}: agent '{agent}' of '{env}' is in none of {', '.join(patterns)}; the agents are "
                f"{listed}"
            )
        if len(names) > 1:
            raise ConfigError(f"env.agents.{what}: agent '{agent}' of '{env}' is in {' and '.join(names)}, not in one")
    groups = {name: tuple(agent for agent in agents if owners[agent] == [name]) for name in patterns}
    for name, members in groups.items():
        if not members:
            raise ConfigError(
                f"env.agents.{what}: no agent of '{env}' matches {', '.join(patterns[name]) or 'the empty list'} of "
                f"'{name}'; the agents are {listed}"
            )
    return groups
