"""From `hparams.dynamics` to dynamics in JAX: those of this package by name, your own by dotted name."""

from __future__ import annotations

from typing import Any, cast

from rl_training.hparams.world_models import WorldModelHparams, usual_blocks
from rl_training.jax.dynamics.base import Dynamics
from rl_training.jax.dynamics.deterministic import Deterministic
from rl_training.jax.dynamics.rssm import RSSM
from rl_training.jax.dynamics.stochastic import Stochastic
from rl_training.registry import did_you_mean, dynamics
from rl_training.types import ConfigError

PACKAGE: dict[str, type[RSSM] | type[Deterministic] | type[Stochastic]] = {
    "rssm": RSSM,
    "deterministic": Deterministic,
    "stochastic": Stochastic,
}
"""The dynamics of this package, by the names that they have in torch."""
CONTRACT = (
    *("features", "deter", "blocks", "noise_size", "open_loop", "state_spec", "acting", "in_numpy"),
    *("init", "initial", "predict", "correct", "observe", "divergence", "read", "stored", "restored"),
)
"""What a class of your own must have: see `rl_training.jax.dynamics.base.Dynamics`."""


def build_dynamics(hp: WorldModelHparams, tokens: int, actions: int) -> Dynamics:
    """The dynamics that `hparams.dynamics` names, with the sizes of `hparams.size` where none are given."""
    name, given = hp.dynamics.type, dict(hp.dynamics.kwargs)
    if name not in PACKAGE:
        return own_dynamics(name, given, tokens, actions)
    creator = PACKAGE[name]
    known = creator._fields[2:]
    for key in given:
        if key not in known:
            near = did_you_mean(key, known)
            raise ConfigError(f"dynamics '{name}' takes no '{key}' in hparams.dynamics.kwargs{near}")
    suggested = {key: value for key, value in hp.dynamics_defaults.items() if key in known}
    kwargs: dict[str, Any] = {**suggested, **given}
    if "blocks" in known and kwargs.get("blocks") is None:
        kwargs["blocks"] = usual_blocks(kwargs["deter"])
    made = creator(tokens, actions, **kwargs)
    made.check()
    return made


def own_dynamics(name: str, kwargs: dict[str, Any], tokens: int, actions: int) -> Dynamics:
    """Dynamics of your own class; ConfigError where it lacks a part of the contract of this backend."""
    creator: Any = dynamics.get(name)
    if missing := [part for part in CONTRACT if not hasattr(creator, part)]:
        raise ConfigError(
            f"hparams.dynamics.type '{name}': with backend: jax dynamics are one of {', '.join(PACKAGE)}, or a class "
            f"like rl_training.jax.dynamics.base.Dynamics, whose `{missing[0]}` it lacks; or use backend: torch"
        )
    try:
        return cast(Dynamics, creator(tokens, actions, **kwargs))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"dynamics '{name}' does not take hparams.dynamics.kwargs: {error}") from error
