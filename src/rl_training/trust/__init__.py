"""Whose code may run here: the consent gate, and the seals of runs that were made on this machine."""
