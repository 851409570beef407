"""Columns of logs are the values that JSON gives, whatever the log went through: growth, cuts, damage, replacement."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.dashboard.reading.columns import MIN_CACHED, ColumnStore
from rl_training.dashboard.reading.curves import (
    Axis,
    CurveRequest,
    curve_answer,
    finite_curve,
    min_max,
    read_points,
    smoothed,
)
from rl_training.dashboard.reading.log_columns import parse_columns
from rl_training.experiments.analysis.curves import read_curve
from rl_training.system.json_lines import encode_row

NAMES = ("env_steps", "train/loss", 'a"b', "é")


def log_of(path: Path, data: bytes) -> Path:
    (path / "logs").mkdir(parents=True, exist_ok=True)
    (path / "logs" / "metrics.jsonl").write_bytes(data)
    return path


def lines(steps: range, **more: Any) -> bytes:
    return b"".join(encode_row({"env_steps": step, "train/loss": step / 7, **more}) for step in steps)


values = st.one_of(
    st.floats(-1e15, 1e15),
    st.sampled_from([math.nan, math.inf, 1e300]),
    st.integers(-(10**6), 10**12),
    st.none(),
    st.booleans(),
    st.text(max_size=5),
)
rows = st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=4), max_size=12)


@settings(max_examples=150, deadline=None)
@given(rows, st.lists(st.binary(max_size=12), max_size=3))
def test_curves_are_those_of_the_json_reader(
    tmp_path_factory: pytest.TempPathFactory, found: list[dict[str, Any]], junk: list[bytes]
) -> None:
    """Also with lines in between that are no rows at all."""
    pieces = [encode_row(row) for row in found]
    for place, noise in enumerate(junk):
        pieces.insert(place * 2, noise.replace(b"\n", b"") + b"\n")
    run = log_of(tmp_path_factory.mktemp("run"), b"".join(pieces))
    for name in NAMES[1:]:
        expected = read_curve(run, name)
        curve, _ = finite_curve(ColumnStore(caches=False), run, name, Axis())
        assert np.array_equal(curve.steps, expected.steps)
        assert np.array_equal(curve.values, expected.values)
        assert curve.steps.dtype == expected.steps.dtype


@pytest.mark.parametrize(
    "line",
    [
        b'{"env_steps":5,"train/lo{"env_steps":9,"train/loss":1.0}',  # a torn line, and the next one behind it
        b'{"env_steps":5,"text":"\\"train/loss\\":7","train/loss":1.0}',
        b'{"env_steps": 5, "train/loss": 1.0}',  # spaces: not our writer
        b'{"train/loss":1_0,"env_steps":5}',
        b'{"env_steps":-5,"train/loss":1.0}',
        b'{"env_steps":5,"train/loss":NaN}',
        b'{"env_steps":5,"train/loss":1e999}',
        b'{"env_steps":5,"train/loss":true}',
        b'{"env_steps":5,"train/loss":"1"}',
        b'{"env_steps":5,"a":{"train/loss":3},"train/loss":1.0}',
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_odd_lines_are_read_as_json_reads_them(tmp_path: Path, line: bytes) -> None:
    run = log_of(tmp_path, lines(range(1, 4)) + line + b"\n" + lines(range(20, 22)))
    expected = read_curve(run, "train/loss")
    curve, _ = finite_curve(ColumnStore(caches=False), run, "train/loss", Axis())
    assert (curve.steps.tolist(), curve.values.tolist()) == (expected.steps.tolist(), expected.values.tolist())


def test_the_evaluation_before_training_is_the_first_point(tmp_path: Path) -> None:
    run = log_of(tmp_path, lines(range(1, 4), **{"eval/return_mean": 2.0}))
    (run / "logs" / "evals.jsonl").write_text('{"env_steps":0,"return_mean":9.5}\n{"env_steps":1,"return_mean":2.0}\n')
    curve, _ = finite_curve(ColumnStore(), run, "eval/return_mean", Axis())
    assert (curve.steps.tolist(), curve.values.tolist()) == ([0, 1, 2, 3], [9.5, 2.0, 2.0, 2.0])
    assert np.array_equal(read_curve(run, "eval/return_mean").values, curve.values)


def test_a_log_that_grows_is_read_from_where_it_was(tmp_path: Path) -> None:
    store, run = ColumnStore(), log_of(tmp_path, lines(range(3)) + b'{"env_steps":3,"train')
    assert read_points(store, run, "train/loss")[0].tolist() == [0, 1, 2]
    with open(run / "logs" / "metrics.jsonl", "ab") as log:
        log.write(b'/loss":0.5}\n' + lines(range(4, 6)))
    places, found, view = read_points(store, run, "train/loss")
    assert places.tolist() == [0, 1, 2, 3, 4, 5]
    assert found[3] == 0.5
    assert view.generation == 0
    assert view.offset == os.stat(run / "logs" / "metrics.jsonl").st_size


@pytest.mark.parametrize("regrown", [False, True])
def test_a_log_that_a_resume_cut_back_is_read_anew(tmp_path: Path, regrown: bool) -> None:
    """Also where it has grown past its old length before anybody looked."""
    store, run = ColumnStore(), log_of(tmp_path, lines(range(10)))
    assert len(read_points(store, run, "train/loss")[0]) == 10
    kept = lines(range(4))
    path = run / "logs" / "metrics.jsonl"
    os.truncate(path, len(kept))
    if regrown:
        with open(path, "ab") as log:
            log.write(b"".join(encode_row({"env_steps": step, "train/loss": 100.0 + step}) for step in range(5, 25)))
    places, found, view = read_points(store, run, "train/loss")
    assert places.tolist() == [0, 1, 2, 3, *(range(5, 25) if regrown else [])]
    assert view.generation == 1
    assert (not regrown) or found[-1] == 124.0


def test_a_log_that_is_gone_or_replaced(tmp_path: Path) -> None:
    store, run = ColumnStore(), log_of(tmp_path, lines(range(10)))
    read_points(store, run, "train/loss")
    path = run / "logs" / "metrics.jsonl"
    path.rename(path.with_suffix(".old"))
    assert len(read_points(store, run, "train/loss")[0]) == 0
    log_of(tmp_path, lines(range(100, 120)))
    assert read_points(store, run, "train/loss")[0].tolist() == list(range(100, 120))


def test_large_logs_are_cached_beside_the_runs_and_never_trusted_blindly(tmp_path: Path) -> None:
    run = log_of(tmp_path / "run", lines(range(2000), text="x" * 600))
    assert (run / "logs" / "metrics.jsonl").stat().st_size > MIN_CACHED
    expected = read_points(ColumnStore(), run, "train/loss")[1]
    files = list((tmp_path / ".cache" / "columns").glob("*.f64"))
    assert len(files) == 2
    for file in files:  # a cache file that says something else shows that it is read
        head, _, body = file.read_bytes().partition(b"\n")
        file.write_bytes(head + b"\n" + (np.frombuffer(body) + 1).tobytes())
    assert read_points(ColumnStore(), run, "train/loss")[1][-1] == expected[-1] + 1
    os.truncate(run / "logs" / "metrics.jsonl", (run / "logs" / "metrics.jsonl").stat().st_size - 300)
    assert read_points(ColumnStore(), run, "train/loss")[1].tolist() == expected[:-1].tolist()
    for file in files:
        file.write_bytes(b"junk")
    assert read_points(ColumnStore(), run, "train/loss")[1].tolist() == expected[:-1].tolist()


def test_a_read_only_store_writes_nothing(tmp_path: Path) -> None:
    run = log_of(tmp_path / "run", lines(range(2000), text="x" * 600))
    read_points(ColumnStore(caches=False), run, "train/loss")
    assert not (tmp_path / ".cache").exists()


def test_memory_is_bounded(tmp_path: Path) -> None:
    store = ColumnStore(max_memory=100_000)
    for number in range(20):
        read_points(store, log_of(tmp_path / str(number), lines(range(1000))), "train/loss")
    assert sum(state.size for state in store._logs.values()) <= 100_000


def test_logged_nan_is_a_gap_and_a_missing_metric_is_not(tmp_path: Path) -> None:
    run = log_of(
        tmp_path, b'{"env_steps":1,"a":1.0}\n{"env_steps":2}\n{"env_steps":3,"a":null}\n{"env_steps":4,"a":2.0}\n'
    )
    places, found, _ = read_points(ColumnStore(), run, "a")
    assert places.tolist() == [1, 3, 4]
    assert [None if math.isnan(value) else value for value in found.tolist()] == [1.0, None, 2.0]


@pytest.mark.parametrize("axis", ["updates", "episodes", "relative", "wall"])
def test_other_axes(tmp_path: Path, axis: str) -> None:
    rows = [
        {"env_steps": 10 * n, "updates": n, "episodes": 2 * n, "time/elapsed_seconds": 0.5 * n, "a": float(n)}
        for n in range(1, 4)
    ]
    run = log_of(tmp_path, b"".join(map(encode_row, rows)))
    places, _, _ = read_points(ColumnStore(), run, "a", axis, "2026-01-01T00:00:00+00:00")
    start = 1767225600.0
    expected = {
        "updates": [1, 2, 3],
        "episodes": [2, 4, 6],
        "relative": [0.5, 1, 1.5],
        "wall": [start + 0.5, start + 1, start + 1.5],
    }
    assert places.tolist() == expected[axis]


@pytest.mark.parametrize("points", [50, 100, 600, 2000])
def test_a_spike_of_one_sample_is_kept_at_every_zoom(tmp_path: Path, points: int) -> None:
    rows = [{"env_steps": n, "kl": 5.0 if n == 7_654 else 0.01} for n in range(10_000)]
    run, store = log_of(tmp_path, b"".join(map(encode_row, rows))), ColumnStore()
    for low, high in [(None, None), (7000, 8000), (7600, 7700), (0, 9_999), (7654, 7654)]:
        header, (places, found) = curve_answer(
            store, "r", run, {}, CurveRequest("kl", Axis("env_steps", low, high), points)
        )
        assert found.max() == 5.0
        assert places[found.argmax()] == 7_654
        assert header["points"] <= points + points // 2 + 2
        assert header["total"] == 10_000


def test_thinning_keeps_order_ends_and_gaps() -> None:
    found = np.sin(np.arange(5000) / 50)
    found[2500:2510] = np.nan
    kept = min_max(found, 100)
    assert kept[0] == 0
    assert kept[-1] == 4999
    assert (np.diff(kept) > 0).all()
    assert np.isnan(found[kept]).any()


def test_smoothing_is_debiased_and_can_be_continued() -> None:
    found = np.array([4.0, np.nan, 2.0, 8.0])
    line, (total, mass) = smoothed(found, 0.9)
    assert line[0] == pytest.approx(4.0)
    assert np.isnan(line[1])
    first, state = smoothed(found[:3], 0.9)
    assert first[2] == pytest.approx((0.9 * 4 + 2) / 1.9)
    again = (0.9 * state[0] + 0.1 * 8) / (0.9 * state[1] + 0.1)
    assert line[3] == pytest.approx(again)
    assert total / mass == pytest.approx(line[3])


def test_no_row_of_our_own_writer_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in its row a metric stands."""

    def refuse(line: bytes) -> None:
        raise AssertionError(line)

    monkeypatch.setattr("rl_training.dashboard.reading.log_columns.parse_row", refuse)
    data = b"".join(encode_row({"env_steps": n, "a": n / 3, "b": -1e-7 * n, "c": None}) for n in range(50))
    found = parse_columns(data, ["env_steps", "a", "b", "c"])
    assert found["b"].tolist() == [-1e-7 * n for n in range(50)]
    assert found["c"].tolist() == [math.inf] * 50


def test_columns_of_nothing() -> None:
    assert parse_columns(b"", ["a"])["a"].tolist() == []
    assert json.dumps(parse_columns(b"{}\n", ["a"])["a"].tolist()) == "[NaN]"
