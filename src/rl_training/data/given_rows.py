"""Rows of one replay buffer for another: what a checkpoint saved becomes a state that this run's buffer can load."""

from __future__ import annotations

from collections.abc import Mapping

from rl_training.checkpointing.row_log import RowLog, RowSource
from rl_training.types import CheckpointError, StateDict


def given_rows(saved: StateDict, mine: StateDict) -> StateDict:
    """The rows of `saved`, the state of another run's buffer, as a state for the buffer whose state is `mine`.

    Columns that this buffer lacks (what a policy remembered, priorities) are left out, and its own random stream stays.
    CheckpointError where a column is missing or of another form, where the number of environments differs, or where the
    rows are more than fit.
    """
    if "shard_0" in saved:
        raise CheckpointError(f"its rows are in {len(saved)} buffers: it was trained with training.shards")
    if "layout" not in saved:
        raise CheckpointError("its rows are those of the compiled lane: train it with --lane host")
    columns: Mapping[str, str] = mine["layout"]
    for name, form in columns.items():
        found = saved["layout"].get(name, "nothing")
        if found != form:
            raise CheckpointError(f"its '{name}' is {found}, this run needs {form}: the environments differ")
    num_envs = int(saved["num_envs"])
    if num_envs != mine["num_envs"]:
        raise CheckpointError(f"its rows are of {num_envs} environments: set env.num_envs: {num_envs}")
    if not saved["in_step"]:
        raise CheckpointError("its rows are in no order of time, so they have no sequences")
    rows: RowSource = saved["rows"]
    skipped = -int(rows.start) % num_envs  # begin with the first environment
    arrays = {name: array[skipped:] for name, array in rows.arrays().items() if name in columns}
    count = len(next(iter(arrays.values())))
    if count > mine["capacity"]:
        raise CheckpointError(f"it has {count:,} rows, this buffer holds {mine['capacity']:,}: raise buffer.size")
    if not count:
        raise CheckpointError("it has no rows")
    return {**mine, "rows": RowLog(arrays, 0, count)}
