"""Display of a running group: a live table on a terminal, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rl_training.logging.progress_display import LINE_SECONDS, format_seconds, wants_bar
from rl_training.system.formatting import number_text, wrapped
from rl_training.system.terminal_text import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

COLUMNS = ("run", "status", "env steps", "return", "steps/s", "left")
WHERE = "where"
"""A further column, if a member runs on another host."""
COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red", "killed": "red"}
ORDER = ("running", "failed", "killed", "stopped", "finished", "waiting")
"""Order of importance, where the terminal has too few lines for all members."""
FRAME_LINES = 4
"""Lines of the table that are not members: title, header, number left out, cursor."""


@dataclass(frozen=True)
class Row:
    """The current state of one member."""

    label: str
    """Name of the member: `seed 3`."""
    status: str
    env_steps: int | None = None
    total: int | None = None
    score: float | None = None
    rate: float | None = None
    seconds_left: float | None = None
    where: str = ""
    """Where it runs, if on another host."""

    def cells(self) -> list[str]:
        share = f" ({min(100 * self.env_steps // self.total, 100)}%)" if self.env_steps and self.total else ""
        return [
            printable(self.label),
            printable(self.status),
            "-" if self.env_steps is None else f"{self.env_steps:,}{share}",
            number_text(self.score),
            "-" if self.rate is None else f"{self.rate:,.0f}",
            "-" if self.seconds_left is None else format_seconds(self.seconds_left),
        ]

    def facts(self) -> list[str]:
        """The known facts as text: `2,048 (2%) env steps`, `return 21.3`, `9,500 steps/s`, `0:10 left`."""
        _, _, steps, score, rate, left = self.cells()
        words = [f"{steps} env steps", f"return {score}", f"{rate} steps/s", f"{left} left"]
        values = [self.env_steps, self.score, self.rate, self.seconds_left]
        return [text for text, value in zip(words, values, strict=True) if value is not None]


class GroupView(Protocol):
    """Displays the progress of a group."""

    def show(self, rows: Sequence[Row]) -> None:
        """Show the current state of all members; called often."""

    def event(self, text: str) -> None:
        """Report a change of state that `show` displays as well."""

    def message(self, text: str) -> None:
        """Print a text that stays visible."""

    def close(self) -> None:
        """Restore the terminal."""


def make_view(*, live: bool = True, stream: TextIO | None = None) -> GroupView:
    """A table on an interactive terminal, lines otherwise."""
    stream = stream or sys.stderr
    return TableView(stream) if live and wants_bar(stream) else LineView(stream, live=live)


class LineView:
    """Prints events as they happen and, if `live`, a line per running member every minute."""

    def __init__(self, stream: TextIO, *, live: bool = True) -> None:
        self._stream = stream
        self._live = live
        self._next = time.monotonic() + LINE_SECONDS

    def show(self, rows: Sequence[Row]) -> None:
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + LINE_SECONDS
        for row in rows:
            if row.status == "running" and row.env_steps is not None:
                self.message(f"{row.label}: {', '.join(row.facts())}")

    def event(self, text: str) -> None:
        self.message(text)

    def message(self, text: str) -> None:
        self._stream.write(f"{wrapped(printable(text, lines=True), self._stream)}\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.flush()


class TableView:
    """A live table by rich, one row per member, refreshed by `show`; it starts no thread."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._stream = stream
        self._console = Console(file=stream)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,  # the table of results takes its place
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show(self, rows: Sequence[Row]) -> None:
        self._live.update(group_table(rows, max(self._console.height - FRAME_LINES, 1)), refresh=True)

    def event(self, text: str) -> None:
        """Not printed: the table shows it."""

    def message(self, text: str) -> None:
        words = wrapped(printable(text, lines=True), self._stream)
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def group_table(rows: Sequence[Row], height: int) -> RichTable:
    """A table of at most `height` members, chosen by `ORDER` but in their own order; the title counts all."""
    from rich.markup import escape
    from rich.table import Table

    counts = Counter(row.status for row in rows)
    summary = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    chosen = shown_rows(rows, height)
    table = Table(box=None, pad_edge=False, title=summary, title_justify="left", title_style="bold")
    places = any(row.where for row in chosen)
    for column in (*COLUMNS, WHERE) if places else COLUMNS:
        numeric: dict[str, Any] = {"justify": "right"} if column not in ("run", "status", WHERE) else {}
        table.add_column(column, **numeric)
    for row in chosen:
        label, status, *rest = row.cells()
        rest = [*rest, escape(printable(row.where))] if places else rest
        table.add_row(escape(label), f"[{COLOURS.get(row.status, 'dim')}]{escape(status)}[/]", *rest)
    if len(chosen) < len(rows):
        table.add_row("...", f"[dim]{len(rows) - len(chosen)} more[/]")
    return table


def shown_rows(rows: Sequence[Row], height: int) -> list[Row]:
    """The `height` most important rows, in their own order."""
    if len(rows) <= height:
        return list(rows)
    ranked = sorted(range(len(rows)), key=lambda i: ORDER.index(rows[i].status) if rows[i].status in ORDER else 0)
    return [rows[i] for i in sorted(ranked[:height])]
