"""Runs with `training.shards`, trained by one process or by several that torchrun starts."""
