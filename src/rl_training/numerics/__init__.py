"""Pure NumPy that the torch and the JAX backend share."""
