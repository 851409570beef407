"""Event files as TensorBoard itself reads them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.logging.logger import Logger
from rl_training.logging.tensorboard import EventWriter, TensorBoardSink, crc32c


@pytest.fixture(scope="module")
def accumulator_class() -> type:
    # imported once, here: tensorboard takes a second and warns about its own protobuf use
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    return EventAccumulator


def points(accumulator_class: type, directory: Path, tag: str) -> list[tuple[int, float]]:
    accumulator = accumulator_class(str(directory))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
    ids=["empty", "digits", "zeros", "ones"],
)
def test_crc32c_of_the_published_examples(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_tensorboard_reads_scalars_and_text(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path, config_text="algo: ppo\nseed: 1")
    before = time.time()
    sink.log(
        {"env_steps": 0, "train/loss": 0.5, "updates": 0, "ok": True, "note": "text", "missing": None, "list": [1]}
    )
    sink.log({"env_steps": 300_000_000_000, "train/loss": -2.0, "updates": 2})
    sink.log_eval({"env_steps": 300_000_000_000, "return_mean": 1e300, "eval/return_iqm": math.nan, "returns": [1.0]})
    sink.close()
    accumulator = accumulator_class(str(tmp_path))
    accumulator.Reload()
    tags = accumulator.Tags()
    assert sorted(tags["scalars"]) == ["eval/return_iqm", "eval/return_mean", "ok", "train/loss", "updates"]
    assert points(accumulator_class, tmp_path, "train/loss") == [(0, 0.5), (300_000_000_000, -2.0)]
    assert points(accumulator_class, tmp_path, "eval/return_mean") == [(300_000_000_000, math.inf)]
    assert math.isnan(points(accumulator_class, tmp_path, "eval/return_iqm")[0][1])
    assert before <= accumulator.Scalars("train/loss")[0].wall_time <= time.time()
    text = accumulator.Tensors("config")[0].tensor_proto.string_val[0]
    assert text == b"    algo: ppo\n    seed: 1"
    assert accumulator.SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_an_evaluation_that_is_also_in_the_metrics_is_one_point(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    for step in (10, 20):
        sink.log_eval({"env_steps": step, "return_mean": float(step)})
        sink.log({"env_steps": step, "eval/return_mean": float(step), "train/loss": 1.0})
    sink.close()
    assert points(accumulator_class, tmp_path, "eval/return_mean") == [(10, 10.0), (20, 20.0)]


def test_an_evaluation_logged_before_the_rows_of_its_chunk_leaves_no_double_points(
    tmp_path: Path, accumulator_class: type
) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.log_eval({"env_steps": 20, "updates": 2, "episodes": 4, "return_mean": 7.0})
    sink.log({"env_steps": 10, "updates": 1, "episodes": 3})
    sink.log({"env_steps": 20, "updates": 2, "episodes": 4, "eval/return_mean": 7.0})
    sink.close()
    assert points(accumulator_class, tmp_path, "updates") == [(10, 1.0), (20, 2.0)]
    assert points(accumulator_class, tmp_path, "episodes") == [(10, 3.0), (20, 4.0)]
    assert points(accumulator_class, tmp_path, "eval/return_mean") == [(20, 7.0)]


def test_a_resume_leaves_no_double_points(tmp_path: Path, accumulator_class: type) -> None:
    directory = tmp_path / "logs" / "tensorboard"
    killed = Logger(tmp_path / "logs", [TensorBoardSink(directory)])
    for step in (10, 20, 30, 40):
        if step == 30:
            state = json.loads(json.dumps(killed.state_dict()))
        killed.log_metrics({"env_steps": step, "train/loss": -1.0})
    killed.close()
    resumed = Logger(tmp_path / "logs", [TensorBoardSink(directory)])
    resumed.load_state_dict(state)
    for step in (30, 40, 50):
        resumed.log_metrics({"env_steps": step, "train/loss": float(step)})
    resumed.close()
    assert len(list(directory.iterdir())) == 2
    assert points(accumulator_class, directory, "train/loss") == [
        (10, -1.0),
        (20, -1.0),
        (30, 30.0),
        (40, 40.0),
        (50, 50.0),
    ]


def test_a_watching_tensorboard_forgets_what_was_cut_off(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.log({"env_steps": 10, "loss": 1.0})
    state = sink.state_dict()
    sink.log({"env_steps": 20, "loss": 2.0})
    sink.log({"env_steps": 30, "loss": 3.0})
    sink.close()
    watching = accumulator_class(str(tmp_path))
    watching.Reload()
    assert [event.step for event in watching.Scalars("loss")] == [10, 20, 30]
    resumed = TensorBoardSink(tmp_path)
    resumed.load_state_dict(state)
    resumed.log({"env_steps": 25, "loss": 9.0})
    resumed.close()
    watching.Reload()
    assert [(event.step, event.value) for event in watching.Scalars("loss")] == [(10, 1.0), (25, 9.0)]


def test_a_resume_from_before_the_first_event_starts_over(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    state = sink.state_dict()
    sink.log({"env_steps": 10, "loss": 1.0})
    sink.close()
    resumed = TensorBoardSink(tmp_path)
    resumed.load_state_dict(state)
    resumed.log({"env_steps": 10, "loss": 2.0})
    resumed.close()
    assert points(accumulator_class, tmp_path, "loss") == [(10, 2.0)]


def test_a_second_interruption_right_after_the_first(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.log({"env_steps": 10, "loss": 1.0})
    state = sink.state_dict()
    sink.close()
    for value in (2.0, 3.0):
        sink = TensorBoardSink(tmp_path)
        sink.load_state_dict(state)
        again = sink.state_dict()
        assert again["step"] == state["step"]
        sink.log({"env_steps": 20, "loss": value})
        sink.close()
    assert points(accumulator_class, tmp_path, "loss") == [(10, 1.0), (20, 3.0)]


def test_later_files_sort_after_earlier_ones(tmp_path: Path) -> None:
    for _ in range(12):
        EventWriter(tmp_path).close()
    names = sorted(tmp_path.iterdir())
    assert len(names) == 12
    assert names == sorted(names, key=lambda path: path.stat().st_mtime_ns)


def test_rows_reach_the_disk_without_close(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.log({"env_steps": 1, "loss": 1.0})
    assert points(accumulator_class, tmp_path, "loss") == [(1, 1.0)]
    sink.close()


def test_a_scalar_costs_less_than_20_microseconds(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    names = [f"train/metric_{i}" for i in range(20)]
    rows = [{"env_steps": step, **dict.fromkeys(names, step / 7)} for step in range(100)]
    best = math.inf
    for offset in range(5):
        start = time.process_time()
        for row in rows:
            sink.log({**row, "env_steps": row["env_steps"] + 1000 * offset})
        best = min(best, time.process_time() - start)
    sink.close()
    assert best / (100 * 20) < 20e-6


def test_writing_events_imports_neither_torch_nor_tensorboard(tmp_path: Path) -> None:
    program = f"""
import sys
from rl_training.logging.tensorboard import TensorBoardSink
sink = TensorBoardSink({str(tmp_path)!r})
sink.log({{"env_steps": 1, "loss": 1.0}})
sink.close()
print([name for name in ("torch", "tensorboard", "google.protobuf", "gymnasium") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_event_files_that_are_not_what_the_state_covers_are_named(tmp_path: Path) -> None:
    def write(sink: TensorBoardSink, step: int) -> None:
        sink.log({"env_steps": step, "loss": 1.0})

    first = TensorBoardSink(tmp_path)
    write(first, 10)
    first.state_dict()
    first.close()
    second = TensorBoardSink(tmp_path)
    write(second, 20)
    state = second.state_dict()
    write(second, 30)
    second.close()
    old, new = sorted(path.name for path in tmp_path.iterdir())
    resumed = TensorBoardSink(tmp_path)
    resumed.load_state_dict(state)
    assert resumed.damage == []
    assert set(resumed.state_dict()["sha256"]) == {old, new}
    data = bytearray((tmp_path / new).read_bytes())
    data[-9] ^= 1
    (tmp_path / new).write_bytes(data)
    (tmp_path / old).unlink()
    resumed = TensorBoardSink(tmp_path)
    resumed.load_state_dict(state)
    folder = tmp_path.name
    assert resumed.damage == [f"{folder}/{old} is missing", f"{folder}/{new} differs"]


def test_rows_of_an_offline_run_are_drawn_over_updates(tmp_path: Path, accumulator_class: type) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.log_eval({"env_steps": 0, "updates": 512, "return_mean": 2.0})
    sink.log({"env_steps": 0, "updates": 512, "train/actor_loss": 0.5, "eval/return_mean": 2.0})
    sink.close()
    assert points(accumulator_class, tmp_path, "train/actor_loss") == [(512, 0.5)]
    assert points(accumulator_class, tmp_path, "eval/return_mean") == [(512, 2.0)]
