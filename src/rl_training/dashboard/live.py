"""Live updates: one watcher follows the logs of all running runs and feeds every open page by server-sent events.

It reads files and nothing else, so a run does not notice it. A page gets the new rows of the runs and metrics it shows,
each with the byte offsets between which they stand in the log; by these it knows whether it has them already.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.dashboard.pages.run import alerts
from rl_training.dashboard.reading.columns import _last
from rl_training.dashboard.reading.curves import AXES
from rl_training.dashboard.reading.log_columns import STEPS
from rl_training.dashboard.reading.tables import RunRef, RunTable
from rl_training.dashboard.text import encoded
from rl_training.runs.index import record
from rl_training.runs.row import REWARDS, describe
from rl_training.system.json_lines import Row, number_of, parse_row, tail_rows
from rl_training.types import RLTrainingError

INTERVAL = 1.0
"""Seconds between two looks."""
PING = 15.0
STATUS_SECONDS = 2.0
"""How often it is checked whether the process of a running run is alive."""
KEPT = 500
"""Events that a page which reconnects can still get."""
MAX_WAITING = 2000
"""Events waiting for one page; one that is further behind starts anew."""
MAX_PAGES = 64
CHUNK = 2**22
AXIS_METRICS = tuple(dict.fromkeys([STEPS, *AXES.values()]))


@dataclass
class Tail:
    """The end of one log as the watcher has read it."""

    path: Path
    offset: int = 0
    last: bytes = b""
    inode: int = -1
    alerts_size: int = -1
    checked: float = 0.0
    latest: Row = field(default_factory=dict)
    """The newest value of every metric: a row without an evaluation does not take the last one away."""

    def look(self) -> tuple[bool, int, list[Row]]:
        """New complete rows: whether the log was cut back, the offset they begin at, and the rows."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False, self.offset, []
        if found.st_size == self.offset and found.st_ino == self.inode:
            return False, self.offset, []
        is_new = self.inode == -1
        is_same = (
            found.st_ino == self.inode and found.st_size >= self.offset and _last(self.path, self.offset) == self.last
        )
        was_cut = not is_same and not is_new
        if not is_same:
            # of a log that was there before, only what is added from now on is news
            self.offset, self.inode = _whole_end(self.path, found.st_size), found.st_ino
            self.last = _last(self.path, self.offset)
            return was_cut, self.offset, []
        start = self.offset
        with suppress(OSError), open(self.path, "rb") as file:
            file.seek(start)
            data = file.read(CHUNK)
            data = data[: data.rfind(b"\n") + 1]
            self.offset = start + len(data)
            self.last = _last(self.path, self.offset)
            rows = [row for line in data.splitlines(keepends=True) if (row := parse_row(line)) is not None]
            return False, start, rows
        return False, start, []


def _whole_end(path: Path, size: int) -> int:
    with suppress(OSError), open(path, "rb") as file:
        start = max(size - CHUNK, 0)
        file.seek(start)
        return start + file.read(size - start).rfind(b"\n") + 1
    return 0


@dataclass(eq=False)
class Page:
    """One open page: what it shows, and the events that wait for it."""

    runs: frozenset[str]
    metrics: frozenset[str]
    queue: asyncio.Queue[tuple[int, str, bytes] | None] = field(default_factory=asyncio.Queue)

    def wants(self, event: str, data: Mapping[str, Any]) -> bool:
        return event not in ("row", "reset") or data["run"] in self.runs


class Watcher:
    """Follows running runs while a page is open."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self.pages: set[Page] = set()
        self.tails: dict[str, Tail] = {}
        self.kept: deque[tuple[int, str, dict[str, Any]]] = deque(maxlen=KEPT)
        self.number = int(time.time()) * 1000  # beyond all numbers of a server before this one
        self._version = -1
        self._statuses: dict[str, Any] = {}

    async def watch(self) -> None:
        """Look once per interval, for as long as the server runs. Without a page, only every few seconds."""
        idle = 0
        while True:
            await asyncio.sleep(INTERVAL)
            idle = 0 if self.pages else idle + 1
            if idle == 0 or idle % 5 == 0:
                with suppress(OSError, RLTrainingError):
                    for event, data in await asyncio.to_thread(self.look, time.monotonic()):
                        self.publish(event, data)

    def look(self, now: float) -> list[tuple[str, dict[str, Any]]]:
        """One look at everything: the events since the last one."""
        events: list[tuple[str, dict[str, Any]]] = []
        has_changed = self.table.refresh(now=now)
        running = {ref.key: ref for ref in self.table.running()}
        for key in [key for key in self.tails if key not in running]:
            del self.tails[key]
        for key, ref in running.items():
            events += self._look_at(key, ref, now)
        if self.table.version != self._version:
            events += self._new_statuses()
        if has_changed or self.table.version != self._version:
            events.append(("runs", {"version": self.table.version}))
            self._version = self.table.version
        return events

    def _new_statuses(self) -> list[tuple[str, dict[str, Any]]]:
        """Runs that began, ended or went on: also those that did so between two looks."""
        before, self._statuses = self._statuses, {ref.key: ref.row["status"] for ref in self.table.all()}
        return [
            ("status", {"run": key, "status": status})
            for key, status in self._statuses.items()
            if key in before and before[key] != status
        ]

    def _look_at(self, key: str, ref: RunRef, now: float) -> list[tuple[str, dict[str, Any]]]:
        is_new = key not in self.tails
        tail = self.tails.setdefault(key, Tail(ref.path / "logs" / "metrics.jsonl", checked=now))
        events: list[tuple[str, dict[str, Any]]] = []
        was_cut, start, rows = tail.look()
        if was_cut or is_new:  # while nobody followed it, a resume may have cut it
            tail.latest = {}
            events.append(("reset", {"run": key}))
        if rows:
            events.append(("row", {"run": key, "start": start, "end": tail.offset, "rows": rows}))
            self.table.set_live(key, newest(tail, rows))
        events += self._new_alerts(key, ref, tail)
        if now - tail.checked >= STATUS_SECONDS:
            tail.checked = now
            with suppress(RLTrainingError):
                status = _status(ref)
                if status != "running":
                    if not self.table.read_only:
                        record(ref.path)  # it was killed: nobody else writes its row
                    self.table.touch(ref)
        return events

    @staticmethod
    def _new_alerts(key: str, ref: RunRef, tail: Tail) -> list[tuple[str, dict[str, Any]]]:
        try:
            size = os.stat(ref.path / "logs" / "alerts.jsonl").st_size
        except OSError:
            size = 0
        before, tail.alerts_size = tail.alerts_size, size
        if before < 0 or size <= before:
            return []
        newest_alert = alerts(ref.path)[:1]
        return [("alert", {"run": key, **alert}) for alert in newest_alert]

    # -- pages --------------------------------------------------------------------------------------------------------

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Hand an event to every page that wants it."""
        self.number += 1
        self.kept.append((self.number, event, data))
        for page in self.pages:
            self._hand(page, self.number, event, data)

    @staticmethod
    def _hand(page: Page, number: int, event: str, data: dict[str, Any]) -> None:
        if not page.wants(event, data):
            return
        if event == "row":
            names = {*AXIS_METRICS, *page.metrics}
            data = {**data, "rows": [{k: v for k, v in row.items() if k in names} for row in data["rows"]]}
        if page.queue.qsize() < MAX_WAITING:
            page.queue.put_nowait((number, event, encoded(data)))

    async def stream(self, page: Page, last_id: str | None) -> AsyncIterator[bytes]:
        """The events of one page as text/event-stream, those that it missed first."""
        if last_id is not None:
            self._catch_up(page, last_id)
        self.pages.add(page)
        try:
            yield b"retry: 2000\n" + _message(self.number, "hello", b"{}")
            while True:
                try:
                    found = await asyncio.wait_for(page.queue.get(), PING)
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if found is None:
                    return
                yield _message(*found)
        finally:
            self.pages.discard(page)

    def close(self) -> None:
        """End the streams of all pages; they will connect again when there is a server."""
        for page in self.pages:
            page.queue.put_nowait(None)

    def _catch_up(self, page: Page, last_id: str) -> None:
        seen = int(last_id) if last_id.isdecimal() and len(last_id) < 20 else 0
        oldest = self.kept[0][0] if self.kept else self.number + 1
        if seen > self.number or (seen + 1 < oldest and seen != self.number):
            page.queue.put_nowait((self.number, "resync", b"{}"))
            return
        for number, event, data in self.kept:
            if number > seen:
                self._hand(page, number, event, data)


def newest(tail: Tail, rows: list[Row]) -> dict[str, Any]:
    """The columns of the table that the newest rows of a log change."""
    found = tail.latest
    for row in rows if found else tail_rows(tail.path):
        found |= {name: value for name, value in row.items() if value is not None}
    reward = next((number_of(found, name) for name in REWARDS if number_of(found, name) is not None), None)
    values = {
        "env_steps": number_of(found, STEPS),
        "reward": reward,
        "loss": number_of(found, "train/loss"),
        "seconds": number_of(found, "time/elapsed_seconds"),
    }
    return {name: value for name, value in values.items() if value is not None}


def _status(ref: RunRef) -> str:
    """Status of a run that was running: from its record, if that has changed, and from its process."""
    info = json.loads((ref.path / "run.json").read_bytes())
    if info.get("status") != "running":
        return str(info.get("status"))
    from rl_training.runs.lock import read_holder

    holder = read_holder(ref.path / ".lock")
    return "running" if holder is not None and holder.is_alive() else str(describe(ref.path, config=False)["status"])


def _message(number: int, event: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.encode(), data)
