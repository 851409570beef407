"""Run directories, their names, lock and index, and what a stored config may do."""

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir, make_run_dir

__all__ = ["RunDir", "make_run_dir"]

__getattr__ = lazily(
    __name__,
    {
        "RunDir": "directory",
        "make_run_dir": "directory",
    },
)
