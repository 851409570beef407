"""Output of the commands: JSON, tables, bold text. Standard library only."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_training.system.formatting import wrapped
from rl_training.system.terminal_text import printable

__all__ = ["amount", "bold", "note", "print_json", "printable", "show", "stdout_for_the_result", "table"]

_BOLD = re.compile("(\033\\[[01]m)")
UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))


def bold(text: str) -> str:
    """`text` in bold on a terminal or with FORCE_COLOR set; as it is elsewhere, on a dumb one, and with NO_COLOR."""
    wanted = os.environ.get("FORCE_COLOR") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    return f"\033[1m{text}\033[0m" if wanted and not os.environ.get("NO_COLOR") else text


def note(text: str) -> None:
    """Print a message that is not part of the result, to stderr."""
    print(wrapped(printable(text, lines=True), sys.stderr), file=sys.stderr, flush=True)


def show(text: object) -> None:
    """Print the result to stdout; of any escape sequences in it only those of `bold` reach the terminal."""
    pieces = _BOLD.split(str(text))
    print("".join(piece if _BOLD.fullmatch(piece) else printable(piece, lines=True) for piece in pieces))


def print_json(value: Any) -> None:
    """One JSON value on stdout. NaN and infinities, which JSON does not have, become null."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def amount(size: float) -> str:
    """A number of bytes with its unit.

    >>> amount(1_500_000), amount(20)
    ('1.5 MB', '20.0 bytes')
    """
    unit, name = next((unit, name) for unit, name in UNITS if size >= unit or unit == 1)
    return f"{size / unit:,.1f} {name}"


PER = {
    "broadcast_bytes": "per update and node",
    "gather_bytes": "per rollout, of all runners",
    "gather_runner_bytes": "per rollout and runner",
    "runner_calls": "per rollout",
    "rollout_seconds": "in the environments, as timed here",
    "calls_per_second": "of the process that trains",
    "journal_bytes": "while it runs",
}
"""What entries of a plan are counted for, where that is not the whole of it."""


def entry_name(key: str) -> str:
    """The name of an entry of a plan, without its unit.

    >>> entry_name("update_mflop"), entry_name("env_steps")
    ('update', 'env steps')
    """
    return key.removesuffix("_bytes").removesuffix("_mflop").removesuffix("_seconds").replace("_", " ")


def entry_text(key: str, value: Any) -> str:
    """An entry of a plan as text: bytes in kB, MB or GB, arithmetic in MFLOP, commas between thousands.

    >>> entry_text("update_mflop", 1530.0), entry_text("env_steps", 100096), entry_text("disk_bytes", 1e6)
    ('1,530 MFLOP', '100,096', '1.0 MB')
    >>> entry_text("broadcast_bytes", 36_620)
    '36.6 kB per update and node'
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    text = f"{value:,}"
    if key.endswith("_bytes"):
        text = amount(value)
    elif key.endswith(("_mflop", "_seconds")):
        text = f"{value:,.15g} {'MFLOP' if key.endswith('_mflop') else 's'}"
    return f"{text} {PER[key]}" if key in PER else text


def show_entries(plan: Mapping[str, Any]) -> None:
    """Print the entries of a plan, a line each."""
    width = max(12, *(len(entry_name(key)) for key in plan))
    for key, value in plan.items():
        show(f"  {entry_name(key):<{width}}  {entry_text(key, value)}")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between; the last one is not padded."""
    headers, rows = list(map(printable, headers)), [list(map(printable, row)) for row in rows]
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([bold(line(headers)), *(line(row) for row in rows)])


@contextlib.contextmanager
def stdout_for_the_result(wanted: bool) -> Iterator[None]:
    """Keep stdout for the JSON value: inside, what Python, libraries and child processes print goes to stderr."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
