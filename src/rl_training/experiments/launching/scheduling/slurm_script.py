"""`rl sweep --emit slurm`: array jobs that run a sweep without a parent process, cut to the size that SLURM allows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write

DEFAULT_ARRAY_SIZE = 1001
"""SLURM's own `MaxArraySize`: task numbers of an array stay below it."""


def write_slurm_scripts(sweep: Sweep, array_size: int | None = None) -> list[Path]:
    """`slurm.sh` in the sweep's folder: an array job with one task per run, at most `jobs` of them at a time.

    A sweep with more runs than an array may have tasks gets several scripts. A task that receives a stop signal saves
    and is queued again; submitting a script again continues what is left.
    """
    most = max_array_size() if array_size is None else array_size
    count = len(sweep.members)
    firsts = range(0, count, most)
    scripts = []
    for number, first in enumerate(firsts):
        name = "slurm.sh" if len(firsts) == 1 else f"slurm_{number:03d}.sh"
        script = sweep.path.absolute() / name
        with readable_errors(f"cannot write '{script}'"):
            atomic_write(script, _script(sweep, first, min(most, count - first)).encode())
            script.chmod(0o755)
        scripts.append(script)
    return scripts


def _script(sweep: Sweep, first: int, count: int) -> str:
    """The text of an array job for the members from `first` on."""
    folder = sweep.path.absolute()
    words = [sys.executable, "-m", "rl_training", "sweep", "--resume", str(folder)]
    limit = "" if sweep.info.jobs is None else f"%{sweep.info.jobs}"
    member = "$SLURM_ARRAY_TASK_ID" if first == 0 else f"$(({first} + SLURM_ARRAY_TASK_ID))"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={sweep.info.id}",
        f"#SBATCH --array=0-{count - 1}{limit}",
        f"#SBATCH --output={shlex.quote(str(folder / 'logs' / 'slurm_%A_%a.out'))}",
        "#SBATCH --ntasks=1",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
        f'exec {shlex.join(words)} --only "{member}"',
    ]
    return "\n".join([*lines, ""])


def max_array_size() -> int:
    """Most tasks of one array: as SLURM says where it is installed, else its default."""
    size = DEFAULT_ARRAY_SIZE
    if shutil.which("scontrol") is not None:
        try:
            words = ["scontrol", "show", "config"]
            said = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
            found = re.search(r"^MaxArraySize\s*=\s*(\d+)", said, re.MULTILINE)
            size = int(found[1]) if found else size
        except (OSError, subprocess.SubprocessError):
            pass
    return max(size - 1, 1)
