"""Run directories, their names, lock and index, and what a stored config may do."""

from rl_training.runs.directory import RunDir, make_run_dir

__all__ = ["RunDir", "make_run_dir"]
