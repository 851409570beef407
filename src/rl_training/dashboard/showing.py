"""The dashboard from Python: `show` starts it as a child process and returns its address.

shown = rl_training.dashboard.show("runs")
shown.url      # open it in a browser
shown.stop()
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path

from rl_training.types import ConfigError

STOP_SECONDS = 5.0


class Shown:
    """A dashboard that runs in a child process. It ends with `stop`, and with this process however that ends."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        """The address to open; it holds the token."""
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the server; harmless where it has ended already."""
        atexit.unregister(self.stop)
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.process.poll() is None else "ended"
        return f"Shown({self.url!r}, {state})"

    def _repr_html_(self) -> str:
        """A link in notebooks; a frame is not possible, because the page forbids being framed."""
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener noreferrer">Open the dashboard</a>'


def show(output_dir: str | Path | Sequence[str | Path] = "runs", *, port: int = 0, read_only: bool = False) -> Shown:
    """Start a dashboard over one or several output directories; port 0 takes any free one.

    ConfigError says what is wrong: a folder that is no output directory, a port in use, the missing extra.
    """
    folders = [output_dir] if isinstance(output_dir, str | Path) else list(output_dir)
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training.dashboard.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in a notebook interrupts the cell, not the dashboard
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given = {"output_dirs": [str(Path(folder).expanduser().absolute()) for folder in folders]}
    process.stdin.write(json.dumps({**given, "port": port, "read_only": read_only}) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    try:
        said = json.loads(line)
    except ValueError:
        said = {"error": f"the dashboard ended at once with code {process.wait()}"}
    if "error" in said:
        process.stdin.close()
        process.wait()
        process.stdout.close()
        raise ConfigError(said["error"])
    return Shown(process, said["url"])
