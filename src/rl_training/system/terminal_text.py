"""Text of others on a terminal: names of folders, tags, errors and metrics come from files that anybody may write.

`printable` is what every text from the disk passes before it is shown. Standard library only.
"""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    """A text without anything that a terminal would obey or hide; with `lines` its line breaks and tabs stay.

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
    """The same for pages, pictures and tables of others, where an escape would be as odd as what it stands for.

    >>> readable("a\\x1b[31m\\n")
    'a?[31m?'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)
