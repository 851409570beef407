"""Changes through the page do what the commands do and refuse what they refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_cases import Served, served
from group_cases import tiny
from run_cases import fake_run

from rl_training.runs.directory import RunDir
from rl_training.runs.index import record


def info(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "run.json").read_text())
    return found


def test_tags_and_notes(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0, tags=["old"])
    record(run)
    with served(tmp_path) as site:
        answer = site.post(f"/api/runs/{run.name}/tags", {"add": ["keep", "paper"], "remove": ["old"]})
        assert (answer.status, answer.json()) == (200, {"tags": ["keep", "paper"]})
        assert info(run)["tags"] == ["keep", "paper"]
        assert site.get("/api/runs", filter="tag=keep")["total"] == 1
        answer = site.post(f"/api/runs/{run.name}/notes", {"text": "line one\nline two"})
        assert answer.json() == {"notes": "line one\nline two"}
        assert site.get("/api/runs", filter="notes~two", columns="notes")["rows"][0]["notes"] == "line one\nline two"
        refused = site.post(f"/api/runs/{run.name}/tags", {"add": ["a\x1b[31m"]})
        assert (refused.status, "printable characters" in refused.json()["error"]) == (400, True)
        assert site.post(f"/api/runs/{run.name}/notes", {"text": "x" * 30_000}).status == 422
        assert site.post(f"/api/runs/{run.name}/tags", b"x" * 100_000).status == 413
        assert site.post("/api/runs/nobody/tags", {"add": ["x"]}).status == 404


def test_cleaning_follows_the_rules(tmp_path: Path) -> None:
    tagged, plain = fake_run(tmp_path, 0, tags=["keep"]), fake_run(tmp_path, 1)
    held = fake_run(tmp_path, 2, status="running")
    for run in (tagged, plain, held):
        (run / "checkpoints" / "big").write_bytes(b"x" * 1000)
        record(run)
    with served(tmp_path) as site, RunDir(held).lock():
        refused = site.post(f"/api/runs/{tagged.name}/clean")
        assert (refused.status, "tagged" in refused.json()["error"]) == (409, True)
        refused = site.post(f"/api/runs/{held.name}/clean")
        assert (refused.status, "running" in refused.json()["error"]) == (409, True)
        assert site.post(f"/api/runs/{plain.name}/clean").json()["bytes"] >= 1000
        assert not (plain / "checkpoints").exists()
        assert (plain / "metrics.json").exists()
        assert (tagged / "checkpoints" / "big").exists()
        assert site.get("/api/runs", columns="cleaned", filter="cleaned!=none")["total"] == 1


def test_what_cannot_be_stopped_or_resumed_is_refused(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0)
    record(run)
    with served(tmp_path) as site:
        assert "not running" in site.post(f"/api/runs/{run.name}/stop").json()["error"]
        assert "finished" in site.post(f"/api/runs/{run.name}/resume").json()["error"]


def test_a_run_on_another_host_is_not_stopped(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0, status="running")
    (run / ".lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "started": 0.0}))
    record(run)
    with served(tmp_path) as site:
        answer = site.post(f"/api/runs/{run.name}/stop")
        assert (answer.status, "runs on elsewhere" in answer.json()["error"]) == (409, True)


def test_a_run_of_others_that_asks_for_code_is_not_resumed(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0, status="stopped")
    config = run / "configs" / "resolved.yaml"
    config.write_text(config.read_text().replace("env_id: CartPole-v1", "env_id: evil.module:Env"))
    record(run)
    with served(tmp_path) as site:
        answer = site.post(f"/api/runs/{run.name}/resume")
        assert answer.status in (400, 409)
        assert "evil.module" in answer.json()["error"]
        assert not (run / "logs" / "resume.log").exists()


def wait_for(check: object, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if check():  # type: ignore[operator]
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Path]:
    """A real run that trains until it is stopped."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(tiny(tmp_path / "runs", seed=1)))
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training", "train", f"--config={config}", "--total-timesteps=100000000"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: list((tmp_path / "runs").glob("ppo__*/logs/metrics.jsonl")))
    yield next((tmp_path / "runs").glob("ppo__*"))
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    for run in (tmp_path / "runs").glob("ppo__*"):
        holder = RunDir(run).holder()
        if holder is not None:
            os.kill(holder.pid, signal.SIGKILL)


def status(site: Served, run: Path) -> str:
    return str(site.get("/api/runs", columns="status", filter=f"run={run.name}")["rows"][0]["status"])


def test_stop_and_resume_a_real_run(training: Path) -> None:
    with served(training.parent) as site:
        wait_for(lambda: status(site, training) == "running")
        wait_for(lambda: (training / "logs" / "metrics.jsonl").stat().st_size > 0)
        assert site.post(f"/api/runs/{training.name}/stop").status == 200
        wait_for(lambda: info(training)["status"] == "stopped")
        wait_for(lambda: status(site, training) == "stopped")
        assert info(training)["exit_code"] == 130
        answer = site.post(f"/api/runs/{training.name}/resume")
        assert answer.status == 200, answer.body
        wait_for(lambda: info(training)["status"] == "running")
        wait_for(lambda: status(site, training) == "running")
        assert "in use" in site.post(f"/api/runs/{training.name}/resume").json()["error"]
        wait_for(lambda: RunDir(training).holder() is not None)
        assert site.post(f"/api/runs/{training.name}/stop").status == 200
        wait_for(lambda: info(training)["status"] == "stopped")
