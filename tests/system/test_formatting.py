"""Numbers have a suitable number of digits on every scale, the same in tables, progress lines and summaries."""

from __future__ import annotations

import io
import math

import pytest

from rl_training.experiments.analysis.group_summary import aggregate, aggregate_text
from rl_training.experiments.launching.group_display import Row
from rl_training.logging.progress_display import Display
from rl_training.system.formatting import number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (-0.0, "-0.0"),
        (9, "9.0"),
        (9.5, "9.5"),
        (-21.34, "-21.3"),
        (500, "500.0"),
        (0.0123, "0.0123"),
        (0.0119, "0.0119"),
        (-3.14159e-7, "-3.142e-07"),
        (9999.96, "10000.0"),
        (12345.678, "12,346"),
        (-1_234_567.8, "-1,234,568"),
        (1.2345e15, "1.234e+15"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (None, "-"),
    ],
)
def test_a_number(value: float | None, text: str) -> None:
    assert number_text(value) == text


def test_small_returns_can_be_told_apart_in_progress_tables_and_summaries() -> None:
    for value, text in ((0.0123, "0.0123"), (0.0119, "0.0119")):
        stream = io.StringIO()
        display = Display(100, style="plain", stream=stream)
        display.update(100, return_mean=value, eval_return=value)
        assert f"return {text}  eval {text}" in stream.getvalue()
        assert Row("seed 1", "running", 1, 2, value).cells()[3] == text
        assert aggregate_text(aggregate([value]), 1).startswith(f"IQM {text}")
