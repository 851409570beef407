"""A run survives being packed and brought back; an archive from anybody can neither write elsewhere nor run code."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from group_cases import tiny
from run_cases import fake_run

import rl_training
from rl_training.cli import main
from rl_training.experiments.keeping import archive as archive_module
from rl_training.experiments.keeping import archive_files
from rl_training.experiments.keeping.archive import pack, unpack
from rl_training.experiments.keeping.archive_files import LIMITS, Limits, extract
from rl_training.experiments.keeping.cleanup import clean
from rl_training.runs.directory import RunDir
from rl_training.runs.index import RunIndex
from rl_training.types import RunError

EVIL = """
import pathlib
import gymnasium
pathlib.Path("executed").touch()


class Env(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
"""


def contents(run: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if name not in ("run.json", ".lock")}


def test_there_and_back_again(tmp_path: Path) -> None:
    result = rl_training.train(tiny(tmp_path / "here", tags=["a"]))
    run = RunDir(result.run_dir)
    before = contents(run.path)
    archive = pack(run)
    assert archive == tmp_path / "here" / "archives" / f"{run.path.name}.tar.gz"
    there = unpack(archive, tmp_path / "there")
    assert contents(there.path) == before
    info = there.info()
    assert info.pop("imported") > run.info()["ended"]
    assert info == run.info()
    assert [row["id"] for row in RunIndex(tmp_path / "there").rows()] == [run.path.name]
    scores = [rl_training.evaluate(path, episodes=2)["returns"] for path in (run.path, there.path)]
    assert scores[0] == scores[1]
    more = rl_training.resume(there.path, total_timesteps=128)
    assert more.metrics["env_steps"] == 128


def test_what_was_cleaned_away_comes_back(tmp_path: Path) -> None:
    run = RunDir(fake_run(tmp_path, 1))
    before = contents(run.path)
    archive = pack(run, tmp_path / "kept" / "mine.tar.gz", remove=True)
    assert "logs/metrics.jsonl" not in contents(run.path)
    with pytest.raises(RunError, match="nothing left to pack"):
        pack(run)
    assert contents(unpack(archive, tmp_path).path) == before
    with pytest.raises(RunError, match="exists already"):
        unpack(archive, tmp_path)
    with pytest.raises(RunError, match="exists already"):
        pack(run, archive)
    tagged = RunDir(fake_run(tmp_path, 2, tags=["keep"]))
    with pytest.raises(RunError, match="could not be cleaned: it is tagged"):
        pack(tagged, remove=True)


def test_archives_hold_no_accounts_no_links_and_no_lock(tmp_path: Path) -> None:
    run = RunDir(fake_run(tmp_path, 1))
    (run.path / "secret").symlink_to("/etc/passwd")
    (run.path / ".tmp-0123456789abcdef").write_text("half")
    with tarfile.open(pack(run)) as tar:
        members = tar.getmembers()
    assert {(member.uid, member.uname, member.mode) for member in members} == {(0, "", 0o644)}
    assert sorted(member.name.partition("/")[2] for member in members) == [
        *("configs/resolved.yaml", "logs/metrics.jsonl", "metrics.json", "run.json"),
    ]


# -- archives of strangers --------------------------------------------------------------------------------------------


def forged(path: Path, *members: tuple[str, Any]) -> Path:
    """An archive with these members: bytes are files, a TarInfo type is whatever it is."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes) and len(content) != 1:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content, "/etc/passwd"
                tar.addfile(info)
    return path


RECORD = ("run/run.json", b'{"id": "run", "started": "x"}')


@pytest.mark.parametrize(
    "members",
    [
        [RECORD, ("run/../../escaped", b"data")],
        [RECORD, ("/tmp/escaped", b"data")],
        [RECORD, ("run/link", tarfile.SYMTYPE)],
        [RECORD, ("run/link", tarfile.LNKTYPE)],
        [RECORD, ("run/pipe", tarfile.FIFOTYPE)],
        [RECORD, ("run/device", tarfile.CHRTYPE)],
        [RECORD, ("other/file", b"data")],
        [RECORD, ("run/a\x1bb", b"data")],
        [RECORD, ("run/.lock", b"data")],
        [RECORD, RECORD],
        [RECORD, ("run/" + "n" * 300, b"data")],
        [RECORD, ("run/" + "/".join(["n" * 200] * 6), b"data")],
        [RECORD, ("run/" + "d/" * 20 + "x", b"data")],
        [("..", b"data")],
        [("../run.json", b"{}")],
        [(".hidden/run.json", b"{}")],
        [("-rf/run.json", b"{}")],
        [("a b/run.json", b"{}")],
        [("run/run.json", b"[1]")],
        [("run/file", b"data")],
        [RECORD],
        [RECORD, ("run/configs/resolved.yaml", b"!!python/object/apply:os.system ['touch executed']")],
        [],
    ],
    ids=str,
)
def test_a_forged_archive_is_refused_and_leaves_nothing(tmp_path: Path, members: list[Any]) -> None:
    archive = forged(tmp_path / "forged.tar.gz", *members)
    with pytest.raises(RunError):
        unpack(archive, tmp_path / "runs" / "deep")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "forged.tar.gz", "runs"]
    assert not os.path.exists("/tmp/escaped")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    data = pack(RunDir(fake_run(tmp_path, 1))).read_bytes()
    for number, damaged in enumerate((data[:-10], data[:40], b"no archive", b"", data[:60] + b"\xff" + data[61:])):
        file = tmp_path / f"{number}.tar.gz"
        file.write_bytes(damaged)
        with pytest.raises(RunError, match=r"is damaged or no archive|is not the archive"):
            unpack(file, tmp_path / "there")
    assert os.listdir(tmp_path / "there") == []


NAMES = [
    "index.sqlite",
    "INDEX.sqlite",
    "index.sqlite-wal",
    "groups",
    "Groups",
    "sweeps",
    "archives",
    "latest",
    "LATEST",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_run_takes_a_name_that_the_output_directory_uses(tmp_path: Path, name: str) -> None:
    run = fake_run(tmp_path / "theirs", 1)
    archive = pack(RunDir(run.rename(run.parent / name)), tmp_path / "forged.tar.gz")
    with pytest.raises(RunError, match="cannot be the name of a run"):
        unpack(archive, tmp_path / "runs")
    assert os.listdir(tmp_path / "runs") == []


def test_a_run_with_a_long_name_comes_back(tmp_path: Path) -> None:
    run = fake_run(tmp_path / "here", 1)
    run = run.rename(run.parent / f"ppo__{'n' * 80}__seed0__20260101-000000")
    assert unpack(pack(RunDir(run)), tmp_path / "there").path.name == run.name


class Zeros(io.RawIOBase):
    """Any number of zeros, without the memory for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, size: int = -1) -> bytes:
        count = min(self.size, 2**20 if size < 0 else size)
        self.size -= count
        return bytes(count)


def bomb(path: Path, *members: tuple[tarfile.TarInfo, int], trailing: int = 0) -> Path:
    """An archive whose members are zeros of these sizes, as the headers say or not; written at a gigabyte a second."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for info, size in [(named("run/run.json"), 2), *members]:
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            content = Zeros(size + -size % 512)
            while chunk := content.read(2**20):
                file.write(chunk)
        file.write(bytes(10240))
        content = Zeros(trailing)
        while chunk := content.read(2**20):
            file.write(chunk)
    return path


def named(name: str, size: int = 2, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


BOMBS: dict[str, Any] = {
    "zeros": [(named("run/zeros", 2**29), 2**20)],
    "announced": [(named("run/zeros", 2**45), 0)],
    "negative": [(named("run/zeros", -512), 0)],
    "pax": [(named("x", 2**26, tarfile.XHDTYPE), 2**26)],
    "global pax": [(named("x", 2**26, tarfile.XGLTYPE), 2**26)],
    "long name": [(named("x", 2**26, tarfile.GNUTYPE_LONGNAME), 2**26)],
    "long link": [(named("x", 2**26, tarfile.GNUTYPE_LONGLINK), 2**26)],
    "sparse": [(named("run/zeros", 2**26, tarfile.GNUTYPE_SPARSE), 2**26)],
    "folder": [(named("run/zeros", 2**26, tarfile.DIRTYPE), 2**26)],
    "deep": [(named("run" + "/d" * 20), 2)],
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_quickly_and_with_little_memory(tmp_path: Path, name: str) -> None:
    archive = bomb(tmp_path / "bomb.tar.gz", *BOMBS[name])
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(RunError, match=r"too large for the archive|not the archive of a run|damaged or no archive"):
            unpack(archive, tmp_path / "runs")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 2
    assert peak < 16 * 2**20
    assert os.listdir(tmp_path / "runs") == []


def test_zeros_behind_the_end_are_not_read_for_long(tmp_path: Path) -> None:
    archive = bomb(tmp_path / "bomb.tar.gz", trailing=2**28)
    begin = time.process_time()
    with pytest.raises(RunError, match="something follows its end"):
        unpack(archive, tmp_path / "runs")
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.XGLTYPE])
def test_too_many_entries_are_refused(tmp_path: Path, kind: bytes) -> None:
    limits = Limits(entries=300)
    members = [(named(f"run/{number}", 0, kind), 0) for number in range(400)]
    archive = bomb(tmp_path / "bomb.tar.gz", *members, (named("run/last"), 2))
    with pytest.raises(RunError, match="more than 300 files"):
        extract(archive, tmp_path / "out", limits)
    assert len(list(tmp_path.rglob("*"))) < 310


def test_what_a_run_may_hold_grows_with_its_archive() -> None:
    assert LIMITS.allowed(packed=10**6, free=10**15) == 2**28
    assert LIMITS.allowed(packed=10**9, free=10**15) == 200 * 10**9
    assert LIMITS.allowed(packed=10**15, free=10**15) == 2**40
    assert LIMITS.allowed(packed=10**9, free=7) == 7


def test_an_archive_of_zeros_is_packed_so_that_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (archive_module, archive_files):
        monkeypatch.setattr(module, "LIMITS", Limits(small=2**16))
    run = fake_run(tmp_path, 1)
    (run / "checkpoints" / "zeros").write_bytes(bytes(2**22))
    archive = pack(RunDir(run))
    assert archive.stat().st_size > 2**22
    assert (unpack(archive, tmp_path / "there").path / "checkpoints" / "zeros").stat().st_size == 2**22


def test_long_names_and_pax_headers_are_read(tmp_path: Path) -> None:
    run = fake_run(tmp_path, 1)
    long = run / "plots" / ("p" * 120) / ("ü" * 100)
    long.parent.mkdir(parents=True)
    long.write_text("deep")
    assert contents(unpack(pack(RunDir(run)), tmp_path / "there").path) == contents(run)


# -- killed -----------------------------------------------------------------------------------------------------------


def test_what_a_killed_import_or_archive_left_is_removed_by_the_next(tmp_path: Path) -> None:
    run = RunDir(fake_run(tmp_path, 1))
    archives = tmp_path / "archives"
    archives.mkdir()
    half = [tmp_path / f".tmp-{'0' * 16}", archives / f".tmp-{'1' * 16}.tar.gz", archives / f".tmp-{'2' * 16}"]
    (half[0] / "run").mkdir(parents=True)
    (half[0] / "run" / "run.json").write_text("{")
    for path in half[1:]:
        path.write_bytes(b"half")
    others = [tmp_path / ".tmp-mine", tmp_path / f".tmp-{'3' * 16}.db", archives / ".tmp-notes.tar.gz"]
    for path in others:
        path.write_text("not ours")
    archive = pack(run, archives / "a.tar.gz")
    assert [path for path in half[1:] if path.exists()] == []
    clean(run)
    unpack(archive, tmp_path)
    assert not half[0].exists()
    assert all(path.exists() for path in others)


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    """Two imports and two archives at the same time, each of which looks for what the others left."""
    first, second = (RunDir(fake_run(tmp_path / "theirs", number)) for number in (1, 2))
    archives = [pack(run) for run in (first, second)]
    seen: list[Path] = []
    original = archive_module.extract

    def slow_extract(archive: Path, folder: Path) -> str:
        name = original(archive, folder)
        if not seen:
            seen.append(folder)
            unpack(archives[1], tmp_path / "runs")  # comes and goes while the first is half done
            assert folder.is_dir()
        return name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_module, "extract", slow_extract)
        unpack(archives[0], tmp_path / "runs")
    found = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert found == sorted([first.path.name, second.path.name])


KILLED = """
import os, sys, signal
from pathlib import Path
from rl_training.experiments.keeping import archive
original = archive.extract
def half(file, folder):
    original(file, folder)
    os.kill(os.getpid(), signal.SIGKILL)
archive.extract = half
archive.unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_real_kill_in_an_import_leaves_nothing_after_the_next(tmp_path: Path) -> None:
    archive = pack(RunDir(fake_run(tmp_path / "theirs", 1)))
    runs = tmp_path / "runs"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(archive), str(runs)], check=False)
    assert ended.returncode == -9
    (left,) = runs.iterdir()
    assert [row["id"] for row in RunIndex(runs).rows()] == []  # nobody takes it for a run
    run = unpack(archive, runs)
    assert not left.exists()
    assert [path for path in runs.iterdir() if path.is_dir()] == [run.path]


def test_an_imported_run_that_names_code_is_looked_at_but_not_run_until_that_is_agreed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("evil_module.py").write_text(EVIL)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
    run = RunDir(rl_training.train(tiny(tmp_path / "theirs", env_id="evil_module:Env")).run_dir)
    archive = str(pack(run))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    Path("executed").unlink()
    monkeypatch.delitem(__import__("sys").modules, "evil_module")
    assert main(["import", archive]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'runs' / run.path.name}\n"
    assert "asks for code or addresses outside rl_training (env_id evil_module:Env)" in captured.err
    name = run.path.name
    for words in (["eval", name], ["resume", name, "--total-timesteps=128"], ["verify", name]):
        assert main(words) == 2
        assert "add --trust-plugins" in capsys.readouterr().err
    for words in (["list"], ["show", name], ["diff", name, str(run.path)], ["tag", name, "x"], ["index", "rebuild"]):
        assert main(words) == 0
    assert not Path("executed").exists()
    assert main(["import", archive]) == 1
    capsys.readouterr()
    assert main(["import", archive, "--trust-plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["untrusted"] == []
    assert main(["eval", name, "--episodes=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1
    assert Path("executed").exists()
    assert main(["trust", "list", "--json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == [name]
    assert main(["trust", "forget", name]) == 0
    assert main(["eval", name, "--episodes=1"]) == 2


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run = fake_run(Path("runs"), 1)
    log = (run / "logs" / "metrics.jsonl").stat().st_size
    assert main(["cleanup", "--keep-best=0", "--keep-recent=0", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert run.name in captured.out
    assert f"1 runs would be cleaned, {log:.1f} bytes freed" in captured.out
    assert main(["archive", run.name, "--remove", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["archive"]).is_file()
    assert main(["cleanup", "--keep-best=0", "--keep-recent=0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dry_run": False, "runs": [], "bytes": 0, "problems": []}
    assert main(["cleanup"]) == 0
    assert capsys.readouterr().err == "nothing to clean\n"
    assert main(["import", "nothing.tar.gz"]) == 2
