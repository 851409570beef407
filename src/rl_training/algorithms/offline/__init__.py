"""Offline algorithms: one file each, learning from a dataset and never from an environment."""
