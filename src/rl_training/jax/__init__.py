"""The JAX backend: environment, agent and training loop as one XLA program. The only folder that imports jax."""
