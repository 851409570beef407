"""Real runs under faults: start an `rl` command, end it by whatever means, and compare what is left to the last bit."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from state_hashes import state_hash

from rl_training.checkpointing.manager import Checkpoint, CheckpointManager
from rl_training.runs.directory import RunDir, metrics_sha256, run_directories

HERE = Path(__file__).parent
ROLLOUT = 64
TOTAL = 1024
NEAR_THE_END = ("wait", str(TOTAL - 2 * ROLLOUT))
"""Fault of a run that a signal must reach before it is over: after its last checkpoint but one it waits for it."""
SECONDS = 120.0
"""More than any command here takes on a busy machine."""
VARIABLES = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
}

BASE: dict[str, Any] = {
    "algo": "ppo",
    "seed": 5,
    "env.num_envs": 4,
    "env.normalize_obs": True,
    "env.normalize_reward": True,
    "hparams.num_steps": ROLLOUT // 4,
    "hparams.num_epochs": 2,
    "training.total_timesteps": TOTAL,
    "training.eval_frequency": 256,
    "training.num_eval_episodes": 1,
    "training.checkpoint_frequency": 2 * ROLLOUT,
}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "cartpole": {"env_id": "CartPole-v1"},
    "lander": {"env_id": "LunarLander-v3", "env.max_episode_steps": 100},
    "sticky": {"env_id": "fault_envs:Sticky"},
    "game": {
        "env_id": "RLGame/TicTacToe-v0",
        "league.snapshot_frequency": 2 * ROLLOUT,
        "league.size": 3,
        "network.actor.encoder.type": "mlp",
        "network.critic.encoder.type": "mlp",
    },
}
VECTORS: dict[str, dict[str, Any]] = {"sync": {}, "workers": {"env.vectorization": "async", "env.num_workers": 2}}
CASES: dict[str, dict[str, Any]] = {
    f"{env}-{vector}": {**ENVIRONMENTS[env], **VECTORS[vector]} for env in ("cartpole", "lander") for vector in VECTORS
}  # fmt: skip


def flags(*settings: dict[str, Any]) -> list[str]:
    """A config as flags; later settings win."""
    merged = {key: value for setting in (BASE, *settings) for key, value in setting.items()}
    return [
        f"--{key}={json.dumps(value) if isinstance(value, bool | dict) else value}" for key, value in merged.items()
    ]


# -- processes --------------------------------------------------------------------------------------------------------


class Command:
    """One `rl` command in its own session, alive or ended."""

    def __init__(self, pid: int, output: Path, ended: Callable[[float], int | None]) -> None:
        self.pid = pid
        self.output = output
        self.code: int | None = None
        self._ended = ended

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has come to its end, after waiting for at most `seconds`."""
        if self.code is None:
            code = self._ended(seconds)
            self.code = 128 - code if code is not None and code < 0 else code
        return self.code is not None

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit code as a shell shows it: 128 + n after signal n. Nothing of its session may be left behind."""
        if not self.ended(seconds):
            self.signal(signal.SIGKILL)
            raise AssertionError(f"still running after {seconds} s:\n{self.err()}")
        assert wait_until(lambda: not session_members(self.pid), 10), f"left behind: {session_members(self.pid)}"
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals, *, to_all: bool = False) -> None:
        """To the command, or as schedulers do it to every process that it started as well."""
        for pid in session_members(self.pid) if to_all else [self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def out(self) -> str:
        return self.output.with_suffix(".out").read_text()

    def err(self) -> str:
        return self.output.with_suffix(".err").read_text()


class Shell:
    """Starts commands: quickly from a server that has everything imported, or as a user does, with a new Python."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, HERE / "rl_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=VARIABLES,
            preexec_fn=_hear_ctrl_c,
        )
        self._count = 0

    def start(
        self,
        folder: Path,
        words: list[str],
        *,
        fault: tuple[str, str] | None = None,
        variables: dict[str, str] | None = None,
        limit: int | None = None,
    ) -> Command:
        """`rl WORDS`, forked, with its output in `folder`. `fault` is (kind, operation), see `rl_server.Fault`."""
        output = self._output(folder)
        request = {
            "words": words,
            "output": str(output),
            "variables": variables or {},
            "fault": None if fault is None else {"kind": fault[0], "at": fault[1]},
            "limit": limit,
        }
        pid = self._ask(request)
        return Command(pid, output, lambda seconds: self._ask({"wait": pid, "seconds": seconds}))

    def start_fresh(self, folder: Path, words: list[str], variables: dict[str, str] | None = None) -> Command:
        """`python -m rl_training WORDS`, as a user starts it."""
        output = self._output(folder)
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "rl_training", *words],
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**VARIABLES, **(variables or {})},
                start_new_session=True,
                preexec_fn=_hear_ctrl_c,
            )
        return Command(process.pid, output, lambda seconds: _popen_end(process, seconds))

    def _output(self, folder: Path) -> Path:
        self._count += 1
        return folder / f"command-{self._count}"

    def run(self, folder: Path, words: list[str], **options: Any) -> Command:
        """Start, and wait for its end; exit code 0 is expected."""
        command = self.start(folder, words, **options)
        code = command.wait()
        assert code == 0, f"exit code {code}\n{command.err()}"
        return command

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(10)
        assert self._server.stdout is not None
        self._server.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


def _hear_ctrl_c() -> None:
    """What a script starts in the background ignores SIGINT, and so would everything started by these tests."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _popen_end(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def session_members(session: int) -> dict[int, str]:
    """Processes of a session that still run, zombies apart, with their names."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, member_of = text.rpartition(")")[2].split()[:4]
        if int(member_of) == session and state not in "ZX":
            found[int(stat.parent.name)] = text[text.index("(") + 1 : text.rindex(")")]
    return found


def wait_until(condition: Callable[[], Any], seconds: float = SECONDS) -> bool:
    """Look every millisecond; False if it never came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


# -- what is left -----------------------------------------------------------------------------------------------------


def the_run(folder: Path) -> Path:
    """The only run in `folder`."""
    (run,) = run_directories(folder)
    return run


def info(run: Path) -> dict[str, Any]:
    return RunDir(run).info()


def latest_step(run: Path) -> int:
    """Env steps of the checkpoint that `latest` names; -1 if there is none."""
    step = CheckpointManager(run).latest_step()
    return -1 if step is None else step


def part_hashes(checkpoint: Checkpoint) -> dict[str, str]:
    """SHA-256 of each part, over every array, counter and stream by path; the logs' byte positions left out."""
    return {name: state_hash(state) for name, state in checkpoint.parts.items() if name != "logs"}


def outcome(run: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on how often it was stopped, by name."""
    manager = CheckpointManager(run)
    return {
        **part_hashes(manager.load_latest()),
        "step": latest_step(run),
        "best": manager.best_step(),
        "metrics": metrics_sha256(run / "logs" / "metrics.jsonl"),
        "episodes": hashlib.sha256((run / "logs" / "episodes.jsonl").read_bytes()).hexdigest(),
        "evals": hashlib.sha256((run / "logs" / "evals.jsonl").read_bytes()).hexdigest(),
        "tensorboard": sorted(scalar_points(run / "logs" / "tensorboard")),
        "videos": sorted(path.name for path in (run / "videos").iterdir()),
        "status": info(run)["status"],
        "litter": sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.name != ".lock"),
    }


def scalar_points(directory: Path) -> Iterator[tuple[str, int, float]]:
    """Every scalar in the event files but the clock's, raw: TensorBoard would hide points that are there twice."""
    for path in sorted(directory.glob("*tfevents*")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            record = protobuf(data[position + 12 : position + 12 + length])
            position += length + 16
            for value in protobuf(record.get(5, [b""])[0]).get(1, []):
                fields = protobuf(value)
                tag = fields[1][0].decode()
                if 2 in fields and not tag.startswith(("time/", "system/")):
                    yield tag, record.get(2, [0])[0], struct.unpack("<f", fields[2][0])[0]


def protobuf(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: integers, or the bytes of anything else."""
    fields: dict[int, list[Any]] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        key = varint()
        if key & 7 == 0:
            fields.setdefault(key >> 3, []).append(varint())
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        fields.setdefault(key >> 3, []).append(data[position : position + size])
        position += size
    return fields


# -- comparing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run: its end, and its state at every rollout."""

    run: Path
    outcome: dict[str, Any]
    states: dict[int, dict[str, str]] = field(repr=False)

    @classmethod
    def read(cls, run: Path) -> Reference:
        manager = CheckpointManager(run)
        states = {step: part_hashes(manager.load(step)) for step in manager.steps()}
        return cls(run, outcome(run), states)

    def assert_on_the_way(self, run: Path) -> int:
        """What a run that was cut off has saved is the reference at those steps; two are intact where two were made."""
        manager = CheckpointManager(run, report=lambda line: None)
        newest = manager.load_latest()
        assert part_hashes(newest) == self.states[newest.step]
        if newest.step > 0:
            before = [manager.load(step) for step in manager.steps() if step < newest.step]
            assert before, "only one checkpoint is left"
            assert all(part_hashes(checkpoint) == self.states[checkpoint.step] for checkpoint in before)
        return newest.step

    def assert_equal(self, run: Path, words: str = "") -> None:
        """A finished run is the reference to the last bit, and nothing of its interruptions is left."""
        found = outcome(run)
        assert {name: value for name, value in found.items() if value != self.outcome[name]} == {}, words

    def assert_finishes(self, shell: Shell, folder: Path, run: Path) -> None:
        """The same, after a resume to the end."""
        command = shell.run(folder, ["resume", str(run)])
        self.assert_equal(run, command.err())
