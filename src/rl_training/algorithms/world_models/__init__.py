"""Algorithms that learn a model of the environment and plan or imagine with it."""
