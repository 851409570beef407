"""Repairs of environments of several agents whose episodes depend on more than their seed and actions."""

from __future__ import annotations

from typing import Any


class FreshSpawnTimer:
    """Knights Archers Zombies with a timer of zombies that starts anew at each reset.

    The environment lets it run on into the next episode, so that a replay of the episode alone spawns other zombies.
    """

    def __init__(self, env: Any, inner: Any) -> None:
        self._env, self._inner = env, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._inner.zombie_spawn_interval.reset()
        return self._env.reset(seed=seed, options=options)


def repaired(env: Any) -> Any:
    """The environment, mended where it is known to carry something over a reset."""
    inner = getattr(getattr(env, "aec_env", env), "unwrapped", env)
    kind = type(inner)
    if kind.__module__.startswith("pettingzoo.butterfly.knights_archers_zombies"):
        return FreshSpawnTimer(env, inner)
    return env
