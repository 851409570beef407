"""What a compiled program is made of: an environment and an agent, or agents that are rows and the team around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rl_training.algorithms.multi_agent.team import TeamAlgorithm
from rl_training.assembly.algorithm import build_algorithm
from rl_training.config.schema import TrainConfig
from rl_training.envs.multi_agent.grouping import policies_of, teams_of
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.numerics.agents import joint_actions, joint_spec, row_space
from rl_training.runs.spaces import Spaces
from rl_training.types import ConfigError, JointSpec, PlayedAgents

if TYPE_CHECKING:
    from rl_training.jax.host import HostAlgorithm
    from rl_training.jax.types import JaxAlgorithm, JaxEnv, JaxTeamEnv
    from rl_training.training.compiled import Team


@dataclass(frozen=True)
class CompiledParts:
    """Environment and agent of a compiled program."""

    agent: HostAlgorithm
    functions: JaxAlgorithm
    """What the program calls: the functions of the agent, for a team with its rewards shared."""
    env: JaxEnv
    spaces: Spaces
    """Of the run, as checkpoints and evaluations know them."""
    team: Team | None = None

    @property
    def num_agents(self) -> int:
        return 1 if self.team is None else len(self.team.agents)


def team_parts(cfg: TrainConfig, spec: AlgorithmSpec, hparams: Any, guard: Guard) -> CompiledParts:
    """All agents as rows of one policy, which learns inside the program."""
    from rl_training.jax.algorithms.multi_agent.rewards import sharing_rewards
    from rl_training.jax.envs import make_team
    from rl_training.jax.envs.teams import AgentRows
    from rl_training.training.compiled import Team

    env = make_team(cfg.env_id, cfg.env.kwargs, cfg.env.max_episode_steps)
    joint = joint_of(cfg, env)
    spaces = joint, joint_actions(joint)
    algorithm = cast(TeamAlgorithm, build_algorithm(cfg, spec, hparams, *spaces, guard))
    (member,) = algorithm.members.values()
    agent, view = cast("HostAlgorithm", member.algorithm), member.view
    if agent.functions.replay is not None:
        raise ConfigError(f"'{spec.name}' learns from replay, which compiled programs have for single agents only")
    space = row_space(joint, view.policy, ids=view.ids, state=view.state)
    rows = AgentRows(env, space, ids=view.ids, state=joint.state if view.state else "none")
    functions = sharing_rewards(agent.functions, view.sharing)
    return CompiledParts(agent, functions, rows, spaces, Team(algorithm, env.agents))


def joint_of(cfg: TrainConfig, env: JaxTeamEnv) -> JointSpec:
    """The joint observation of a team environment, the same as that of its twin on the host."""
    agents = cfg.env.agents
    groups = policies_of(env.agents, agents, cfg.env_id)
    teams_of(env.agents, agents, cfg.env_id)
    played = {name: PlayedAgents(who, env.observation_space, env.action_space) for name, who in groups.items()}
    own = env.state_space if agents.state in ("auto", "env") else None
    return joint_spec(played, own, concat=agents.state == "concat")
