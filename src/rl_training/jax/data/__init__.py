"""Replay of the compiled lane as a pytree."""
