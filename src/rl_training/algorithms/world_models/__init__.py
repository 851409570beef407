"""Algorithms that learn a model of their environment: the world model, and policies learnt or planned in it."""
