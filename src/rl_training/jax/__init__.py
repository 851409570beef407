"""The compiled lane: environment, agent and loop as one XLA program. The only folder that imports jax."""
