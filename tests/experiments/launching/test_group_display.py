"""The live table and the plain lines: every member once, the busy ones first, nothing on stdout."""

from __future__ import annotations

import io
import re

import pytest

from rl_training.experiments.launching import group_display
from rl_training.experiments.launching.group_display import LineView, Row, TableView, make_view, shown_rows

ROWS = [
    Row("seed 1", "finished", 1000, 1000, 487.25),
    Row("seed 2", "running", 250, 1000, -12.5, 9500.4, 75.0),
    Row("seed 3", "waiting"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")


def text_of(stream: io.StringIO) -> list[str]:
    """What was written, without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue()).splitlines()


def test_the_table_has_a_row_per_member() -> None:
    stream = Terminal()
    view = make_view(stream=stream)
    assert isinstance(view, TableView)
    view.show(ROWS)
    assert [line.split() for line in text_of(stream)] == [
        ["1", "running,", "1", "finished,", "1", "waiting"],
        ["run", "status", "env", "steps", "return", "steps/s", "left"],
        ["seed", "1", "finished", "1,000", "(100%)", "487.2", "-", "-"],
        ["seed", "2", "running", "250", "(25%)", "-12.5", "9,500", "1:15"],
        ["seed", "3", "waiting", "-", "-", "-", "-"],
    ]
    view.message("seed 2: failed; [red] is no colour here")
    assert "seed 2: failed; [red] is no colour here\n" in stream.getvalue()
    view.event("seed 2: started")
    view.close()
    assert "seed 2: started" not in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")  # the table makes room for the results
    assert "\x1b[?25h" in stream.getvalue()  # and the cursor is back


def test_a_low_terminal_shows_who_is_busy() -> None:
    rows = [Row(f"seed {seed}", "running" if seed in (40, 70) else "waiting") for seed in range(100)]
    rows[90] = Row("seed 90", "failed")
    assert [row.label for row in shown_rows(rows, 5)] == [f"seed {seed}" for seed in (0, 1, 40, 70, 90)]
    stream = Terminal()
    view = make_view(stream=stream)
    view.show(rows)
    lines = text_of(stream)
    assert len(lines) == 23
    assert lines[0].strip() == "2 running, 1 failed, 97 waiting"
    assert lines[-1].split() == ["...", "80", "more"]
    view.close()


def test_plain_lines_tell_events_at_once_and_progress_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(group_display.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    view = make_view(stream=stream)
    assert isinstance(view, LineView)
    view.event("seed 2: started")
    view.show(ROWS)
    now[0] += 61.0
    view.show(ROWS)
    view.show(ROWS)
    view.close()
    assert stream.getvalue().splitlines() == [
        "seed 2: started",
        "seed 2: 250 (25%) env steps, return -12.5, 9,500 steps/s, 1:15 left",
    ]


def test_a_terminal_without_a_person_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    assert isinstance(make_view(stream=Terminal()), LineView)


def test_without_colours_the_table_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    view = make_view(stream=stream)
    assert isinstance(view, TableView)
    view.show([Row("seed 1", "running", 10, 100, 1.0)])
    view.close()
    assert "seed 1" in stream.getvalue()
    assert "\x1b[36m" not in stream.getvalue()


def test_a_silent_config_gets_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    view = make_view(live=False, stream=stream)
    monkeypatch.setattr(group_display.time, "monotonic", lambda: 1e9)
    view.show(ROWS)
    view.event("seed 1: started")
    assert stream.getvalue() == "seed 1: started\n"
