"""A dataset that grows with a training run (`logging.record`): every transition, appended to one file per column.

A checkpoint holds how many steps were written, and a resumed run cuts the files back to that, so its dataset is the one
of a run that was never stopped. The steps of several environments take turns in the files; reading puts the episodes of
each together. `rl dataset convert RUN/dataset FOLDER` makes an ordinary dataset of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rl_training.data.datasets.dataset import Dataset, check_forms, check_values, joined
from rl_training.data.datasets.info import DatasetError, DatasetInfo
from rl_training.data.datasets.native import file_of
from rl_training.data.datasets.replay_rows import episodes_of
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write
from rl_training.types import Array, CheckpointError, DictSpec, LeafSpec, StateDict, VectorStep

INDEX = "recording.json"
FORMAT = 1
FOLDER = "dataset"
"""Where a run keeps it."""


def columns_of(info: DatasetInfo) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Dtype and shape of one row of every column."""
    observation, action = info.spaces
    if isinstance(action, DictSpec):
        raise DatasetError(f"'{info.env_id}' has Dict actions, which no dataset holds")
    leaves: dict[str, LeafSpec] = (
        {f"/{key}": leaf for key, leaf in observation.spaces.items()}
        if isinstance(observation, DictSpec)
        else {"": observation}
    )
    seen = {f"{name}{key}": (leaf.dtype, leaf.shape) for name in ("obs", "next_obs") for key, leaf in leaves.items()}
    flags = {name: (np.dtype(np.bool_), ()) for name in ("terminated", "truncated", "skipped")}
    return {**seen, "actions": (action.dtype, action.shape), "rewards": (np.dtype(np.float64), ()), **flags}


class StepRecorder:
    """Appends the steps of N environments to the files of a folder."""

    def __init__(self, folder: Path, info: DatasetInfo, num_envs: int) -> None:
        self.folder, self.num_envs = folder, num_envs
        self.columns = columns_of(info)
        self.steps = 0
        """Steps of all environments that were written."""
        self.files: dict[str, BinaryIO] = {}
        record = {"format": FORMAT, "num_envs": num_envs, **info.to_json()}
        with readable_errors(f"cannot record into '{folder}'"):
            folder.mkdir(parents=True, exist_ok=True)
            atomic_write(folder / INDEX, json.dumps(record, indent=1).encode() + b"\n")

    def store(self, step: VectorStep) -> None:
        """Append one step."""
        if not self.files:
            self.cut(self.steps)
        actions = step.actions if step.env_actions is None else step.env_actions
        given: dict[str, Any] = {"actions": actions, "rewards": step.rewards}
        given |= {"terminated": step.terminated, "truncated": step.truncated, "skipped": ~step.valid}
        for name, obs in (("obs", step.obs), ("next_obs", step.next_obs)):
            given |= {f"{name}/{key}": leaf for key, leaf in obs.items()} if isinstance(obs, dict) else {name: obs}
        with readable_errors(f"cannot record into '{self.folder}'"):
            for name, (dtype, _) in self.columns.items():
                self.files[name].write(np.ascontiguousarray(given[name], dtype).tobytes())
        self.steps += 1

    def cut(self, steps: int) -> None:
        """Go back to the first `steps` steps; CheckpointError where a file has fewer."""
        self.close()
        with readable_errors(f"cannot record into '{self.folder}'"):
            for name, (dtype, shape) in self.columns.items():
                size = steps * self.num_envs * dtype.itemsize * int(np.prod(shape))
                path = self.folder / file_of(name).replace(".npy", ".rows")
                file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115  # closed by `close`
                self.files[name] = file
                if file.seek(0, os.SEEK_END) < size:
                    raise CheckpointError(f"'{path}' is shorter than the checkpoint says: the dataset cannot go on")
                file.truncate(size)
                file.seek(size)
        self.steps = steps

    def close(self) -> None:
        """Write what is buffered."""
        for file in self.files.values():
            file.close()
        self.files = {}

    def state_dict(self) -> StateDict:
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {"steps": self.steps}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.cut(int(state["steps"]))


def read_recording(folder: Path, *, verify: bool = True) -> Dataset:
    """What a run has recorded so far, in memory. The rows of a step that is just being written are left out."""
    path = folder / INDEX
    try:
        record = json.loads(path.read_bytes())
        info, num_envs = DatasetInfo.from_json(record), int(record["num_envs"])
        if record["format"] != FORMAT or num_envs < 1:
            raise ValueError(f"format {record['format']!r}")
        columns = columns_of(info)
    except OSError as error:
        raise DatasetError(f"cannot read '{path}' ({error.strerror})") from error
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DatasetError(f"'{path}' does not describe a recording ({error!r})") from error
    rows = {name: mapped(folder, name, dtype, shape) for name, (dtype, shape) in columns.items()}
    count = min(len(column) for column in rows.values()) // num_envs * num_envs
    episodes = list(episodes_of({name: column[:count] for name, column in rows.items()}, 0, num_envs))
    data = joined(info, episodes)
    check_forms(data, str(folder))
    if verify:
        check_values(data, str(folder))
    return data


def mapped(folder: Path, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """A column of a recording, mapped into memory."""
    path = folder / file_of(name).replace(".npy", ".rows")
    width = dtype.itemsize * int(np.prod(shape))
    try:
        count = path.stat().st_size // max(width, 1)
        if not count:
            return np.zeros((0, *shape), dtype)
        return np.memmap(path, dtype, "r", shape=(count, *shape))
    except OSError as error:
        raise DatasetError(f"cannot read column '{name}': '{path}' ({error.strerror})") from error
