"""A queue for tests that speaks as SLURM does: `sbatch`, `squeue` and `scancel` for jobs that are local processes.

It keeps what matters to an executor: jobs outlive the submitting process, see only the variables that `--export` names,
get signals at their batch script alone, and leave the queue when they end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

VARIABLE = "FAKE_SLURM"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")


def install(folder: Path) -> dict[str, str]:
    """The commands in a folder of their own; returns the environment that finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS:
        script = folder / command
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" {command} "$@"\n')
        script.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", VARIABLE: str(folder)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def jobs(folder: Path) -> dict[str, tuple[int, str]]:
    """Living jobs: number to process id and name."""
    found = {}
    for path in sorted(folder.glob("job_*"), key=lambda path: int(path.name[4:])):
        pid, _, name = path.read_text().partition(" ")
        if is_alive(int(pid)):
            found[path.name[4:]] = (int(pid), name)
    return found


def sbatch(folder: Path, flags: dict[str, str], rest: list[str]) -> None:
    number = str(1 + len(list(folder.glob("job_*"))))
    names = flags["export"].split(",")
    env = {name: os.environ[name] for name in names if name in os.environ} | {"SLURM_JOB_ID": number}
    with open(flags["output"], "ab") as output:
        process = subprocess.Popen(
            [rest[-1]], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    (folder / f"job_{number}").write_text(f"{process.pid} {flags['job-name']}")
    print(number)


def squeue(folder: Path, flags: dict[str, str]) -> None:
    for number, (_, name) in jobs(folder).items():
        if flags.get("name", name) == name and flags.get("jobs", number) == number:
            print(f"{number} RUNNING")


def scancel(folder: Path, flags: dict[str, str], rest: list[str]) -> None:
    found = jobs(folder).get(rest[-1])
    if found is not None and "signal" in flags:
        os.kill(found[0], signal.Signals[f"SIG{flags['signal']}"])
    elif found is not None:
        os.killpg(found[0], signal.SIGKILL)


def main() -> None:
    command, *words = sys.argv[1:]
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    rest = [word for word in words if not word.startswith("--")]
    folder = Path(os.environ[VARIABLE])
    if command == "sbatch":
        sbatch(folder, flags, rest)
    elif command == "squeue":
        squeue(folder, flags)
    elif command == "scancel":
        scancel(folder, flags, rest)
    else:
        print("MaxArraySize            = 4")


if __name__ == "__main__":
    main()
