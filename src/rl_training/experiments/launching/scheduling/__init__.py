"""Scheduling of sweeps: which trial may go on, and array jobs for a queue that does without a parent."""
