"""Checks of your own JAX environments, networks and algorithms by shapes and dtypes: nothing is computed or compiled.

XLA would reject most mistakes too, but later and with messages about its loops; others would broadcast silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.types import BoxSpec, ConfigError, DictSpec, LeafSpec, SpaceSpec

if TYPE_CHECKING:
    from rl_training.jax.models.networks import Network
    from rl_training.jax.types import JaxEnv, JaxTeamEnv

ROWS = 3
"""Number of environments or observations to check with: not 1, which would hide a missing axis."""
KINDS = {jnp.floating: "floats", jnp.integer: "integers", jnp.bool_: "bools"}


def check_env(env: JaxEnv, what: str) -> None:
    """ConfigError unless `init`, `obs`, `step` and the spaces of an environment are consistent for n environments."""
    state = checked_state(env, what)
    check_obs(jax.eval_shape(env.obs, state), env.observation_space, f"{what}: obs(state)")
    check_step(env, state, (ROWS,), what)


TEAM_NEEDS = ("agents", "observation_space", "action_space", "state_space", "max_episode_steps", "critic_state")
"""What an environment of several agents has beside init, obs and step."""


def check_team(env: JaxTeamEnv, what: str) -> None:
    """The same for an environment of several agents, whose arrays have an axis of agents behind that of environments;
    see `types.JaxTeamEnv`."""
    for name in TEAM_NEEDS:
        if not hasattr(env, name):
            raise ConfigError(
                f"{what} has no {name}; an environment of several agents in JAX needs {', '.join(TEAM_NEEDS)} beside "
                "init, obs and step"
            )
    agents = list(env.agents)
    if not agents or len(set(agents)) != len(agents) or not all(isinstance(agent, str) for agent in agents):
        raise ConfigError(f"{what}: agents must be different names, at least one, not {agents!r}")
    spaces = {"observation_space": env.observation_space, "state_space": env.state_space}
    for name, space in spaces.items():
        if not isinstance(space, BoxSpec) or space.dtype != np.float32:
            raise ConfigError(f"{what}: {name} must be a BoxSpec of float32, that of one agent or of all, not {space}")
    if len(env.state_space.shape) != 1:
        raise ConfigError(f"{what}: state_space must be a vector, not of shape {env.state_space.shape}")
    rows, state = (ROWS, len(agents)), checked_state(env, what)
    seen, shown = jax.eval_shape(env.obs, state), jax.eval_shape(env.critic_state, state)
    check_array(seen, (*rows, *env.observation_space.shape), jnp.floating, f"{what}: obs(state)")
    check_array(shown, (ROWS, *env.state_space.shape), jnp.floating, f"{what}: critic_state(state)")
    check_step(env, state, rows, what)


def checked_state(env: JaxEnv | JaxTeamEnv, what: str) -> Any:
    """The shapes of a first state; ConfigError unless every array has a row for each environment."""
    state = jax.eval_shape(lambda key: env.init(key, ROWS), jax.eval_shape(jax.random.key, 0))
    for path, leaf in named_leaves(state):
        if leaf.shape[:1] != (ROWS,):
            raise ConfigError(
                f"{what}: init(key, n) made a state{path} of shape {leaf.shape} for n = {ROWS}; every array of a state "
                "has n rows, one for each environment"
            )
    return state


def check_step(env: JaxEnv | JaxTeamEnv, state: Any, rows: tuple[int, ...], what: str) -> None:
    """ConfigError unless `step` takes actions of all `rows`, environments or their agents, and returns what it must."""
    space = env.action_space
    if isinstance(space, DictSpec):
        raise ConfigError(f"{what} has a Dict action space, which no algorithm here can use")
    dtype, key = np.float32 if isinstance(space, BoxSpec) else np.int32, jax.eval_shape(jax.random.key, 0)
    stepped = jax.eval_shape(env.step, state, jax.ShapeDtypeStruct((*rows, *space.shape), dtype), key)
    if not isinstance(stepped, tuple) or len(stepped) != 4:
        raise ConfigError(f"{what}: step must return (state, rewards, terminated, truncated)")
    check_unchanged(state, stepped[0], f"{what}: step", "state")
    check_array(stepped[1], rows, jnp.floating, f"{what}: step: rewards")
    for name, column in zip(("terminated", "truncated"), stepped[2:], strict=True):
        check_array(column, (ROWS,), jnp.bool_, f"{what}: step: {name}")


def check_obs(obs: Any, space: SpaceSpec, what: str) -> None:
    """ConfigError unless the observations of ROWS environments fit the space."""
    if isinstance(space, DictSpec):
        if not isinstance(obs, dict) or set(obs) != set(space.spaces):
            found = f"the keys {', '.join(sorted(obs))}" if isinstance(obs, dict) else "no dict"
            raise ConfigError(f"{what} has {found}; observation_space has {', '.join(sorted(space.spaces))}")
        for key, leaf in space.spaces.items():
            check_array(obs[key], (ROWS, *leaf.shape), kind_of(leaf), f"{what}: '{key}'")
    else:
        check_array(obs, (ROWS, *space.shape), kind_of(space), what)


def kind_of(leaf: LeafSpec) -> Any:
    is_float = isinstance(leaf, BoxSpec) and leaf.dtype.kind == "f"
    return jnp.floating if is_float else jnp.integer


def check_array(array: Any, shape: tuple[int, ...], kind: Any, what: str) -> None:
    """ConfigError unless an array has this shape and kind of dtype."""
    if not hasattr(array, "dtype"):
        found = type(array).__name__
    elif array.shape == shape and jnp.issubdtype(array.dtype, kind):
        return
    else:
        found = described(array)
    raise ConfigError(f"{what} must be {KINDS[kind]} of shape {shape} for {ROWS} environments, not {found}")


def described(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def check_unchanged(before: Any, after: Any, what: str, name: str) -> None:
    """ConfigError unless a pytree kept its structure, shapes and dtypes, as the carry of a loop must."""
    old, new = dict(named_leaves(before)), dict(named_leaves(after))
    if old.keys() != new.keys():
        lost, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        changes = [f"without {name}{path}" for path in lost] + [f"with a new {name}{path}" for path in come]
        raise ConfigError(f"{what} returned a {name} {', '.join(changes)}; it must keep its form")
    for path, leaf in old.items():
        if (leaf.shape, leaf.dtype) != (new[path].shape, new[path].dtype):
            change = f"{described(new[path])} of {described(leaf)}"
            raise ConfigError(f"{what} made {name}{path} {change}; shape and dtype must stay")


def check_actions(actions: Any, num_envs: int, space: SpaceSpec) -> None:
    """ConfigError unless `act` returned one action per environment; another shape would be broadcast silently."""
    assert not isinstance(space, DictSpec), "refused by every algorithm"
    shape = (num_envs, *space.shape)
    if actions.shape != shape:
        raise ConfigError(f"act returned actions of shape {actions.shape}; {num_envs} environments take {shape}")


def check_metrics(metrics: Any) -> None:
    """ConfigError unless every metric is a scalar."""
    for name, leaf in metrics.items():
        if leaf.shape != ():
            raise ConfigError(f"learn returned metric '{name}' of shape {leaf.shape}; a metric is one number: .mean()?")


def check_network(network: Network, space: SpaceSpec, what: str) -> None:
    """ConfigError unless a backbone turns observations into `out_features` features."""
    params = network.init(np.random.default_rng(0))
    if not isinstance(params, dict) or not all(isinstance(leaf, np.ndarray) for leaf in params.values()):
        raise ConfigError(f"{what}: init(rng) must return a dict of NumPy arrays by name")
    leaves = space.spaces if isinstance(space, DictSpec) else {"obs": space}
    by_name = {key: jax.ShapeDtypeStruct((ROWS, *leaf.shape), leaf.dtype) for key, leaf in leaves.items()}
    features = jax.eval_shape(network.apply, params, by_name if isinstance(space, DictSpec) else by_name["obs"])
    if network.step is None:
        check_array(features, (ROWS, network.out_features), jnp.floating, f"{what}: apply(params, obs)")
        return
    if network.initial_carry is not None:
        check_memory(network, params, features, what)
        return
    memory = jax.ShapeDtypeStruct((ROWS, network.out_features), np.float32)
    stepped = jax.eval_shape(network.step, params, memory, features)
    check_array(stepped, memory.shape, jnp.floating, f"{what}: step(params, memory, features)")


def check_memory(network: Network, params: Any, seen: Any, what: str) -> None:
    """ConfigError unless `step` of a network with `initial_carry` returns features and a carry of the same form."""
    assert network.initial_carry is not None
    assert network.step is not None
    carry = network.initial_carry(ROWS)
    parts = carry.values() if isinstance(carry, dict) else [carry]
    if not all(hasattr(part, "shape") and part.shape[:1] == (ROWS,) for part in parts):
        raise ConfigError(f"{what}: initial_carry({ROWS}) must be an array or a dict of arrays, each with {ROWS} rows")
    stepped = jax.eval_shape(network.step, params, carry, seen)
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise ConfigError(f"{what}: step(params, carry, seen) must return (features, carry)")
    check_array(
        stepped[0], (ROWS, network.out_features), jnp.floating, f"{what}: features of step(params, carry, seen)"
    )
    check_unchanged(carry, stepped[1], f"{what}: step", "carry")


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The arrays of a pytree with their paths, such as ".inner['x']"."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
