"""Members in a SLURM queue: the same results, signals, lost jobs, and what a job may see."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from cluster_cases import finished, rl, rows_of, wait_until, write_sweep
from fake_slurm import install, jobs

from rl_training.cli import main
from rl_training.config.sections.executor import ExecutorConfig
from rl_training.distributed import slurm_executor
from rl_training.distributed.executors import LOST, Executor, Handle, Resources, Task
from rl_training.distributed.slurm_executor import SlurmExecutor, exported, resource_flags
from rl_training.experiments.launching.scheduling.slurm_script import max_array_size
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.holder import Holder
from rl_training.types import ConfigError


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in install(tmp_path / "slurm").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm_executor, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(slurm_executor, "GONE_SECONDS", 0.5)
    return tmp_path / "slurm"


def executor(folder: Path, **fields: object) -> SlurmExecutor:
    return SlurmExecutor(ExecutorConfig(type="slurm", **fields), output_dir=folder, name="a-sweep")  # type: ignore[arg-type]


def task(folder: Path, *words: str, **env: str) -> Task:
    return Task(words, env, folder / "out.log", (0, 0), "trial 0 seed 0")


def ended(handle: Handle) -> int | None:
    return wait_until(lambda: [code] if (code := handle.poll()) is not None else None)[0]  # type: ignore[no-any-return]


def test_a_job_runs_ends_and_says_where_it_was(queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    slurm = executor(tmp_path)
    assert isinstance(slurm, Executor)
    handle = slurm.start(task(tmp_path, "--version", GREETING="it's me"))
    assert isinstance(handle, Handle)
    assert (handle.where, ended(handle)) == ("slurm 1", 0)
    assert (tmp_path / "out.log").read_text().strip()
    failing = slurm.start(task(tmp_path, "train", "--nosuch", "1"))
    assert ended(failing) == 2
    assert "MY_API_KEY" not in exported(os.environ)
    slurm.close()


def test_a_stopped_and_a_lost_job(queue: Path, tmp_path: Path) -> None:
    """A signal reaches the member through its batch script; a job that is gone without a word is lost."""
    slurm = executor(tmp_path)
    flags = ["--total-timesteps=100000000", "--logging.terminal=false", f"--output-dir={tmp_path / 'runs'}"]
    first = slurm.start(task(tmp_path, "train", "ppo/cartpole", *flags))
    wait_until(lambda: list(tmp_path.glob("runs/*/checkpoints/latest")))
    holder = json.loads(next(tmp_path.glob("runs/*/.lock")).read_text())
    assert holder["where"] == "slurm 1"
    assert slurm.lost(Holder(1, "far", 0.0, "t", "slurm 1")) is None
    first.send_signal(signal.SIGTERM)
    assert ended(first) == 143
    assert json.loads(next(tmp_path.glob("runs/*/run.json")).read_text())["status"] == "stopped"
    second = slurm.start(task(tmp_path, "train", "ppo/cartpole", *flags))
    wait_until(lambda: "2" in jobs(queue))
    os.killpg(jobs(queue)["2"][0], signal.SIGKILL)  # the node is gone
    assert ended(second) == LOST
    assert slurm.lost(Holder(1, "far", 0.0, "t", "slurm 2")) is True
    assert slurm.lost(Holder(1, "far", 0.0, "t", "elsewhere")) is None
    slurm.close()


def test_a_sweep_in_the_queue_equals_a_local_one(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a job that is lost goes on, from its checkpoint, with the same rows."""
    monkeypatch.chdir(tmp_path)
    file = write_sweep(tmp_path, steps=24_576, executor={"type": "slurm", "max_slots": 2, "wall_time": 500})
    finished(rl(["sweep", str(file), "--output-dir=local", "--executor=local", "--jobs=2"], tmp_path))

    def lose_a_job() -> None:
        wait_until(lambda: list(tmp_path.glob("runs/*/checkpoints/step_*[1-9]*")), pause=0.02)
        os.killpg(next(iter(jobs(queue).values()))[0], signal.SIGKILL)

    with ThreadPoolExecutor() as beside:  # the sweep stays in this process, where the queue is looked at often
        lost = beside.submit(lose_a_job)
        assert main(["sweep", str(file), "--output-dir=runs"]) == 0
        lost.result()
    assert "goes on elsewhere" in "".join(capsys.readouterr())
    sweep = Sweep.open("latest", tmp_path / "runs")
    assert rows_of(sweep) == rows_of(Sweep.open("latest", tmp_path / "local"))
    assert all(str(member.where).startswith("slurm ") for member in sweep.members)
    listed = json.loads(finished(rl(["list", "--output-dir=runs", "--json"], tmp_path)))
    assert {row["status"] for row in listed} == {"finished"}


def test_what_sbatch_is_asked_for() -> None:
    asked = Resources(cpus=1.5, gpus=2, memory_mb=4000, wall_time=3600)
    assert resource_flags(asked) == [
        *("--ntasks=1", "--cpus-per-task=2", "--gres=gpu:2", "--mem=4000M", "--time=62"),
    ]


def test_the_size_of_an_array_is_asked_for(queue: Path) -> None:
    assert max_array_size() == 3


def test_without_slurm_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no sbatch here; run this on a host of a SLURM cluster"):
        executor(tmp_path)


def test_half_a_gpu_is_refused(queue: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"whole GPUs, not 0\.5"):
        executor(tmp_path, gpus=0.5)


@pytest.mark.slow
def test_a_real_slurm_of_one_node(tmp_path: Path) -> None:
    """Debian's packages, started for this test; a sweep in its queue has the rows of a local one."""
    from real_slurm import RealSlurm

    with RealSlurm(tmp_path / "slurm") as env:
        file = write_sweep(tmp_path, executor="slurm")
        finished(rl(["sweep", str(file), "--output-dir=local", "--executor=local", "--jobs=2"], tmp_path))
        parent = rl(["sweep", str(file), "--output-dir=runs"], tmp_path, **env)
        wait_until(lambda: list(tmp_path.glob("runs/*/checkpoints/step_*[1-9]*")) or parent.poll() is not None)
        pid = next(json.loads(text)["pid"] for lock in tmp_path.glob("runs/*/.lock") if (text := lock.read_text()))
        member = psutil.Process(pid)
        for process in (member.parent(), member):  # the batch script first: it cannot say how the run ended
            if process is not None:
                process.kill()
        assert "goes on elsewhere" in finished(parent)
        sweep = Sweep.open("latest", tmp_path / "runs")
        assert rows_of(sweep) == rows_of(Sweep.open("latest", tmp_path / "local"))
