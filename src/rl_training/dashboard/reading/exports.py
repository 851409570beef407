"""What can be taken away from the page: CSV, raw rows; and the names that its pickers offer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from rl_training.dashboard.reading.columns import ColumnStore
from rl_training.dashboard.reading.curves import Axis, read_points
from rl_training.dashboard.reading.tables import RunRef, RunTable
from rl_training.experiments.keeping.filters import flat
from rl_training.runs.recipe import LEFT_OUT
from rl_training.runs.row import COLUMNS, LARGE
from rl_training.system.json_lines import number_of, tail_rows
from rl_training.system.terminal_text import printable
from rl_training.types import RunError

CHUNK = 2**20
LOOKED_AT = 20
"""Runs whose newest rows are read for the names of metrics."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters that a spreadsheet would take for a formula."""


def attachment(data: bytes, name: str, kind: str) -> Response:
    """An answer that a browser saves and never shows."""
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(data, headers=headers, media_type=kind)


def curves_csv(store: ColumnStore, refs: Sequence[RunRef], metric: str, axis: Axis) -> str:
    """All points of all runs, one per line, with full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "algorithm", "environment", "seed", axis.name, cell(metric)])
    for ref in refs:
        places, values, _ = read_points(store, ref.path, metric, axis.name, ref.row["started"])
        facts = [cell(ref.row[name]) for name in ("directory", "algorithm", "environment")]
        for place, value in zip(places.tolist(), values.tolist(), strict=True):
            shown = int(place) if place == int(place) else place
            writer.writerow([*facts, ref.row["seed"], shown, "" if value != value else repr(value)])
    return text.getvalue()


def cell(value: Any) -> str:
    """A text for a spreadsheet, which would otherwise run what looks like a formula.

    >>> cell("=1+1"), cell("ppo")
    ("'=1+1", 'ppo')
    """
    text = printable("" if value is None else str(value))
    return f"'{text}" if text.startswith(FORMULAS) else text


def rows_answer(path: Path, name: str) -> Response:
    """The log as it is at this moment: of one that is being written, only what it had at the start of the answer."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise RunError(f"this run has no log of metrics ({error.strerror})") from None

    def pieces() -> Iterator[bytes]:
        with open(path, "rb") as file:
            left = size
            while left > 0 and (data := file.read(min(CHUNK, left))):
                left -= len(data)
                yield data

    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return StreamingResponse(pieces(), headers=headers, media_type="application/x-ndjson")


def metric_names(refs: Sequence[RunRef]) -> list[str]:
    """Names of the metrics in the newest rows of the first few runs."""
    names: dict[str, None] = {}
    for ref in refs[:LOOKED_AT]:
        for row in tail_rows(ref.path / "logs" / "metrics.jsonl"):
            names |= dict.fromkeys(name for name in row if number_of(row, name) is not None)
    return sorted(names)


def known_fields(table: RunTable) -> dict[str, list[str]]:
    """Columns of the index, config fields and final metrics of the newest runs."""
    columns = [name for name in COLUMNS if name not in LARGE]
    fields: dict[str, None] = {}
    metrics: dict[str, None] = {}
    with suppress(RunError):
        for row in table.full_rows(table.all()[:LOOKED_AT]):
            fields |= dict.fromkeys(flat(row["config"]))
            metrics |= dict.fromkeys(name for name in row["results"] if "/" in name)
    dotted = [name for name in fields if "." in name and name.split(".")[0] not in LEFT_OUT]
    return {"columns": columns, "fields": sorted(dotted), "metrics": sorted(metrics)}
