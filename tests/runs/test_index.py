"""The index keeps every row whose call returned, whichever process is killed, and never disturbs a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from group_cases import tiny
from run_cases import fake_run

import rl_training
from rl_training.config.loading import parse_config
from rl_training.runs import index
from rl_training.runs.directory import RunDir
from rl_training.runs.index import FILE, RunIndex, all_rows, record
from rl_training.runs.row import describe, scan

pytestmark = pytest.mark.usefixtures("registrations")


def row_of(output_dir: Path, **wanted: Any) -> dict[str, Any]:
    (row,) = [row for row in RunIndex(output_dir).rows() if wanted.items() <= row.items()]
    return row


# -- runs register themselves -----------------------------------------------------------------------------------------


def test_a_run_is_in_the_index_when_it_starts_and_when_it_ends(tmp_path: Path) -> None:
    class Looks(rl_training.Callback):
        seen: dict[str, Any]

        def on_start(self, trainer: Any) -> None:
            self.seen = row_of(tmp_path)

    looks = Looks()
    rl_training.register_callback("looks_at_the_index")(lambda: looks)
    config = tiny(tmp_path, name="mine", tags=["a", "b"], callbacks=["looks_at_the_index"], seed=7)
    result = rl_training.train(config)
    started, ended = looks.seen, row_of(tmp_path)
    assert (started["status"], started["ended"], started["reward"]) == ("running", None, None)
    info = RunDir.open(result.run_dir).info()
    expected = {
        "directory": result.run_dir.name,
        "id": info["id"],
        "name": "mine",
        "status": "finished",
        "algorithm": "ppo",
        "environment": "CartPole-v1",
        "seed": 7,
        "tags": ["a", "b"],
        "started": info["started"],
        "ended": info["ended"],
        "exit_code": 0,
        "config_sha256": info["config_sha256"],
        "env_steps": 96,
        "reward": result.metrics["eval/return_mean"],
        "loss": result.metrics["train/loss"],
    }
    assert ended.items() >= expected.items()
    assert RunIndex(tmp_path).journal_mode() == "wal"


def test_rows_say_how_a_run_ended(tmp_path: Path) -> None:
    class Breaks(rl_training.Callback):
        def on_step(self, trainer: Any, report: Any) -> None:
            raise ValueError("on purpose")

    class Stops(rl_training.Callback):
        def on_step(self, trainer: Any, report: Any) -> None:
            trainer.request_stop("SIGTERM", interrupted=True)

    rl_training.register_callback("breaks_a_run")(Breaks)
    rl_training.register_callback("stops_a_run")(Stops)
    with pytest.raises(ValueError, match="on purpose"):
        rl_training.train(tiny(tmp_path, callbacks=["breaks_a_run"], seed=1))
    rl_training.train(tiny(tmp_path, callbacks=["stops_a_run"], seed=2))
    assert row_of(tmp_path, seed=1)["status"] == "failed"
    assert row_of(tmp_path, seed=2)["status"] == "stopped"


def test_a_run_that_nobody_has_and_that_wrote_no_end_was_killed(tmp_path: Path) -> None:
    run = fake_run(tmp_path, status="running", ended=None)
    assert describe(run)["status"] == "killed"
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys,time\nfrom pathlib import Path\nfrom rl_training.runs import RunDir\n"
         "with RunDir(Path(sys.argv[1])).lock():\n print('held', flush=True); time.sleep(60)", str(run)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    assert [row["status"] for row in all_rows(tmp_path)[0]] == ["running"]
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert [row["status"] for row in all_rows(tmp_path)[0]] == ["killed"]
    RunDir(run).update_info(status="finished", exit_code=0)  # its end never reached the index
    assert [row["status"] for row in all_rows(tmp_path)[0]] == ["finished"]


def test_a_running_run_shows_its_newest_numbers(tmp_path: Path) -> None:
    run = fake_run(tmp_path, status="running", reward=1.0)
    with open(run / "logs" / "metrics.jsonl", "a") as log:
        log.write('{"env_steps": 500, "eval/return_mean": 42.0}\n{"env_steps": 600, "eval')
    row = describe(run)
    assert (row["env_steps"], row["reward"], row["loss"]) == (500, 42.0, 0.5)


# -- the rows follow the directories ----------------------------------------------------------------------------------


def test_new_and_vanished_directories_are_noticed(tmp_path: Path) -> None:
    runs = [fake_run(tmp_path, number, reward=float(number)) for number in range(3)]
    (tmp_path / "groups" / "g").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    rows, note = all_rows(tmp_path)
    assert ([row["reward"] for row in rows], note) == ([0.0, 1.0, 2.0], None)
    shutil.rmtree(runs[1])
    fake_run(tmp_path, 5)
    assert [row["seed"] for row in all_rows(tmp_path)[0]] == [0, 2, 5]
    assert RunIndex(tmp_path).rows()[0]["tags"] == []


def test_a_rebuild_gives_the_rows_that_the_runs_wrote(tmp_path: Path) -> None:
    for number in range(4):
        record(fake_run(tmp_path, number, reward=1.5, tags=["x", f"y{number}"], group="g"))
    (tmp_path / "ppo__CartPole-v1__seed0__20260101-000000").rename(tmp_path / "renamed by hand")
    before = RunIndex(tmp_path).rows(large=("results", "config"))
    before[0]["directory"] = "renamed by hand"
    assert before[0]["config"]["hparams"]["learning_rate"] == 3e-4
    assert RunIndex(tmp_path).rebuild() == 4
    assert RunIndex(tmp_path).rows(large=("results", "config")) == before
    os.unlink(tmp_path / FILE)
    assert RunIndex(tmp_path).rebuild() == 4
    assert RunIndex(tmp_path).rows(large=("results", "config")) == before


def test_a_run_of_an_older_version_is_read_from_its_config(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 3, algo="a2c")
    info = json.loads((run / "run.json").read_text())
    for field in ("algo", "env_id", "seed", "tags"):
        del info[field]
    (run / "run.json").write_text(json.dumps(info))
    row = describe(run, config=False)
    assert (row["algorithm"], row["environment"], row["seed"], row["tags"]) == ("a2c", "CartPole-v1", 3, [])


@pytest.mark.parametrize(
    "info",
    [
        {"name": {"a": 1}, "tags": "x", "seed": "y", "git": 5, "status": ["running"], "exit_code": 2**70},
        {"name": "\ud800 \x00 \x1b[31m '; DROP TABLE runs; --", "tags": [1, "../../x", None, "<script>"], "group": 3},
        {"name": "n" * 300, "tags": ["t" * 300], "algo": None, "started": 5, "config_sha256": {}},
    ],
)
def test_nonsense_in_a_record_harms_nothing(tmp_path: Path, info: dict[str, Any]) -> None:
    run = fake_run(tmp_path, 1)
    run_json = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**run_json, **info}))
    fake_run(tmp_path, 2)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (run / "metrics.json").write_text('{"env_steps": "many", "eval/return_mean": [1], "train/loss": 1e999}')
    assert RunIndex(tmp_path).rebuild() == 2
    assert len(all_rows(tmp_path, large=("results", "config"))[0]) == 2
    assert RunIndex(tmp_path).check() == "ok"


HOSTILE = [
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "/etc/passwd",
    "x" * 300,
    "\x1b[31m\x07\n",
    "'; DROP TABLE runs; --",
    "\u202egnp",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_tags_and_values_stay_text_inside_the_root(tmp_path: Path, text: str) -> None:
    cfg = parse_config(
        {"name": text, "tags": [text], "env": {"kwargs": {"x": text}}, "output_dir": str(tmp_path / "r")}
    )
    run = RunDir.create(cfg, source=f"name: {text!r}", argv=["rl", text], group=text, sweep=text)
    run.finish("failed", exit_code=1)
    (row,) = RunIndex(tmp_path / "r").rows(large=("config",))
    assert (row["name"], row["tags"], row["group"], row["sweep"]) == (text, [text], text, text)
    assert row["config"]["env"]["kwargs"]["x"] == text
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["index.sqlite", run.path.name]
    assert os.listdir(tmp_path) == ["r"]


# -- many processes, some of them killed ------------------------------------------------------------------------------

HELPERS = str(Path(__file__).parents[1] / "helpers")
REGISTER = """
import itertools, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from run_cases import fake_run
from rl_training.experiments.keeping.tracker import ExperimentTracker
import rl_training.runs.directory

output_dir = Path(sys.argv[2])

def register(worker):
    tracker, log = ExperimentTracker(output_dir), os.open(output_dir / f"{worker}.log", os.O_WRONLY | os.O_CREAT)
    for k in itertools.count() if worker < 5 else range(50):  # the first five go on until they are killed
        tracker.register_experiment(fake_run(output_dir, 100_000 * worker + k))
        os.write(log, f"{100_000 * worker + k}\\n".encode())

workers = []
for worker in range(20):  # nothing is open yet, so each is as good as a program of its own
    workers.append(os.fork())
    if not workers[-1]:
        register(worker)
        os._exit(0)
print(*workers, flush=True)
print(*(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers))
"""


def test_twenty_processes_of_which_five_are_killed_lose_nothing(tmp_path: Path) -> None:
    """Every row whose call returned is there, and the file is sound."""
    words = [sys.executable, "-c", REGISTER, HELPERS, str(tmp_path)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    logs = [tmp_path / f"{worker}.log" for worker in range(20)]
    for worker in range(5):
        while not logs[worker].exists() or len(logs[worker].read_text().splitlines()) < 3 + 9 * worker:
            time.sleep(0.001)
        os.kill(workers[worker], signal.SIGKILL)
    out, _ = parent.communicate(timeout=120)
    assert out.split() == ["-9"] * 5 + ["0"] * 15
    returned = {int(line) for log in logs for line in log.read_text().split("\n")[:-1]}
    assert len(returned) >= 15 * 50 + 5
    runs = RunIndex(tmp_path)
    assert returned <= {row["seed"] for row in runs.rows()}
    assert runs.check() == "ok"
    assert len(all_rows(tmp_path)[0]) == len(scan(tmp_path, config=False)) >= len(returned)


# -- an index that cannot be used -------------------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"this is no database at all, whatever its name says" * 100)
    elif how == "a folder in its place":
        path.unlink(missing_ok=True)
        path.mkdir()
    elif how == "newer layout":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        data = bytearray(path.read_bytes())
        data[100:4000] = (bytes(range(256)) * 16)[:3900]
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["garbage", "a folder in its place", "newer layout", "other bytes inside"])
def test_a_damaged_index_never_ends_a_run_and_a_rebuild_cures_it(tmp_path: Path, how: str) -> None:
    run = fake_run(tmp_path, 1, reward=3.0)
    record(run)
    damage(tmp_path / FILE, how)
    with pytest.warns(UserWarning, match=r"cannot write the index .*`rl index rebuild` repairs"):
        record(run)
    rows, note = all_rows(tmp_path)
    assert [row["reward"] for row in rows] == [3.0]
    assert note is not None
    assert "read the run directories instead" in note
    if how == "a folder in its place":
        (tmp_path / FILE).rmdir()
    assert RunIndex(tmp_path).rebuild() == 1
    record(run)
    assert RunIndex(tmp_path).check() == "ok"


def test_a_whole_run_ends_well_beside_a_damaged_index(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"garbage" * 1000)
    with pytest.warns(UserWarning, match="cannot write the index"):
        result = rl_training.train(tiny(tmp_path))
    assert (result.exit_code, RunDir.open(result.run_dir).info()["status"]) == (0, "finished")


def test_a_disk_that_takes_nothing_more(tmp_path: Path) -> None:
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom rl_training.runs.index import record\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nrecord(Path(sys.argv[1]))\nprint('went on')"
    )
    words = [sys.executable, "-c", program, str(fake_run(tmp_path))]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    assert result.stdout == "went on\n"
    assert "cannot write the index" in result.stderr


@pytest.mark.wall_clock
def test_a_writer_that_hangs_costs_a_run_no_more_than_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run(tmp_path)
    record(run)
    monkeypatch.setattr(index, "RUN_SECONDS", 0.2)
    other = index.connect(tmp_path / FILE, 1.0)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.warns(UserWarning, match="database is locked"):
        record(run)
    assert time.monotonic() - began < 2.0
    assert [row["seed"] for row in RunIndex(tmp_path).rows()] == [0]  # readers do not wait for writers
    other.close()


def test_without_wal_there_is_another_journal_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's `unix-dotfile` has no shared memory, as network file systems have none."""

    def connect(path: Path, timeout: float) -> sqlite3.Connection:
        uri = f"file:{path}?vfs=unix-dotfile"
        return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)

    monkeypatch.setattr(index, "connect", connect)
    with pytest.warns(UserWarning, match=r"cannot do WAL; the index uses the journal mode 'delete'"):
        record(fake_run(tmp_path))
    assert RunIndex(tmp_path).journal_mode() == "delete"
    assert [row["seed"] for row in RunIndex(tmp_path).rows()] == [0]


def test_nothing_is_made_where_there_is_nothing(tmp_path: Path) -> None:
    assert all_rows(tmp_path / "nowhere") == ([], None)
    assert all_rows(tmp_path) == ([], None)
    assert os.listdir(tmp_path) == []


# -- network file systems ---------------------------------------------------------------------------------------------

WRITE = """
import sys
from pathlib import Path
from rl_training.runs.index import RunIndex
from rl_training.runs.row import COLUMNS
index, host = RunIndex(sys.argv[1], timeout=60.0), sys.argv[2]
for number in range(int(sys.argv[3])):
    index.put([{**dict.fromkeys(COLUMNS), "directory": f"{host}-{number}", "status": "finished", "tags": []}])
"""


def test_the_journal_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write-ahead logging needs memory that the writers share, which hosts do not."""
    RunIndex(tmp_path).put([])
    assert RunIndex(tmp_path).journal_mode() == "wal"
    monkeypatch.setenv("RL_TRAINING_NETWORK_FS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunIndex(tmp_path).put([])  # an index that was made elsewhere is switched
        RunIndex(tmp_path / "new").put([])
    assert {RunIndex(folder).journal_mode() for folder in (tmp_path, tmp_path / "new")} == {"delete"}


def test_the_switch_of_the_journal_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses it at once while anybody else has the file open."""
    RunIndex(tmp_path).put([])
    reader = sqlite3.connect(tmp_path / FILE, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM runs").fetchone()
    monkeypatch.setenv("RL_TRAINING_NETWORK_FS", "1")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        RunIndex(tmp_path, timeout=0.1).put([])
    end = threading.Timer(0.3, reader.close)
    end.start()
    RunIndex(tmp_path, timeout=60.0).put([])
    end.join()
    assert RunIndex(tmp_path).journal_mode() == "delete"


def test_two_hosts_write_500_rows_each(tmp_path: Path) -> None:
    RunIndex(tmp_path).put([])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path), host, "500"],
            env={**os.environ, "RL_TRAINING_NETWORK_FS": "1", "RL_TRAINING_HOST": host},
        )
        for host in ("here", "there")
    ]
    assert [writer.wait(timeout=200) for writer in writers] == [0, 0]
    index = RunIndex(tmp_path)
    assert index.check() == "ok"
    assert len(index.rows()) == 1000


def test_readers_of_a_network_file_system_merge_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_TRAINING_NETWORK_FS", "1")
    fake_run(tmp_path, 1, seed=1, reward=1.0)
    first, note = all_rows(tmp_path, large=("config",))
    assert (len(first), note, (tmp_path / "index.sqlite").exists()) == (1, None, False)
    RunIndex(tmp_path).rebuild()
    stored = (tmp_path / "index.sqlite").read_bytes()
    fake_run(tmp_path, 2, seed=2, reward=2.0)
    rows, _ = all_rows(tmp_path, large=("config",))
    assert [row["seed"] for row in rows] == [1, 2]
    assert all(row["config"] == first[0]["config"] or row["seed"] == 2 for row in rows)
    assert (tmp_path / "index.sqlite").read_bytes() == stored
    monkeypatch.setenv("RL_TRAINING_INDEX", "0")
    record(next(tmp_path.glob("*/run.json")).parent)
    assert (tmp_path / "index.sqlite").read_bytes() == stored
