"""Datasets: recorded transitions in files, and in which formats they are read and written."""
