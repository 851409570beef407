"""Program: run a page of documentation from top to bottom in the present folder, and print what happened as JSON.

    python tutorial_runs.py PAGE

A block with a title is saved as that file; the lines of a bash block are `rl` commands; any other Python block is a
script. Each runs in a fork of this process, which has imported torch, Gymnasium and Matplotlib already.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tutorial_steps import Step, steps_of

from rl_training.cli import main

PRELOAD = (
    "matplotlib.backends.backend_svg",
    "rl_training.algorithms.ppo",
    "rl_training.cli.fields",
    "rl_training.cli.commands.runs.train",
    "rl_training.assembly.cost",
    "rl_training.logging.tensorboard",
    "rl_training.testing",
    "rl_training.trainer",
    "gymnasium.envs.classic_control",
    "torch._dynamo",  # what the first torch.optim of a process imports
    "torch.fx.experimental.symbolic_shapes",
)


def run(step: Step) -> tuple[int, str]:
    """Exit code and output of a step."""
    if step.kind == "file":
        Path(step.title).write_text(step.text)
        return 0, ""
    if step.kind == "command":
        return in_fork(lambda: main(shlex.split(step.text)[1:]))
    return in_fork(lambda: exec(compile(step.text, "<block>", "exec"), {"__name__": "__main__"}))


def in_fork(work: Callable[[], Any]) -> tuple[int, str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            os.close(reading)
            sys.path.insert(0, os.getcwd())
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output


if __name__ == "__main__":
    for module in PRELOAD:
        importlib.import_module(module)
    print(json.dumps([run(step) for step in steps_of(Path(sys.argv[1]))]))
