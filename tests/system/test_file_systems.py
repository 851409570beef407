"""Which file systems several hosts share, and the clock of the one that stamps the files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rl_training.system import file_systems
from rl_training.system.file_systems import file_system_type, host_name, is_network, server_time
from rl_training.types import ConfigError

MOUNTS = """\
22 1 259:1 / / rw - ext4 /dev/vda rw
30 22 0:40 / /pool rw,relatime shared:1 - nfs4 server:/pool rw
31 22 0:41 / /pool/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/with\\040space rw - fuse.sshfs me@there: rw
33 22 0:43 / /scratch rw - lustre mds@tcp:/scratch rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "shared"),
    [
        ("/tmp/runs", "ext4", False),
        ("/pool/me/runs", "nfs4", True),
        ("/pool/local/runs", "xfs", False),
        ("/poolside", "ext4", False),
        ("/mnt/with space/runs", "fuse.sshfs", True),
        ("/scratch", "lustre", True),
    ],
)
def test_the_mount_above_a_folder_decides(
    folder: str, kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(os.path, "realpath", str)
    assert file_system_type(Path(folder)) == kind
    assert is_network(Path(folder)) is shared


def test_the_user_may_know_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("1", True), ("0", False)):
        monkeypatch.setenv(file_systems.NETWORK_VARIABLE, value)
        assert is_network(tmp_path) is expected
    monkeypatch.setenv(file_systems.NETWORK_VARIABLE, "yes")
    with pytest.raises(ConfigError, match=r"RL_TRAINING_NETWORK_FS='yes' must be 0 or 1"):
        is_network(tmp_path)
    monkeypatch.setenv(file_systems.HOST_VARIABLE, "node-7")
    assert host_name() == "node-7"


def test_the_clock_is_that_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this host is an hour behind: what counts is the time that a touched file gets."""
    monkeypatch.setattr(file_systems, "_differences", {})
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
    assert abs(server_time(tmp_path) - real()) < 5.0
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_the_own_clock_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "_differences", {})
    assert abs(server_time(tmp_path / "missing") - time.time()) < 5.0
