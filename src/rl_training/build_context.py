"""What an algorithm is given when it is built, whatever library it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from rl_training.config.networks import actor_space
from rl_training.config.schema import NetworkConfig
from rl_training.guards import Guard
from rl_training.seeding import Streams
from rl_training.types import Progress, SpaceSpec

T = TypeVar("T")


class Shards(Protocol):
    """The shards that batches are split into (`training.shards`): those of this process, and the way to the others.

    Every process of a run calls the methods in the same order; all of them get the same answers.
    """

    @property
    def count(self) -> int:
        """Shards of the run."""

    @property
    def own(self) -> range:
        """Shards of this process."""

    def gathered(self, own: Sequence[T]) -> list[T]:
        """Something small of every shard, in their order, from that of each shard of this process."""

    def gathered_tensors(self, own: Sequence[Any]) -> Sequence[Any]:
        """The same for float tensors that have one shape in all shards."""


@dataclass(frozen=True)
class BuildContext:
    """The run as an algorithm sees it: spaces, sizes, device, random streams and the live progress."""

    observation_space: SpaceSpec
    action_space: SpaceSpec
    num_envs: int = 1
    device: str = "cpu"
    network: NetworkConfig = field(default_factory=NetworkConfig)
    streams: Streams = field(default_factory=lambda: Streams(0))
    progress: Progress = field(default_factory=Progress)
    """Read only: schedules are functions of it. The trainer moves it."""
    total_timesteps: int = 100_000
    normalize_obs: bool = False
    normalize_reward: bool = False
    guard: Guard = field(default_factory=Guard)
    """Stops a gradient that is not finite: see `rl_training.guards`."""
    num_agents: int = 1
    """Agents that the policy plays in each environment; agent a of environment n is row n * num_agents + a, and
    `num_envs` counts rows."""
    shards: Shards | None = None
    """Set if batches come in shards (`training.shards`); see `rl_training.algorithms.sharding`."""

    @property
    def actor_space(self) -> SpaceSpec:
        """The observations without those that `network.critic_only` keeps from the actor."""
        return actor_space(self.observation_space, self.network)

    @property
    def fraction(self) -> float:
        """How much of the budget is spent, 0 to 1."""
        return min(self.progress.position / self.total_timesteps, 1.0)
