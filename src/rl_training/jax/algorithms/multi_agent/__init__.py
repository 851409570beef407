"""Algorithms for several agents in JAX, at the addresses of their torch twins."""
