"""Algorithms that learn a world model in JAX: the twins of `rl_training.algorithms.world_models`."""
