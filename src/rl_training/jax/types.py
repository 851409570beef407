"""The functional contracts: an algorithm is a record of pure functions, an environment has three of them.

All state of an algorithm or environment is a pytree, passed in and returned; static things (sizes, spaces, switches)
are closed over. Shapes use the letters of `rl_training.types`: T time, N environments, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from rl_training.export.policies import Head
from rl_training.hparams.off_policy import ReplaySchedule, SequenceOptions
from rl_training.numerics.images import ObservationParts
from rl_training.types import BoxSpec, LeafSpec, SpaceSpec

Array = jax.Array
Obs = Any
"""(N, ...) array or dict of them; the key "action_mask" is reserved, as everywhere."""
State = Any
"""State of an algorithm, a NamedTuple. Three fields are required: `params`, a dict or NamedTuple of networks, and
`normalizer`, a dict that may be empty, are saved as the policy of a checkpoint; `hyper` holds the numeric
hyperparameters."""
EnvState = Any
"""State of N environments; every leaf has N rows. Where agents are rows, an environment has one row for all of them."""
Policy = Any
"""The part of a state that acting needs: parameters and statistics, as a pytree."""
Carry = Any
"""Memory of a policy between steps, one row per environment; `()` for a policy without memory."""
Batch = dict[str, Any]
"""A rollout (T, N, ...): obs actions rewards terminated truncated is_first valid next_obs, and the policy's extras.
`next_obs` is the true successor of every row: the final observation where an episode ended."""
Metrics = dict[str, Array]
Hyper = dict[str, Any]
"""Numeric hyperparameters by name, as leaves of the state: another learning rate does not recompile the program.
A schedule is an array [start, end]; its shape (linear, cosine, ...) is static."""


class Noise(NamedTuple):
    """Kind and shape of the random numbers for one action of one environment. The caller of `act` draws them for many
    steps at once, because a counter-based generator inside the step loop costs more than a small network."""

    kind: Literal["gumbel", "normal", "uniform"]
    shape: tuple[int, ...]


class Foresight(Protocol):
    """What errors and pictures of the predictions of a world model need; `algorithms/world_models/dreams.py` has it."""

    @property
    def parts(self) -> ObservationParts:
        """Images and vectors among the observations."""

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""

    def foresee_rows(self, params: Any, batch: Batch, noise: Any, context: int) -> Any:
        """Predictions for sequences of replay rows, of which the first `context` steps are seen."""

    def foresee(self, params: Any, steps: Any, noise: Any, context: int) -> Any:
        """Predictions for steps as `episode` gives them."""

    def episode(self, obs: Any, actions: Any, samples: int) -> Any:
        """An episode from its first observation on, `samples` times."""


class JaxAlgorithm(NamedTuple):
    """One algorithm as pure functions, for the compiled lane and, through `host.py`, for ordinary environments.

    For each rollout or block the driver calls `policy` once, `act` at every step, `learn` on the rollout (or on batches
    from the replay buffer, which the driver owns), then `observe`. `env_steps` counts the steps of all environments
    before the rollout; schedules are functions of it.
    """

    rollout_length: int
    """Steps per environment between two calls of `learn`."""
    replay: ReplaySchedule | None
    """When and how much to learn from replay; None for on-policy algorithms."""
    noise: Noise
    """The random numbers that `act` needs."""
    init: Callable[[np.random.Generator, Hyper], State]
    """(rng, hyper) -> initial state, computed on the host in NumPy, with the initial weights of the torch twin."""
    policy: Callable[[State, Any], Policy]
    """(state, env_steps) -> policy; schedules such as epsilon are evaluated here."""
    act: Callable[[Policy, Obs, Carry, Any, Any, bool], tuple[Any, Carry, dict[str, Any]]]
    """(policy, obs, carry, is_first, noise, deterministic) -> actions, carry, extras; noise is (N, *noise.shape)."""
    learn: Callable[[State, Batch, Any, Array], tuple[State, Metrics]]
    """(state, batch, env_steps, key) -> next state, metrics with fixed names."""
    observe: Callable[[State, Batch], State]
    """(state, batch) -> state with updated normaliser statistics; called between rollouts."""
    initial_carry: Callable[[int], Carry]
    """(N) -> the carry at the start of N episodes."""
    unit_actions: bool = False
    """Box actions are in -1..1 and are rescaled to the bounds of the environment, not clipped."""
    head: Head | None = None
    """How greedy actions follow from features, for `Policy.graph`; None where no graph can say it."""
    updates_per_learn: int = 1
    """With replay: gradient updates per call of `learn`, whose rows hold that many batches one after the other."""
    sequences: SequenceOptions | None = None
    """With replay: `learn` gets sequences of rows (B, T, ...) with `is_first`, `valid` and the memory stored with the
    first row as `carry`, in place of transitions. `act` gives that memory as extras named "carry/..."."""
    in_numpy: bool | None = None
    """Whether `act` computes with NumPy arrays too; None where that depends on the networks of the config."""
    foresight: Foresight | None = None
    """The predictions of an algorithm with a world model."""
    policy_fields: tuple[str, ...] = ()
    """Fields of the state that are saved with the policy, beside `params` and `normalizer`."""


class JaxEnv(Protocol):
    """N environments at once as pure functions. No autoreset: the driver resets ended episodes."""

    @property
    def observation_space(self) -> SpaceSpec: ...
    @property
    def action_space(self) -> SpaceSpec: ...
    @property
    def max_episode_steps(self) -> int | None:
        """Steps after which an episode is truncated; None for no limit."""

    def init(self, key: Array, n: int) -> EnvState:
        """The initial states of N episodes."""

    def obs(self, state: EnvState) -> Obs:
        """The observations in N states, (N, ...)."""

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Array, Array, Array]:
        """(state, rewards, terminated, truncated) after one step of each environment; the last three are (N,)."""


class JaxTeamEnv(Protocol):
    """N environments of A agents that act at the same time and end together; everything else is as in `JaxEnv`.

    Spaces are those of one agent. `envs/teams.py` turns it into a `JaxEnv` of N * A rows.
    """

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents."""

    @property
    def observation_space(self) -> BoxSpec: ...
    @property
    def action_space(self) -> LeafSpec: ...
    @property
    def state_space(self) -> BoxSpec:
        """What centralised critics see, a vector of size S."""

    @property
    def max_episode_steps(self) -> int | None: ...
    def init(self, key: Array, n: int) -> EnvState: ...
    def obs(self, state: EnvState) -> Array:
        """What the agents see, (N, A, ...)."""

    def critic_state(self, state: EnvState) -> Array:
        """What centralised critics see, (N, S)."""

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Array, Array, Array]:
        """(state, rewards (N, A), terminated (N,), truncated (N,)) after actions (N, A, ...)."""
