"""A sweep on a real Ray cluster of two nodes: the same rows as on this host, also after a node was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cluster_cases import finished, rl, rows_of, scores_of, started, wait_until, write_sweep

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
    raylets = [
        psutil.Process(node.raylet) for node in cluster.nodes() if node.raylet and psutil.pid_exists(node.raylet)
    ]
    listening = [one.laddr.ip for raylet in raylets for one in raylet.net_connections() if one.status == "LISTEN"]
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}  # other machines cannot reach it


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


# -- the long ones ----------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster for tests that destroy it."""
    made = started(LocalCluster(tmp_path / "runs"))
    yield made
    made.down()


def begun(cluster: LocalCluster, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A sweep on a cluster whose two members have saved at least once."""
    runs = cluster.folder.parent
    parent = rl(["sweep", str(write_sweep(folder)), f"--output-dir={runs}", "--executor=ray", *words], folder)
    wait_until(lambda: len(list(runs.glob("*/checkpoints/step_*[1-9]*"))) >= 2 or parent.poll() is not None)
    return parent


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
def test_five_of_five_node_kills(attempt: int, own_cluster: LocalCluster, local: Sweep, tmp_path: Path) -> None:
    runs = own_cluster.folder.parent
    parent = begun(own_cluster, tmp_path / "files")
    pid = members_running(runs)[attempt % 2 if len(members_running(runs)) > 1 else 0]
    node = node_of(own_cluster, pid)
    assert node.raylet is not None
    os.kill(node.raylet, signal.SIGKILL)
    out = finished(parent)
    sweep = Sweep.open("latest", runs)
    assert rows_of(sweep) == rows_of(local)
    assert "trying again" not in out


@pytest.mark.slow
def test_the_head_is_killed(own_cluster: LocalCluster, local: Sweep, tmp_path: Path) -> None:
    """Members save and stop, the parent ends with code 1 and the line to go on within 30 s, and `local` goes on."""
    runs = own_cluster.folder.parent
    parent = begun(own_cluster, tmp_path / "files")
    pids = members_running(runs)
    head = psutil.Process(own_cluster.nodes()[0].pid)
    for process in [head, *head.children(recursive=True)]:
        process.kill()
    out = finished(parent, code=1, seconds=30)
    assert "is gone" in out
    assert f"rl resume {runs}/sweeps/" in out
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), seconds=30)
    sweep = Sweep.open("latest", runs)
    assert {member.status for member in sweep.members} <= {"stopped", "finished", "waiting", "killed"}
    finished(rl(["sweep", f"--resume={sweep.path}", "--executor=local", "--jobs=2"], tmp_path))
    assert rows_of(Sweep.open("latest", runs)) == rows_of(local)


@pytest.mark.slow
def test_the_parent_is_killed(own_cluster: LocalCluster, local: Sweep, tmp_path: Path) -> None:
    runs = own_cluster.folder.parent
    parent = begun(own_cluster, tmp_path / "files")
    pids = members_running(runs)
    parent.kill()
    parent.communicate()
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), seconds=40)
    sweep = Sweep.open("latest", runs)
    finished(rl(["sweep", f"--resume={sweep.path}"], tmp_path))  # on the same cluster
    assert rows_of(Sweep.open("latest", runs)) == rows_of(local)


@pytest.mark.slow
def test_a_node_that_joins_is_used(tmp_path: Path) -> None:
    cluster = started(LocalCluster(tmp_path / "runs"), nodes=1)
    try:
        file = write_sweep(tmp_path / "files", steps=10_000_000)
        parent = rl(["sweep", str(file), f"--output-dir={tmp_path / 'runs'}", "--executor=ray"], tmp_path)
        wait_until(lambda: members_running(tmp_path / "runs"))
        assert len(members_running(tmp_path / "runs")) == 1
        cluster.add_node(1)
        wait_until(lambda: len(members_running(tmp_path / "runs")) == 2)
        parent.terminate()
        finished(parent, code=143)
        sweep = Sweep.open("latest", tmp_path / "runs")
        assert len({member.where for member in sweep.members}) == 2
    finally:
        cluster.down()


@pytest.mark.slow
def test_a_node_with_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose package is a copy with another version; nothing starts."""
    import rl_training

    source = Path(rl_training.__file__).parent
    shutil.copytree(source, tmp_path / "other" / "rl_training", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "other" / "rl_training" / "version.py").write_text('__version__ = "0.0.1"\n')
    cluster = LocalCluster(tmp_path / "runs")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'other'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    started(cluster, nodes=1)
    monkeypatch.delenv("PYTHONPATH")
    try:
        file = write_sweep(tmp_path / "files")
        out = finished(
            rl(["sweep", str(file), f"--output-dir={tmp_path / 'runs'}", "--executor=ray"], tmp_path), code=1
        )
        assert "has other versions (rl-training 0.0.1 instead of" in out
        assert list((tmp_path / "runs").glob("ppo*")) == []
    finally:
        cluster.down()


@pytest.mark.slow
def test_down_ends_its_own_processes_and_leaves_another_cluster_alone(tmp_path: Path) -> None:
    first, second = started(LocalCluster(tmp_path / "a"), 1), started(LocalCluster(tmp_path / "b"), 1)
    try:
        pids = [node.raylet for node in first.nodes()]
        first.down()
        assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
        assert all(node.is_alive() for node in second.nodes())
        assert not (tmp_path / "a" / ".cluster" / "cluster.json").exists()
    finally:
        first.down()
        second.down()
