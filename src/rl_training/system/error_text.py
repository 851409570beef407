"""Errors as text, whatever they hold: a message of 50 MB, control characters, a `__str__` that raises.

What comes from here is fit for terminals, logs and pipes: the type, the first part of the text, and its length.
"""

from __future__ import annotations

import re
import traceback

from rl_training.types import RLTrainingError

MESSAGE_LIMIT = 2_000
"""Characters of one exception's own text."""
TEXT_LIMIT = 20_000
"""Characters of anything that is printed or logged at once, such as a traceback."""
TAIL_SHARE = 0.25
"""Part of a shortened text that is its end: the last lines of a traceback say most."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def describe(error: BaseException) -> str:
    """Type and text of an error; our own are written to be read and may be longer.

    >>> describe(ValueError("no such level"))
    'ValueError: no such level'
    """
    name = type(error).__name__
    text = message_of(error, TEXT_LIMIT if isinstance(error, RLTrainingError) else MESSAGE_LIMIT).strip()
    return f"{name}: {text}" if text else name


def message_of(error: BaseException, limit: int = MESSAGE_LIMIT) -> str:
    """The text of an error alone."""
    try:
        text = str(error)
    except Exception as other:
        return f"(its text cannot be shown: __str__ raised {type(other).__name__})"
    return shortened(text, limit, tail=0.0)


def traceback_text(error: BaseException, *, frames: int | None = None) -> str:
    """The traceback as Python prints it, with every message in it shortened; `frames` counts from the innermost."""
    limit = None if frames is None else -frames
    try:
        lines = list(traceback.TracebackException.from_exception(error, limit=limit, compact=True).format())
    except Exception as other:  # code of the error itself, such as a property that raises
        lines = [f"(no traceback: {type(other).__name__} while it was made)\n", describe(error), "\n"]
    return shortened("".join(shortened(line, MESSAGE_LIMIT, tail=0.0) for line in lines), TEXT_LIMIT)


def shortened(text: str, limit: int = TEXT_LIMIT, *, tail: float = TAIL_SHARE) -> str:
    """The beginning and the end of a long text with its length; control characters are written as escapes.

    >>> shortened("a" * 3_000_000, 4, tail=0.0)
    'aaaa... (3,000,000 characters in all)'
    """
    newline = "\n" if text.endswith("\n") else ""
    if len(text) <= limit:
        return _printable(text)
    end = int(limit * tail)
    head = _whole_words(text[: limit - end])
    note = f"... ({len(text):,} characters in all)"
    return _printable(f"{head}{note}\n...{text[-end:]}" if end else f"{head}{note}{newline}")


def _whole_words(head: str) -> str:
    """Cut at a blank where one is near, so that half a word, which nothing would recognise as a secret, is not left."""
    cut = max(head.rfind(" "), head.rfind("\n"))
    return head[:cut] if cut > max(len(head) - 200, 0) else head


def _printable(text: str) -> str:
    """Without what a terminal would obey and no encoding could write; line ends and tabs stay."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)
