"""Run directories, their names, lock and index, and what a stored config may do.

The two names are imported when first used: the index of runs is read without the config's libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir, make_run_dir

__all__ = ["RunDir", "make_run_dir"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from rl_training.runs import directory

    return {"RunDir": directory.RunDir, "make_run_dir": directory.make_run_dir}[name]
