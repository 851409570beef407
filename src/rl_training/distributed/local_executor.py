"""`LocalExecutor`: members as processes of this host, which follow their parent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from rl_training.distributed.executors import Task
from rl_training.runs.holder import Holder, holder_of
from rl_training.system.file_systems import host_name
from rl_training.system.lifeline import Lifeline


class LocalHandle:
    """A process of this host."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.holder: Holder | None = holder_of(process.pid)
        self.where = f"{host_name()}:{process.pid}"

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self) -> int | None:
        return self.process.wait()

    def send_signal(self, number: int, /) -> None:
        self.process.send_signal(number)


class LocalExecutor:
    """Each member is a process with its own session, so that Ctrl-C reaches only the parent, which forwards it."""

    name = "local"
    is_remote = False

    def __init__(self, slots: int, *, secrets: Mapping[str, str] | None = None) -> None:
        """`secrets` are variables that the members need and that are not in the environment of this process."""
        self._slots = slots
        self._secrets = dict(secrets or {})
        self._lifeline = Lifeline()

    def slots(self) -> int:
        return self._slots

    def start(self, task: Task, /) -> LocalHandle:
        with open(task.log, "ab") as output:
            process = subprocess.Popen(
                member_command(task.words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lifeline.descriptor],
                env={**os.environ, **self._secrets, **task.env, **self._lifeline.variables()},
            )
        return LocalHandle(process)

    def lost(self, holder: Holder, /) -> bool | None:
        return None

    def close(self) -> None:
        self._lifeline.close()


def member_command(words: tuple[str, ...]) -> list[str]:
    """The command line of a member: this interpreter and these arguments of `rl`."""
    return [sys.executable, "-m", "rl_training", *words]
