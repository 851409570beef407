"""Hand-written gradients of the JAX algorithms."""
