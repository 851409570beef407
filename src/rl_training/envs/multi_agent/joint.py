"""`JointEnv`: all agents of an environment as one Gymnasium environment, so that everything works as for one agent.

A joint step is one env step. Its observation has what every agent observes and what happened to it (the layout is in
`numerics/agents.py`), its reward is the mean over the agents, and it ends when the last agent has ended. Episode log,
exact resume, workers, evaluation and budgets see an ordinary environment; learners take the rows of their agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.envs.masks import mask_size
from rl_training.envs.multi_agent.grouping import policies_of, teams_of
from rl_training.envs.multi_agent.simultaneous import Simultaneous, given
from rl_training.envs.spaces import (
    Convert,
    JointActions,
    JointSpace,
    Space,
    convert_action_space,
    convert_observation_space,
    space_spec,
)
from rl_training.numerics.agents import (
    AGENT_RETURN,
    ALIVE,
    ENDED,
    FIRST,
    LONE,
    POLICY_RETURN,
    REWARD,
    TEAM_RETURN,
    TERMINATED,
    TRUNCATED,
    action_slices,
    joint_spec,
    leaf_key,
    mark_key,
    named_leaves,
)
from rl_training.runs.spaces import describe, fits
from rl_training.types import (
    ACTION_MASK,
    CRITIC_STATE,
    Array,
    BoxSpec,
    ConfigError,
    DictSpec,
    EnvError,
    JointSpec,
    LeafSpec,
    MultiBinarySpec,
    PlayedAgents,
    SpaceSpec,
)


@dataclass(frozen=True)
class Keys:
    """Under which keys the agents of a policy are found in joint observations."""

    leaves: tuple[tuple[str, str], ...]
    """Names of an agent's observations with their keys."""
    mask: str | None
    alive: str
    first: str
    reward: str
    ended: str

    @classmethod
    def of(cls, policy: str, played: PlayedAgents) -> Keys:
        names = named_leaves(played.observation_space)
        mask = leaf_key(policy, ACTION_MASK) if ACTION_MASK in names else None
        marks = (mark_key(policy, mark) for mark in (ALIVE, FIRST, REWARD, ENDED))
        return cls(tuple((name, leaf_key(policy, name)) for name in names), mask, *marks)


@dataclass(frozen=True)
class Place:
    """How one agent is observed and acts: its place in the joint arrays, and the conversion of its spaces."""

    agent: str
    row: int
    """Its number among the agents of its policy."""
    keys: Keys
    actions: slice
    """Where its action is in the joint action."""
    observed: Convert | None
    act: Callable[[Array], Any]


class JointEnv(gym.Env[Any, Any]):
    """Agents that act at the same time, as one environment. `name` is for messages."""

    def __init__(
        self,
        env: Simultaneous,
        cfg: AgentsConfig | None = None,
        *,
        name: str = "",
        max_episode_steps: int | None = None,
    ) -> None:
        self.env = env
        self.cfg = cfg or AgentsConfig()
        self.name = name or type(env).__name__
        self.max_episode_steps = max_episode_steps
        agents = list(env.possible_agents)
        if not agents:
            raise EnvError(f"environment '{self.name}' has no agents: possible_agents is empty")
        if len(set(agents)) < len(agents) or not all(isinstance(agent, str) for agent in agents):
            raise EnvError(f"possible_agents of environment '{self.name}' must be different strings, not {agents!r}")
        groups = policies_of(agents, self.cfg, self.name)
        teams_of(agents, self.cfg, self.name)  # refused here, where the names of the agents are known
        self.joint = self._spec(groups)
        self.observation_space = JointSpace(self.joint)
        self.action_space = JointActions(self.joint)
        self.places = self._placed(groups)
        self._layout = {key: (leaf.shape, leaf.dtype) for key, leaf in self.joint.spaces.items()}
        scored = agents if self.cfg.score is None else groups[self.cfg.score]
        self.scored = frozenset(scored)
        self.metadata = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)
        inner = getattr(env, "unwrapped", env)
        self.resume_strategy = getattr(inner, "resume_strategy", "replay")
        self.steps = 0
        self.last_state: Array = np.zeros(0, np.float32)
        self.alive: frozenset[str] = frozenset()
        self.returns: dict[str, float] = {}

    # -- spaces -------------------------------------------------------------------------------------------------------

    def _spec(self, groups: dict[str, tuple[str, ...]]) -> JointSpec:
        """Check that each policy's agents have the same spaces, and put all of them together."""
        policies = {}
        for policy, members in groups.items():
            played = [PlayedAgents(members, self._observed(agent), self._acted(agent)) for agent in members]
            for agent, other in zip(members, played, strict=True):
                for what in ("observation", "action"):
                    one, two = (getattr(who, f"{what}_space") for who in (played[0], other))
                    if not fits(one, two, bounds=what == "action"):
                        raise ConfigError(
                            f"one policy ('{policy}') cannot play {members[0]} and {agent} of '{self.name}': their "
                            f"{what} spaces are {describe(one)} and {describe(two)}; set env.agents.policies: separate "
                            "or give each kind of agent a policy by name"
                        )
            policies[policy] = played[0]
        state, concat = self._state(policies)
        return joint_spec(policies, state, concat=concat)

    def _observed(self, agent: str) -> SpaceSpec:
        space, _ = convert_observation_space(self.env.observation_space(agent))
        spec = space_spec(space)
        if self.cfg.masks == "observation":
            return spec
        leaves = named_leaves(spec)
        if ACTION_MASK in leaves:
            raise EnvError(
                f"the observations of {agent} hold '{ACTION_MASK}' already; set env.agents.masks: observation"
            )
        return DictSpec({**leaves, ACTION_MASK: MultiBinarySpec(mask_size(self.env.action_space(agent)))})

    def _acted(self, agent: str) -> LeafSpec:
        space, _ = convert_action_space(self.env.action_space(agent))
        return cast(LeafSpec, space_spec(space))

    def _state(self, policies: dict[str, PlayedAgents]) -> tuple[BoxSpec | None, bool]:
        """(space of the environment's own state where it is used, whether observations stand in for it)."""
        asked = self.cfg.state
        has_own = callable(getattr(self.env, "state", None)) and isinstance(
            getattr(self.env, "state_space", None), spaces.Box
        )
        if asked == "env" and not has_own:
            raise ConfigError(
                f"env.agents.state: env needs an environment with state() and a Box state_space, and '{self.name}' has "
                "none; take concat, which puts all observations behind one another"
            )
        if asked in ("none", "concat") or not has_own:
            return None, asked != "none"
        space: Any = self.env.state_space  # type: ignore[attr-defined]
        size = int(np.prod(space.shape))
        low, high = (np.asarray(bound, np.float32).reshape(size) for bound in (space.low, space.high))
        return BoxSpec(low, high, np.dtype(np.float32)), False

    def _placed(self, groups: dict[str, tuple[str, ...]]) -> list[Place]:
        found = []
        for policy, place in action_slices(self.joint).items():
            members, keys = groups[policy], Keys.of(policy, self.joint.policies[policy])
            size = (place.stop - place.start) // len(members)
            for row, agent in enumerate(members):
                start = place.start + row * size
                _, observed = convert_observation_space(self.env.observation_space(agent))
                act = self._actor(self.env.action_space(agent))
                found.append(Place(agent, row, keys, slice(start, start + size), observed, act))
        return found

    @staticmethod
    def _actor(space: Space) -> Callable[[Array], Any]:
        """From the numbers of a joint action to what the environment takes from one agent."""
        plain, convert = convert_action_space(space)
        shape, dtype = plain.shape or (), np.dtype(plain.dtype)
        if isinstance(plain, spaces.Discrete):
            return lambda numbers: int(numbers[0]) if convert is None else convert(int(numbers[0]))
        if convert is None:
            return lambda numbers: numbers.reshape(shape).astype(dtype)
        return lambda numbers: convert(numbers.reshape(shape).astype(dtype))

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        obs, infos = given(self.env.reset(seed=seed, options=options), 2, "reset", self.name)
        self.steps = 0
        self.returns = {place.agent: 0.0 for place in self.places}
        self.alive = self._there()
        if not self.alive:
            raise EnvError(f"environment '{self.name}' has no agents after reset(): agents lists those that are to act")
        return self._joined(obs, infos, {}, {}, self.alive), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self.alive
        actions = {place.agent: place.act(action[place.actions]) for place in self.places if place.agent in before}
        obs, rewards, terminated, truncated, infos = given(self.env.step(actions), 5, "step", self.name)
        self.steps += 1
        out_of_time = self.max_episode_steps is not None and self.steps >= self.max_episode_steps
        staying = frozenset() if out_of_time else self._there()
        ended = {
            agent: TERMINATED if terminated.get(agent) else TRUNCATED
            for agent in before
            if terminated.get(agent) or truncated.get(agent) or agent not in staying
        }
        self.alive = staying - ended.keys()
        own = {agent: float(rewards.get(agent, 0.0)) for agent in before}
        for agent, reward in own.items():
            self.returns[agent] += reward
        joined = self._joined(obs, infos, own, ended, self.alive - before)
        score = sum(reward for agent, reward in own.items() if agent in self.scored) / len(self.scored)
        if self.alive:
            return joined, score, False, False, {}
        cut = TRUNCATED in ended.values()
        return joined, score, not cut, cut, self._summary()

    def _there(self) -> frozenset[str]:
        """The agents that are to act next."""
        there = frozenset(self.env.agents)
        if strangers := there - self.returns.keys():
            raise EnvError(f"environment '{self.name}' has agents {sorted(map(str, strangers))} beside possible_agents")
        return there

    def _joined(
        self,
        obs: dict[str, Any],
        infos: dict[str, Any],
        rewards: dict[str, float],
        ended: dict[str, int],
        begin: frozenset[str],
    ) -> dict[str, Array]:
        """The joint observation; agents that are gone have zeros, and every action allowed. Those that were cut off
        just now keep their last observation and its mask. `begin` are those whose lives begin."""
        arrays = {key: np.zeros(shape, dtype) for key, (shape, dtype) in self._layout.items()}
        for place in self.places:
            agent, row, keys = place.agent, place.row, place.keys
            is_alive = agent in self.alive
            if is_alive or agent in ended:
                self._observe(place, obs, infos, arrays)
                arrays[keys.reward][row] = rewards.get(agent, 0.0)
            if is_alive:
                arrays[keys.alive][row] = 1
                arrays[keys.first][row] = agent in begin
            else:
                arrays[keys.ended][row] = ended.get(agent, 0)
                # what was only cut off is valued by the actions that it could have taken
                cut_off = ended.get(agent) == TRUNCATED
                if keys.mask is not None and not (cut_off and arrays[keys.mask][row].any()):
                    arrays[keys.mask][row] = 1
        if self.joint.state == "env":
            # nothing bootstraps from a state in which all have terminated, and some environments have none then
            if self.alive or TRUNCATED in ended.values():
                self.last_state = self._own_state()
            arrays[CRITIC_STATE] = self.last_state
        return arrays

    def _observe(self, place: Place, obs: dict[str, Any], infos: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        """Put what one agent observes into its rows of the joint arrays."""
        agent, keys = place.agent, place.keys
        if agent not in obs:
            raise EnvError(
                f"environment '{self.name}' gave no observation of {agent}: reset() must observe everybody in agents, "
                "and step() everybody who was there before it, the agents that it ends among them"
            )
        try:
            seen = obs[agent] if place.observed is None else place.observed(obs[agent])
            if self.cfg.masks == "info":
                seen = {**(seen if isinstance(seen, dict) else {LONE: seen}), ACTION_MASK: self._mask(agent, infos)}
            for leaf, key in keys.leaves:
                value = seen[leaf] if isinstance(seen, dict) else seen
                if not self.steps and np.shape(value) != arrays[key].shape[1:]:  # a smaller one would be repeated
                    raise ValueError
                arrays[key][place.row] = value
        except (KeyError, TypeError, ValueError) as error:
            space = self.env.observation_space(agent)
            found = f"shape {obs[agent].shape}" if isinstance(obs[agent], np.ndarray) else repr(obs[agent])[:80]
            raise EnvError(
                f"environment '{self.name}' gave an observation of {agent} that is not in its observation_space "
                f"{space}: {found}"
            ) from error

    def _own_state(self) -> Array:
        """What the environment gives as the state of all agents, flat."""
        state = np.asarray(self.env.state(), np.float32).reshape(-1)  # type: ignore[attr-defined]
        size = self._layout[CRITIC_STATE][0]
        if state.shape != size:
            raise EnvError(
                f"state() of environment '{self.name}' gave {state.size} numbers; its state_space has {size[0]}"
            )
        return state

    def _mask(self, agent: str, infos: dict[str, Any]) -> Any:
        info = infos.get(agent, {})
        if ACTION_MASK not in info:
            raise EnvError(
                f"env.agents.masks: info, but '{self.name}' gives no '{ACTION_MASK}' in the info of {agent}; every "
                "reset and step must"
            )
        return info[ACTION_MASK]

    def _summary(self) -> dict[str, float]:
        """Returns of an episode that is over: of the whole team, of each policy's agents, of each agent."""
        policies = {
            POLICY_RETURN + name: float(np.mean([self.returns[agent] for agent in played.agents]))
            for name, played in self.joint.policies.items()
        }
        agents = {AGENT_RETURN + agent: value for agent, value in self.returns.items()}
        return {TEAM_RETURN: float(sum(self.returns.values())), **policies, **agents}

    def render(self) -> Any:
        return self.env.render()  # type: ignore[attr-defined]

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        if close is not None:
            close()
