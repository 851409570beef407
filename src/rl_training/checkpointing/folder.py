"""One checkpoint on disk: a folder with a manifest, the scalars of all parts, and one file of arrays per part.

    step_000000012288/
      manifest.json        format, step, version, metadata, seal, SHA-256 and length of every other file, and of itself
      state.json           per part: the scalars, and which arrays are the same object (tied weights)
      policy.safetensors   the arrays of the part "policy"; parts without arrays have no file

The rows of replay buffers are in `segments/` beside the folders; the manifest lists the segments it needs.

Reading trusts nothing: each file is opened without following links, its length compared with the manifest before it is
read, and its SHA-256 checked before anything in it is interpreted. No pickle, no code. Not here: which checkpoints
exist (`step_folders.py`) and which are kept (`retention.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_training.checkpointing.row_log import RowLog, RowSource
from rl_training.checkpointing.safetensors_format import blob_chunks, parse_blob
from rl_training.checkpointing.seal import Seal
from rl_training.checkpointing.segments import SavedLog, SegmentStore
from rl_training.checkpointing.state_tree import (
    FlatState,
    decode_json,
    dump_json,
    encode_json,
    flatten,
    parse_json,
    unflatten,
)
from rl_training.checkpointing.verified_files import (
    MAX_JSON_BYTES,
    DamagedCheckpointError,
    hash_file,
    opened,
    read_file,
)
from rl_training.system.atomic_io import FileRecord, fault_point, fsync_dir, write_file
from rl_training.types import Array, CheckpointError, StateDict
from rl_training.version import __version__

FORMAT = 1
MANIFEST, STATE = "manifest.json", "state.json"
STEP_NAME = re.compile(r"step_([0-9]{12})")
PART_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# the manifest starts with its own SHA-256, computed with these 64 digits as zeros, so that it can be checked before
# anything is parsed
SEAL_START, SEAL_END = b'{\n "sha256": "', b'",\n'
SEAL_SIZE = len(SEAL_START) + 64 + len(SEAL_END)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory, all bytes verified. The arrays of one part share one block of memory."""

    step: int
    path: Path
    metadata: dict[str, Any]
    parts: dict[str, StateDict]
    seal: Seal | None = None
    """The run and config that saved it; None in checkpoints of version 0.1.0."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint folder must contain."""

    step: int
    metadata: dict[str, Any]
    files: dict[str, FileRecord]
    dtypes: dict[str, dict[str, str]]
    """For every part, the logical dtypes of arrays that are stored in another dtype."""
    logs: dict[str, dict[str, SavedLog]]
    """For every part, its row logs and the segments that hold them."""
    seal: Seal | None

    def segments(self) -> set[str]:
        """The names of all segments it needs."""
        return {segment.name for logs in self.logs.values() for log in logs.values() for segment in log.segments}


def step_name(step: int) -> str:
    """The folder name of a step's checkpoint: 12 digits, so that names sort like numbers."""
    if not 0 <= step < 10**12:
        raise CheckpointError(f"a checkpoint's step must be from 0 to 10^12 - 1, not {step}")
    return f"step_{step:012d}"


def blob_name(part: str) -> str:
    """The file that holds the arrays of a part."""
    return f"{part}.safetensors"


# -- flattening -------------------------------------------------------------------------------------------------------


def flatten_part(part: str, state: StateDict) -> FlatState:
    """A part's state flattened for saving; CheckpointError if its name is invalid or its state cannot be saved."""
    if not PART_NAME.fullmatch(part):
        raise CheckpointError(f"a part cannot be named {part[:120]!r}: letters, digits, '_', '-' and '.', at most 100")
    try:
        return flatten(state)
    except CheckpointError as error:
        raise CheckpointError(f"the part {part!r} cannot be saved: {error}") from error


def row_logs(flat: FlatState) -> Iterator[tuple[str, RowLog]]:
    """The row logs of a state that was flattened from memory, by path."""
    for name, log in flat.logs.items():
        assert isinstance(log, RowLog)
        yield name, log


# -- writing ----------------------------------------------------------------------------------------------------------


Logs = Mapping[str, Mapping[str, SavedLog]]
"""Part name to path of a row log in it to where its rows are saved."""


def write_folder(
    folder: Path,
    parts: Mapping[str, FlatState],
    step: int,
    metadata: Mapping[str, Any],
    logs: Logs,
    seal: Seal | None = None,
) -> None:
    """Create `folder` with all its files, synced. OSError if writing fails, CheckpointError if the data are invalid.

    The segments that `logs` names must already be on disk.
    """
    sealed_metadata = encode_json(dict(metadata), "metadata")
    state = dump_json({part: {"scalars": flat.scalars, "aliases": flat.aliases} for part, flat in parts.items()})
    if len(state) > MAX_JSON_BYTES:
        raise CheckpointError(f"the scalars of a checkpoint take {len(state):,} bytes; put long lists into arrays")
    fault_point("create", folder)
    folder.mkdir()
    files = {STATE: write_file(folder / STATE, [state])}
    for part, flat in parts.items():
        if flat.arrays:
            files[blob_name(part)] = write_file(folder / blob_name(part), blob_chunks(flat.arrays))
    manifest = {
        "format": FORMAT,
        "step": step,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "metadata": sealed_metadata,
        **({"seal": encode_json(seal.to_json(), "seal")} if seal is not None else {}),
        "files": {name: asdict(record) for name, record in files.items()},
        "parts": {part: _part_entry(flat, logs[part]) for part, flat in parts.items()},
    }
    write_file(folder / MANIFEST, [_seal(manifest)])
    fsync_dir(folder)


def _part_entry(flat: FlatState, logs: Mapping[str, SavedLog]) -> dict[str, Any]:
    rows = {"rows": {name: log.to_json() for name, log in logs.items()}} if logs else {}
    return {"dtypes": flat.dtypes, **rows}


def _seal(manifest: dict[str, Any]) -> bytes:
    body = dump_json(manifest, indent=1).removeprefix(b"{\n")
    digest = hashlib.sha256(SEAL_START + b"0" * 64 + SEAL_END + body).hexdigest()
    return SEAL_START + digest.encode() + SEAL_END + body


# -- reading ----------------------------------------------------------------------------------------------------------


def verify_folder(folder: Path, step: int, store: SegmentStore) -> Manifest:
    """Hash every file on disk, one chunk at a time. DamagedCheckpointError names the first bad one."""
    with _damage_named(folder), opened(folder) as fd:
        manifest = _read_manifest(fd, step)
        for name, record in manifest.files.items():
            hash_file(fd, name, record)
        for logs in manifest.logs.values():
            for log in logs.values():
                store.verify(log)
    return manifest


def read_manifest(folder: Path, step: int) -> Manifest:
    """The manifest, verified; the other files are not read."""
    with _damage_named(folder), opened(folder) as fd:
        return _read_manifest(fd, step)


def read_folder(
    folder: Path, step: int, parts: Collection[str] | None, store: SegmentStore, report: Callable[[str], None]
) -> Checkpoint:
    """Load all parts, or only the named ones. CheckpointError if one of them was never saved.

    Row logs are verified here, but their rows are read lazily, when the loaded state is used.
    """
    with _damage_named(folder), opened(folder) as fd:
        manifest = _read_manifest(fd, step)
        wanted = list(manifest.dtypes) if parts is None else list(parts)
        missing = [part for part in wanted if part not in manifest.dtypes]
        if not missing:
            data = read_file(fd, STATE, manifest.files[STATE])
            state = parse_json(data.data, STATE)
            logs = {
                part: {name: store.load(log, report) for name, log in manifest.logs[part].items()} for part in wanted
            }
            loaded = {part: _read_part(fd, manifest, state, part, logs[part]) for part in wanted}
            return Checkpoint(step, folder, manifest.metadata, loaded, manifest.seal)
    raise CheckpointError(f"{folder} has no part {missing[0]!r}; it has: {', '.join(manifest.dtypes) or 'none'}")


def _read_part(fd: int, manifest: Manifest, state: Any, part: str, logs: Mapping[str, RowSource]) -> StateDict:
    arrays: dict[str, Array] = {}
    name = blob_name(part)
    if name in manifest.files:
        arrays = parse_blob(read_file(fd, name, manifest.files[name]), name)
    try:
        scalars, aliases = state[part]["scalars"], state[part]["aliases"]
        if not all(isinstance(stored, str) for stored in aliases.values()):
            raise TypeError("aliases must be names")
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{STATE} does not describe the part {part!r}") from error
    return unflatten(FlatState(arrays, scalars, aliases, manifest.dtypes[part], logs))


def _read_manifest(fd: int, step: int) -> Manifest:
    data = read_file(fd, MANIFEST, None).tobytes()
    digest = data[len(SEAL_START) : len(SEAL_START) + 64]
    zeroed = SEAL_START + b"0" * 64 + SEAL_END + data[SEAL_SIZE:]
    if not (data.startswith(SEAL_START) and data[len(SEAL_START) + 64 : SEAL_SIZE] == SEAL_END):
        raise CheckpointError(f"{MANIFEST} does not begin with its checksum")
    if hashlib.sha256(zeroed).hexdigest().encode() != digest:
        raise CheckpointError(f"{MANIFEST}: checksum differs")
    raw = parse_json(data, MANIFEST)
    if type(raw.get("format")) is int and raw["format"] > FORMAT:
        raise _NewerFormatError(
            f"made by rl-training {str(raw.get('version'))[:40]} in format {raw['format']}, this version reads up to "
            f"{FORMAT}: upgrade rl-training"
        )
    try:
        manifest = _parse_manifest(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{MANIFEST} is malformed: {error}") from error
    if manifest.step != step:
        raise CheckpointError(f"{MANIFEST} is that of step {manifest.step}")
    return manifest


def _parse_manifest(raw: dict[str, Any]) -> Manifest:
    if raw["format"] != FORMAT:
        raise ValueError(f"unknown format {str(raw['format'])[:40]}")
    dtypes = {part: dict(entry["dtypes"]) for part, entry in raw["parts"].items()}
    if not all(PART_NAME.fullmatch(part) for part in dtypes):
        raise ValueError("a part has a name that cannot be a file's")
    if not all(isinstance(logical, str) for names in dtypes.values() for logical in names.values()):
        raise ValueError("dtypes must be names")
    logs = {
        part: {name: SavedLog.from_json(log) for name, log in entry.get("rows", {}).items()}
        for part, entry in raw["parts"].items()
    }
    files = {}
    for name, entry in raw["files"].items():
        record = FileRecord(**entry)
        if not (isinstance(record.sha256, str) and type(record.bytes) is int and record.bytes >= 0):
            raise ValueError("a file needs its sha256 and its length in bytes")
        files[name] = record
    if STATE not in files or set(files) - {STATE, *map(blob_name, dtypes)}:
        raise ValueError("the files are not those of its parts")
    if files[STATE].bytes > MAX_JSON_BYTES:
        raise ValueError(f"{STATE} is too large")
    metadata = decode_json(raw["metadata"])
    if not isinstance(metadata, dict) or type(raw["step"]) is not int:
        raise ValueError("metadata must be a table and step a number")
    seal = Seal.from_json(decode_json(raw["seal"])) if "seal" in raw else None
    return Manifest(raw["step"], metadata, files, dtypes, logs, seal)


def read_pointer(path: Path) -> int | None:
    """The step that a text file such as `latest` names; None if it is missing, a link, a pipe, or not a step."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, 64)
    except OSError:  # a folder or a device of that name
        return None
    finally:
        os.close(fd)
    match = STEP_NAME.fullmatch(text.decode("ascii", "replace").strip())
    return int(match[1]) if match else None


# -- damage -----------------------------------------------------------------------------------------------------------


class _NewerFormatError(Exception):
    """An intact checkpoint of a newer format: falling back to an older checkpoint would hide that."""


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """Turn every error while reading into DamagedCheckpointError, except for a newer format."""
    try:
        yield
    except _NewerFormatError as error:
        raise CheckpointError(f"{folder} was {error}") from None
    except CheckpointError as error:
        raise DamagedCheckpointError(str(error)) from error
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else folder.name
        raise DamagedCheckpointError(f"{name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise DamagedCheckpointError("it does not fit into memory") from error
