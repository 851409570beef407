"""Offline algorithms for JAX: the twins of `rl_training.algorithms.offline`, as records of pure functions."""
