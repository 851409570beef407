"""Metrics by which runs are compared, human-normalised scores among them."""
