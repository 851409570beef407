"""Dynamics: how the state of a world model moves, behind one contract. Parts that a config exchanges."""

from rl_training.dynamics.base import Belief, Dynamics, Observed, State, build_dynamics

__all__ = ["Belief", "Dynamics", "Observed", "State", "build_dynamics"]
