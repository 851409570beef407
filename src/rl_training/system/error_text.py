"""Exceptions as safe text, even with a message of 50 MB, control characters or a `__str__` that raises.

The result is fit for terminals, logs and pipes: the type, the first part of the message, and its length.
"""

from __future__ import annotations

import re
import traceback

from rl_training.types import RLTrainingError

MESSAGE_LIMIT = 2_000
"""Most characters of one exception's message."""
TEXT_LIMIT = 20_000
"""Most characters of a text that is printed or logged at once, such as a traceback."""
TAIL_SHARE = 0.25
"""Share of a shortened text that is taken from its end: the last lines of a traceback say most."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def describe(error: BaseException) -> str:
    """Type and message of an error; an RLTrainingError, written for users, may be longer.

    >>> describe(ValueError("no such level"))
    'ValueError: no such level'
    """
    name = type(error).__name__
    text = message_of(error, TEXT_LIMIT if isinstance(error, RLTrainingError) else MESSAGE_LIMIT).strip()
    return f"{name}: {text}" if text else name


def message_of(error: BaseException, limit: int = MESSAGE_LIMIT) -> str:
    """The message of an error without its type."""
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
    except Exception as other:  # raised by the error's own code, such as a property
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
    """Cut at a nearby blank: redaction would not recognise a secret that was cut in half."""
    cut = max(head.rfind(" "), head.rfind("\n"))
    return head[:cut] if cut > max(len(head) - 200, 0) else head


def _printable(text: str) -> str:
    """Escape control characters and lone surrogates; newlines and tabs stay."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)
