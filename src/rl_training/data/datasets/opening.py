"""`open_dataset`: from a path, or the name of a run, to a dataset."""

from __future__ import annotations

from pathlib import Path

from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.info import DatasetError
from rl_training.data.datasets.minari_file import is_minari, read_minari
from rl_training.data.datasets.native import INDEX, read_native
from rl_training.data.datasets.npz_file import read_npz
from rl_training.data.datasets.recorder import INDEX as RECORDING
from rl_training.data.datasets.recorder import read_recording
from rl_training.data.datasets.replay_rows import replay_dataset
from rl_training.runs.directory import RunDir
from rl_training.runs.names import parse_run_step
from rl_training.types import RunError

RUN = "run:"
FLAT_FILES = (".hdf5", ".h5")
"""Ends of the names of D4RL's files."""


def open_dataset(where: str | Path, *, output_dir: str | Path = "runs", verify: bool = True) -> Dataset:
    """A dataset by where it is: a folder, an `.npz` file, "minari:ID" or a folder that Minari wrote, or
    "run:RUN[:STEP]" for the replay rows of a run.

    `verify` compares the checksums and looks for values that are not finite; without it only dtypes and shapes are
    compared. Runs are looked for in `output_dir`.
    """
    text = str(where)
    if text.startswith(RUN):
        return replay_dataset(*named_run(text, output_dir))
    path = Path(text)
    if is_minari(text):
        return read_minari(text, verify=verify)
    if (path / RECORDING).is_file():
        return read_recording(path, verify=verify)
    if path.is_dir():
        return read_native(path, verify=verify)
    if path.suffix == ".npz":
        return read_npz(path, verify=verify)
    if path.suffix in FLAT_FILES and path.is_file():
        raise DatasetError(
            f"'{text}' is a file of another library: bring it in with rl dataset convert {text} FOLDER --env-id ID"
        )
    raise DatasetError(
        f"there is no dataset '{text}': name a folder with a {INDEX}, an .npz file, minari:ID, or run:RUN[:STEP] for "
        "the replay rows of a run"
    )


def named_run(text: str, output_dir: str | Path) -> tuple[RunDir, str | int]:
    """The run and the checkpoint of "run:RUN[:STEP]"."""
    name = text.removeprefix(RUN)
    if not name:
        raise DatasetError(f"'{text}' names no run: give run:RUN or run:RUN:STEP")
    try:
        start = parse_run_step(name)
        return RunDir.open(start.run, output_dir), start.checkpoint
    except RunError as error:
        raise DatasetError(f"'{text}': {error}") from None
