"""Progress of a run: a bar on a terminal, plain lines elsewhere. A display that fails never ends a run.

Everything goes to stderr; stdout is for results.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Protocol, TextIO

from rl_training.system.formatting import number_text, wrapped
from rl_training.system.terminal_text import printable

Style = Literal["auto", "bar", "plain"]
REFRESH_SECONDS = 0.1
LINE_FRACTION = 0.05
LINE_SECONDS = 60.0
"""Longest interval between two plain lines."""
RATE_SECONDS = 5.0
"""Half-life of the smoothed rate."""


class _View(Protocol):
    def show(self, display: Display, *, evaluated: bool, last: bool) -> None: ...
    def message(self, text: str) -> None: ...
    def close(self) -> None: ...


class RateMeter:
    """Smoothed env steps per second, counted from the first `update`, so without the steps before a resume."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._from: tuple[float, int] | None = None

    def update(self, env_steps: int, now: float) -> None:
        before, steps = self._from or (now, env_steps)
        if env_steps > steps and now > before:
            latest = (env_steps - steps) / (now - before)
            weight = 1 - 2 ** ((before - now) / RATE_SECONDS)
            self.rate = latest if self.rate is None else self.rate + weight * (latest - self.rate)
        if self._from is None or env_steps > steps:
            self._from = now, env_steps

    def seconds_left(self, env_steps: int, total: int | None) -> float | None:
        """Seconds until `total` env steps at this rate; None if either is unknown."""
        return max(total - env_steps, 0) / self.rate if total and self.rate else None


class Display:
    """Progress of one run. `update` may be called every step: between refreshes it costs about a microsecond.

    `total` is the budget in env steps, or in what `axis` names; None if there is none.
    """

    def __init__(
        self,
        total: int | None,
        enabled: bool = True,
        *,
        style: Style = "auto",
        stream: TextIO | None = None,
        axis: str = "env_steps",
    ) -> None:
        self.total = total
        self.axis = axis
        self.env_steps = 0
        self.return_mean: float | None = None
        self.eval_return: float | None = None
        self._meter = RateMeter()
        self._style = style
        self._stream = stream
        self._enabled = enabled
        self._view: _View | None = None
        self._next = 0.0

    def update(
        self, env_steps: int, *, return_mean: float | None = None, eval_return: float | None = None, last: bool = False
    ) -> None:
        """Set the current progress. The first call is shown at once, later ones at most ten times a second."""
        if not self._enabled:
            return
        self.env_steps = env_steps
        if return_mean is not None:
            self.return_mean = return_mean
        evaluated = eval_return is not None and eval_return != self.eval_return
        if evaluated:
            self.eval_return = eval_return
        now = time.perf_counter()
        if now >= self._next or evaluated or last:
            self._refresh(now, evaluated=evaluated, last=last)

    def evaluation(self, env_steps: int, eval_return: float | None) -> None:
        """Show an evaluation that just ended, even if its result equals the previous one."""
        if not self._enabled:
            return
        self.env_steps, self.eval_return = env_steps, eval_return
        self._refresh(time.perf_counter(), evaluated=True, last=False)

    def message(self, text: str) -> None:
        """A line that stays, above the bar."""
        if self._enabled:
            self._guarded(lambda view: view.message(printable(text, lines=True)))

    def close(self) -> None:
        """Show the last state and restore the terminal; idempotent."""
        if self._enabled and self._view is not None:
            self._refresh(time.perf_counter(), evaluated=False, last=True)
            self._guarded(lambda view: view.close())
        self._enabled = False

    @property
    def rate(self) -> float | None:
        return self._meter.rate

    @property
    def seconds_left(self) -> float | None:
        return self._meter.seconds_left(self.env_steps, self.total)

    def _refresh(self, now: float, *, evaluated: bool, last: bool) -> None:
        self._meter.update(self.env_steps, now)
        self._next = now + REFRESH_SECONDS
        self._guarded(lambda view: view.show(self, evaluated=evaluated, last=last))

    def _guarded(self, call: Callable[[_View], None]) -> None:
        """Call the view; a terminal that is gone switches the display off and has no other effect."""
        try:
            if self._view is None:
                self._view = _make_view(self._style, self._stream or sys.stderr)
            call(self._view)
        except (OSError, ValueError):
            self._enabled = False
            if self._view is not None:
                with suppress(OSError, ValueError):
                    self._view.close()


def wants_bar(stream: TextIO) -> bool:
    """Whether to draw a bar: only on a terminal that can move its cursor, not in CI. NO_COLOR only removes colours."""
    plain = bool(os.environ.get("CI")) or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def progress_line(display: Display) -> str:
    """One line of plain text: `env_steps 2048/100000 (2%)  return 21.3  eval 35.0  9500 steps/s  0:10 left`."""
    parts = [f"{display.axis} {display.env_steps}"]
    if display.total:
        percent = min(100 * display.env_steps // display.total, 100)
        parts = [f"{display.axis} {display.env_steps}/{display.total} ({percent}%)"]
    if display.return_mean is not None:
        parts.append(f"return {number_text(display.return_mean)}")
    if display.eval_return is not None:
        parts.append(f"eval {number_text(display.eval_return)}")
    if display.rate:
        parts.append(f"{display.rate:.0f} steps/s")
    if display.seconds_left:
        parts.append(f"{format_seconds(display.seconds_left)} left")
    return "  ".join(parts)


def format_seconds(seconds: float) -> str:
    """Seconds as minutes:seconds, or hours:minutes:seconds.

    >>> format_seconds(9.6), format_seconds(3725)
    ('0:10', '1:02:05')
    """
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"


def _make_view(style: Style, stream: TextIO) -> _View:
    bar = style == "bar" or (style == "auto" and wants_bar(stream))
    return _Bar(stream) if bar else _Lines(stream)


class _Lines:
    """Plain lines: at the start, per evaluation, per 5% of the budget or per minute, and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = -1
        self._next_steps = 0.0
        self._next_time = 0.0

    def show(self, display: Display, *, evaluated: bool, last: bool) -> None:
        now = time.perf_counter()
        due = evaluated or now >= self._next_time or display.env_steps >= self._next_steps
        if not due and not (last and self._shown != display.env_steps):
            return
        step = display.total * LINE_FRACTION if display.total else float("inf")
        self._next_steps = (display.env_steps // step + 1) * step
        self._next_time = now + LINE_SECONDS
        if evaluated or self._shown != display.env_steps:
            self.message(progress_line(display))
        self._shown = display.env_steps

    def message(self, text: str) -> None:
        self._stream.write(f"{wrapped(text, self._stream)}\n")
        self._stream.flush()

    def close(self) -> None:
        pass


class _Bar:
    """A live bar drawn by rich and refreshed by `update`, without a thread."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        class RaisingConsole(Console):
            def on_broken_pipe(self) -> None:
                raise  # rich would end the process here

        self._stream = stream
        self._progress = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}"),
            console=RaisingConsole(file=stream),
            auto_refresh=False,
            # What other code prints appears above the bar; a piped stdout is left alone.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()
        atexit.register(self.close)  # a run that fails still restores the cursor

    def show(self, display: Display, *, evaluated: bool, last: bool) -> None:
        from rich.markup import escape

        text = escape(progress_line(display))
        self._progress.update(self._task, total=display.total, completed=display.env_steps, description=text)
        self._progress.refresh()

    def message(self, text: str) -> None:
        words = wrapped(text, self._stream)
        self._progress.console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        atexit.unregister(self.close)
        self._progress.stop()
