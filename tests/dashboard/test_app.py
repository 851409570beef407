"""What the routes answer: rows, curves, bands, the page of a run, exports; texts of runs come out harmless."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_cases import two_algorithms
from dashboard_cases import HOSTILE, Answer, Served, served, write_rows
from run_cases import fake_run

from rl_training.runs.index import record

ROOT = Path(__file__).parents[2]
RUN = "ppo__CartPole-v1__seed0__20260101-000000"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    two_algorithms(folder)
    for run in folder.glob("*__*"):
        record(run)
    with served(folder) as found:
        yield found


def unpacked(answer: Answer) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """A binary answer, read as the page reads it."""
    (length,) = struct.unpack_from("<I", answer.body)
    header = json.loads(answer.body[4 : 4 + length])
    place, arrays = 4 + length, []
    for curve in header["curves"]:
        for _ in range(3 if curve["smoothing"] else 2):
            arrays.append(np.frombuffer(answer.body, "<f8", curve["points"], place))
            place += 8 * curve["points"]
    assert place == len(answer.body)
    return header, arrays


def test_the_table_is_sent_once(site: Served) -> None:
    first = site.ask("/api/runs", filter="algorithm=ppo", sort="reward", columns="seed,reward,hparams.gamma")
    found = first.json()
    assert [row["reward"] for row in found["rows"]] == [70.0, 60.0, 50.0, 40.0]
    assert (found["total"], found["all"]) == (4, 8)
    again = site.ask(
        "/api/runs",
        headers={"If-None-Match": first.headers["etag"]},
        filter="algorithm=ppo",
        sort="reward",
        columns="seed,reward,hparams.gamma",
    )
    assert (again.status, again.body) == (304, b"")


def test_a_mistake_in_a_filter_is_explained(site: Served) -> None:
    answer = site.ask("/api/runs", filter="rewrd>3")
    assert (answer.status, answer.json()["error"]) == (400, "unknown key 'rewrd'; did you mean 'reward'?")
    assert site.ask("/api/runs", columns="nonsense").status == 400


def test_curves(site: Served) -> None:
    header, arrays = unpacked(site.ask("/api/curves", run=[RUN], metric="reward"))
    assert header["metric"] == "eval/return_mean"
    assert header["sampled"] is False
    assert arrays[0].tolist() == [1000, 2000, 3000]
    assert arrays[1].tolist() == [10.0, 20.0, 40.0]
    header, arrays = unpacked(site.ask("/api/curves", run=[RUN], metric="train/loss", smoothing=0.5))
    assert len(arrays) == 3
    assert arrays[2][0] == arrays[1][0]


def test_bands_and_comparison(site: Served) -> None:
    bands = site.get("/api/bands", filter="status=finished", by="algorithm")
    assert [(band["label"], band["n"], band["of"]) for band in bands["groups"]] == [("a2c", 4, 4), ("ppo", 4, 4)]
    found = site.get("/api/compare", filter="status=finished", by="algorithm")
    assert {entry["label"] for entry in found["entries"]} == {"ppo", "a2c"}
    assert site.ask("/api/compare", filter="reward>1e9").status == 409
    report = site.ask("/api/report.html", filter="status=finished", by="algorithm")
    assert report.headers["content-disposition"].startswith("attachment")
    assert b"<svg" in report.body


def test_the_page_of_a_run(site: Served) -> None:
    details = site.get(f"/api/runs/{RUN}")
    assert (details["facts"]["seed"], details["facts"]["status"], details["progress"]["env_steps"]) == (
        0,
        "finished",
        3000,
    )
    assert details["problems"] == []
    config = site.get(f"/api/runs/{RUN}/config")
    assert config["values"]["hparams.gamma"] == 0.99
    assert config["has_default"]
    other = RUN.replace("seed0", "seed1").replace("000000", "000001")
    assert site.get(f"/api/runs/{RUN}/diff", other=other)["differences"]["config"]["seed"] == [0, 1]
    assert "config" in site.get(f"/api/runs/{RUN}/diff")["differences"]
    evals = site.get(f"/api/runs/{RUN}/evals")["evaluations"]
    assert evals[-1]["returns"] == [39.0, 41.0]
    assert "eval/return_mean" in site.get("/api/metrics", run=[RUN])["metrics"]
    assert "hparams.gamma" in site.get("/api/fields")["fields"]
    assert site.get(f"/api/runs/{RUN}/git") == {"diff": ""}


def test_exports(site: Served) -> None:
    rows = site.ask(f"/api/runs/{RUN}/rows.jsonl")
    assert rows.headers["content-disposition"].startswith("attachment")
    assert [json.loads(line)["env_steps"] for line in rows.body.splitlines()] == [1000, 2000, 3000]
    table = site.ask("/api/curves.csv", run=[RUN], metric="reward").body.decode().splitlines()
    assert table[0] == "run,algorithm,environment,seed,env_steps,eval/return_mean"
    assert table[-1] == f"{RUN},ppo,CartPole-v1,0,3000,40.0"


def test_a_run_that_vanishes_under_the_page(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path, number, reward=1.0) for number in range(2)]
    for run in runs:
        record(run)
    with served(tmp_path) as site:
        assert site.get("/api/runs")["total"] == 2
        shutil.rmtree(runs[0])
        assert site.ask(f"/api/runs/{runs[0].name}").status == 404
        assert site.ask("/api/curves", run=[runs[0].name]).status == 404
        assert site.get("/api/runs")["total"] == 1


def test_a_damaged_log_is_one_sentence(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0, reward=1.0)
    write_rows(run, [{"env_steps": 1, "train/loss": 1.0}])
    with open(run / "logs" / "metrics.jsonl", "ab") as log:
        log.write(b'\x00\xff{"env\n{"env_steps":3,"train/loss":2.0}\n{"env_steps":4,"tr')
    record(run)
    with served(tmp_path) as site:
        problems = site.get(f"/api/runs/{run.name}")["problems"]
        assert problems == ["row 2 of logs/metrics.jsonl cannot be read and is left out of the curves"]
        _, arrays = unpacked(site.ask("/api/curves", run=[run.name], metric="train/loss"))
        assert arrays[0].tolist() == [1, 3]


def test_hostile_texts_come_out_as_text(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        run = fake_run(tmp_path, number, name=text, tags=[text], notes=text, group=text, env_id=text, algo="ppo")
        write_rows(run, [{"env_steps": 1, text: 1.0}])
        (run / "logs" / "alerts.jsonl").write_text(json.dumps({"rule": text, "message": text, "env_steps": 1}) + "\n")
        (run / "logs" / "train.log").write_text(text + "\n")
        record(run)
    with served(tmp_path) as site:
        answers = [site.ask("/api/runs", columns="name,tags,notes,group,environment"), site.ask("/api/alerts")]
        for number in range(len(HOSTILE)):
            key = f"ppo__CartPole-v1__seed{number}__20260101-{number:06d}"
            answers += [site.ask(f"/api/runs/{key}{part}") for part in ("", "/log", "/alerts", "/config")]
            answers.append(site.ask("/api/metrics", run=[key]))
        for answer in answers:
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("application/json")
            text = answer.body.decode()
            for letter in "\u202e\u2066\x1b\x00":
                assert letter not in text
                assert letter not in json.dumps(answer.json(), ensure_ascii=False)


def test_secrets_are_hidden_in_log_tails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_API_KEY", "sk-very-secret-1")
    run = fake_run(tmp_path, 0)
    (run / "logs" / "train.log").write_text("used sk-very-secret-1\n")
    record(run)
    with served(tmp_path) as site:
        assert "sk-very" not in json.dumps(site.get(f"/api/runs/{run.name}/log"))


def test_compressed_or_not_events_are_not_held_back(site: Served) -> None:
    assert "content-encoding" not in site.ask("/api/runs", headers={"Accept-Encoding": "gzip"}).headers


def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    """Built from a copy, because a build leaves files behind."""
    import subprocess
    import sys

    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    program = "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_wheel; build_wheel(sys.argv[2])"
    built = subprocess.run(
        [sys.executable, "-c", program, str(source), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path.name for path in (ROOT / "src/rl_training/dashboard/static").iterdir()}
    assert len(wanted) >= 14
    assert {f"rl_training/dashboard/static/{name}" for name in wanted} <= names
