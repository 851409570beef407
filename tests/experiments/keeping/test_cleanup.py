"""Cleaning takes what old runs do not need, and nothing of those that are tagged, running, good or young."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from disk_cases import fill, remount, small_disk
from group_cases import tiny
from run_cases import fake_run

import rl_training
from rl_training.cli import main
from rl_training.experiments.keeping.cleanup import ExperimentCleaner, clean
from rl_training.runs.directory import RunDir
from rl_training.runs.index import RunIndex, all_rows
from rl_training.system.atomic_io import fault_hook
from rl_training.types import RunError


def days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")


def old_run(folder: Path, number: int, **fields: object) -> Path:
    run = fake_run(folder, number, **{"ended": days_ago(100), **fields})  # type: ignore[arg-type]
    (run / "checkpoints" / "weights").write_bytes(b"w" * 1000)
    return run


def cleaned(folder: Path, **options: object) -> list[int]:
    """Seeds of the runs that one call cleans."""
    removals = ExperimentCleaner(folder).cleanup_old_experiments(**options)  # type: ignore[arg-type]
    return [RunDir(removal.run).info()["seed"] for removal in removals]


def test_who_is_kept(tmp_path: Path) -> None:
    old_run(tmp_path, 0, reward=50.0, tags=["keep"])
    old_run(tmp_path, 1, reward=10.0)
    old_run(tmp_path, 2, reward=30.0)
    old_run(tmp_path, 3, reward=20.0)
    old_run(tmp_path, 4, reward=1.0, env_id="Acrobot-v1")  # the best of its environment
    old_run(tmp_path, 5)  # never evaluated
    old_run(tmp_path, 6, reward=0.0, ended=days_ago(29))
    old_run(tmp_path, 7, reward=0.0, status="running", ended=None, started=days_ago(100))  # killed long ago
    running = RunDir(old_run(tmp_path, 8, reward=0.0, status="running", ended=None, started=days_ago(100)))
    old_run(tmp_path, 9, reward=0.0, ended="when the moon was full")
    with running.lock():
        assert cleaned(tmp_path, keep_best_n=2, keep_recent_days=30, dry_run=True) == [1, 3, 5, 7]
        assert cleaned(tmp_path, keep_best_n=2, keep_recent_days=30) == [1, 3, 5, 7]
        assert cleaned(tmp_path, keep_best_n=2, keep_recent_days=30) == []
        assert cleaned(tmp_path, keep_best_n=0, keep_recent_days=0) == [2, 4, 6]
    assert cleaned(tmp_path, keep_best_n=0, keep_recent_days=0) == [8]


def test_low_can_be_good(tmp_path: Path) -> None:
    for number, loss in enumerate((0.5, 0.1, 0.9)):
        run = old_run(tmp_path, number)
        (run / "metrics.json").write_text(json.dumps({"train/loss": loss}))
    assert cleaned(tmp_path, keep_best_n=1, metric="-loss") == [0, 2]


def test_what_stays_of_a_run(tmp_path: Path) -> None:
    run = old_run(tmp_path, 1, reward=5.0)
    config = (run / "configs" / "resolved.yaml").read_bytes()
    log = (run / "logs" / "metrics.jsonl").stat().st_size
    before = all_rows(tmp_path, large=("results", "config"))[0][0]
    (removal,) = ExperimentCleaner(tmp_path).cleanup_old_experiments(keep_best_n=0)
    assert (removal.run, removal.bytes) == (run, 1000 + log)
    assert sorted(os.listdir(run)) == [".lock", "configs", "metrics.json", "run.json"]
    assert (run / "configs" / "resolved.yaml").read_bytes() == config
    RunIndex(tmp_path).rebuild()
    after = all_rows(tmp_path, large=("results", "config"))[0][0]
    assert after.pop("cleaned") >= days_ago(1)
    assert before.pop("cleaned") is None
    assert after == before


def test_a_run_without_final_metrics_gets_them_from_its_log(tmp_path: Path) -> None:
    run = RunDir(old_run(tmp_path, 1, status="failed"))
    (run.path / "metrics.json").unlink()
    (run.logs / "metrics.jsonl").write_text('{"env_steps":8,"a":1,"time/x":2}\n{"env_steps":16}\n{"env_st')
    assert clean(run).problem == ""
    assert json.loads((run.path / "metrics.json").read_text()) == {"env_steps": 16, "a": 1}


def test_a_cleaned_run_is_not_taken_for_one_that_can_go_on(tmp_path: Path) -> None:
    run = rl_training.train(tiny(tmp_path)).run_dir
    assert clean(RunDir(run)).problem == ""
    for use in (rl_training.resume, rl_training.load, rl_training.evaluate):
        with pytest.raises(RunError, match=r"was cleaned up: .*train it anew with `rl train .*resolved\.yaml`"):
            use(run)
    again = rl_training.train(run / "configs" / "resolved.yaml")
    assert again.metrics["eval/return_mean"] == json.loads((run / "metrics.json").read_text())["eval/return_mean"]


def test_a_cleaning_that_is_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    run = old_run(tmp_path, 1)

    def cut(what: str, path: Path) -> None:
        if what == "remove":
            raise KeyboardInterrupt

    with fault_hook(cut), pytest.raises(KeyboardInterrupt):
        ExperimentCleaner(tmp_path).cleanup_old_experiments(keep_best_n=0)
    assert RunDir(run).info()["cleaned"]
    assert cleaned(tmp_path, keep_best_n=0) == [1]
    assert sorted(os.listdir(run)) == [".lock", "configs", "metrics.json", "run.json"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = old_run(tmp_path / "elsewhere", 1)
    runs = tmp_path / "runs"
    inside = old_run(runs, 2)
    (inside / "videos").symlink_to(elsewhere / "checkpoints")
    (runs / elsewhere.name).symlink_to(elsewhere)
    assert cleaned(runs, keep_best_n=0) == [2]
    assert not os.path.lexists(inside / "videos")
    assert (elsewhere / "checkpoints" / "weights").is_file()


# -- disks that take nothing ------------------------------------------------------------------------------------------


def full_until_removed(calls: list[str]) -> Callable[[str, Path], None]:
    """A disk that is full until the fourth removal: a run then has only its metrics left to give."""

    def hook(operation: str, path: Path) -> None:
        calls.append(f"{operation} {path.name}")
        if operation in ("create", "write") and sum(call.startswith("remove") for call in calls) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    return hook


def test_on_a_full_disk_room_is_made_before_anything_is_written(tmp_path: Path) -> None:
    run = RunDir(old_run(tmp_path, 1, status="failed"))
    (run.path / "metrics.json").unlink()
    (run.path / "videos").mkdir()
    (run.logs / "trace.jsonl").write_text("{}\n")
    calls: list[str] = []
    with fault_hook(full_until_removed(calls)):
        removal = clean(run)
    assert removal.problem == ""
    assert [call for call in calls if call.startswith("remove")] == [
        "remove checkpoints",
        "remove videos",
        "remove trace.jsonl",
        "remove metrics.jsonl",
        "remove logs",
    ]
    assert json.loads((run.path / "metrics.json").read_text())["env_steps"] == 100
    assert run.info()["cleaned"]
    assert sorted(os.listdir(run.path)) == [".lock", "configs", "metrics.json", "run.json"]


def test_what_could_not_be_removed_is_named_and_the_rest_is_gone(tmp_path: Path) -> None:
    run = old_run(tmp_path, 1)
    (run / "videos").mkdir()

    def refuse(operation: str, path: Path) -> None:
        if operation == "remove" and path.name == "checkpoints":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with fault_hook(refuse):
        (removal,) = ExperimentCleaner(tmp_path).cleanup_old_experiments(keep_best_n=0)
    assert removal.problem == "checkpoints cannot be removed: Permission denied"
    assert removal.bytes > 0
    assert sorted(os.listdir(run)) == [".lock", "checkpoints", "configs", "metrics.json", "run.json"]
    assert cleaned(tmp_path, keep_best_n=0) == [1]


def test_a_run_in_use_is_named_with_its_process(tmp_path: Path) -> None:
    run = RunDir(old_run(tmp_path, 1))
    with run.lock():
        (removal,) = ExperimentCleaner(tmp_path).cleanup_old_experiments(keep_best_n=0)
    assert f"is in use by process {os.getpid()}" in removal.problem
    assert removal.bytes == 0
    assert (run.checkpoints / "weights").is_file()


@pytest.mark.filterwarnings("ignore:.*the index")
@pytest.mark.parametrize("has_locks", [True, False])
def test_a_real_disk_full_and_read_only(tmp_path: Path, has_locks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", 600_000) as disk:
        runs = [old_run(disk / "runs", number) for number in range(2)]
        RunIndex(disk / "runs").rebuild()
        for run in runs if has_locks else ():
            (run / ".lock").touch()
        (runs[1] / "metrics.json").unlink()
        fill(disk)
        words = ["cleanup", "--keep-best=0", f"--output-dir={disk / 'runs'}"]
        remount(disk, "ro")
        assert main(words) == 1
        err = capsys.readouterr().err
        assert err.count("not cleaned: ") == 2
        assert err.count("Read-only file system") == 2
        assert "nothing to clean" not in err
        assert main([*words, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["runs"], found["bytes"]) == ([], 0)
        assert [each["problem"] for each in found["problems"]] == ["it cannot be changed: Read-only file system"] * 2
        remount(disk, "rw")
        assert main(words) == 0
        assert "2 runs, " in capsys.readouterr().err
        for run in runs:
            assert RunDir(run).info()["cleaned"]
            assert json.loads((run / "metrics.json").read_text())["env_steps"] == 100
            assert sorted(os.listdir(run)) == [".lock", "configs", "metrics.json", "run.json"]


@pytest.mark.filterwarnings("ignore:the index .* cannot be used")
def test_other_commands_on_such_a_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", 600_000) as disk:
        run = old_run(disk / "runs", 1)
        RunIndex(disk / "runs").rebuild()
        fill(disk)
        there = f"--output-dir={disk / 'runs'}"
        for how, words in (("rw", "No space left on device"), ("ro", "Read-only file system")):
            remount(disk, how)
            assert main(["list", there, "--json"]) == 0
            assert [row["directory"] for row in json.loads(capsys.readouterr().out)] == [run.name]
            assert main(["index", "rebuild", there]) == 1
            state = "the disk is full: `rl cleanup` makes room" if how == "rw" else "the disk is read-only"
            assert state in capsys.readouterr().err
            assert main(["archive", run.name, there]) == 1
            assert words in capsys.readouterr().err
            elsewhere = tmp_path / f"{how}.tar.gz"
            assert main(["archive", run.name, there, f"--output={elsewhere}"]) == 0
            assert elsewhere.is_file()
            capsys.readouterr()
        assert not list(disk.rglob(".tmp-*"))
