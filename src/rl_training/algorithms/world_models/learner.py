"""What Dreamer and PlaNet share around their losses: batches as arrivals, one optimiser for all networks, and state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.sequences import map_obs
from rl_training.algorithms.world_models.actors import action_distribution
from rl_training.algorithms.world_models.dreams import dream, open_loop_errors
from rl_training.algorithms.world_models.world_model import Arrivals, WorldModel
from rl_training.build_context import BuildContext
from rl_training.config.networks import refuse_beside_world_model
from rl_training.data.sequence import arrivals
from rl_training.guards import Held, gradient_suspects
from rl_training.hparams.off_policy import ReplaySchedule, SequenceOptions
from rl_training.hparams.schedules import value_at
from rl_training.hparams.world_models import WorldModelHparams
from rl_training.models.laprop import LaProp, warmed_up
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.optimization import FlatParameters
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import Array, Batch, Dream, StateDict


class WorldModelLearner:
    """A world model with its optimiser. A subclass adds networks, calls `ready`, and writes `update`."""

    policy: Any
    updates_per_learn = 1
    """Updates that one call of `update` counts as."""

    def __init__(self, ctx: BuildContext, hp: WorldModelHparams, *, unimix: float = 0.0) -> None:
        refuse_beside_world_model(ctx.network, normalize_obs=ctx.normalize_obs, normalize_reward=ctx.normalize_reward)
        self.ctx = ctx
        self.device = torch.device(ctx.device)
        self.rng = ctx.streams("learning")
        """Draws the noise of updates, on the host: the same numbers on CPU and GPU."""
        self.init = ctx.streams("init")
        self.actions = action_distribution(ctx.action_space, unimix)
        self.model = WorldModel(ctx.observation_space, self.actions.size, hp, self.init)
        self.context, self.replay, self.length = hp.context, hp.replay, hp.sequence_length
        self.step_size = hp.learning_rate, hp.warmup_updates
        self.agc = hp.agc
        self.updates = 0
        self._batch: Batch = {}

    def ready(self, **networks: nn.Module) -> None:
        """All networks that are trained, beside the world model; nothing may take views of weights before this."""
        self.networks = nn.ModuleDict({"model": self.model, **networks}).to(self.device)
        self.parameters = FlatParameters(self.networks)
        self.optimizer = LaProp(self.parameters, agc=self.agc)

    @property
    def schedule(self) -> ReplaySchedule:
        """When the trainer calls `update`, and with how many sequences."""
        return self.replay

    @property
    def warmup(self) -> Any:
        """Who acts until learning starts: the policy itself, which is almost uniform then."""
        return self.policy

    @property
    def sequences(self) -> SequenceOptions:
        """What the buffer is told about sequences, and about the states that are stored with each step."""
        stored = self.model.dynamics.state_spec if self.context == "stored" else {}
        return SequenceOptions(self.length, dict(stored))

    def prepare(self, batch: Batch) -> Arrivals:
        """Sampled sequences of rows as arrivals on the device, time first."""
        self._batch = batch
        steps = arrivals(batch)
        rows = len(batch["rewards"])

        def numbers(name: str) -> Tensor:
            return self.tensor(np.ascontiguousarray(steps[name].T, np.float32))

        if self.context == "stored":
            start = self.model.dynamics.restored({name: self.tensor(value) for name, value in batch["carry"].items()})
        else:
            start = self.model.dynamics.initial(rows)
        return Arrivals(
            as_tensors(map_obs(steps["obs"], time_first), self.device),
            self.actions.as_numbers(self.tensor(time_first(steps["actions"]))),
            numbers("rewards"),
            numbers("is_first"),
            numbers("is_last"),
            numbers("is_terminal"),
            numbers("valid"),
            start,
        )

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in 0..1 from the algorithm's own random stream."""
        return self.tensor(self.rng.random(shape, dtype=np.float32))

    def tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values, device=self.device)

    def descend(self, loss: Tensor, losses: Mapping[str, Tensor]) -> Tensor:
        """One step of the optimiser along the gradient of `loss`; returns the norm of the gradient."""
        self.optimizer.zero_grad()
        loss.backward()
        norm = self.optimizer.grad_norm()
        if self.ctx.guard.every_step(self.ctx.device):
            self.ctx.guard.check_gradients(norm, lambda: gradient_suspects(self.held(losses)), loss.detach())
        learning_rate, warmup_updates = self.step_size
        rate = value_at(learning_rate, self.ctx.fraction)
        self.optimizer.step(warmed_up(rate, self.updates, warmup_updates))
        self.updates += 1
        return norm

    def held(self, losses: Mapping[str, Tensor]) -> Held:
        """Everything that a non-finite gradient may come from, for the guard to search."""
        return Held(
            optimizers={"": self.optimizer.state_dict()},
            parameters={"": module_state(self.networks)},
            gradients={"": self.parameters.by_name(self.parameters.grad)},
            losses=losses,
            batch=self._batch,
        )

    def dream(self, batch: Batch, context: int, rng: np.random.Generator, samples: int = 16) -> Dream:
        """Open-loop prediction of one replayed sequence: it is seen for `context` steps, then imagined."""
        return dream(self.model, self.prepare(batch), context, samples, rng)

    def open_loop_errors(self, batch: Batch, context: int, rng: np.random.Generator) -> dict[int, float]:
        """Errors of open-loop predictions of replayed sequences, by the number of steps ahead."""
        return open_loop_errors(self.model, self.prepare(batch), context, rng)

    def observe(self, batch: Batch) -> None:
        """No statistics to move: symlog takes the place of normalisers."""

    def watched(self) -> Iterator[Tensor]:
        """Tensors that the guard checks after each block."""
        yield from (self.parameters.values, *self.optimizer.tensors())

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Networks that are trained, for debug mode."""
        yield "networks", self.networks

    def named_optimizers(self) -> Iterator[tuple[str, Any]]:
        """The optimiser, under the name of the networks it moves."""
        yield "networks", self.optimizer

    def reference_gradients(self) -> AbstractContextManager[None]:
        """Inside, gradients come from autograd: here they always do."""
        return nullcontext()

    def state_dict(self) -> StateDict:
        """Everything except what the policy saves: the optimiser, the random stream, the count of updates."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "rng": generator_state(self.rng),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        set_generator_state(self.rng, state["rng"])
        self.updates = int(state["updates"])


def time_first(values: Array) -> Array:
    """(B, T, ...) to (T, B, ...)."""
    return np.ascontiguousarray(values.swapaxes(0, 1))


def saved_networks(networks: Mapping[str, nn.Module]) -> StateDict:
    return {name: module_state(network) for name, network in networks.items()}


def load_networks(networks: Mapping[str, nn.Module], state: StateDict) -> None:
    for name, network in networks.items():
        load_module_state(network, state[name])
