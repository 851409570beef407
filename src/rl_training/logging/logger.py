"""The logger: writes rows to JSONL files and to any number of sinks.

Rows arrive with tensors and NumPy scalars in them; only here they become plain numbers. The lengths and checksums of
the files are part of the checkpoint, and loading one truncates the files, so the logs of a resumed run equal those of a
run that was never stopped. If a file does not match the checkpoint, its complete rows are kept, one warning says so,
and the run continues. Only train.log, which is for people, is never truncated.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from rl_training.logging.metrics_tracker import MetricsTracker
from rl_training.logging.progress_display import Display, Style
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import make_folder
from rl_training.system.error_text import shortened
from rl_training.system.json_lines import AppendFile, Row, encode_row, eval_name, plain_row
from rl_training.types import RunError, StateDict, Stateful

__all__ = ["ConsoleSink", "JsonlSink", "Logger", "MetricsTracker", "Row", "Sink", "plain_row"]

METRICS, EPISODES, EVALS, ALERTS, TRACE = (
    "metrics.jsonl",
    "episodes.jsonl",
    "evals.jsonl",
    "alerts.jsonl",
    "trace.jsonl",
)
FLUSH_SECONDS = 0.2
"""Shortest interval between two writes of metrics; rows of episodes and steps are written with them."""


class Sink(Protocol):
    """Destination of rows besides the run's JSONL files. Rows are flat, with plain values; NaN stays a float.

    A sink that must not log a row twice after a resume is Stateful too; its state is saved with the logger's.
    """

    def log(self, row: Row, /) -> None:
        """Log a row of metrics, which holds its `env_steps`."""

    def log_eval(self, row: Row, /) -> None:
        """Log the result of one evaluation."""

    def close(self) -> None:
        """Write what is buffered. Called once."""


@runtime_checkable
class ChecksFiles(Protocol):
    """A sink that compares its files with the state it loads."""

    damage: list[str]
    """Problems found at the last load: a file and what is wrong with it, in words."""


class Logger:
    """Writes the logs of a run. `redact` is applied to messages and alerts (see `RunDir.redactor`)."""

    def __init__(
        self, logs_dir: Path | str, sinks: Sequence[Sink] = (), *, redact: Callable[[str], str] | None = None
    ) -> None:
        self.logs_dir = Path(logs_dir)
        with readable_errors(f"cannot create '{self.logs_dir}'"):
            make_folder(self.logs_dir)
        self.sinks = tuple(sinks)
        self._redact = redact or (lambda text: text)
        self._files = {name: AppendFile(self.logs_dir / name) for name in (METRICS, EPISODES, EVALS, ALERTS)}
        self._messages = AppendFile(self.logs_dir / "train.log")
        self._next_flush = 0.0
        self.damage: list[str] = []
        """Files that did not match the loaded checkpoint, each with what is wrong with it."""

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """A row of metrics, to metrics.jsonl and the sinks."""
        plain = self._write(METRICS, row)
        if time.monotonic() >= self._next_flush:
            self.flush()
        for sink in self.sinks:
            sink.log(plain)

    def log_eval(self, row: Mapping[str, Any], *, to_sinks: bool = True) -> None:
        """One evaluation, with the returns of its episodes, to evals.jsonl and the sinks."""
        plain = self._write(EVALS, row)
        self.flush()
        for sink in self.sinks if to_sinks else ():
            sink.log_eval(plain)

    def log_episode(self, **fields: Any) -> None:
        """One finished training episode, to episodes.jsonl."""
        self._write(EPISODES, fields)

    def log_step(self, **fields: Any) -> None:
        """One transition, to trace.jsonl; arrays become lists."""
        if TRACE not in self._files:
            self._files[TRACE] = AppendFile(self.logs_dir / TRACE)
        self._write(TRACE, fields)

    def log_alert(self, row: Mapping[str, Any]) -> Row:
        """An alert, to alerts.jsonl; returns the row as written, with secrets redacted."""
        texts = {key: self._redact(shortened(value)) if isinstance(value, str) else value for key, value in row.items()}
        plain = self._write(ALERTS, texts)
        self.flush()
        return plain

    def message(self, text: str) -> None:
        """A line with a time stamp, to train.log."""
        stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self._messages.append(f"{stamp} {self._redact(shortened(text))}\n".encode(errors="backslashreplace"))
        with suppress(RunError):  # a full disk stops the run when a row is lost, not when the failure is reported
            self._messages.flush()

    def flush(self) -> None:
        """Hand every row to the operating system, so that it survives the end of this process."""
        for file in self._files.values():
            file.flush()
        self._next_flush = time.monotonic() + FLUSH_SECONDS

    def save_logs(self) -> None:
        """Flush, and wait until the data is on disk."""
        for file in (*self._files.values(), self._messages):
            file.sync()

    def close(self) -> None:
        """Flush and close everything, including the sinks; idempotent."""
        sinks, self.sinks = self.sinks, ()
        with ExitStack() as stack:  # closes the others even if one fails
            for file in (*self._files.values(), self._messages):
                stack.callback(file.close)
            for sink in sinks:
                stack.callback(sink.close)

    def state_dict(self) -> StateDict:
        """The length in bytes and the checksum of each file, which is synced to disk first."""
        self.save_logs()
        files = {name: file.length() for name, file in self._files.items()}
        sums = {name: file.checksum() for name, file in self._files.items()}
        sinks = {key: sink.state_dict() for key, sink in self._stateful_sinks().items()}
        return {"files": files, "sha256": sums, "sinks": sinks}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Truncate every file to what it was in `state`; a file that `state` does not have becomes empty."""
        if TRACE not in self._files and (TRACE in state["files"] or (self.logs_dir / TRACE).exists()):
            self._files[TRACE] = AppendFile(self.logs_dir / TRACE)
        sums = state.get("sha256", {})  # checkpoints of 0.1.0 have lengths alone
        self.damage = []
        for name, file in self._files.items():
            wrong = file.cut_back(int(state["files"].get(name, 0)), sums.get(name))
            self.damage += [f"{name} {wrong}"] if wrong else []
        for key, sink in self._stateful_sinks().items():
            if key in state["sinks"]:
                sink.load_state_dict(state["sinks"][key])
                self.damage += sink.damage if isinstance(sink, ChecksFiles) else []
        if self.damage:
            text = f"logs in {self.logs_dir} are not what the checkpoint covers: {'; '.join(self.damage)}"
            self.message(f"warning: {text}")
            warnings.warn(f"{text}; training goes on, damaged rows are skipped", UserWarning, stacklevel=2)

    def cut_all(self) -> None:
        """Empty every file, for a run that starts again from the beginning."""
        for file in self._files.values():
            file.truncate(0)

    def _write(self, name: str, row: Mapping[str, Any]) -> Row:
        plain = plain_row(row)
        self._files[name].append(encode_row(plain))
        return plain

    def _stateful_sinks(self) -> dict[str, Stateful]:
        found: dict[str, Stateful] = {}
        for sink in self.sinks:
            if isinstance(sink, Stateful):
                kind = type(sink).__name__
                taken = sum(key.partition("#")[0] == kind for key in found)
                found[f"{kind}#{taken + 1}" if taken else kind] = sink
        return found


class JsonlSink:
    """One more JSONL file at any path, with metrics and evaluations together."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = AppendFile(path)
        self.damage: list[str] = []

    def log(self, row: Row, /) -> None:
        self._file.append(encode_row(row))
        self._file.flush()

    def log_eval(self, row: Row, /) -> None:
        self.log({eval_name(key): value for key, value in row.items()})

    def close(self) -> None:
        self._file.close()

    def state_dict(self) -> StateDict:
        self._file.sync()
        return {"length": self._file.length(), "sha256": self._file.checksum()}

    def load_state_dict(self, state: StateDict, /) -> None:
        wrong = self._file.cut_back(int(state["length"]), state.get("sha256"))
        self.damage = [f"{self._file.path} {wrong}"] if wrong else []


class ConsoleSink:
    """Plain progress lines on stderr: one per evaluation and one per 5% of `total` env steps."""

    def __init__(self, total: int | None = None, *, style: Style = "plain", stream: TextIO | None = None) -> None:
        self._display = Display(total, style=style, stream=stream)

    def log(self, row: Row, /) -> None:
        self._display.update(row.get("env_steps", 0), return_mean=row.get("rollout/return_mean"))

    def log_eval(self, row: Row, /) -> None:
        score = row.get("eval/return_mean", row.get("return_mean"))
        self._display.evaluation(row.get("env_steps", 0), score)

    def close(self) -> None:
        self._display.close()
