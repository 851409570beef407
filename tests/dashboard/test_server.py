"""Starting: every mistake is one sentence, the address works, and `show` ends with its process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from dashboard_cases import free_port
from run_cases import fake_run

import rl_training.dashboard
from rl_training.cli import main
from rl_training.dashboard.settings import Settings, clean_base_path, token_from_file
from rl_training.runs.index import record
from rl_training.types import ConfigError

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    record(fake_run(tmp_path / "runs", 0, reward=1.0))
    return tmp_path / "runs"


def refusal(capsys: Captured, *words: str) -> str:
    assert main(["dashboard", "--no-browser", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines
    return " ".join(lines)


def test_mistakes_are_one_sentence(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    run = next(runs.glob("ppo__*"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert "no folder" in refusal(capsys, f"--output-dir={tmp_path / 'nothing'}")
    assert "is a run, not an output directory" in refusal(capsys, f"--output-dir={run}")
    assert "is not an output directory" in refusal(capsys, f"--output-dir={tmp_path / 'other'}")
    assert "named twice" in refusal(capsys, f"--output-dir={runs},{runs}")
    assert "at most 65535" in refusal(capsys, f"--output-dir={runs}", "--port=70000")
    assert "--allow-host" in refusal(capsys, f"--output-dir={runs}", "--host=0.0.0.0")
    assert "is not a path" in refusal(capsys, f"--output-dir={runs}", "--base-path=/a/../b")
    assert "not an address" in refusal(capsys, f"--output-dir={runs}", "--host=no.such.host.invalid", "--allow-host=x")


def test_a_port_in_use(runs: Path, capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(capsys, f"--output-dir={runs}", f"--port={port}")
    assert f"port {port} is in use" in said
    assert "--port" in said


def test_without_the_extra_the_pip_line_is_named(runs: Path) -> None:
    program = (
        "import sys\nsys.modules['fastapi'] = None\nfrom rl_training.cli import main\n"
        f"sys.exit(main(['dashboard', '--output-dir={runs}', '--no-browser']))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'rl-training[dashboard]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_serves_and_prints_how_to_reach_it(runs: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training", "dashboard", f"--output-dir={runs}", "--port=0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[-1]
        lines = [process.stdout.readline() for _ in range(3)]
        port = address.split(":")[2].split("/")[0]
        assert f"ssh -L {port}:127.0.0.1:{port} " in "".join(lines)
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(address, timeout=20) as answer:
            assert b"rl dashboard" in answer.read()
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)
    assert process.returncode in (0, 130)
    assert address.split("token=")[1] not in rest[0] + rest[1]  # no access log


def test_a_token_file_keeps_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = token_from_file(path)
    assert len(first) >= 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_from_file(path) == first
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        token_from_file(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigError, match="holds no token"):
        token_from_file(path)
    with pytest.raises(ConfigError, match="cannot write"):
        token_from_file(tmp_path / "no" / "such" / "folder")


def test_tokens_differ_and_are_not_shown(tmp_path: Path) -> None:
    one, two = Settings((tmp_path,)), Settings((tmp_path,))
    assert one.token != two.token
    assert one.token not in repr(one)
    assert one.change_token not in (one.token, two.change_token)


def test_base_paths() -> None:
    assert clean_base_path("proxy/1/") == "/proxy/1"
    with pytest.raises(ConfigError, match="characters"):
        clean_base_path('/a"b')


def fetch(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(url, timeout=20) as answer:
        return bytes(answer.read())


def test_show_from_python(runs: Path) -> None:
    with rl_training.dashboard.show(runs) as shown:
        assert b"rl dashboard" in fetch(shown.url)
        assert shown.url in repr(shown)
        assert "running" in repr(shown)
        assert 'rel="noopener noreferrer"' in shown._repr_html_()
    assert shown.process.returncode == 0
    shown.stop()  # harmless twice


def test_show_says_what_is_wrong(tmp_path: Path, runs: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        rl_training.dashboard.show(tmp_path / "nothing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="is in use"):
            rl_training.dashboard.show(runs, port=taken.getsockname()[1])


def test_it_ends_with_the_kernel(runs: Path) -> None:
    """Also where that is killed."""
    program = (
        "import sys, time, rl_training.dashboard as d\n"
        f"shown = d.show({str(runs)!r}, port={free_port()})\nprint(shown.process.pid, shown.url, flush=True)\n"
        "time.sleep(100)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, url = parent.stdout.readline().split()
    assert fetch(url)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 20
    while time.monotonic() < until and is_running(int(pid)):
        time.sleep(0.1)
    assert not is_running(int(pid))


def is_running(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and os.getpid() != pid
    except psutil.Error:
        return False
