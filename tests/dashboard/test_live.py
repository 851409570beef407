"""Live updates: new rows once each, a log that was cut back is said, and a run does not notice that it is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from dashboard_cases import TOKEN, Served, served, write_rows
from group_cases import tiny
from run_cases import fake_run

from rl_training.dashboard.live import Tail, Watcher
from rl_training.dashboard.reading.tables import RunTable
from rl_training.runs.directory import RunDir
from rl_training.runs.index import record


@contextmanager
def running(output_dir: Path, **info: Any) -> Iterator[Path]:
    """A run that this process holds, so that it counts as running."""
    run = fake_run(output_dir, 0, status="running", ended=None, **info)
    with RunDir(run).lock():
        write_rows(run, [{"env_steps": 1, "train/loss": 1.0}])
        record(run)
        yield run


def events_of(watcher: Watcher, now: float) -> list[tuple[str, dict[str, Any]]]:
    return [(event, data) for event, data in watcher.look(now) if event != "runs"]


def test_rows_are_news_once(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        table = RunTable([tmp_path])
        watcher = Watcher(table)
        assert events_of(watcher, 0.0) == [("reset", {"run": run.name})]  # what a page had before may be outdated
        size = (run / "logs" / "metrics.jsonl").stat().st_size
        write_rows(run, [{"env_steps": 2, "train/loss": 2.0}], mode="a")
        with open(run / "logs" / "metrics.jsonl", "a") as log:
            log.write('{"env_steps":3,"tra')
        ((event, data),) = events_of(watcher, 1.0)
        assert (event, data["run"], data["start"], data["rows"]) == (
            "row",
            run.name,
            size,
            [{"env_steps": 2, "train/loss": 2.0}],
        )
        assert events_of(watcher, 1.5) == []
        with open(run / "logs" / "metrics.jsonl", "a") as log:
            log.write('in/loss":3.0}\n')
        ((event, more),) = events_of(watcher, 1.8)
        assert (event, more["start"], more["rows"]) == ("row", data["end"], [{"env_steps": 3, "train/loss": 3.0}])
        assert table.find(run.name).row["env_steps"] == 3


@pytest.mark.parametrize("regrown", [0, 30])
def test_a_log_that_was_cut_back_is_said(tmp_path: Path, regrown: int) -> None:
    with running(tmp_path) as run:
        write_rows(run, [{"env_steps": n, "train/loss": 1.0} for n in range(20)])
        watcher = Watcher(RunTable([tmp_path]))
        watcher.look(0.0)
        write_rows(run, [{"env_steps": n, "train/loss": 7.0} for n in range(5 + regrown)])
        assert events_of(watcher, 1.0) == [("reset", {"run": run.name})]
        write_rows(run, [{"env_steps": 99, "train/loss": 7.0}], mode="a")
        ((event, data),) = events_of(watcher, 2.0)
        assert (event, data["rows"]) == ("row", [{"env_steps": 99, "train/loss": 7.0}])


def test_ends_and_alerts(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        watcher = Watcher(RunTable([tmp_path]))
        watcher.look(0.0)
        (run / "logs" / "alerts.jsonl").write_text('{"rule":"nan","message":"loss is NaN","env_steps":5}\n')
        assert events_of(watcher, 1.0) == [
            ("alert", {"run": run.name, "rule": "nan", "message": "loss is NaN", "env_steps": 5})
        ]
    assert ("status", {"run": run.name, "status": "killed"}) in watcher.look(5.0)  # nobody holds it any more
    assert watcher.table.find(run.name).row["status"] == "killed"
    assert watcher.tails == {} or watcher.look(6.0) is not None


def test_a_tail_of_nothing(tmp_path: Path) -> None:
    assert Tail(tmp_path / "none").look() == (False, 0, [])


class Stream(threading.Thread):
    """The events of a page, read in a thread."""

    def __init__(self, site: Served, run: str, last_id: str | None = None) -> None:
        super().__init__(daemon=True)
        self.events: list[tuple[str, str, Any, float]] = []
        self.connection = HTTPConnection("127.0.0.1", site.settings.port, timeout=60)
        headers = {"Cookie": f"rl_dashboard_{site.settings.port}={TOKEN}"}
        headers |= {} if last_id is None else {"Last-Event-ID": last_id}
        self.connection.request("GET", f"/api/events?run={run}&metric=train/loss", headers=headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.getheader("content-type", "").startswith("text/event-stream")
        self.start()

    def run(self) -> None:
        fields: dict[str, str] = {}
        try:
            for raw in self.response:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "event" in fields:
                    self.events.append((fields["event"], fields["id"], json.loads(fields["data"]), time.monotonic()))
                    fields = {}
        except (OSError, ValueError, AttributeError):
            pass

    def wait(self, event: str, seconds: float = 20) -> tuple[str, str, Any, float]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for found in self.events:
                if found[0] == event:
                    return found
            time.sleep(0.02)
        raise AssertionError((event, self.events))

    def close(self) -> None:
        """After the server has ended, and with it the stream."""
        self.join(20)
        assert not self.is_alive()
        self.response.close()
        self.connection.close()


def test_a_page_gets_new_rows_and_catches_up(tmp_path: Path) -> None:
    with running(tmp_path) as run, served(tmp_path) as site:
        stream = Stream(site, run.name)
        stream.wait("hello")
        time.sleep(1.5)
        write_rows(run, [{"env_steps": 2, "train/loss": 2.5, "train/other": 9.0}], mode="a")
        _, number, data, _ = stream.wait("row")
        assert data["rows"] == [{"env_steps": 2, "train/loss": 2.5}]  # only what the page shows
        write_rows(run, [{"env_steps": 3, "train/loss": 3.5}], mode="a")
        time.sleep(2.5)
        late = Stream(site, run.name, last_id=number)
        assert late.wait("row")[2]["rows"] == [{"env_steps": 3, "train/loss": 3.5}]
        lost = Stream(site, run.name, last_id="1")
        assert lost.wait("resync")
    for page in (stream, late, lost):
        page.close()


def train_words(config: Path, output_dir: Path) -> list[str]:
    return [sys.executable, "-m", "rl_training", "train", f"--config={config}", f"--output-dir={output_dir}"]


def test_a_watched_run_equals_one_that_nobody_watched(tmp_path: Path) -> None:
    """Bit for bit: the hash of its metrics, and the weights of its last checkpoint."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(tiny(tmp_path, seed=3)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(train_words(config, tmp_path / "alone"), check=True, env=environment, capture_output=True)
    (tmp_path / "watched").mkdir()
    with served(tmp_path / "watched") as site:
        process = subprocess.Popen(
            train_words(config, tmp_path / "watched"),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            for row in site.get("/api/runs")["rows"]:
                for path in ("", "/log", "/evals", "/config"):
                    site.ask(f"/api/runs/{row['key']}{path}")
                site.ask("/api/curves", run=[row["key"]], metric="train/loss")
                site.ask("/api/bands", run=[row["key"]], metric="train/loss")
            time.sleep(0.1)
        assert process.returncode == 0
    runs = [next((tmp_path / name).glob("ppo__*")) for name in ("alone", "watched")]
    hashes = [RunDir(run).info()["metrics_sha256"] for run in runs]
    assert hashes[0] == hashes[1]
    weights = [sorted(run.glob("checkpoints/step_*/policy.safetensors"))[-1].read_bytes() for run in runs]
    assert weights[0] == weights[1]
