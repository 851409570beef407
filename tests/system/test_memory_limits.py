"""The memory a process may still allocate: the tightest of its limits, by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rl_training.system import memory_limits

GIGABYTE = 10**9


def write(folder: Path, **numbers: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in numbers.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def process(root: Path, groups: str, mounts: str) -> Path:
    """A folder that is read instead of /proc/self."""
    proc = root / "proc"
    write(proc, cgroup=groups, mountinfo=mounts)
    return proc


def rooms(proc: Path) -> Mapping[str, int]:
    """Limit file to the bytes that can still be allocated under it."""
    found = {}
    for room in memory_limits.group_rooms(proc):
        match = re.fullmatch(r"control group limit (.*) of [0-9.]+ GB", room.limit)
        assert match is not None
        found[match[1]] = room.bytes
    return found


def mount_line(place: Path, kind: str, root: str = "/", options: str = "rw") -> str:
    escaped = str(place).replace(" ", "\\040")
    return f"36 25 0:30 {root} {escaped} rw,nosuid - {kind} {kind} {options}"


def test_version_2_counts_every_group_up_to_the_root_and_gives_back_page_cache(tmp_path: Path) -> None:
    mount = tmp_path / "a mount"
    write(
        mount / "job", memory__max=8 * GIGABYTE, memory__current=7 * GIGABYTE, memory__stat="anon 5\ninactive_file 99"
    )
    write(mount / "job" / "step", memory__max="max", memory__current=GIGABYTE)
    write(mount / "job" / "step" / "task", memory__max=3 * GIGABYTE, memory__current=GIGABYTE)
    proc = process(tmp_path, "0::/job/step/task", mount_line(mount, "cgroup2"))
    assert rooms(proc) == {
        str(mount / "job" / "step" / "task" / "memory.max"): 2 * GIGABYTE,
        str(mount / "job" / "memory.max"): GIGABYTE + 99,
    }


def test_version_1_and_its_number_for_no_limit(tmp_path: Path) -> None:
    mount = tmp_path / "memory"
    unlimited = 9223372036854771712
    write(mount, memory__limit_in_bytes=unlimited, memory__usage_in_bytes=5)
    write(mount / "job", memory__limit_in_bytes=GIGABYTE, memory__usage_in_bytes=GIGABYTE + 5, memory__stat="cache 7")
    groups = "5:cpu,cpuacct:/elsewhere\n4:memory:/job\n0::/"
    mounts = f"{mount_line(tmp_path / 'cpu', 'cgroup', options='rw,cpu')}\n"
    proc = process(tmp_path, groups, mounts + mount_line(mount, "cgroup", options="rw,memory"))
    assert rooms(proc) == {str(mount / "job" / "memory.limit_in_bytes"): 0}


def test_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    """/proc/self/cgroup has the path on the host; the mount shows only what is below it."""
    mount = tmp_path / "cgroup"
    write(mount, memory__max=4 * GIGABYTE, memory__current=GIGABYTE)
    for root in ("/docker/abc", "/"):
        proc = process(tmp_path, "0::/docker/abc", mount_line(mount, "cgroup2", root))
        assert rooms(proc) == {str(mount / "memory.max"): 3 * GIGABYTE}


def test_without_groups_there_is_no_limit_of_theirs(tmp_path: Path) -> None:
    assert list(memory_limits.group_rooms(tmp_path)) == []
    assert 10**6 < memory_limits.room().bytes < 10**14


@pytest.mark.parametrize(("limit", "words"), [("AS", "RLIMIT_AS (ulimit -v)"), ("DATA", "RLIMIT_DATA (ulimit -d)")])
def test_a_limit_of_the_process_refuses_a_buffer_by_name(limit: str, words: str) -> None:
    """The machine has the memory, but the process may not allocate it."""
    program = f"""
import resource
from rl_training.data import ReplayBuffer
resource.setrlimit(resource.RLIMIT_{limit}, (3 * 10**9, 3 * 10**9))
buffer = ReplayBuffer(10**4, (17,), (6,))
try:
    ReplayBuffer(3 * 10**7, (17,), (6,))
except Exception as error:
    print(type(error).__name__, error)
"""
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert result.stdout.startswith("ConfigError a buffer of 30,000,000"), result.stderr
    assert words in result.stdout
    assert "limit" in result.stdout


def test_a_rollout_that_does_not_fit_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.assembly.build import build_trainer
    from rl_training.config.loading import parse_config
    from rl_training.types import ConfigError

    monkeypatch.setattr(memory_limits, "room", lambda: memory_limits.Room(100_000, "a test"))
    cfg = parse_config({"algo": "ppo", "env_id": "CartPole-v1", "hparams": {"num_steps": 4096}, "env": {"num_envs": 4}})
    with pytest.raises(ConfigError, match=r"rollout of 4,096 steps in 4 .*\(a test\): lower hparams.num_steps"):
        build_trainer(cfg)
