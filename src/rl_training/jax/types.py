"""The functional contracts: an algorithm is a record of pure functions, an environment three of them.

Everything an algorithm or an environment is at a moment is a pytree that goes in and comes out; static things (sizes,
spaces, switches) are closed over. Shapes use the letters of `rl_training.types`: T time, N environments, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.types import SpaceSpec

Array = jax.Array
Obs = Any
"""(N, ...) array or dict of them; the key "action_mask" is reserved as everywhere."""
State = Any
"""What an algorithm knows, as a NamedTuple. Three of its fields mean something to others: `params` and `normalizer` are
the policy of a checkpoint, dicts that may be empty; `hyper` are the numeric hyperparameters."""
EnvState = Any
"""Where N environments are; every leaf has N rows."""
Policy = Any
"""What acting needs of a state: parameters and statistics, as a pytree."""
Carry = Any
"""What a policy remembers between steps, rows per environment; `()` when it remembers nothing."""
Batch = dict[str, Any]
"""A rollout (T, N, ...): obs actions rewards terminated truncated is_first valid next_obs, and the policy's extras.
`next_obs` is the true successor of every row: the final observation where an episode ended."""
Metrics = dict[str, Array]
Hyper = dict[str, Any]
"""Numeric hyperparameters by name, as leaves of the state: another learning rate needs no other program.
A schedule is an array [start, end]; its shape (linear, cosine, ...) is static."""


class Noise(NamedTuple):
    """The random numbers one decision of one environment takes. Whoever acts draws them, for many steps at once: a
    counter-based generator inside the step loop costs more than a small network."""

    kind: Literal["gumbel", "normal", "uniform"]
    shape: tuple[int, ...]


class JaxAlgorithm(NamedTuple):
    """One algorithm as pure functions, for the compiled lane and, through `host.py`, for ordinary environments.

    The driver calls, for each rollout or block: `policy` once, `act` at every step, `learn` on what was seen (the
    rollout, or batches drawn from the replay that the driver owns), then `observe`. `env_steps` is how many steps of
    all environments were done when the rollout began; schedules are functions of it.
    """

    rollout_length: int
    """Steps per environment between two calls of `learn`."""
    replay: ReplaySchedule | None
    """When and how much to learn from replay; None learns from each rollout and forgets it."""
    noise: Noise
    init: Callable[[np.random.Generator, Hyper], State]
    """On the host, in NumPy: the same first weights as the torch twin."""
    policy: Callable[[State, Any], Policy]
    """(state, env_steps) -> what acts; schedules such as epsilon are evaluated here."""
    act: Callable[[Policy, Obs, Carry, Any, Any, bool], tuple[Any, Carry, dict[str, Any]]]
    """(policy, obs, carry, is_first, noise, deterministic) -> actions, carry, extras; noise is (N, *noise.shape)."""
    learn: Callable[[State, Batch, Any, Array], tuple[State, Metrics]]
    """(state, batch, env_steps, key) -> the next state and metrics with fixed names."""
    observe: Callable[[State, Batch], State]
    """Moves normaliser statistics, between rollouts."""
    initial_carry: Callable[[int], Carry]
    """What a policy remembers when N episodes begin."""
    unit_actions: bool = False
    """Box actions are in -1..1; the environment receives them moved to its bounds, not cut."""
    updates_per_learn: int = 1
    """With replay: updates that one call of `learn` makes, of as many batches one after the other in its rows."""


class JaxEnv(Protocol):
    """N environments at once as pure functions. No autoreset inside: the driver starts ended episodes anew."""

    @property
    def observation_space(self) -> SpaceSpec: ...
    @property
    def action_space(self) -> SpaceSpec: ...
    @property
    def max_episode_steps(self) -> int | None:
        """Steps after which `step` itself says `truncated`; None never does."""

    def init(self, key: Array, n: int) -> EnvState:
        """The first states of N episodes."""

    def obs(self, state: EnvState) -> Obs:
        """What the N policies see, (N, ...)."""

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Array, Array, Array]:
        """(state, rewards, terminated, truncated) after one step of each; the last three are (N,)."""
