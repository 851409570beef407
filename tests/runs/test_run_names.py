"""Names of run directories: a fixed format, always inside the output directory, and unique."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.config.schema import TrainConfig
from rl_training.runs import names
from rl_training.runs.directory import SUBFOLDERS, _make_run_dir, make_run_dir
from rl_training.runs.names import release, reserve
from rl_training.types import RunError

NOW = datetime(2026, 1, 31, 12, 5, 9)

HOSTILE = [
    "..", "../..", "../../etc/passwd", "/etc/passwd", "//host/share", "a/../../b", ".", "", " ", "-", "--help", "-rf *",
    ".hidden", "~", "~root", "$HOME", "${HOME}", "$(touch x)", "`touch x`", "a;b", "a|b", "a&b", "a>b", "a\nb", "a\tb",
    "a\x00b", "a\x1b[31mb", "a\x7fb", "\r\n", "nul", "CON", "a:b", "a\\b", "C:\\x", "a*b?", "[a]", "{a,b}", "'a'",
    '"a"', "a b", "é", "日本語", "\u202egnp", "\ud800", "a" * 300, "é" * 300, "../" * 100, "." * 300, "-" * 300,
    "a" * 10_000, "%2e%2e%2f", "..%2f", "a__b__seed1__20260101-000000", "groups", "index.sqlite", ".lock",
    "run.json", "latest", "\u2028", "\ufeff",
]  # fmt: skip


def check_inside(path: Path, root: Path) -> None:
    assert path.parent == root
    assert Path(os.path.realpath(path)).parent == Path(os.path.realpath(root))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*__seed\d+__\d{8}-\d{6}(-\d+)?", path.name)
    assert len(path.name) <= 220
    assert os.listdir(root) == [path.name]
    assert sorted(os.listdir(path)) == sorted(SUBFOLDERS)


def test_the_form_of_a_name(tmp_path: Path) -> None:
    cfg = TrainConfig(algo="ppo", env_id="ALE/Pong-v5", seed=7, output_dir=str(tmp_path))
    assert _make_run_dir(cfg, NOW).name == "ppo__ALE-Pong-v5__seed7__20260131-120509"
    own = TrainConfig(algo="my_pkg.mod:Algo", env_id="a b", output_dir=str(tmp_path / "new" / "deep"))
    assert _make_run_dir(own, NOW) == tmp_path / "new" / "deep" / "my_pkg.mod-Algo__a-b__seed0__20260131-120509"


def test_a_reserved_name_is_claimed_once_and_given_back_only_while_it_is_empty(tmp_path: Path) -> None:
    cfg = TrainConfig(output_dir=str(tmp_path))
    first = reserve(tmp_path, "ppo__x__seed0__20260131-120509", 3, "run")
    second = reserve(tmp_path, "ppo__x__seed0__20260131-120509", 3, "run")
    assert first == "ppo__x__seed0__20260131-120509-3"
    assert re.fullmatch(r"ppo__x__seed0__20260131-120509-\d{5}", second)
    assert _make_run_dir(cfg, NOW, planned=first) == tmp_path / first
    with pytest.raises(RunError, match="is already there"):
        _make_run_dir(cfg, NOW, planned=first)
    release(tmp_path, first)
    release(tmp_path, second)
    assert os.listdir(tmp_path) == [first]


def test_random_numbers_are_drawn_only_where_a_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of ten thousand trials reserves ten thousand names."""
    drawn: list[int] = []

    def counted(below: int) -> int:
        drawn.append(below)
        return len(drawn)

    monkeypatch.setattr(names.secrets, "randbelow", counted)
    assert [reserve(tmp_path, "ppo", number, "run") for number in (1, 2, 3)] == ["ppo", "ppo-2", "ppo-3"]
    assert drawn == []
    assert reserve(tmp_path, "ppo", 3, "run") == "ppo-10001"
    assert len(drawn) == 1


def test_parents_that_plan_at_the_same_moment_get_different_names(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: reserve(tmp_path, "ppo__x__seed0__20260131-120509", 2, "run"), range(40)))
    assert len(set(found)) == 40


def test_the_stamp_is_the_local_time(tmp_path: Path) -> None:
    before = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = make_run_dir(TrainConfig(output_dir=str(tmp_path))).name
    assert before <= name[-15:] <= datetime.now().strftime("%Y%m%d-%H%M%S")


def test_the_same_second_counts_up(tmp_path: Path) -> None:
    cfg = TrainConfig(output_dir=str(tmp_path))
    names = [_make_run_dir(cfg, NOW).name for _ in range(3)]
    base = "ppo__CartPole-v1__seed0__20260131-120509"
    assert names == [base, f"{base}-2", f"{base}-3"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_inside(name: str, tmp_path: Path) -> None:
    check_inside(_make_run_dir(TrainConfig(algo=name, env_id=name, output_dir=str(tmp_path)), NOW), tmp_path)


@settings(max_examples=30, deadline=None)
@given(algo=st.text(max_size=400), env_id=st.text(max_size=400), seed=st.integers(0, 2**32 - 1))
def test_any_name_stays_inside(algo: str, env_id: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cfg = TrainConfig(algo=algo, env_id=env_id, seed=seed, output_dir=folder)
        check_inside(_make_run_dir(cfg, NOW), Path(folder))


PROCESS = """
import sys
from datetime import datetime
from rl_training.config.schema import TrainConfig
from rl_training.runs.directory import _make_run_dir
for _ in range(20):
    print(_make_run_dir(TrainConfig(output_dir=sys.argv[1]), datetime(2026, 1, 31)).name)
"""


def test_processes_and_threads_in_one_second_get_a_directory_each(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    cfg = TrainConfig(output_dir=str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        names = [path.name for path in pool.map(lambda _: _make_run_dir(cfg, datetime(2026, 1, 31)), range(80))]
    for process in processes:
        names += process.communicate()[0].split()
    assert len(names) == len(set(names)) == 160
    assert set(names) == set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file", r"output_dir '.*file': .*a file is in the way; move it or choose another output_dir"),
        ("file/below", r"a file is in the way; move it or choose another output_dir"),
        ("a" * 300, r"File name too long.*choose a shorter output_dir"),
        ("nul\x00byte", r"null byte.*ordinary characters"),
        ("\ud800", r"choose an output_dir of ordinary characters"),
    ],
    ids=["file", "below a file", "too long", "nul", "surrogate"],
)
def test_an_output_dir_that_cannot_be(place: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(RunError, match=message):
        make_run_dir(TrainConfig(output_dir=f"{tmp_path}/{place}"))
    assert (tmp_path / "file").read_text() == "precious"


def test_an_output_dir_without_permission(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    user = os.geteuid()
    if user == 0:  # root may write anywhere
        os.seteuid(65534)
    try:
        with pytest.raises(RunError, match=r"Permission denied.*choose an output_dir you may write to"):
            make_run_dir(TrainConfig(output_dir=str(locked / "runs")))
    finally:
        os.seteuid(user)


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_run_dir(TrainConfig(output_dir="~/runs")).parent == tmp_path / "runs"
