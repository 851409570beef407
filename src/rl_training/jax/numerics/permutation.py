"""Random permutations without sorting: a Feistel network over the indices.

`jax.random.permutation` sorts random keys, which on a CPU takes a quarter of PPO's update. Here an index is split into
two digits, i = left * b + right, and each round adds a random function of one digit to the other: a bijection whatever
the functions are (Luby and Rackoff 1988). Three rounds on each digit are enough to separate neighbours; after two they
stay adjacent twice as often as by chance.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

ROUNDS = 6
SMALLEST_DIGIT = 4
"""With fewer values per digit the rounds mix too little: such sizes, mostly primes, use `jax.random.permutation`."""


def permutations(key: Any, count: int, size: int) -> Any:
    """`count` random permutations of 0 .. size - 1, as (count, size) int32."""
    a = largest_divisor(size)
    if a < SMALLEST_DIGIT:
        return jax.vmap(lambda k: jax.random.permutation(k, size))(jax.random.split(key, count)).astype(jnp.int32)
    b = size // a
    # all tables from one flat draw: the generator dominates the compile time, most of all in several dimensions
    bits = jax.random.bits(key, (ROUNDS // 2 * count * (a + b),)).reshape(ROUNDS // 2, count, a + b)

    def two_rounds(digits: tuple[Any, Any], tables: Any) -> tuple[Any, None]:
        left, right = digits
        left = (left + look_up(tables[:, :b] % a, right)) % a
        right = (right + look_up(tables[:, b:] % b, left)) % b
        return (left, right), None

    index = jnp.broadcast_to(jnp.arange(size, dtype=jnp.uint32), (count, size))
    (left, right), _ = jax.lax.scan(two_rounds, (index // b, index % b), bits)
    return (left * b + right).astype(jnp.int32)


def look_up(tables: Any, digits: Any) -> Any:
    """The entry of each row's table for each of its digits."""
    return jnp.take_along_axis(tables, digits, axis=1, mode="promise_in_bounds")


def largest_divisor(size: int) -> int:
    """The largest divisor of `size` that is at most its square root."""
    return next(d for d in range(math.isqrt(size), 0, -1) if size % d == 0)
