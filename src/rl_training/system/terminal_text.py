"""Untrusted text made safe for display: names, tags, errors and metrics come from files that others may have written.

Every text read from disk goes through `printable` before it is shown. Standard library only.
"""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    """Escape what a terminal would interpret or hide; with `lines`, newlines and tabs stay.

    >>> printable("a\\x1b[31m\\nb")
    'a\\\\x1b[31m\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or (lines and letter in "\n\t") else letter.encode("unicode_escape").decode()
        for letter in text
    )


def readable(text: str) -> str:
    """Replace non-printable characters by "?", for web pages, figures and tables.

    >>> readable("a\\x1b[31m\\n")
    'a?[31m?'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)
