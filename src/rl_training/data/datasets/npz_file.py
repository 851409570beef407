"""Datasets in one `.npz` file: the same columns as the folder, with dataset.json as bytes. Nothing is unpickled."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.dataset import Dataset, check_forms, check_values
from rl_training.data.datasets.info import DatasetError, DatasetInfo, check_facts
from rl_training.data.datasets.native import INDEX, from_columns, record_of, why_unreadable
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import rename
from rl_training.types import Array


def write_npz(data: Dataset, path: Path) -> Path:
    """Write a dataset as one compressed file."""
    check_forms(data, str(path))
    check_values(data, str(path))
    check_file(path)
    record = np.frombuffer(json.dumps(record_of(data)).encode(), np.uint8)
    columns: dict[str, Any] = {**data.stored(), INDEX: record}
    with readable_errors(f"cannot write the dataset '{path}'", "folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")  # so that half a file never has the name of a whole one
        try:
            with open(part, "wb") as file:
                np.savez_compressed(file, **columns)
            rename(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def check_file(path: Path) -> None:
    """DatasetError where the file exists."""
    if path.exists():
        raise DatasetError(f"'{path}' exists already; remove it or name another file")


def read_npz(path: Path, *, verify: bool = True) -> Dataset:
    """A dataset that `write_npz` wrote, in memory."""
    arrays = read_arrays(path)
    if INDEX not in arrays:
        raise DatasetError(
            f"'{path}' has no {INDEX}, only {', '.join(sorted(arrays))}: a file of another library is brought in by "
            "rl dataset convert FILE FOLDER --env-id ID"
        )
    try:
        record = json.loads(arrays.pop(INDEX).tobytes())
        info = DatasetInfo.from_json(record)
        digests = {name: str(column["sha256"]) for name, column in record["columns"].items()}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DatasetError(f"'{path}': {INDEX} does not describe a dataset ({error!r})") from error
    data = from_columns(info, arrays, str(path))
    if verify:
        check_facts(info, record, f"'{path}': {INDEX}")
        for name, sha256 in data.digests.items():
            if sha256 != digests.get(name):
                raise DatasetError(
                    f"'{path}': column '{name}' was changed, its SHA-256 is not the one in {INDEX}: copy the dataset "
                    "again, or record it anew"
                )
        check_values(data, str(path))
    return data


def read_arrays(path: Path) -> dict[str, Array]:
    """All arrays of a file; DatasetError where one is pickled, cut off or no array."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            names = list(file.files)
            return {name: _read(file, name, path) for name in names}
    except DatasetError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"'{path}' does not exist") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetError(f"'{path}' is {why_unreadable(error, '.npz')}") from error


def _read(file: Any, name: str, path: Path) -> Array:
    try:
        array: Array = file[name]
        return array
    except ValueError as error:
        if "pickle" in str(error).lower():
            raise DatasetError(f"'{path}': column '{name}' is pickled, which can execute code: not read") from None
        raise DatasetError(f"'{path}': column '{name}' is damaged ({error})") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"'{path}': column '{name}' is cut off or damaged ({error})") from error
