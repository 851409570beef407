"""Hands alerts to a command or web address in the background: no run waits for it, and none fails because of it."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rl_training.system.offspring import OUTLIVES
from rl_training.trust.consent import require

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
"""Environment variables that a command is given, besides LC_*; all others may hold secrets."""
MAX_WAITING = 100
"""Alerts that wait for a slow hook; further ones are dropped."""


def small_environment(environ: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """The variables that most programs need, and those in `names`; no others, since they may hold secrets."""
    wanted = {*PASSED_ON, *names}
    return {name: value for name, value in environ.items() if name in wanted or name.startswith("LC_")}


class AlertHook:
    """Runs `command` with each alert as JSON on its stdin and posts the same to `url`; one after the other.

    The command gets a small environment: `PASSED_ON` and the variables named in `env`.
    """

    def __init__(
        self, command: Sequence[str] = (), url: str | None = None, *, timeout: float = 10.0, env: Sequence[str] = ()
    ) -> None:
        if command:
            require("monitor.command", " ".join(command))
        if url:
            require("monitor.url", url)
        self.command = list(command)
        self.url = url
        self.env = tuple(env)
        self.timeout = timeout
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._notes: queue.Queue[str] = queue.Queue()
        self._thread: threading.Thread | None = None

    def send(self, alert: Mapping[str, Any]) -> None:
        """Put an alert in line; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="alert hook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(json.dumps(alert, default=str).encode())
        except queue.Full:
            self._notes.put("alert hook: too slow, an alert is left out")

    def notes(self) -> list[str]:
        """What went wrong since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._notes.get_nowait())
        return found

    def close(self, patience: float | None = None) -> None:
        """Wait until everything is handed over, at most `patience` seconds (default: the timeout of one alert)."""
        if self._thread is None:
            return
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(self.timeout if patience is None else patience)
        if self._thread.is_alive():
            self._notes.put("alert hook: still busy at the end of the run; it may have missed an alert")
        self._thread = None

    def _work(self) -> None:
        while (alert := self._waiting.get()) is not None:
            for deliver in ([self._run] if self.command else []) + ([self._post] if self.url else []):
                try:
                    deliver(alert)
                except Exception as error:  # a thread that ends would take the later alerts with it
                    # the text of the error may repeat the address or the arguments, which may be secret
                    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or ""
                    what = "the command" if deliver == self._run else "the address"
                    self._notes.put(f"alert hook: {what} failed: {type(error).__name__} {reason}".rstrip())

    def _run(self, alert: bytes) -> None:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**small_environment(os.environ, self.env), OUTLIVES: "1"},
        )
        try:
            process.communicate(alert, self.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            self._notes.put(f"alert hook: the command took longer than {self.timeout:g} s and was killed")
            return
        if process.returncode:
            self._notes.put(f"alert hook: the command ended with exit code {process.returncode}")

    def _post(self, alert: bytes) -> None:
        assert self.url is not None
        address, headers = urllib.parse.urlsplit(self.url), {"Content-Type": "application/json"}
        if address.username is not None:  # urllib takes no name and password in an address
            account = urllib.parse.unquote(f"{address.username}:{address.password or ''}")
            headers["Authorization"] = f"Basic {base64.b64encode(account.encode()).decode()}"
            address = address._replace(netloc=address.netloc.rpartition("@")[2])
        request = urllib.request.Request(address.geturl(), alert, headers)
        deadline = time.monotonic() + self.timeout
        with urllib.request.urlopen(request, timeout=self.timeout) as response:
            while time.monotonic() < deadline and response.read(2**16):
                continue
