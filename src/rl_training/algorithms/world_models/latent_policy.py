"""Acting with a world model: each observation corrects the state, from which a subclass chooses an action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_training.algorithms.policies import STORED_CARRY
from rl_training.algorithms.sequences import map_obs
from rl_training.algorithms.world_models.dreams import dream
from rl_training.algorithms.world_models.world_model import Arrivals
from rl_training.dynamics.base import State
from rl_training.models.networks import as_tensors
from rl_training.numerics.encoding import from_bounds, to_bounds
from rl_training.types import ActResult, Array, BoxSpec, Carry, ConfigError, Dream, Obs, StateDict

if TYPE_CHECKING:
    from rl_training.algorithms.world_models.learner import WorldModelLearner

PREVIOUS = "action"
"""Name of the previous action in the carry."""


class LatentPolicy:
    """Follows the state of the world model. The carry is that state and the action that was played last, as numbers."""

    def __init__(self, learner: WorldModelLearner) -> None:
        self.learner = learner
        self.model = learner.model
        self.action_space = learner.ctx.action_space

    def initial_carry(self, num_envs: int) -> Carry:
        spec = self.model.dynamics.state_spec
        state = {name: np.zeros((num_envs, *shape), dtype) for name, (shape, dtype) in spec.items()}
        return {**state, PREVIOUS: np.zeros((num_envs, self.learner.actions.size), np.float32)}

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        stored, numbers = self.decide(obs, carry, is_first, None if deterministic else rng)
        actions = self.learner.actions.as_stored(numbers)
        space = self.action_space
        env_actions = to_bounds(space, actions) if isinstance(space, BoxSpec) else actions
        extras = {STORED_CARRY + name: value for name, value in stored.items()}
        return ActResult(
            actions, env_actions, {**stored, PREVIOUS: numbers}, extras if self.learner.context == "stored" else {}
        )

    @torch.no_grad()
    def decide(self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator | None) -> tuple[Carry, Array]:
        """The state after an observation, in the form it is stored in, and the action (N, A) as numbers. Without a
        generator both are the most likely ones."""
        learner, dynamics = self.learner, self.model.dynamics
        noise = self.noise(len(is_first), rng)
        state = dynamics.restored({name: learner.tensor(carry[name]) for name in dynamics.state_spec})
        tokens = self.model.encoder(as_tensors(obs, learner.device))
        draws = None if noise is None else learner.tensor(noise)
        state = dynamics.correct(state, learner.tensor(carry[PREVIOUS]), tokens, learner.tensor(is_first), draws)
        stored = {name: value.cpu().numpy() for name, value in dynamics.stored(state).items()}
        return stored, self.choose(state, rng)

    def noise(self, count: int, rng: np.random.Generator | None) -> Array | None:
        """Uniform numbers for the states of `count` environments."""
        size = self.model.dynamics.noise_size
        return rng.random((count, size), dtype=np.float32) if rng is not None and size else None

    def choose(self, state: State, rng: np.random.Generator | None) -> Array:
        """Actions (N, A) as numbers; without a generator the best ones."""
        raise NotImplementedError("a policy chooses an action")

    def dream(
        self, obs: Obs, actions: Array, rng: np.random.Generator, samples: int = 16, context: int | None = None
    ) -> Dream:
        """Futures of an episode that began with the observations `obs` (C, ...), of which the model sees the first
        `context`: `actions`, as the environment takes them, are those between them and those that follow."""
        learner, space = self.learner, self.action_space
        count = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if len(actions) < count - 1:
            raise ConfigError(
                f"{count} observations have {count - 1} actions between them, but there are {len(actions)}"
            )
        stored = from_bounds(space, actions) if isinstance(space, BoxSpec) else actions
        numbers = learner.actions.as_numbers(learner.tensor(stored))
        nothing_led_here = numbers.new_zeros(1, learner.actions.size)  # to the first observation
        numbers = torch.cat([nothing_led_here, numbers])[:, None]
        length = len(numbers)
        is_first = torch.zeros(length, 1, device=learner.device)
        is_first[0] = 1.0
        nothing, start = torch.zeros_like(is_first), self.model.dynamics.initial(1)
        seen = as_tensors(map_obs(obs, lambda column: column[:, None]), learner.device)
        steps = Arrivals(seen, numbers, nothing, is_first, nothing, nothing, torch.ones_like(is_first), start)
        return dream(self.model, steps, min(context or count, count), samples, rng)

    def networks(self) -> dict[str, Any]:
        """The networks that acting and dreaming need, which is what the policy saves."""
        return {"model": self.model}

    def state_dict(self) -> StateDict:
        from rl_training.algorithms.world_models.learner import saved_networks

        return {"network": saved_networks(self.networks())}

    def load_state_dict(self, state: StateDict, /) -> None:
        from rl_training.algorithms.world_models.learner import load_networks

        load_networks(self.networks(), state["network"])
