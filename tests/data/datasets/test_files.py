"""Datasets in files: both formats there and back, and every kind of damage refused with its file and column."""

from __future__ import annotations

import errno
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from dataset_cases import ACTION, BOX, dict_dataset, small_dataset

from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.flat_files import read_flat
from rl_training.data.datasets.info import DatasetError
from rl_training.data.datasets.native import read_native, write_native
from rl_training.data.datasets.npz_file import write_npz
from rl_training.data.datasets.opening import open_dataset
from rl_training.types import RunError


@pytest.mark.parametrize("data", [small_dataset(), dict_dataset()], ids=["box", "dict"])
@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_what_was_written_is_read(data: Dataset, kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("x" if kind == "folder" else "x.npz")
    (write_native if kind == "folder" else write_npz)(data, path)
    found = open_dataset(path)
    assert found.sha256 == data.sha256
    assert found.info.to_json() == data.info.to_json()
    for name, column in data.stored().items():
        assert found.stored()[name].tobytes() == column.tobytes()
    if kind == "folder":
        assert isinstance(found.rewards, np.memmap)


@pytest.mark.parametrize("kind", ["folder", "npz"])
@pytest.mark.parametrize("change", [{"action_scale": "unit"}, {"ref_max": 7.0}, {"env_id": "Other-v0"}])
def test_what_the_columns_mean_cannot_change_unseen(kind: str, change: dict[str, Any], tmp_path: Path) -> None:
    """Actions in -2..1 that count as -1..1 would be learnt without a word."""
    path = tmp_path / ("x" if kind == "folder" else "x.npz")
    (write_native if kind == "folder" else write_npz)(small_dataset(), path)
    if kind == "folder":
        record = json.loads((path / "dataset.json").read_text())
        (path / "dataset.json").write_text(json.dumps({**record, "author": "me"}))
        assert open_dataset(path).info.author == "me"
        (path / "dataset.json").write_text(json.dumps({**record, **change}))
    else:
        with np.load(path) as file:
            columns = dict(file)
        record = json.loads(columns["dataset.json"].tobytes())
        np.savez(path, **{**columns, "dataset.json": np.frombuffer(json.dumps({**record, **change}).encode(), "u1")})
    with pytest.raises(DatasetError, match=r"dataset\.json'? was changed"):
        open_dataset(path)


def test_a_dataset_of_before_the_second_checksum_is_read(tmp_path: Path) -> None:
    write_native(small_dataset(), tmp_path / "x")
    record = json.loads((tmp_path / "x" / "dataset.json").read_text())
    del record["facts_sha256"]
    (tmp_path / "x" / "dataset.json").write_text(json.dumps(record))
    assert len(open_dataset(tmp_path / "x")) == 9
    (tmp_path / "x" / "dataset.json").write_text(json.dumps({**record, "ref_max": "NaN"}))
    with pytest.raises(DatasetError, match="does not describe a dataset"):
        open_dataset(tmp_path / "x")


def test_an_npz_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_dataset()
    rewards = data.rewards.copy()
    rewards[3] = np.nan
    with pytest.raises(DatasetError, match="'rewards' is not finite in row 3"):
        write_npz(replace(data, rewards=rewards), tmp_path / "x.npz")

    def half(file: Any, **columns: Any) -> None:
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(RunError, match="free some space or choose another folder"):
        write_npz(data, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


def test_a_dataset_is_not_written_over(tmp_path: Path) -> None:
    write_native(small_dataset(), tmp_path / "x")
    with pytest.raises(DatasetError, match="is a dataset already"):
        write_native(small_dataset(), tmp_path / "x")


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    folder = write_native(small_dataset(), tmp_path / "x")
    content = bytearray((folder / "rewards.npy").read_bytes())
    content[-3] ^= 1
    (folder / "rewards.npy").write_bytes(content)
    with pytest.raises(DatasetError, match=r"rewards\.npy': column 'rewards' was changed or is damaged"):
        open_dataset(folder)
    assert len(read_native(folder, verify=False)) == 9


@pytest.mark.parametrize("content", [b"hello", b"\x93NUM", b"", pickle.dumps({"a": 1})])
def test_what_is_no_numpy_file_is_not_advised_to_be_unpickled(content: bytes, tmp_path: Path) -> None:
    """NumPy takes whatever has no header for a pickle, and says how to load it unsafely."""
    folder = write_native(small_dataset(), tmp_path / "x")
    (folder / "obs.npy").write_bytes(content)
    (tmp_path / "x.npz").write_bytes(content)
    for path, message in (
        (folder, "column 'obs' is cut off or no .npy file"),
        (tmp_path / "x.npz", "is cut off or no"),
    ):
        with pytest.raises(DatasetError, match=message) as caught:
            open_dataset(path)
        assert "unsafely" not in str(caught.value)


def test_a_file_of_another_library_is_brought_in_first(tmp_path: Path) -> None:
    (tmp_path / "hopper.hdf5").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"bring it in with rl dataset convert .*hopper\.hdf5 FOLDER --env-id ID"):
        open_dataset(tmp_path / "hopper.hdf5")


def test_a_file_is_no_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DatasetError, match="is a file; name a folder"):
        write_native(small_dataset(), tmp_path / "taken")


def test_a_cut_or_missing_file_is_found(tmp_path: Path) -> None:
    folder = write_native(small_dataset(), tmp_path / "x")
    content = (folder / "obs.npy").read_bytes()
    (folder / "obs.npy").write_bytes(content[:-8])
    with pytest.raises(DatasetError, match=r"obs\.npy': column 'obs' is cut off"):
        open_dataset(folder)
    (folder / "obs.npy").unlink()
    with pytest.raises(DatasetError, match=r"obs\.npy' is missing: column 'obs'"):
        open_dataset(folder)


def test_another_dtype_or_a_nan_is_found(tmp_path: Path) -> None:
    folder = write_native(small_dataset(), tmp_path / "x")
    np.save(folder / "actions.npy", np.load(folder / "actions.npy").astype(np.float64))
    with pytest.raises(DatasetError, match=r"column 'actions' is float64\[9, 1\], dataset.json says float32"):
        open_dataset(folder)
    bad = small_dataset()
    bad.rewards[2] = np.inf
    with pytest.raises(DatasetError, match="column 'rewards' is not finite in row 2"):
        write_native(bad, tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_a_changed_index_is_found(tmp_path: Path) -> None:
    folder = write_native(small_dataset(), tmp_path / "x")
    record = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps({**record, "env_id": "Other-v0"}))
    with pytest.raises(DatasetError, match="its columns do not give its sha256"):
        open_dataset(folder)
    (folder / "dataset.json").write_text(json.dumps({**record, "format": 2}))
    with pytest.raises(DatasetError, match="of format 2, this version reads format 1"):
        open_dataset(folder)


class Bomb:
    """Executes when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("exploded"),)  # type: ignore[return-value]


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_npz(small_dataset(), tmp_path / "x.npz")
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "actions": np.array([Bomb()], object)})
    with pytest.raises(DatasetError, match=r"x\.npz': column 'actions' is pickled"):
        open_dataset(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DatasetError, match=r"x\.npz"):
        open_dataset(path)
    assert not Path("exploded").exists()


def test_a_cut_npz_and_a_foreign_one_are_refused(tmp_path: Path) -> None:
    path = write_npz(small_dataset(), tmp_path / "x.npz")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatasetError, match=r"x\.npz' is cut off"):
        open_dataset(path)
    np.savez(tmp_path / "y.npz", observations=np.zeros(3))
    with pytest.raises(DatasetError, match="rl dataset convert FILE FOLDER --env-id ID"):
        open_dataset(tmp_path / "y.npz")
    with pytest.raises(DatasetError, match="there is no dataset 'nowhere'"):
        open_dataset("nowhere")


def flat_columns() -> dict[str, np.ndarray]:
    """Two episodes: 3 steps to a termination, 3 steps to a timeout."""
    flags = np.zeros((2, 6), bool)
    flags[0, 2] = flags[1, 5] = True
    obs = np.repeat(np.arange(6, dtype=np.float32)[:, None], 2, 1)
    return {
        "observations": obs,
        "actions": np.zeros((6, 1), np.float32),
        "rewards": np.ones(6, np.float32),
        "terminals": flags[0],
        "timeouts": flags[1],
    }


def test_flat_columns_with_next_observations_keep_every_row(tmp_path: Path) -> None:
    columns = flat_columns()
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name, column in {**columns, "next_observations": columns["observations"] + 0.5}.items():
            file[name] = column
    data = read_flat(tmp_path / "x.hdf5", "Small-v0", (BOX, ACTION), {})
    assert data.episodes().tolist() == [[0, 3], [3, 6]]
    assert data.terminated.tolist() == [False, False, True, False, False, False]
    assert data.truncated.tolist() == [False, False, False, False, False, True]
    assert data.next_obs_of(np.array([2, 5]))[:, 0].tolist() == [2.5, 5.5]  # type: ignore[call-overload]


def test_without_them_the_last_step_before_a_timeout_is_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **flat_columns())
    data = read_flat(tmp_path / "x.npz", "Small-v0", (BOX, ACTION), {})
    assert data.episodes().tolist() == [[0, 3], [3, 5]]
    assert data.truncated.tolist() == [False, False, False, False, True]
    assert data.next_obs_of(np.array([4]))[0, 0] == 5.0  # type: ignore[call-overload]


def test_masks_say_what_terminated_and_terminals_only_cut(tmp_path: Path) -> None:
    columns = flat_columns()
    columns["terminals"] |= columns.pop("timeouts")
    np.savez(tmp_path / "x.npz", **columns, masks=np.array([1, 0, 1, 1, 1, 1.0]))
    data = read_flat(tmp_path / "x.npz", "Small-v0", (BOX, ACTION), {})
    assert data.episodes().tolist() == [[0, 2], [2, 4]]
    assert data.terminated.tolist() == [False, True, False, False]
    assert data.truncated.tolist() == [False, False, False, True]


def test_a_flat_file_of_another_environment_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **{**flat_columns(), "actions": np.zeros((6, 3), np.float32)})
    with pytest.raises(DatasetError, match=r"column 'actions' has rows float32\[3\], environment 'Small-v0' has"):
        read_flat(tmp_path / "x.npz", "Small-v0", (BOX, ACTION), {})
