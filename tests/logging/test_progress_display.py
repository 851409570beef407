"""The progress display shows the first step at once, then rarely, on stderr, and never ends the run."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time

import pytest

from rl_training.logging.progress_display import Display, format_seconds, progress_line, wants_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def shown(total: int | None, updates: list[tuple[int, float | None]]) -> list[str]:
    stream = io.StringIO()
    display = Display(total, stream=stream)
    for env_steps, eval_return in updates:
        display._next = 0.0  # as if a tenth of a second had passed
        display.update(env_steps, return_mean=1.0, eval_return=eval_return)
    display.close()
    return [line.split("  ")[0] for line in stream.getvalue().splitlines()]


def test_the_first_step_is_shown_at_once() -> None:
    stream = io.StringIO()
    Display(100_000, stream=stream).update(512, return_mean=21.26)
    assert stream.getvalue() == "env_steps 512/100000 (0%)  return 21.3\n"


def test_a_line_per_five_percent() -> None:
    lines = shown(1000, [(step, None) for step in range(10, 1001, 10)])
    assert [int(re.findall(r"\d+", line)[0]) for line in lines] == [10, *range(50, 1001, 50)]


def test_a_line_per_evaluation_and_one_at_the_end() -> None:
    evaluations = {100: 1.0, 200: 2.0, 299: 2.0}
    lines = shown(100_000, [(step, evaluations.get(step)) for step in range(10, 300)])
    assert lines == [f"env_steps {step}/100000 (0%)" for step in (10, 100, 200, 299)]


def test_without_a_budget_there_is_no_percentage() -> None:
    assert shown(None, [(5, None), (6, None)]) == ["env_steps 5", "env_steps 6"]


def test_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stream = io.StringIO()
    display = Display(10_000, stream=stream)
    display.update(5_000)  # a resumed run begins here: no rate yet
    assert display.rate is None
    now[0] += 10.0
    display.update(6_000)
    assert display.rate == 100.0
    assert display.seconds_left == 40.0
    assert progress_line(display) == "env_steps 6000/10000 (60%)  100 steps/s  0:40 left"
    now[0] += 5.0
    display.update(7_000)  # 200 steps/s: half of the way after the half-life
    assert display.rate == pytest.approx(150.0)


def test_an_equal_evaluation_is_shown_where_it_is_announced() -> None:
    stream = io.StringIO()
    display = Display(100, stream=stream)
    display.evaluation(10, 500.0)
    display.evaluation(10, 500.0)
    assert stream.getvalue().count("eval 500.0") == 2


def test_switched_off_it_writes_nothing() -> None:
    stream = io.StringIO()
    display = Display(100, enabled=False, stream=stream)
    display.update(10)
    display.evaluation(10, 1.0)
    display.message("text")
    display.close()
    assert stream.getvalue() == ""


def test_a_bar_only_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wants_bar(Terminal())
    assert not wants_bar(io.StringIO())
    for name, value in (("CI", "true"), ("TERM", "dumb")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert not wants_bar(Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not wants_bar(io.StringIO())


def test_without_colours_the_bar_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    assert wants_bar(stream)
    display = Display(100, stream=stream)
    display.update(50, return_mean=1.0)
    display.close()
    text = stream.getvalue()
    assert "\u2501" in text
    assert "return 1.0" in text
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|9[0-7])m", text)  # no foreground colour


def test_messages_wrap_at_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/very/long/path/that-has/more-than-forty/characters/in-it"
    text = f"note: the checkpoint could not be written to {path} because the disk is full"
    for style in ("plain", "bar"):
        stream = Terminal()
        display = Display(100, style=style, stream=stream)
        display.message(text)
        display.close()
        plain = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", stream.getvalue())
        lines = [line.strip() for line in plain.splitlines() if line.strip()]
        assert path in lines
        assert all(len(line) <= 40 for line in lines if line != path)
    other = io.StringIO()
    display = Display(100, style="plain", stream=other)
    display.message(text)
    assert other.getvalue() == f"{text}\n"


@pytest.mark.parametrize("style", ["plain", "bar"])
def test_a_terminal_that_goes_away_does_not_end_the_run(style: str) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    display = Display(100, style=style, stream=Gone())
    display.update(10)
    display.update(100, last=True)
    display.message("text")
    display.close()


@pytest.mark.wall_clock
@pytest.mark.parametrize("style", ["plain", "bar"])
def test_an_update_between_refreshes_costs_less_than_10_microseconds(style: str) -> None:
    display = Display(10**9, style=style, stream=Terminal())
    display.update(1)
    display._next = float("inf")
    start = time.process_time()
    for step in range(10_000):
        display.update(step, return_mean=1.0)
    seconds = time.process_time() - start
    display._next = 0.0
    display.close()
    assert seconds / 10_000 < 10e-6


def test_seconds_as_text() -> None:
    assert [format_seconds(value) for value in (0.4, 59.6, 61, 3600, 360_000)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
        "100:00:00",
    ]


def test_a_real_terminal_gets_a_bar_and_keeps_stdout_clean() -> None:
    program = """
import sys
from rl_training.logging.progress_display import Display
display = Display(100)
assert "rich" not in sys.modules
display.update(25, return_mean=3.5)
display.message("saved [step] 25")
display.update(100, return_mean=4.5, eval_return=9.0)
display.close()
print("result")
"""
    leader, follower = pty.openpty()
    environ = {**os.environ, "COLUMNS": "120", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=follower, env=environ, text=True
    )
    os.close(follower)
    received = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        received += chunk
    output, _ = process.communicate()
    os.close(leader)
    text = received.decode()
    assert process.returncode == 0, text
    assert output == "result\n"
    assert "━" in text
    assert "env_steps 25/100 (25%)  return 3.5" in text
    assert "saved [step] 25" in text
    assert "env_steps 100/100 (100%)  return 4.5  eval 9.0" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden and restored


def test_plain_lines_need_no_rich() -> None:
    program = """
import sys
from rl_training.logging.progress_display import Display
display = Display(100)
display.update(25)
display.close()
print("rich" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
    assert result.stderr == "env_steps 25/100 (25%)\n"
