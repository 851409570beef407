"""The way of an alert to a user's command or address, and that a bad one costs nothing but itself."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rl_training.monitoring.alert_hooks import MAX_WAITING, PASSED_ON, AlertHook
from rl_training.system.offspring import OUTLIVES

ALERT = {"rule": "nan", "message": "train/loss is nan", "env_steps": 7}


def test_a_command_gets_each_alert_as_json(tmp_path: Path) -> None:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read() + '\\n')"
    hook = AlertHook([sys.executable, "-c", program, str(tmp_path / "got")])
    hook.send(ALERT)
    hook.send({**ALERT, "env_steps": 8})
    hook.close()
    rows = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    assert rows == [ALERT, {**ALERT, "env_steps": 8}]
    assert hook.notes() == []


def test_a_command_gets_a_small_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2hunter2")
    monkeypatch.setenv("PLAIN_SETTING", "also mine")
    monkeypatch.setenv("SLACK_TOKEN", "asked for")
    monkeypatch.setenv("LC_TIME", "C")
    program = "import json, os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(os.environ)))"
    hook = AlertHook([sys.executable, "-c", program, str(tmp_path / "got")], env=("SLACK_TOKEN", "NOT_SET"))
    hook.send(ALERT)
    hook.close()
    got = json.loads((tmp_path / "got").read_text())
    assert (got["SLACK_TOKEN"], got["LC_TIME"]) == ("asked for", "C")
    locale = {name for name in got if name.startswith("LC_")}
    assert {"PATH", "HOME", OUTLIVES} <= set(got) <= {*PASSED_ON, *locale, OUTLIVES, "SLACK_TOKEN"}
    assert hook.notes() == []


@pytest.fixture
def server() -> Iterator[tuple[HTTPServer, list[tuple[str, dict[str, Any]]]]]:
    received: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Not to the console of the tests."""

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made, received
        made.shutdown()
        thread.join()


def test_an_address_gets_each_alert_with_its_account(server: tuple[HTTPServer, list[Any]]) -> None:
    made, received = server
    hook = AlertHook(url=f"http://me:pass%20word@127.0.0.1:{made.server_port}/alerts")
    hook.send(ALERT)
    hook.close()
    assert received == [("Basic bWU6cGFzcyB3b3Jk", ALERT)]
    assert hook.notes() == []


@pytest.mark.wall_clock
def test_a_hook_that_hangs_is_killed_and_nobody_waits_for_it() -> None:
    hook = AlertHook([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.3)
    begin = time.monotonic()
    for _ in range(MAX_WAITING + 2):
        hook.send(ALERT)
    assert time.monotonic() - begin < 0.25
    hook.close(patience=0.6)
    assert time.monotonic() - begin < 3
    notes = hook.notes()
    assert "alert hook: too slow, an alert is left out" in notes
    assert "alert hook: the command took longer than 0.3 s and was killed" in notes
    assert notes[-1] == "alert hook: still busy at the end of the run; it may have missed an alert"


def test_a_hook_that_fails_says_so_without_its_arguments() -> None:
    hook = AlertHook(["/nowhere/no-such-program", "--token=hunter2"])
    hook.send(ALERT)
    hook.close()
    assert hook.notes() == ["alert hook: the command failed: FileNotFoundError No such file or directory"]
    hook = AlertHook([sys.executable, "-c", "raise SystemExit(3)"])
    hook.send(ALERT)
    hook.close()
    assert hook.notes() == ["alert hook: the command ended with exit code 3"]
