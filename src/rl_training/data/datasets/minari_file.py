"""Datasets of Minari 0.5 (HDF5), read and written without that library; images are written without loss.

`<root>/<id>/data/` holds metadata.json and main_data.hdf5, with a group per episode: `observations` (T + 1 rows),
`actions rewards terminations truncations` (T rows), attributes `id seed total_steps`. What Minari has no place for is
kept under the key `rl_training` of metadata.json, so that a dataset comes back bit for bit.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.dataset import Dataset, Steps, check_forms, check_values, joined
from rl_training.data.datasets.info import DatasetError, DatasetInfo
from rl_training.data.datasets.minari_spaces import Leaf, leaves_of, minari_space, spec_of
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write
from rl_training.types import Array, BoxSpec, DictSpec, Obs
from rl_training.version import __version__

MINARI = "minari:"
METADATA, MAIN = "metadata.json", "main_data.hdf5"
FORMAT = "0.5.4"
"""Version of Minari whose layout this is."""
OWN = "rl_training"
"""Key of metadata.json for what Minari has no place for."""


def minari_root() -> Path:
    """Where Minari keeps its datasets: MINARI_DATASETS_PATH, else ~/.minari/datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def data_folder(where: str) -> Path:
    """The folder with metadata.json of "minari:ID", or of a path to it or to the folder above."""
    if where.startswith(MINARI):
        name = where.removeprefix(MINARI)
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") or "\\" in part for part in parts):
            raise DatasetError(f"'{where}' is no name of a Minari dataset, such as minari:pendulum/expert-v0")
        return minari_root() / name / "data"
    path = Path(where)
    return path if (path / METADATA).exists() else path / "data"


def is_minari(where: str) -> bool:
    """Whether this names a dataset of Minari: by its prefix, or because the folder holds one."""
    return where.startswith(MINARI) or (data_folder(where) / METADATA).is_file()


# -- reading ----------------------------------------------------------------------------------------------------------


def read_minari(where: str, *, verify: bool = True) -> Dataset:
    """A dataset of Minari, in memory."""
    folder = data_folder(where)
    metadata = read_metadata(folder)
    try:
        spaces = [json.loads(metadata[f"{name}_space"]) for name in ("observation", "action")]
        info = info_of(metadata, folder, spaces)
        count = int(metadata["total_episodes"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DatasetError(f"'{folder / METADATA}' does not describe a dataset of Minari ({error!r})") from error
    data = joined(info, list(read_episodes(folder / MAIN, count, *map(leaves_of, spaces))))
    check_forms(data, str(folder / MAIN))
    if verify:
        check_values(data, str(folder / MAIN))
        wanted = (metadata.get(OWN) or {}).get("sha256")
        if wanted is not None and data.sha256 != wanted:
            raise DatasetError(f"'{folder / MAIN}' was changed or is damaged: its SHA-256 is not the one in {METADATA}")
    return data


def read_metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"there is no dataset of Minari: cannot read '{path}' ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("data_format") != "hdf5":
        kind = found.get("data_format") if isinstance(found, dict) else None
        raise DatasetError(f"'{path}' has the format {kind!r}; only Minari's hdf5 is read")
    return found


def info_of(metadata: Mapping[str, Any], folder: Path, spaces: list[Any]) -> DatasetInfo:
    """What is known of a dataset: as this package wrote it, else from Minari's own fields."""
    own = metadata.get(OWN)
    if own is not None:
        return DatasetInfo.from_json(own)
    spec = json.loads(metadata.get("env_spec") or "{}")
    if not spec.get("id"):
        raise DatasetError(f"'{folder / METADATA}' does not say which environment it is of (env_spec)")
    env = {name: spec[name] for name in ("kwargs", "max_episode_steps") if spec.get(name)}
    author = metadata.get("author") or ""
    return DatasetInfo(
        env_id=str(spec["id"]),
        spaces=(spec_of(spaces[0]), spec_of(spaces[1])),
        action_scale="env",
        env=env,
        policy={"minari": str(metadata.get("dataset_id", "")), "algo": str(metadata.get("algorithm_name", ""))},
        ref_min=None if metadata.get("ref_min_score") is None else float(metadata["ref_min_score"]),
        ref_max=None if metadata.get("ref_max_score") is None else float(metadata["ref_max_score"]),
        reference="reference scores of the Minari dataset",
        author=", ".join(map(str, author)) if isinstance(author, list) else str(author),
    )


def read_episodes(path: Path, count: int, seen: list[Leaf], done: list[Leaf]) -> Iterator[Steps]:
    """Every episode of the file, in the order of their numbers."""
    h5py = import_h5py()
    try:
        with h5py.File(path, "r") as file:
            for number in range(count):
                yield episode_of(h5py, file, path, f"episode_{number}", seen, done)
    except DatasetError:
        raise
    except (OSError, RuntimeError) as error:
        raise DatasetError(f"'{path}' is cut off or no HDF5 file ({error})") from error


def episode_of(h5py: Any, file: Any, path: Path, name: str, seen: list[Leaf], done: list[Leaf]) -> Steps:
    def column(place: str, shape: tuple[int, ...] | None = None) -> Array:
        node = file
        for part in (name, *place.split("/")):
            link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
            if not isinstance(link, h5py.HardLink):
                raise DatasetError(f"'{path}' has no column '{place}' in {name}")
            node = node[part]
        if not isinstance(node, h5py.Dataset):
            raise DatasetError(f"'{path}': column '{place}' in {name} is no array")
        found = np.asarray(node[()])
        if shape is not None and len(shape) == 3 and found.ndim < 4:
            return decoded(found, path, place)
        if found.dtype == object:
            raise DatasetError(f"'{path}': column '{place}' in {name} holds objects, not numbers")
        return found

    observed = {leaf.key: leaf.cast(column(f"observations{leaf.place}", leaf.spec.shape)) for leaf in seen}
    actions = {leaf.key: leaf.cast(column(f"actions{leaf.place}")) for leaf in done}
    if list(actions) != [""]:
        raise DatasetError(f"'{path}': Dict and Tuple actions are not supported")
    ends = {name: column(name).astype(np.bool_) for name in ("terminations", "truncations")}
    rewards = column("rewards")
    rewards = rewards.astype(np.promote_types(rewards.dtype, np.float32), copy=False)
    attributes = file[name].attrs
    seed = attributes.get("seed")
    ended = bool(ends["terminations"][-1:].any() or ends["truncations"][-1:].any())
    whole = bool(attributes.get(f"{OWN}_whole", ended))
    obs: Obs = observed.get("", observed)
    return Steps(
        obs,
        actions[""],
        rewards,
        ends["terminations"],
        ends["truncations"],
        seed=-1 if seed is None else int(seed),
        whole=whole,
    )


def decoded(rows: Array, path: Path, column: str) -> Array:
    """Images that were stored as JPEG files, one per row."""
    try:
        from PIL import Image
    except ImportError:
        raise DatasetError(
            f"'{path}': column '{column}' holds JPEG images, which need Pillow: pip install pillow"
        ) from None
    try:
        return np.stack([np.asarray(Image.open(io.BytesIO(np.asarray(row, np.uint8).tobytes()))) for row in rows])
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{path}': column '{column}' holds a damaged image ({error})") from error


# -- writing ----------------------------------------------------------------------------------------------------------


def write_minari(data: Dataset, where: str, env_spec: str | None = None) -> Path:
    """Write a dataset so that Minari opens it; `env_spec` is the JSON of Gymnasium's record of the environment.

    Actions are those of the environment, unless the dataset has them in -1..1.
    """
    folder = data_folder(where)
    check_new(where)
    if isinstance(data.info.spaces[1], BoxSpec) and data.info.action_scale == "unit":
        raise DatasetError(
            "Minari holds actions of the environment, this dataset has them in -1..1 (replay rows): record episodes"
        )
    check_values(data, where)
    h5py = import_h5py()
    with readable_errors(f"cannot write the dataset '{folder}'", "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(folder / MAIN, "w", track_order=True) as file:
            for number, (begin, end) in enumerate(data.episodes()):
                write_episode(data, file.create_group(f"episode_{number}"), number, int(begin), int(end))
        record = metadata_of(data, where, folder, env_spec)
        atomic_write(folder / METADATA, json.dumps(record).encode() + b"\n")
    return folder


def check_new(where: str) -> None:
    """DatasetError where nothing can be written: a dataset is there already, or h5py is missing."""
    folder = data_folder(where)
    if (folder / METADATA).exists():
        raise DatasetError(f"'{folder}' is a dataset already; remove it or give another name")
    import_h5py()


def write_episode(data: Dataset, group: Any, number: int, begin: int, end: int) -> None:
    group.attrs["id"] = number
    group.attrs["total_steps"] = end - begin
    if data.seeds[number] >= 0:
        group.attrs["seed"] = int(data.seeds[number])
    group.attrs[f"{OWN}_whole"] = bool(data.whole[number])
    seen = slice(begin + number, end + number + 1)
    observed = data.observations
    for key, leaf in (observed if isinstance(observed, dict) else {"": observed}).items():
        group.create_dataset(f"observations/{key}" if key else "observations", data=np.asarray(leaf[seen]))
    columns = {"actions": data.actions, "rewards": data.rewards}
    columns |= {"terminations": data.terminated, "truncations": data.truncated}
    for name, column in columns.items():
        group.create_dataset(name, data=np.asarray(column[begin:end]))


def metadata_of(data: Dataset, where: str, folder: Path, env_spec: str | None) -> dict[str, Any]:
    """What metadata.json says."""
    observation, action = data.info.spaces
    assert not isinstance(action, DictSpec), "no dataset holds Dict actions"
    name = where.removeprefix(MINARI) if where.startswith(MINARI) else folder.parent.name
    record: dict[str, Any] = {
        "dataset_id": name,
        "total_episodes": len(data.starts),
        "total_steps": len(data),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(minari_space(observation)),
        "action_space": json.dumps(minari_space(action)),
        "minari_version": FORMAT,
        "description": f"recorded by rl_training {__version__} in {data.info.env_id}",
        "algorithm_name": str(data.info.policy.get("algo", "")),
        "dataset_size": round((folder / MAIN).stat().st_size / 1e6, 1),
        OWN: {**data.info.to_json(), "sha256": data.sha256},
    }
    if env_spec is not None:
        record["env_spec"] = env_spec
    if data.info.author:
        record["author"] = [data.info.author]
    if data.has_scores:
        record |= {"ref_min_score": data.info.ref_min, "ref_max_score": data.info.ref_max}
    return record


def import_h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise DatasetError("datasets of Minari need an extra: pip install 'rl-training[offline]'") from None
    return h5py
