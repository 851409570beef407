"""Dynamics in JAX: the twins of `rl_training.dynamics`, as pure functions."""
