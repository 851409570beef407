"""Layers of world models in JAX: the twins of `rl_training.models.world_models`."""
