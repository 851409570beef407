"""The contract of dynamics: the state of a world model, moved by actions alone or corrected by an observation.

    state = dynamics.initial(rows)
    state = dynamics.correct(state, actions, tokens, is_first, noise)     after an observation: the posterior
    state = dynamics.predict(state, actions, noise)                       without one: the prior, imagination
    features = dynamics.read(state)                                       what decoders, rewards and policies see

`actions` are those that led to the step, as numbers (discrete ones one-hot); `tokens` is an encoded observation.
Noise is an argument everywhere: uniform numbers in 0..1, drawn by the caller, so that torch and JAX can be given the
same ones and a resumed run draws the same. None instead of noise takes the most likely state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.registry import check_call, check_kwargs, dynamics, parameters_of
from rl_training.types import ConfigError

State = dict[str, Tensor]
"""Named tensors, one row per trajectory."""
Belief = dict[str, Tensor]
"""Parameters of a distribution over the random part of a state; empty where there is none."""

SMALLEST_UNIFORM = 2.0**-24
"""Uniform numbers are kept this far from 0 and 1 where they become normal ones."""


class Observed(NamedTuple):
    """What `Dynamics.observe` makes of T steps of B trajectories; every tensor is (T, B, ...)."""

    states: State
    """States after each observation."""
    posterior: Belief
    """Distribution of each state given its observation."""
    prior: Belief
    """Distribution of the same state given only what came before."""


class Dynamics(nn.Module):
    """Base of all dynamics. A subclass sets `state_spec`, `features` and `noise_size` and writes `prior`, `posterior`,
    `divergence` and `read`; the rest follows.

    It is built as `Class(tokens, actions, rng, **kwargs)`: sizes of an encoded observation and of an action, a NumPy
    generator for the initial weights, and what the config has under `hparams.dynamics.kwargs`.
    """

    state_spec: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
    """Shape and dtype of one row of each part of a *stored* state (see `stored`), for carry and replay."""
    features: int
    """Size of `read(state)`."""
    noise_size: int
    """Uniform numbers that one row needs per step; 0 for deterministic dynamics."""
    deter: int = 0
    """How many of the features, the first ones, are deterministic; image decoders treat them differently."""
    blocks: int = 1
    """Blocks into which the deterministic features are divided; image decoders use them."""
    open_loop: int = 0
    """Steps that the model predicts on its own while it learns; 0 where the divergence teaches it to predict."""

    def initial(self, rows: int) -> State:
        """The state before the first step of an episode: zeros."""
        device = next(self.parameters()).device
        zeros = {
            name: torch.from_numpy(np.zeros((rows, *shape), dtype)).to(device)
            for name, (shape, dtype) in self.state_spec.items()
        }
        return {name: torch.zeros_like(value) for name, value in self.restored(zeros).items()}

    def prior(self, state: State, actions: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        """One step without an observation: the new state, and the belief it was drawn from."""
        raise NotImplementedError("dynamics predict")

    def posterior(
        self, state: State, actions: Tensor, tokens: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief, Belief]:
        """One step with an observation: the new state, the belief it was drawn from, and the prior belief."""
        raise NotImplementedError("dynamics correct themselves by an observation")

    def predict(self, state: State, actions: Tensor, noise: Tensor | None = None) -> State:
        """The state after `actions` (rows, A), imagined; `noise` is (rows, noise_size)."""
        return self.prior(state, actions, noise)[0]

    def correct(
        self, state: State, actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor | None = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""
        state, actions = forgotten(state, actions, is_first)
        return self.posterior(state, actions, tokens, noise)[0]

    def observe(
        self, state: State, actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor | None = None
    ) -> Observed:
        """T corrections in a row: actions, tokens and noise are (T, B, ...), `is_first` (T, B)."""
        steps: list[tuple[State, Belief, Belief]] = []
        for t in range(len(tokens)):
            state, action = forgotten(state, actions[t], is_first[t])
            state, posterior, prior = self.posterior(state, action, tokens[t], None if noise is None else noise[t])
            steps.append((state, posterior, prior))
        states, posteriors, priors = (stacked(list(parts)) for parts in zip(*steps, strict=True))
        return Observed(states, posteriors, priors)

    def imagine(self, state: State, actions: Tensor, noise: Tensor | None = None) -> State:
        """T predictions in a row with given actions (T, B, A): states (T, B, ...), the first one after actions[0]."""
        states = []
        for t in range(len(actions)):
            state = self.predict(state, actions[t], None if noise is None else noise[t])
            states.append(state)
        return stacked(states)

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        """KL(posterior || prior) in nats, summed over the parts of a state: (T, B), or a single 0 without beliefs."""
        raise NotImplementedError("dynamics with a belief have a divergence")

    def read(self, state: State) -> Tensor:
        """Features (..., features) of a state."""
        raise NotImplementedError("dynamics say what others see of their state")

    def stored(self, state: State) -> State:
        """A state in the smaller form of `state_spec`, for replay and carry."""
        return state

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""
        return stored


def forgotten(state: State, actions: Tensor, is_first: Tensor) -> tuple[State, Tensor]:
    """State and previous action, both 0 in the rows where an episode starts."""
    keep = 1.0 - is_first.to(actions.dtype)
    kept = {name: value * keep.view(-1, *[1] * (value.dim() - 1)).to(value.dtype) for name, value in state.items()}
    return kept, actions * keep[:, None]


def stacked(steps: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Dicts of tensors (B, ...), one per step, as one dict of tensors (T, B, ...)."""
    return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


def rows_of(state: State) -> State:
    """A state (T, B, ...) as T * B rows."""
    return {name: value.flatten(0, 1) for name, value in state.items()}


def detached(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers without gradient."""
    return {name: value.detach() for name, value in state.items()}


def bounded_actions(actions: Tensor) -> Tensor:
    """a / max(1, |a|) elementwise, the divisor without gradient: what lies beyond -1..1 is moved onto the bound."""
    return actions / actions.detach().abs().clamp(min=1.0)


def standard_normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones, by the inverse of the distribution function."""
    numbers: Tensor = torch.special.ndtri(uniform.clamp(SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM))
    return numbers


def build_dynamics(
    name: str,
    kwargs: Mapping[str, Any],
    sizes: tuple[int, int],
    rng: np.random.Generator,
    defaults: Mapping[str, Any] | None = None,
) -> Dynamics:
    """The dynamics that `hparams.dynamics` names, for `sizes` (tokens, actions).

    `defaults` are arguments that an algorithm suggests, for instance those of its `hparams.size`; a class gets those of
    them that it takes, and `kwargs` come before them.
    """
    creator, what = dynamics.get(name), f"dynamics '{name}'"
    check_kwargs(creator, kwargs, what, "hparams.dynamics.kwargs")
    taken = parameters_of(creator) or {}
    given = {**{key: value for key, value in (defaults or {}).items() if key in taken}, **kwargs}
    tokens, actions = sizes
    check_call(creator, what, {"tokens": tokens, "actions": actions, "rng": rng}, given)
    try:
        made = creator(tokens, actions, rng, **given)
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{what} does not take hparams.dynamics.kwargs: {error}") from error
    if not isinstance(made, Dynamics):
        raise ConfigError(f"{what} made a {type(made).__name__}; derive it from rl_training.dynamics.Dynamics")
    for attribute in ("state_spec", "features", "noise_size"):
        if not hasattr(made, attribute):
            raise ConfigError(f"{what} has no `{attribute}`; set it in __init__ (see rl_training.dynamics.Dynamics)")
    return made
