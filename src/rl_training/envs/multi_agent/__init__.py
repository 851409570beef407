"""Environments with several agents that act at the same time, as one Gymnasium environment; see the README."""
