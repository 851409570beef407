"""A real SLURM of one node for slow tests: Debian's packages (`apt install slurm-wlm munge`), with a config of our own.

Needs root, as SLURM does. Ports, spool and keys are in a folder of the test; nothing of the system's own SLURM is used.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

CONFIG = """\
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RealSlurm:
    """Context manager that runs munged, slurmctld and slurmd; gives the environment for SLURM's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> dict[str, str]:
        missing = [name for name in ("munged", "slurmctld", "slurmd") if shutil.which(name) is None]
        assert not missing, f"{', '.join(missing)} not found: apt install slurm-wlm munge"
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        config = self.folder / "slurm.conf"
        facts = {"controller": free_port(), "node": free_port(), "cpus": os.cpu_count() or 1}
        config.write_text(CONFIG.format(host=socket.gethostname(), folder=self.folder, **facts))
        env = {**os.environ, "SLURM_CONF": str(config)}
        files = [
            f"--{name}={self.folder / f'munge.{name}'}" for name in ("socket", "pid-file", "log-file", "seed-file")
        ]
        self._start(["munged", "--foreground", "--force", f"--key-file={key}", *files], env)
        deadline = time.monotonic() + 60
        while not (self.folder / "munge.socket").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        self._start(["slurmctld", "-D", "-c"], env)
        self._start(["slurmd", "-D", "-c"], env)
        while time.monotonic() < deadline:
            state = subprocess.run(["sinfo", "--noheader", "--format=%T"], env=env, capture_output=True, text=True)
            if state.stdout.strip() == "idle":
                return env
            time.sleep(0.5)
        logs = "".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
        self.__exit__(None, None, None)
        raise AssertionError(f"SLURM did not start: {state.stdout}{state.stderr}\n{logs}")

    def _start(self, words: list[str], env: dict[str, str]) -> None:
        with open(self.folder / f"{words[0]}.out", "ab") as output:
            self.processes.append(subprocess.Popen(words, env=env, stdout=output, stderr=output))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
