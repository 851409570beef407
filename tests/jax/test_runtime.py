"""Setup of jax in a process: what it does to threads and memory."""

from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource
from rl_training.jax import runtime
runtime.configure(num_threads=1)
import jax, jax.numpy as jnp
program = jax.jit(lambda x: jnp.cumsum(x[::-1]).sum())  # temporary arrays of 48 MB
x = jnp.arange(12 * 1024 * 1024, dtype=jnp.float32)
for _ in range(2):
    program(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    program(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_repeated_calls_ask_the_operating_system_for_no_fresh_pages() -> None:
    """Without `keep_freed_memory`, a call of this program touches some 37,000 of them."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2_000
