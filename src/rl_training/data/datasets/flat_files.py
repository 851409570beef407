"""Files of other libraries with flat columns: D4RL's HDF5 and npz files, and those of OGBench.

`observations actions rewards terminals` and, where the file has them, `timeouts`, `next_observations` and `masks`.
Where the observation after the last step of a truncated episode is not stored, that step is left out and its
observation is the final one: to learn from it would mean to bootstrap from a state of another episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.dataset import Dataset, Steps, check_forms, check_values, joined
from rl_training.data.datasets.info import DatasetError, DatasetInfo
from rl_training.data.datasets.npz_file import read_arrays
from rl_training.runs.spaces import Spaces
from rl_training.types import Array, DictSpec

NEEDED = ("observations", "actions", "rewards", "terminals")
USED = (*NEEDED, "timeouts", "next_observations", "masks")


def read_flat(path: Path, env_id: str, spaces: Spaces, env: Mapping[str, Any]) -> Dataset:
    """A file of flat columns as a dataset of this environment."""
    columns = read_hdf5(path) if path.suffix in (".hdf5", ".h5") else read_arrays(path)
    for name in NEEDED:
        if name not in columns:
            raise DatasetError(f"'{path}' has no column '{name}', only {', '.join(sorted(columns)) or 'nothing'}")
    rows = len(columns["rewards"])
    for name in USED:
        if name in columns and len(columns[name]) != rows:
            raise DatasetError(f"'{path}': column '{name}' has {len(columns[name]):,} rows, 'rewards' has {rows:,}")
    observation, action = spaces
    if isinstance(observation, DictSpec) or isinstance(action, DictSpec):
        raise DatasetError(f"'{path}' has flat observations, environment '{env_id}' has a Dict space")
    for name, space in (("observations", observation), ("actions", action)):
        if columns[name].shape[1:] != space.shape or columns[name].dtype.kind not in f"{space.dtype.kind}fiu":
            found = f"{columns[name].dtype}{list(columns[name].shape[1:])}"
            raise DatasetError(
                f"'{path}': column '{name}' has rows {found}, environment '{env_id}' has {space.dtype}"
                f"{list(space.shape)}"
            )
    dtypes = {"observations": observation.dtype, "next_observations": observation.dtype, "actions": action.dtype}
    columns = {name: column.astype(dtypes.get(name, column.dtype), copy=False) for name, column in columns.items()}
    info = DatasetInfo(env_id, spaces, "env", env=env, policy={"file": path.name})
    data = joined(info, list(episodes_of(columns)))
    check_forms(data, str(path))
    check_values(data, str(path))
    return data


def episodes_of(columns: Mapping[str, Array]) -> Iterator[Steps]:
    """The episodes of flat columns. `masks` (0 where an episode terminated) overrules what `terminals` says of that:
    then `terminals` only cuts."""
    cuts = columns["terminals"].astype(bool)
    terminated = columns["masks"] == 0 if "masks" in columns else cuts
    if "timeouts" in columns:
        cuts = cuts | columns["timeouts"].astype(bool)
    rewards = columns["rewards"].astype(np.promote_types(columns["rewards"].dtype, np.float32), copy=False)
    following = columns.get("next_observations")
    stops = np.append(np.flatnonzero(cuts[:-1]) + 1, len(cuts))
    for begin, stop in zip(np.append(0, stops[:-1]), stops, strict=True):
        ended = bool(cuts[stop - 1])
        if following is not None:
            observed, last = np.concatenate([columns["observations"][begin:stop], following[stop - 1 : stop]]), stop
        elif terminated[stop - 1] and "masks" not in columns:  # what follows a terminated step is never looked at
            observed, last = columns["observations"][np.append(np.arange(begin, stop), stop - 1)], stop
        else:
            observed, last = columns["observations"][begin:stop], stop - 1
        if last == begin:
            continue
        rows, died = slice(begin, last), terminated[begin:last].copy()
        truncated = np.zeros(last - begin, np.bool_)
        truncated[-1] = ended and not died[-1]
        yield Steps(observed, columns["actions"][rows], rewards[rows], died, truncated, whole=ended)


def read_hdf5(path: Path) -> dict[str, Array]:
    """The columns of a D4RL file."""
    try:
        import h5py
    except ImportError:
        raise DatasetError("HDF5 files need an extra: pip install 'rl-training[offline]'") from None
    try:
        with h5py.File(path, "r") as file:
            return {name: np.asarray(file[name]) for name in USED if name in file}
    except OSError as error:
        raise DatasetError(f"'{path}' is cut off or no HDF5 file ({error})") from error
