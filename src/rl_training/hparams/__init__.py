"""Hyperparameters: one torch-free module per algorithm, used by its torch and its JAX twin alike."""
