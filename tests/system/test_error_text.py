"""Exceptions as text: bounded and printable, and the conversion never raises."""

from __future__ import annotations

import doctest
import traceback

import pytest

from rl_training.system import error_text
from rl_training.system.error_text import MESSAGE_LIMIT, TEXT_LIMIT, describe, message_of, shortened, traceback_text


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_examples() -> None:
    assert doctest.testmod(error_text).failed == 0


def test_a_message_of_50_mb_is_its_beginning_and_its_length() -> None:
    text = describe(ValueError("far too much " * 4_000_000))
    assert text.startswith("ValueError: far too much far too much")
    assert text.endswith("... (52,000,000 characters in all)")
    assert len(text) < MESSAGE_LIMIT + 100


def test_a_traceback_keeps_its_frames_and_its_causes() -> None:
    error = raised(ValueError("b" * 10**7), raised(KeyError("a" * 10**7)))
    error.add_note("n" * 10**7)
    text = traceback_text(error)
    assert len(text) < 8 * MESSAGE_LIMIT
    for words in ("Traceback (most recent call last)", "in raised", "KeyError", "ValueError: bbb", "direct cause"):
        assert words in text
    assert text.count("characters in all") == 3


def test_a_short_traceback_is_the_one_of_python() -> None:
    error = raised(ValueError("short"), raised(KeyError("x")))
    assert traceback_text(error) == "".join(traceback.format_exception(error))
    assert traceback_text(error, frames=1).count("File") == 2


def test_errors_without_a_text() -> None:
    assert describe(UnspeakableError()) == ("UnspeakableError: (its text cannot be shown: __str__ raised RuntimeError)")
    assert "UnspeakableError" in traceback_text(raised(UnspeakableError()))
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


@pytest.mark.parametrize("text", ["\x1b]0;title\a", "a\0b", "\udcff", "\x9b31m", "\r\x08"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    shown = message_of(ValueError(f"before {text} after\n\tindented"))
    assert shown.endswith(" after\n\tindented")
    assert all(letter.isprintable() or letter in "\n\t" for letter in shown)
    assert shown.encode()


def test_a_long_text_keeps_its_end_too_and_no_half_word() -> None:
    text = shortened("first " + "x" * TEXT_LIMIT + " last line")
    assert text.startswith("first ")
    assert text.endswith(" last line")
    assert shortened("a secret", 5, tail=0.0) == "a... (8 characters in all)"
