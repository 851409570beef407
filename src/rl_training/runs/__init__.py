"""Run directories, their names, lock and index, and what a stored config may do.

The two names are imported when first used: the index of runs is read without the config's libraries.
"""

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
