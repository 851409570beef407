"""Program: run `rl` commands in forked processes, so that each starts in milliseconds instead of importing torch again.

Reads one JSON request per line and answers with one line:

    {"words": [...], "output": PATH, "variables": {...}, "fault": null | {...}, "limit": null | BYTES}
        -> the pid of the command
    {"wait": PID, "seconds": S}
        -> its exit code (minus the signal that killed it), or null if it still runs

A child is what a shell would start, in the folder of its output (PATH.out, PATH.err): its own session, killed or
stopped like any process. See `Fault` for what can happen to it on the disk; `limit` is the largest file it may write.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "checkpointing"))
from power_loss import PowerLoss, fate_of

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.system import atomic_io, signals

PRELOAD = (
    "rl_training.algorithms.ppo",
    "rl_training.cli.help",
    "rl_training.cli.fields",
    "rl_training.cli.commands.runs.train",
    "rl_training.logging.tensorboard",
    "rl_training.trainer",
    "gymnasium.envs.box2d",
    "gymnasium.envs.classic_control",
    "psutil",
    "torch.fx.experimental.symbolic_shapes",
)
"""What a run imports sooner or later."""
UNPREDICTABLE = re.compile(rf"{atomic_io.TEMPORARY.pattern}|(?<=tfevents).*")


SIGNAL_SECONDS = 30.0
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}


class Fault:
    """A hook for every operation on the disk. Operations are named as in "rename checkpoints/latest 3": what, where in
    the run directory (what is different every time is `*`), and the how manieth of that name.

    kind "record" writes the names to the file `at`; "kill" kills the process before the operation `at`, "stop" sends it
    SIGTERM there; "power" cuts the power there (see `Power`); "full" lets the disk be full from there on, for all
    that needs space; "wait" does nothing to the disk: see `wait_for_a_signal`.
    """

    def __init__(self, kind: str, at: str) -> None:
        self.kind = kind
        self.at = at
        self.seen: Counter[str] = Counter()
        self.full = False
        self.power = Power(**json.loads(at)) if kind == "power" else None
        if kind == "wait":
            after_each_save(lambda step: wait_for_a_signal() if step >= int(at) else None)

    def __call__(self, operation: str, path: Path) -> None:
        depth = next((depth for depth, part in enumerate(path.parts) if "__seed" in part), None)
        inside = () if depth is None else path.parts[depth + 1 :]
        place = "/".join(UNPREDICTABLE.sub("*", part) for part in inside) or "."
        name = f"{operation} {place if depth is not None else '..'}"
        self.seen[name] += 1
        name = f"{name} {self.seen[name]}"
        if self.kind == "record":
            with open(self.at, "a") as file:
                file.write(f"{name}\n")
        elif self.kind == "power":
            self.power.cut(name)
        elif self.kind in SIGNALS and name == self.at:
            os.kill(os.getpid(), SIGNALS[self.kind])
        elif self.kind == "full":
            self.full = self.full or name == self.at
            if self.full and (operation in ("create", "write") or (operation == "fsync" and path.is_file())):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def after_each_save(tell: Callable[[int], None]) -> None:
    """Call `tell` with the step whenever a checkpoint has been saved."""
    save = CheckpointManager.save

    def telling(manager: CheckpointManager, *words: Any, **options: Any) -> Path:
        folder = save(manager, *words, **options)
        tell(options["step"])
        return folder

    CheckpointManager.save = telling  # type: ignore[method-assign]


def wait_for_a_signal() -> None:
    """A run that has come near its end waits for the signal that a test is about to send, however slow the test is."""
    deadline = time.monotonic() + SIGNAL_SECONDS
    while not any(active.received for active in signals._active) and time.monotonic() < deadline:
        time.sleep(0.001)


class Power:
    """Cuts the power at the operation `point`: puts what the disk of `root` could then have into `image` and kills the
    process. Without a `point` it makes an image for every operation instead, in a folder each, and nothing is killed.

    Beside each image a file says which step the run had been told was saved, and whether the run was told to be over.
    """

    def __init__(self, root: str, image: str, fate: str, point: str | None = None) -> None:
        self.disk = PowerLoss(Path(root))
        self.image = Path(image)
        self.fate = fate
        self.point = point
        self.saved = -1
        self.count = 0
        os.fsync = self.disk.fsync
        after_each_save(self.remember)

    def remember(self, step: int) -> None:
        self.saved = step

    def cut(self, name: str, *, over: bool = False) -> None:
        self.disk.look()
        if self.point is not None and self.point != name:
            return
        self.count += 1
        target = self.image if self.point is not None else self.image / f"{self.count:04d}"
        self.disk.image(target, fate_of(self.fate if self.fate != "chance" else f"chance {self.count}"))
        told = {"point": name, "saved": self.saved, "over": over}
        target.with_name(f"{target.name}.json").write_text(json.dumps(told))
        if self.point is not None:
            os.kill(os.getpid(), signal.SIGKILL)


def run(request: dict[str, Any]) -> None:
    """In the child: one command, from its words to its exit code."""
    code = 70
    try:
        os.setsid()
        for fd, ending in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{request['output']}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), fd)
        os.chdir(os.path.dirname(request["output"]))
        os.environ.update(request["variables"])
        if request["limit"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        if request["fault"] is None:
            code = main(request["words"])
        else:
            fault = Fault(**request["fault"])
            with atomic_io.fault_hook(fault):
                code = main(request["words"])
            if fault.power is not None:
                fault.power.cut("the end", over=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def serve() -> None:
    for module in PRELOAD:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"], request["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                answers.close()
                run(request)
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
