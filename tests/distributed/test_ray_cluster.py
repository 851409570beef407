"""A sweep on a real Ray cluster of two nodes: the same rows as on this host, also after a node was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from cluster_cases import finished, rl, rows_of, scores_of, wait_until, write_sweep

from rl_training.distributed.local_cluster import LocalCluster, NodeProcess
from rl_training.experiments.launching.sweeps import Sweep

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same sweep on this host, undisturbed."""
    folder = tmp_path_factory.mktemp("local")
    finished(rl(["sweep", str(write_sweep(folder)), "--output-dir=runs", "--jobs=2"], folder))
    return Sweep.open("latest", folder / "runs")


def node_of(cluster: LocalCluster, pid: int) -> NodeProcess:
    """The node whose raylet is above a member's process."""
    above = {parent.pid for parent in psutil.Process(pid).parents()}
    return next(node for node in cluster.nodes() if node.raylet in above)


def members_running(sweep: Path) -> list[int]:
    """Process ids that hold runs of a sweep's output directory."""
    locks = [path.read_text() for path in sweep.glob("*/.lock")]
    return [json.loads(text)["pid"] for text in locks if text.strip()]


def test_a_node_killed_in_mid_trial_costs_nothing_but_time(cluster: LocalCluster, local: Sweep, tmp_path: Path) -> None:
    """Rows and summary equal the local ones; the member's process ends within 5 s and goes on on another node; the
    retry that it has is not used."""
    runs = cluster.folder.parent
    file = write_sweep(tmp_path, retries=1)
    parent = rl(["sweep", str(file), f"--output-dir={runs}", "--executor=ray"], tmp_path)
    wait_until(lambda: len(list(runs.glob("*/checkpoints/step_*[1-9]*"))) >= 2 or parent.poll() is not None)
    (pid, *_) = members_running(runs)
    node = node_of(cluster, pid)
    member = psutil.Process(pid)
    assert node.raylet is not None
    os.kill(node.raylet, signal.SIGKILL)
    _, alive = psutil.wait_procs([member], timeout=5)
    assert not alive
    out = finished(parent)
    sweep = Sweep.open("latest", runs)
    assert "goes on elsewhere" in out
    assert "trying again" not in out
    assert rows_of(sweep) == rows_of(local)
    assert scores_of(sweep) == scores_of(local)
    assert [member.status for member in sweep.members] == ["finished"] * 2
    assert all(str(member.where).startswith("ray node ") for member in sweep.members)
    infos = [json.loads((runs / str(member.run) / "run.json").read_text()) for member in sweep.members]
    assert all(info["where"].startswith("ray node ") for info in infos)
    cluster.add_node(1)


def test_the_cluster_is_seen_checked_and_not_started_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    runs = str(cluster.folder.parent)
    status = json.loads(finished(rl(["cluster", "status", f"--output-dir={runs}", "--json"], tmp_path)))
    assert sum(node["alive"] and not node["is_head"] for node in status["nodes"]) == 2
    checked = finished(rl(["cluster", "check", f"--output-dir={runs}"], tmp_path))
    assert "2 nodes at 127.0.0.1:" in checked
    assert list(Path(runs).glob(".probe*")) == []
    refused = finished(rl(["cluster", "up", "--local=1", f"--output-dir={runs}"], tmp_path), code=1)
    assert "is running" in refused
    assert "rl cluster down" in refused


def test_a_folder_that_the_nodes_do_not_share_is_refused_before_anything_starts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The probe of a node finds no file of the parent in its own folder of that path."""
    from rl_training.distributed.ray_member import folder_problem

    assert folder_problem(str(tmp_path), "nonce", "n0") == "it is not the same folder there: it is not shared"
    (tmp_path / "nonce").write_text("")
    assert folder_problem(str(tmp_path), "nonce", "n0") is None
    assert (tmp_path / "nonce.n0").read_text() == "n0"


def test_without_a_cluster_one_sentence(tmp_path: Path) -> None:
    file = write_sweep(tmp_path)
    for words, expected in (
        (["--executor=ray"], "no Ray cluster of"),
        (["--executor=ray:127.0.0.1:9"], "no Ray cluster answers at 127.0.0.1:9; start one with `rl cluster up"),
        (["--executor=ray:nowhere"], "'nowhere' is not an address; write HOST:PORT"),
    ):
        env = {"RAY_ADDRESS": ""}
        done = rl(["sweep", str(file), "--output-dir=runs", *words], tmp_path, **env)
        out, _ = done.communicate(timeout=60)
        assert done.returncode in (1, 2), out
        assert expected in out
        assert out.count("error: ") == 1
    assert list(tmp_path.glob("runs/ppo*")) == []


def test_without_the_extra_the_message_names_the_pip_line(tmp_path: Path) -> None:
    code = (
        "import importlib.util, sys\n"
        "sys.modules['ray'] = None\n"
        "from rl_training.cli import main\n"
        f"sys.exit(main(['cluster', 'up', '--local', '2', '--output-dir', {str(tmp_path)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: executor ray needs an extra: pip install 'rl-training[ray]'"
