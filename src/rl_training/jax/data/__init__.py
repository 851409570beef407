"""The replay buffer of the compiled lane, as a pytree."""
