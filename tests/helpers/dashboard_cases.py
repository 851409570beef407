"""A dashboard on a free port of the loopback interface, in a thread, and requests to it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rl_training.dashboard.server import bind, make_server
from rl_training.dashboard.settings import Settings

TOKEN = "a-token-of-the-tests-0123456789"

HOSTILE = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "'-window.hit=1-'",
    "javascript:window.hit=1",
    "</title><script>window.hit=1</script>",
    "</textarea><script>window.hit=1</script>",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "`${window.hit=1}`",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<a href=javascript:window.hit=1>x</a>",
    "<style>*{display:none}</style>",
    "<base href=http://example.com/>",
    "<meta http-equiv=refresh content=0;url=http://example.com/>",
    "\u202egnp.exe",
    "\u2066turned\u2069",
    "\x1b[31mred\x1b[0m",
    "a\nb\tc",
    "\x00nul",
    "x" * 190,
    "%3Cscript%3Ewindow.hit=1%3C/script%3E",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "<math><mtext></mtext><script>window.hit=1</script></math>",
    "=HYPERLINK(0)",
)
"""25 texts that would do harm where a page took them for markup."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A dashboard that answers."""

    settings: Settings
    app: Any

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        **parameters: Any,
    ) -> Answer:
        """One request, with the cookie of a page that has logged in."""
        sent = {} if token is None else {"Cookie": f"rl_dashboard_{self.settings.port}={token}"}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent |= {"Content-Type": "application/json"}
        query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
        connection = HTTPConnection("127.0.0.1", self.settings.port, timeout=60)
        try:
            connection.request(method, path + query, body=data, headers={**sent, **(headers or {})})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.ask(path, **parameters)
        assert answer.status == 200, (answer.status, answer.body[:500])
        return answer.json()

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """A change as the page sends it."""
        sent = {"Origin": self.origin, "X-RL-Token": self.settings.change_token, **headers}
        return self.ask(path, "POST", headers=sent, body={} if body is None else body)


@contextmanager
def served(*output_dirs: Path, **settings: Any) -> Iterator[Served]:
    """A dashboard over the output directories."""
    wanted = Settings(tuple(output_dirs), port=0, **{"token": TOKEN, **settings})
    listener = bind(replace(wanted, host="127.0.0.1"))
    wanted = replace(wanted, port=listener.getsockname()[1])
    server = make_server(wanted)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    assert server.started
    try:
        yield Served(wanted, server.config.app)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_rows(run: Path, rows: list[dict[str, Any]], *, mode: str = "w") -> None:
    """Rows as the logger writes them."""
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    with open(run / "logs" / "metrics.jsonl", mode) as log:
        log.write(lines)
