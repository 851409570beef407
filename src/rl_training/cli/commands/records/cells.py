"""Values of runs as the text of one table cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.cli.output import printable
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.experiments.keeping.filters import Key

CELL = 60
"""Characters of a cell; `--json` has all of them."""


def cell(key: Key, row: dict[str, Any]) -> str:
    """A value of a run's row, without anything that a terminal would obey."""
    value = key.of(row)
    if value is None or value == []:
        return "-"
    if key.column == "env_steps" and value == 0 and (updates := (row.get("results") or {}).get("updates")):
        return f"{updates:,} updates"  # an offline run steps no environment
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if key.column == "env_steps" else str(value)
    if key.column == "status" and row.get("cleaned"):
        value = f"{value}, cleaned"
    return cut(printable(", ".join(map(str, value)) if isinstance(value, list) else str(value)))


def value_text(value: Any) -> str:
    """A value of a config or a result; for several runs, their values."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return cut(
        printable("-" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    )


def cut(text: str) -> str:
    return text if len(text) <= CELL else f"{text[: CELL - 3]}..."
