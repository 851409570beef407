"""Program: run `rl` commands one after the other in one process, with the package of one folder.

    python compat_process.py FOLDER JOBS OUTCOMES

FOLDER is where `rl_training` must be imported from; anything else ends the program. JOBS is a JSON file with a list of

    {"name": TEXT, "words": [...], "variables": {...}, "copy": null | {"beyond": STEP, "to": FOLDER}}

and OUTCOMES gets a line of JSON for each of them: its name, exit code, output and messages. `variables` are environment
variables that hold during the command. `copy` puts a copy of the run's directory into a folder just before the first
checkpoint beyond a step is saved: what `kill -9` would have left at that moment.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any


@contextmanager
def with_variables(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


@contextmanager
def copied(beyond: int, to: str) -> Iterator[None]:
    """Wrap the saving of checkpoints. Only the old code is asked for this, so its names cannot change."""
    from rl_training.checkpointing import CheckpointManager

    save = CheckpointManager.save

    def copy_and_save(manager: Any, parts: Any, *, step: int, **options: Any) -> Any:
        run = manager.path.parent
        if step > beyond and not Path(to, run.name).exists():
            shutil.copytree(run, Path(to, run.name))
        return save(manager, parts, step=step, **options)

    CheckpointManager.save = copy_and_save  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        CheckpointManager.save = save  # type: ignore[method-assign]


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    """Run one command and say how it ended; whatever it raises is an outcome too."""
    from rl_training.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), with_variables(job.get("variables") or {}):
        try:
            with copied(**job["copy"]) if job.get("copy") else nullcontext():
                code = main(job["words"])
        except BaseException:
            code = -1
            err.write(traceback.format_exc())
    importlib.invalidate_caches()  # a command may have written a module
    return {"name": job["name"], "code": code, "out": out.getvalue(), "err": err.getvalue()}


def run(folder: str, jobs: str, outcomes: str) -> None:
    import rl_training

    found = Path(rl_training.__file__).resolve().parent.parent
    if found != Path(folder).resolve():
        raise SystemExit(f"rl_training comes from {found}, not from {folder}")
    with open(outcomes, "w", encoding="utf-8") as lines:
        for job in json.loads(Path(jobs).read_text(encoding="utf-8")):
            lines.write(json.dumps(outcome(job)) + "\n")
            lines.flush()


if __name__ == "__main__":
    run(*sys.argv[1:])
