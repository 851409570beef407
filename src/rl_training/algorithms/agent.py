"""BaseAgent: acting and learning in one object, for loops of your own; `training.agent_trainer` has such a loop.

For algorithms that `rl train` runs, with everything that a run has, see `BaseAlgorithm` in `base.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import (
    Generators,
    Networks,
    Optimizers,
    learning_state,
    load_learning_state,
)
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import fitting
from rl_training.models.networks import load_module_state, module_state
from rl_training.seeding import stream
from rl_training.types import Batch, Metrics, SpaceSpec, StateDict

PART = "agent"
"""The name of an agent's state in a checkpoint."""


class BaseAgent(ABC):
    """An agent in one environment: write `select_action` and `update`.

    Everything put into `networks`, `optimizers` and `generators` is saved and loaded by itself. Draw random numbers
    with `self.rng`, which is one of the generators.
    """

    def __init__(self, observation_space: SpaceSpec, action_space: SpaceSpec, *, seed: int = 0) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.networks: Networks = {}
        self.optimizers: Optimizers = {}
        self.rng = stream(seed, "actions")
        self.generators: Generators = {"actions": self.rng}

    @abstractmethod
    def select_action(self, obs: Any, training: bool = True) -> Any:
        """The action for one observation. Explore while `training`; otherwise act as well as you can."""

    @abstractmethod
    def update(self, batch: Batch) -> Metrics:
        """Learn from a batch and return what should be shown.

        From `AgentTrainer` it is a whole episode, (T, 1, ...) as `rl_training.types.Batch` describes it, or a sample of
        a replay buffer, (B, ...): obs, actions, rewards, next_obs, terminated, truncated.
        """

    def reset(self) -> None:  # noqa: B027 - optional: most agents keep nothing per episode
        """Called where an episode starts: forget what belongs to the last one."""

    def save(self, path: str | Path) -> Path:
        """Write the agent into the folder `path`, as a checkpoint of the package (safetensors and JSON, verified)."""
        return CheckpointManager(path).save({PART: self.state_dict()}, step=0)

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote, or the newest checkpoint of an `AgentTrainer`, into this agent."""
        state = CheckpointManager(path).load_latest((PART,)).parts[PART]
        with fitting("the saved agent"):
            self.load_state_dict(state)

    def state_dict(self) -> StateDict:
        networks = {name: module_state(network) for name, network in self.networks.items()}
        return {"networks": networks, **learning_state(self.networks, self.optimizers, self.generators)}

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, network in self.networks.items():
            load_module_state(network, state["networks"][name])
        load_learning_state(self.networks, self.optimizers, self.generators, state)
