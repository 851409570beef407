"""MPE environments (mpe2) stepped directly, at twice the speed of their parallel form and with the same numbers.

PettingZoo's conversion plays a joint step as one step per agent, each with its bookkeeping. The world itself moves
once, when all actions are there; this class asks for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.envs.multi_agent.simultaneous import Results
from rl_training.envs.spaces import Space


def direct(env: Any) -> Any:
    """The MPE environment inside mpe2's parallel form, stepped directly; any other environment as it is."""
    inner: Any = getattr(getattr(env, "aec_env", None), "unwrapped", None)
    is_mpe = any(kind.__module__ == "mpe2._mpe_utils.simple_env" for kind in type(inner).__mro__)
    plain = is_mpe and type(inner).step.__module__ == "mpe2._mpe_utils.simple_env"
    return DirectMPE(inner) if plain else env


class DirectMPE:
    """A `SimpleEnv` of mpe2 whose agents act at the same time."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents: Sequence[str] = list(env.possible_agents)
        self.agents: Sequence[str] = []
        self.metadata = env.metadata
        self.state_space = env.state_space

    @property
    def unwrapped(self) -> DirectMPE:
        return self

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        return len(self.possible_agents)

    @property
    def render_mode(self) -> str | None:
        mode: str | None = self.env.render_mode
        return mode

    def observation_space(self, agent: str, /) -> Space:
        space: Space = self.env.observation_space(agent)
        return space

    def action_space(self, agent: str, /) -> Space:
        space: Space = self.env.action_space(agent)
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any], /) -> Results:
        env, agents = self.env, self.possible_agents
        env.current_actions = [actions[agent] for agent in agents]
        env._execute_world_step()
        env.steps += 1
        truncated = env.steps >= env.max_cycles
        terminated = not truncated and bool(env.scenario.is_terminal(env.world))
        if truncated or terminated:
            self.agents = []
        flags = dict.fromkeys(agents, terminated), dict.fromkeys(agents, truncated)
        return self._observe(), dict(env.rewards), *flags, {agent: env.infos.get(agent, {}) for agent in agents}

    def _observe(self) -> dict[str, Any]:
        return {agent: self.env.observe(agent) for agent in self.possible_agents}

    def state(self) -> Any:
        return self.env.state()

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
