"""Export of policies: one graph of a greedy policy, a reference interpreter in NumPy, and files written from it."""

from rl_training.export.graph import HasGraph, Node, PolicyGraph, Value, run_numpy

__all__ = ["HasGraph", "Node", "PolicyGraph", "Value", "run_numpy"]
