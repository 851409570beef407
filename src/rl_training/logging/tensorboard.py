"""TensorBoard event files, written without importing torch or tensorboard.

An event file is a sequence of records (length, checksum of the length, data, checksum of the data), each an Event of
TensorFlow's event.proto. Only scalars and texts are needed here, so the few protobuf fields are encoded directly.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from os import getpid
from pathlib import Path

from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import fsync_dir, make_folder, sync_file
from rl_training.system.json_lines import COUNTERS, AppendFile, Row, digest_of, eval_name, steps_of
from rl_training.types import StateDict

FLUSH_SECONDS = 2.0
_STAMP = re.compile(r"tfevents\.(\d+)")


# -- encoding ---------------------------------------------------------------------------------------------------------


def _crc_table() -> tuple[int, ...]:
    polynomial = 0x82F63B78  # Castagnoli, reflected
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli).

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """Masked checksum of a record, as TFRecord demands: safe for data that contains checksums itself."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field: bytes, string or message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def scalar_value(tag: bytes, value: float) -> bytes:
    """Summary.Value{tag = 1, simple_value = 2} as field 1 of Summary."""
    return _field(1, _field(1, tag) + b"\x15" + _float32(value))


def text_value(tag: bytes, text: str) -> bytes:
    """Summary.Value{tag = 1, tensor = 8, metadata = 9}: a string tensor that the text plugin shows."""
    tensor = b"\x08\x07" + _field(2, _field(2, b"\x08\x01")) + _field(8, text.encode(errors="replace"))
    return _field(1, _field(1, tag) + _field(8, tensor) + _field(9, _field(1, _field(1, b"text"))))


def event(wall_time: float, step: int, content: bytes) -> bytes:
    """Event{wall_time = 1, step = 2} and one more field, framed as a record."""
    data = b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + content
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked_crc(header)) + data + struct.pack("<I", masked_crc(data))


# -- writing ----------------------------------------------------------------------------------------------------------


class EventWriter:
    """One event file in `directory`, named so that TensorBoard reads it after the existing ones.

    It opens with a session start at `first_step`, which makes TensorBoard discard events from that step on.
    """

    def __init__(self, directory: Path, first_step: int = 0) -> None:
        with readable_errors(f"cannot create '{directory}'"):
            make_folder(directory)
        # TensorBoard reads files in the order of their names, and never again once it has begun a later one.
        stamps = [int(match[1]) for path in directory.iterdir() if (match := _STAMP.search(path.name))]
        stamp = max([int(time.time()), *(stamp + 1 for stamp in stamps)])
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
        self._file = AppendFile(directory / f"events.out.tfevents.{stamp:010d}.{host}.{getpid()}.v2")
        self._file.append(event(time.time(), 0, _field(3, b"brain.Event:2")))
        session_start = b"\x08\x01"  # SessionLog{status = START}
        self._file.append(event(time.time(), first_step, _field(7, session_start)))
        self._next_flush = 0.0

    def add_scalars(self, step: int, scalars: dict[str, float]) -> None:
        """All scalars of one step as one event."""
        summary = b"".join([scalar_value(tag.encode(), value) for tag, value in scalars.items()])
        self._append(event(time.time(), step, _field(5, summary)))

    def add_text(self, step: int, tag: str, text: str) -> None:
        self._append(event(time.time(), step, _field(5, text_value(tag.encode(), text))))

    def _append(self, record: bytes) -> None:
        self._file.append(record)
        now = time.monotonic()
        if now >= self._next_flush:
            self._file.flush()
            self._next_flush = now + FLUSH_SECONDS

    def sync(self) -> None:
        self._file.sync()

    def checksum(self) -> tuple[str, str]:
        """(name, SHA-256) of the file."""
        return self._file.path.name, self._file.checksum()

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """Logs every number of every row as a scalar over env steps. A resume truncates the files and starts a new one."""

    def __init__(self, directory: Path | str, *, config_text: str = "") -> None:
        self.directory = Path(directory)
        self._config_text = config_text
        self._writer: EventWriter | None = None
        self._first_step = 0
        self._last_steps: dict[str, int] = {}
        """Last step written per tag: an evaluation is logged as its own row and in the metrics, but is one point."""
        self._sums: dict[str, str] = {}
        """SHA-256 of the files that earlier processes wrote."""
        self.damage: list[str] = []
        """Event files that did not match the loaded state."""

    def log(self, row: Row, /) -> None:
        step = steps_of(row) or 0
        last_steps = self._last_steps
        scalars = {}
        for tag, value in row.items():
            if isinstance(value, int | float) and tag != "env_steps" and last_steps.get(tag) != step:
                scalars[tag] = value
                last_steps[tag] = step
        if scalars:
            self._open().add_scalars(step, scalars)

    def log_eval(self, row: Row, /) -> None:
        # The counters of an evaluation are in the metrics row of its step. Written here too, they would be duplicated
        # if one chunk of the compiled lane logs rows of earlier updates after the evaluation.
        values = {eval_name(key): value for key, value in row.items() if key not in COUNTERS}
        self.log({**values, "env_steps": steps_of(row) or 0})

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state_dict(self) -> StateDict:
        if self._writer is not None:
            self._writer.sync()
        lengths = {path.name: path.stat().st_size for path in self._event_files()}
        sums = self._sums | dict([self._writer.checksum()] if self._writer is not None else [])
        step = max(self._last_steps.values(), default=self._first_step - 1)
        return {"files": lengths, "sha256": {name: sums[name] for name in lengths if name in sums}, "step": step}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Truncate the event files to `state`; later rows go to a new one."""
        self.close()
        for path in self._event_files():
            if path.name not in state["files"]:
                path.unlink()
            elif path.stat().st_size > state["files"][path.name]:
                with open(path, "r+b") as file:
                    file.truncate(int(state["files"][path.name]))
                sync_file(path)  # else a power cut could bring back points that are logged again
        if self.directory.is_dir():
            fsync_dir(self.directory)
        self._check(state["files"], state.get("sha256", {}))
        # for a running TensorBoard that has already read what was truncated
        self._first_step = int(state["step"]) + 1
        self._last_steps = {}

    def _check(self, lengths: dict[str, int], sums: dict[str, str]) -> None:
        """Compare the truncated files with the saved names and checksums."""
        found = {path.name: digest_of(path).hexdigest() for path in self._event_files()}
        gone = [name for name in lengths if name not in found]
        changed = [name for name in found if name in sums and found[name] != sums[name]]
        self.damage = [f"{self.directory.name}/{name} is missing" for name in gone]
        self.damage += [f"{self.directory.name}/{name} differs" for name in changed]
        self._sums = found

    def _open(self) -> EventWriter:
        if self._writer is None:
            self._writer = EventWriter(self.directory, self._first_step)
            if self._config_text and self._first_step == 0:
                self._writer.add_text(0, "config", "\n".join(f"    {line}" for line in self._config_text.splitlines()))
        return self._writer

    def _event_files(self) -> list[Path]:
        return sorted(self.directory.glob("*tfevents*"))
