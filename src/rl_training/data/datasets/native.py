"""The package's own format: a folder with one `.npy` file per column, which is mapped into memory, and dataset.json.

A file or a byte that is missing or changed is found by the checksums before anything is learnt from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rl_training.data.datasets.dataset import Dataset, check_forms, check_values, combined, digest
from rl_training.data.datasets.info import DatasetError, DatasetInfo, check_facts
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write
from rl_training.types import Array
from rl_training.version import __version__

FORMAT = 1
INDEX = "dataset.json"


def file_of(column: str) -> str:
    """The file of a column; characters that a file name cannot have are escaped."""
    return quote(column, safe=".-_") + ".npy"


def write_native(data: Dataset, folder: Path) -> Path:
    """Write a dataset into a folder that holds none yet; dataset.json comes last, so that a cut-off writing is seen."""
    check_forms(data, str(folder))
    check_values(data, str(folder))
    check_folder(folder)
    with readable_errors(f"cannot write the dataset '{folder}'", "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, column in data.stored().items():
            np.save(folder / file_of(name), column, allow_pickle=False)
        atomic_write(folder / INDEX, json.dumps(record_of(data), indent=1).encode() + b"\n")
    return folder


def check_folder(folder: Path) -> None:
    """DatasetError where no dataset can be written."""
    if (folder / INDEX).exists():
        raise DatasetError(f"'{folder}' is a dataset already; remove it or name another folder")
    if folder.is_file():
        raise DatasetError(f"'{folder}' is a file; name a folder, or a file that ends in .npz")


def record_of(data: Dataset) -> dict[str, Any]:
    """What dataset.json says."""
    columns = {
        name: {"dtype": column.dtype.name, "shape": list(column.shape), "sha256": data.digests[name]}
        for name, column in data.stored().items()
    }
    returns = data.returns[data.whole]
    statistics = {
        "rows": len(data),
        "episodes": len(data.starts),
        "whole_episodes": int(data.whole.sum()),
        "return_mean": float(returns.mean()) if returns.size else None,
        "return_std": float(returns.std()) if returns.size else None,
    }
    versions = {"rl_training": __version__, "numpy": np.__version__}
    return {
        "format": FORMAT,
        **data.info.to_json(),
        **statistics,
        "versions": versions,
        "columns": columns,
        "sha256": data.sha256,
        "facts_sha256": data.info.facts_sha256(),
    }


def read_native(folder: Path, *, verify: bool = True) -> Dataset:
    """Open a dataset; its columns are mapped from their files. `verify` also compares checksums and looks for NaN."""
    record = read_record(folder)
    try:
        info, columns = DatasetInfo.from_json(record), dict(record["columns"])
        wanted = {name: (str(c["dtype"]), tuple(c["shape"]), str(c["sha256"])) for name, c in columns.items()}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DatasetError(f"'{folder / INDEX}' does not describe a dataset ({error!r})") from error
    arrays = {name: mapped(folder / file_of(name), name) for name in wanted}
    for name, (dtype, shape, _) in wanted.items():
        if (arrays[name].dtype.name, arrays[name].shape) != (dtype, shape):
            found = f"{arrays[name].dtype.name}{list(arrays[name].shape)}"
            raise DatasetError(
                f"'{folder / file_of(name)}': column '{name}' is {found}, {INDEX} says {dtype}{list(shape)}"
            )
    data = from_columns(info, arrays, str(folder))
    if verify:
        for name, (_, _, sha256) in wanted.items():
            if digest(arrays[name]) != sha256:
                raise DatasetError(
                    f"'{folder / file_of(name)}': column '{name}' was changed or is damaged, its SHA-256 is not the "
                    f"one in {INDEX}: copy the dataset again, or record it anew"
                )
        if combined({name: sha for name, (_, _, sha) in wanted.items()}, info.env_id) != record.get("sha256"):
            raise DatasetError(f"'{folder / INDEX}' was changed: its columns do not give its sha256")
        check_facts(info, record, f"'{folder / INDEX}'")
        check_values(data, str(folder))
    return data


def read_record(folder: Path) -> dict[str, Any]:
    """dataset.json as a mapping."""
    path = folder / INDEX
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"'{folder}' is no dataset: cannot read {INDEX} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise DatasetError(f"'{path}' is of format {found!r}, this version reads format {FORMAT}")
    return record


def mapped(path: Path, column: str) -> Array:
    """A column's file, mapped into memory; never unpickled."""
    try:
        loaded: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return loaded
    except FileNotFoundError:
        raise DatasetError(f"'{path}' is missing: column '{column}'") from None
    except (OSError, ValueError, EOFError) as error:
        raise DatasetError(f"'{path}': column '{column}' is {why_unreadable(error, '.npy')}") from error


def why_unreadable(error: Exception, kind: str) -> str:
    """Why NumPy read nothing. It takes whatever has no header of its own for a pickle, and objects inside one need a
    pickle too; its advice to unpickle is not passed on."""
    said = str(error)
    if "Python objects" in said or "Object arrays" in said:
        return "pickled, which can execute code: not read; store numbers"
    detail = "" if "pickle" in said.lower() else f" ({said})"
    return f"cut off or no {kind} file{detail}: copy it again, or record it anew"


def from_columns(info: DatasetInfo, arrays: dict[str, Array], where: str) -> Dataset:
    """A dataset from stored columns, their forms checked."""
    parts = {name.removeprefix("obs."): column for name, column in arrays.items() if name.startswith("obs.")}
    try:
        data = Dataset(
            info,
            parts or arrays["obs"],
            *(arrays[name] for name in ("actions", "rewards", "terminated", "truncated")),
            *(arrays[name] for name in ("episode_starts", "episode_seeds", "episode_whole")),
        )
    except KeyError as error:
        raise DatasetError(f"'{where}' has no column {error}") from error
    check_forms(data, where)
    return data
