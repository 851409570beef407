"""Changes that the page can make: tag, note, stop, resume, clean. Each does what its command does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.dashboard.pages.run import text_end
from rl_training.dashboard.reading.tables import RunRef, RunTable
from rl_training.experiments.keeping.cleanup import clean, removable_bytes
from rl_training.experiments.keeping.tracker import add_tags, set_notes
from rl_training.runs.directory import RunDir
from rl_training.runs.index import record
from rl_training.runs.lock import read_holder
from rl_training.runs.row import describe
from rl_training.types import RunError

EARLY_SECONDS = 3.0
"""How long a resumed run is watched for a refusal, such as an edited config."""
LOG = "resume.log"
RESUMABLE = ("stopped", "killed", "failed")


class Actions:
    """Changes to runs of a table."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self.started: list[subprocess.Popen[bytes]] = []
        """Processes of resumed runs; polled, so that none stays a zombie."""
        self._lock = threading.Lock()

    def tag(self, ref: RunRef, add: Sequence[str], remove: Sequence[str]) -> dict[str, Any]:
        tags = add_tags(RunDir(ref.path), add, remove=remove)
        self._recorded(ref)
        return {"tags": tags}

    def note(self, ref: RunRef, text: str) -> dict[str, Any]:
        notes = set_notes(RunDir(ref.path), text)
        self._recorded(ref)
        return {"notes": notes}

    def stop(self, ref: RunRef, *, together: bool = False) -> dict[str, Any]:
        """Send SIGINT to the process that trains a run: it saves a checkpoint and ends.

        Compiled runs share a process; stopping one stops all of them, which the caller must have agreed to.
        """
        holder = read_holder(ref.path / ".lock")
        if holder is None or not holder.is_alive():
            raise RunError(f"run '{ref.key}' is not running")
        if holder.host != socket.gethostname():
            raise RunError(f"run '{ref.key}' runs on {holder.host}; stop it there with `kill -INT {holder.pid}`")
        others = [
            one.key for one in self.table.running() if one is not ref and read_holder(one.path / ".lock") == holder
        ]
        if others and not together:
            names = ", ".join(others[:5])
            raise RunError(
                f"one process trains this run and {len(others)} others ({names}); stopping it stops them all"
            )
        if holder.pid == os.getpid():
            raise RunError(f"run '{ref.key}' is held by the dashboard itself")
        try:
            os.kill(holder.pid, signal.SIGINT)
        except OSError as error:
            raise RunError(f"cannot stop process {holder.pid}: {error.strerror}") from error
        return {"pid": holder.pid, "runs": [ref.key, *others]}

    def resume(self, ref: RunRef) -> dict[str, Any]:
        """Start `rl resume RUN` as a process of its own, which outlives the dashboard; its output is in the run's logs.

        A run of others that asks for code is refused as on the command line. No plugin is imported in this process.
        """
        run = RunDir(ref.path)
        holder = run.holder()
        if holder is not None:
            raise RunError(f"run '{ref.key}' is in use by process {holder.pid} on {holder.host}")
        status = describe(ref.path, config=False)["status"]  # the table may not know yet that it was killed
        if status not in RESUMABLE:
            raise RunError(f"run '{ref.key}' is {status}; a run that was stopped, killed or failed can go on")
        with run.to_run():
            pass  # TrustError and RunError as `rl resume` would give them
        with self._lock:
            log = ref.path / "logs" / LOG
            words = [sys.executable, "-m", "rl_training", "resume", str(ref.path)]
            with open(log, "ab") as output:
                start = output.tell()
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=_project(ref.path),
                    env={**os.environ, "NO_COLOR": "1"},
                )
            self.started = [one for one in self.started if one.poll() is None] + [process]
        self._refuse_if_ended(process, log, start)
        return {"pid": process.pid}

    @staticmethod
    def _refuse_if_ended(process: subprocess.Popen[bytes], log: Path, start: int) -> None:
        until = time.monotonic() + EARLY_SECONDS
        while time.monotonic() < until:
            if process.poll() is not None:
                if process.returncode == 0:
                    return
                lines = text_end(log).strip().splitlines() if log.stat().st_size > start else []
                why = lines[-1][:500] if lines else "it printed nothing"
                raise RunError(f"the resume ended at once with code {process.returncode}: {why}")
            time.sleep(0.05)

    def clean(self, ref: RunRef) -> dict[str, Any]:
        """Remove checkpoints and logs of a run, as `rl cleanup` does; tagged and running runs are refused."""
        run = RunDir(ref.path)
        if run.holder() is not None:
            raise RunError(f"run '{ref.key}' is running; stop it first")
        if run.info().get("tags"):
            raise RunError(f"run '{ref.key}' is tagged; remove its tags first")
        if run.path.is_symlink():
            raise RunError(f"run '{ref.key}' is a link; clean it where it lies")
        removal = clean(run)
        self.table.touch(ref)
        if removal.problem:
            raise RunError(f"run '{ref.key}' was not cleaned completely: {removal.problem}")
        return {"bytes": removal.bytes}

    @staticmethod
    def size(ref: RunRef) -> int:
        """Bytes that cleaning would free."""
        try:
            return removable_bytes(ref.path)
        except OSError:
            return 0

    def reap(self) -> None:
        """Forget the processes that have ended."""
        self.started = [one for one in self.started if one.poll() is None]

    def _recorded(self, ref: RunRef) -> None:
        record(ref.path)
        self.table.touch(ref)


def _project(run: Path) -> Path:
    """The folder in which a resume is started: that of the dashboard, so that modules of the user are found."""
    return Path.cwd() if Path.cwd().is_dir() else run
