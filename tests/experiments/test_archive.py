"""A run survives being packed and brought back; an archive from anybody can neither write elsewhere nor run code."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from group_cases import tiny
from run_cases import fake_run

import rl_training
from rl_training.cli import main
from rl_training.experiments.archive import pack, unpack
from rl_training.index import RunIndex
from rl_training.runs import RunDir
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
    assert "asks for what is not part of rl_training (env_id evil_module:Env)" in captured.err
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
    assert f"1 runs, {log:.1f} bytes would be cleaned" in captured.err
    assert main(["archive", run.name, "--remove", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["archive"]).is_file()
    assert main(["cleanup", "--keep-best=0", "--keep-recent=0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dry_run": False, "runs": [], "bytes": 0, "problems": []}
    assert main(["cleanup"]) == 0
    assert capsys.readouterr().err == "nothing to clean\n"
    assert main(["import", "nothing.tar.gz"]) == 2
