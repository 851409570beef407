"""One root seed, many named independent streams. Nothing in the package touches a global random state.

`stream("env", 3)` of seed s never overlaps a stream of seed s+1: SeedSequence hashes its words, where the common
`seed + i` makes run s's second environment the first of run s+1.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

MAX_SEED = 2**32 - 1
"""Largest root seed: one 32-bit word of a SeedSequence."""


def _word(name: str) -> int:
    return zlib.crc32(name.encode())


def stream(seed: int, name: str, index: int = 0) -> np.random.Generator:
    """An independent generator for one purpose: init, actions, buffer, env, eval, minibatch, ..."""
    return np.random.default_rng(np.random.SeedSequence([seed, _word(name), index]))


def reset_seed(seed: int, env_index: int, reset_count: int) -> int:
    """The seed that environment `env_index` gets at its reset number `reset_count` (0, 1, ...), below 2**31."""
    # + 1: SeedSequence pads with zeros, so [..., i, 0] and [..., i] would be one stream
    words = np.random.SeedSequence([seed, _word("reset"), env_index, reset_count + 1]).generate_state(1)
    return int(words[0]) >> 1


def shard_stream(seed: int, name: str, shard: int, number: int) -> np.random.Generator:
    """The generator of one shard for one update, which needs no state: it follows from the number of the update."""
    words = [seed, _word(name), shard, number + 1]  # + 1 as above
    return np.random.default_rng(np.random.SeedSequence(words))


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of evaluation episode k, whatever the number of environments it is spread over."""
    return int(np.random.SeedSequence([seed, _word("eval"), episode]).generate_state(1)[0]) >> 1


def episode_noise(seed: int, episode: int) -> np.random.Generator:
    """The action noise of stochastic evaluation episode k."""
    return np.random.default_rng(np.random.SeedSequence([seed, _word("eval"), episode, 1]))


def episode_streams(seed: int, episode: int) -> tuple[int, np.random.Generator]:
    """The reset seed and the action noise of recorded episode k; no evaluation or training shares them."""
    words = [seed, _word("record"), episode + 1]
    first = int(np.random.SeedSequence(words).generate_state(1)[0]) >> 1
    return first, np.random.default_rng(np.random.SeedSequence([*words, 1]))


class Streams:
    """The random streams of one run, by name: `ctx.streams("init")`."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        self.seed = seed
        self.prefix = prefix
        """Put in front of every name: one of several policies has streams of its own."""

    def __call__(self, name: str, index: int = 0) -> np.random.Generator:
        return stream(self.seed, self.prefix + name, index)


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator as plain JSON. PCG64 words have 128 bits, so they are stored as decimal strings."""
    state = rng.bit_generator.state
    inner = {key: str(value) for key, value in state["state"].items()}
    return {**state, "state": inner}


def set_generator_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Restore the position that `generator_state` returned."""
    rng.bit_generator.state = {**state, "state": {key: int(value) for key, value in state["state"].items()}}
