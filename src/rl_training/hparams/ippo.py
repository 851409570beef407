"""Hyperparameters of independent PPO (de Witt et al. 2020, arXiv:2011.09533): PPO for each agent by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec, supports_policy_gradient
from rl_training.hparams.ppo import PPOConfig
from rl_training.types import AGENT_ID, CRITIC_STATE, ConfigError, DictSpec, SpaceSpec


@dataclass(frozen=True)
class IPPOConfig(PPOConfig):
    """PPO for each agent by itself, with normalised values and on request a centralised critic."""

    __pydantic_config__ = STRICT

    critic_input: Literal["own", "state", "both"] = "own"
    """What the critic sees: the agent's own observation; the state of all agents (env.agents.state) with the number of
    the agent; or both."""
    normalize_value: bool = True
    """The critic learns returns scaled to mean 0 and standard deviation 1; its last layer moves with the scale."""

    @property
    def sees_state(self) -> bool:
        """Whether the critic is shown the state of all agents."""
        return self.critic_input != "own"

    def critic_space(self, space: SpaceSpec) -> SpaceSpec:
        if self.critic_input == "own":
            return space
        leaves = space.spaces if isinstance(space, DictSpec) else {}
        if CRITIC_STATE not in leaves or self.critic_input == "both":
            return space  # without a state there is one agent, whose observation is the state
        return DictSpec({name: leaf for name, leaf in leaves.items() if name in (AGENT_ID, CRITIC_STATE)})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize_value and self.has_intrinsic_value:
            raise ConfigError("normalize_value scales one kind of return: set it to false, or exploration.type: none")


SPEC = AlgorithmSpec(
    name="ippo",
    kind="on_policy",
    hparams=IPPOConfig,
    build="rl_training.algorithms.multi_agent.ippo:IPPO",
    functional="rl_training.jax.algorithms.multi_agent.ippo:ippo",
    supports=supports_policy_gradient,
    summary="independent PPO: each agent learns by itself, policies shared or not",
)
