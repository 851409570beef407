"""The logger: which rows go to which file, and logs that a resume truncates exactly."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.logging.logger import ConsoleSink, JsonlSink, Logger, Row
from rl_training.system.json_lines import read_rows
from rl_training.types import StateDict, Stateful


class Recorder:
    """A user-defined sink needs three methods."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.evals: list[Row] = []
        self.closed = 0

    def log(self, row: Row, /) -> None:
        self.rows.append(row)

    def log_eval(self, row: Row, /) -> None:
        self.evals.append(row)

    def close(self) -> None:
        self.closed += 1


class Counter(Recorder):
    def state_dict(self) -> StateDict:
        return {"count": len(self.rows)}

    def load_state_dict(self, state: StateDict, /) -> None:
        del self.rows[state["count"] :]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_steps(logger: Logger, start: int, stop: int) -> None:
    for i in range(start, stop):
        logger.log_episode(env_steps=i, **{"return": float(i)}, length=i)
        logger.log_step(env_steps=i, obs=np.arange(3) + i)
        logger.log_metrics({"env_steps": i, "train/loss": torch.tensor(1.0 / (i + 1)), "time/elapsed": 0.5})
        if i % 3 == 0:
            logger.log_eval({"env_steps": i, "return_mean": i, "returns": [i, i]})
            logger.log_alert({"env_steps": i, "text": "slow"})


def test_rows_reach_their_files_and_the_sinks(tmp_path: Path) -> None:
    sink = Recorder()
    logger = Logger(tmp_path / "logs", [sink])
    logger.log_metrics({"env_steps": 8, "train/loss": torch.tensor(0.5), "train/kl": np.float32("nan")})
    logger.log_eval({"env_steps": 8, "return_mean": np.float64(3.0), "returns": np.array([2.0, 4.0])})
    logger.log_episode(env_steps=8, **{"return": 2.5}, length=np.int32(4))
    logger.log_step(env_steps=1, obs=np.zeros(2), action=1)
    logger.log_alert({"env_steps": 8, "rule": "nan_loss"})
    logger.save_logs()
    logs = tmp_path / "logs"
    assert lines(logs / "metrics.jsonl") == [{"env_steps": 8, "train/loss": 0.5, "train/kl": None}]
    assert lines(logs / "evals.jsonl") == [{"env_steps": 8, "return_mean": 3.0, "returns": [2.0, 4.0]}]
    assert lines(logs / "episodes.jsonl") == [{"env_steps": 8, "return": 2.5, "length": 4}]
    assert lines(logs / "trace.jsonl") == [{"env_steps": 1, "obs": [0.0, 0.0], "action": 1}]
    assert lines(logs / "alerts.jsonl") == [{"env_steps": 8, "rule": "nan_loss"}]
    assert np.isnan(sink.rows[0].pop("train/kl"))
    assert sink.rows == [{"env_steps": 8, "train/loss": 0.5}]
    assert sink.evals[0]["returns"] == [2.0, 4.0]
    logger.close()
    logger.close()
    assert sink.closed == 1


def test_the_first_row_can_be_read_at_once(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    logger.log_episode(env_steps=1, length=1)
    logger.log_metrics({"env_steps": 1})
    assert lines(tmp_path / "metrics.jsonl") == [{"env_steps": 1}]
    assert lines(tmp_path / "episodes.jsonl") == [{"env_steps": 1, "length": 1}]
    logger.close()


def test_trace_is_only_there_when_used(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    logger.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alerts.jsonl",
        "episodes.jsonl",
        "evals.jsonl",
        "metrics.jsonl",
        "train.log",
    ]


def test_messages_have_the_time_and_no_secrets(tmp_path: Path) -> None:
    logger = Logger(tmp_path, redact=lambda text: text.replace("hunter2", "${env:PASSWORD}"))
    logger.message("login with hunter2 failed \ud800")
    logger.log_alert({"text": "hunter2", "count": 2})
    logger.close()
    stamp, _, text = (tmp_path / "train.log").read_text().partition("login")
    assert len(stamp) == len("2026-01-31 12:00:00 ")
    assert text == " with ${env:PASSWORD} failed \\ud800\n"
    assert lines(tmp_path / "alerts.jsonl") == [{"text": "${env:PASSWORD}", "count": 2}]


def test_a_resumed_log_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = Logger(tmp_path / "whole")
    write_steps(whole, 0, 20)
    whole.close()

    killed = Logger(tmp_path / "cut")
    write_steps(killed, 0, 7)
    state = json.loads(json.dumps(killed.state_dict()))
    write_steps(killed, 7, 15)
    killed.flush()  # the process dies here: nothing is closed

    resumed = Logger(tmp_path / "cut")
    resumed.load_state_dict(state)
    write_steps(resumed, 7, 20)
    resumed.close()
    for name in ("metrics", "episodes", "evals", "alerts", "trace"):
        assert (tmp_path / "cut" / f"{name}.jsonl").read_bytes() == (tmp_path / "whole" / f"{name}.jsonl").read_bytes()


def test_the_state_claims_only_what_is_in_the_files(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    assert isinstance(logger, Stateful)
    write_steps(logger, 0, 5)
    files = logger.state_dict()["files"]
    assert files == {name: (tmp_path / name).stat().st_size for name in files}
    assert len(files) == 5


def test_a_state_from_step_zero_empties_every_file_but_the_train_log(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    state = logger.state_dict()
    write_steps(logger, 0, 5)
    logger.message("crashed")
    logger.close()
    resumed = Logger(tmp_path)
    resumed.load_state_dict(state)
    resumed.close()
    assert {path.stat().st_size for path in tmp_path.glob("*.jsonl")} == {0}
    assert "crashed" in (tmp_path / "train.log").read_text()


def saved_logs(folder: Path) -> StateDict:
    """The state of a logger after five logged steps."""
    logger = Logger(folder)
    write_steps(logger, 0, 5)
    state: StateDict = json.loads(json.dumps(logger.state_dict()))
    logger.close()
    return state


def load_damaged(folder: Path, state: StateDict) -> list[str]:
    """The damage that a logger reports at a resume, in one warning and in train.log, before it continues."""
    resumed = Logger(folder)
    with pytest.warns(UserWarning, match="are not what the checkpoint covers") as caught:
        resumed.load_state_dict(state)
    assert len(caught) == 1
    write_steps(resumed, 5, 7)
    assert resumed.state_dict()["sha256"]["metrics.jsonl"] == sha256(folder / "metrics.jsonl")
    resumed.close()
    assert all(what in (folder / "train.log").read_text() for what in resumed.damage)
    assert [row["env_steps"] for row in read_rows(folder / "metrics.jsonl")][-2:] == [5, 6]
    return resumed.damage


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_state_has_the_checksum_of_every_file(tmp_path: Path) -> None:
    """Updated while rows are appended: a checkpoint does not read the files again."""
    logger = Logger(tmp_path)
    for start in (0, 5, 10):
        write_steps(logger, start, start + 5)
        sums = logger.state_dict()["sha256"]
        assert sums == {name: sha256(tmp_path / name) for name in sums}
    (tmp_path / "metrics.jsonl").unlink()
    write_steps(logger, 15, 16)
    assert logger.state_dict()["sha256"]["metrics.jsonl"] != sums["metrics.jsonl"]
    logger.close()


def test_a_torn_row_is_cut_off_at_the_last_whole_line(tmp_path: Path) -> None:
    state = saved_logs(tmp_path)
    rows = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(rows[:-10])
    assert load_damaged(tmp_path, state) == [f"metrics.jsonl lacks 10 of {len(rows)} bytes"]
    whole = [json.loads(line)["env_steps"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert whole == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("name", ["metrics.jsonl", "trace.jsonl", "evals.jsonl"])
def test_a_deleted_log_is_noticed(tmp_path: Path, name: str) -> None:
    state = saved_logs(tmp_path)
    size = (tmp_path / name).stat().st_size
    (tmp_path / name).unlink()
    assert load_damaged(tmp_path, state) == [f"{name} lacks {size} of {size} bytes"]


def test_one_flipped_bit_is_noticed_and_its_row_named(tmp_path: Path) -> None:
    state = saved_logs(tmp_path)
    data = bytearray((tmp_path / "metrics.jsonl").read_bytes())
    row = data.index(b"{", data.index(b"\n"))
    data[row] ^= 1
    (tmp_path / "metrics.jsonl").write_bytes(data)
    assert load_damaged(tmp_path, state) == [
        f"metrics.jsonl differs in its first {len(data)} bytes (row 2 cannot be read)"
    ]


def test_another_digit_is_noticed_although_every_row_can_be_read(tmp_path: Path) -> None:
    state = saved_logs(tmp_path)
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(path.read_bytes().replace(b"3.0", b"7.0") + b"written after the checkpoint\n")
    (what,) = load_damaged(tmp_path, state)
    assert "episodes.jsonl differs in its first" in what
    assert "(every row can be read)" in what


def test_a_checkpoint_of_the_first_version_has_lengths_alone(tmp_path: Path) -> None:
    state = saved_logs(tmp_path)
    del state["sha256"]
    resumed = Logger(tmp_path)
    resumed.load_state_dict(state)
    resumed.close()
    assert resumed.damage == []
    assert len(lines(tmp_path / "metrics.jsonl")) == 5


def test_sinks_with_state_are_part_of_it(tmp_path: Path) -> None:
    first, second, plain = Counter(), Counter(), Recorder()
    logger = Logger(tmp_path, [first, plain, second])
    logger.log_metrics({"env_steps": 1})
    state = logger.state_dict()
    assert state["sinks"] == {"Counter": {"count": 1}, "Counter#2": {"count": 1}}
    logger.log_metrics({"env_steps": 2})
    logger.load_state_dict(state)
    assert (len(first.rows), len(second.rows), len(plain.rows)) == (1, 1, 2)


def test_a_sink_that_fails_to_close_does_not_keep_the_others_open(tmp_path: Path) -> None:
    class Broken(Recorder):
        def close(self) -> None:
            raise OSError("gone")

    other = Recorder()
    logger = Logger(tmp_path, [other, Broken()])
    logger.log_metrics({"env_steps": 1})
    with pytest.raises(OSError, match="gone"):
        logger.close()
    assert other.closed == 1
    assert lines(tmp_path / "metrics.jsonl") == [{"env_steps": 1}]


def test_jsonl_sink_writes_both_kinds_and_is_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "rows.jsonl"
    logger = Logger(tmp_path / "logs", [JsonlSink(path)])
    logger.log_metrics({"env_steps": 1, "train/loss": 2.0})
    state = logger.state_dict()
    logger.log_eval({"env_steps": 1, "return_mean": 5.0})
    assert lines(path)[1] == {"env_steps": 1, "eval/return_mean": 5.0}
    logger.load_state_dict(state)
    logger.close()
    assert lines(path) == [{"env_steps": 1, "train/loss": 2.0}]


def test_console_sink_prints_progress_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger(tmp_path, [ConsoleSink(total=100)])
    logger.log_metrics({"env_steps": 10, "rollout/return_mean": 1.5})
    logger.log_eval({"env_steps": 10, "return_mean": 7.0})
    logger.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first == "env_steps 10/100 (10%)  return 1.5"
    assert second == "env_steps 10/100 (10%)  return 1.5  eval 7.0"
