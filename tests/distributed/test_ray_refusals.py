"""What keeps a Ray cluster from being used, a sentence each, without any cluster: versions, folders, addresses."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli import main
from rl_training.distributed.ray_executor import COMPARED, problems_of
from rl_training.distributed.ray_member import folder_problem, probe_node
from rl_training.system.machine import versions

Captured = pytest.CaptureFixture[str]


def node(**changes: Any) -> dict[str, Any]:
    return {"node": "850181ab77", "host": "worker", "versions": versions(), "problem": None, **changes}


def test_nodes_like_this_host_have_no_problem(tmp_path: Path) -> None:
    assert problems_of([node(), node()], tmp_path, versions()) == []
    (none,) = problems_of([], tmp_path, versions())
    assert none == "the Ray cluster has no node with CPUs; add one with `ray start --address=...`"


@pytest.mark.parametrize("package", COMPARED)
def test_a_node_with_another_version_is_named_with_it(package: str, tmp_path: Path) -> None:
    ours = dict.fromkeys(COMPARED, "1.0")
    other = node(versions={**ours, package: "0.9"})
    (problem,) = problems_of([node(versions=ours), other], tmp_path, ours)
    assert problem.startswith("node 850181")
    assert f"(worker) has other versions ({package} 0.9 instead of 1.0); install the same ones there" in problem
    assert problems_of([other], tmp_path, ours, allow_mismatch=True) == []


def test_a_folder_that_is_not_shared_is_named(tmp_path: Path) -> None:
    """Every node writes, locks, renames and reads a file beside one that the parent has written."""
    found = probe_node(str(tmp_path), "nonce", "n0")
    (problem,) = problems_of([found], tmp_path, versions())
    assert problem.startswith(f"output_dir '{tmp_path}' cannot be used from node n0 (")
    assert "it is not the same folder there: it is not shared; choose a folder that every node mounts" in problem
    (tmp_path / "nonce").write_text("")
    assert probe_node(str(tmp_path), "nonce", "n0")["problem"] is None
    assert (tmp_path / "nonce.n0").read_text() == "n0"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nonce").write_text("")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("rl_training.distributed.ray_member.os.rename", refuse)
    assert folder_problem(str(tmp_path), "nonce", "n0") == "it cannot be written there (Read-only file system)"
    assert [path.name for path in tmp_path.iterdir()] == ["nonce"]


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("ray", "no Ray cluster of"),
        ("ray:127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9; start one with `rl cluster up"),
        ("ray:nowhere", "'nowhere' is not an address; write HOST:PORT"),
        ("rayy", "did you mean 'ray'"),
    ],
)
@pytest.mark.parametrize("how", ["flag", "config"])
def test_groups_of_seeds_are_refused_before_anything_starts(
    how: str, executor: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "")
    Path("run.yaml").write_text("algo: ppo\n" + (f"executor: '{executor}'\n" if how == "config" else ""))
    flags = [f"--executor={executor}"] if how == "flag" else []
    assert main(["train", "run.yaml", "--seed=1,2", *flags]) in (1, 2)
    err = capsys.readouterr().err
    assert words in err
    assert err.count("error: ") == 1
    assert left_in("runs") == []


def left_in(folder: str) -> list[str]:
    """Runs, groups and sweeps that a refusal has left behind."""
    return [path.name for path in Path(folder).glob("*") if not path.name.startswith(".")]


def test_a_search_without_its_cluster_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tune.yaml").write_text("base_config: ppo/cartpole\nsampler: random\nscheduler: asha\nseeds: [0]\n")
    Path("sweep.yaml").write_text("base_config: ppo/cartpole\ntrials: [{seed: 0}, {seed: 1}]\n")
    for file in ("tune.yaml", "sweep.yaml"):
        assert main([file.removesuffix(".yaml"), file, "--executor=ray:127.0.0.1:9"]) == 1
        assert "no Ray cluster answers at 127.0.0.1:9" in capsys.readouterr().err
        assert left_in("runs") == []


def test_a_sweep_that_has_started_stays_when_its_cluster_is_not_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text("base_config: ppo/cartpole\ntrials: [{seed: 0}]\n")
    assert main(["sweep", "sweep.yaml", "--emit=slurm"]) == 0
    assert main(["sweep", "--resume=latest", "--executor=ray:127.0.0.1:9"]) == 1
    assert "no Ray cluster answers" in capsys.readouterr().err
    assert [path.parent.name for path in Path("runs").glob("sweeps/*/sweep.json")] == [
        path.name for path in Path("runs", "sweeps").glob("ppo*")
    ]
    assert len(list(Path("runs", "sweeps").glob("ppo*"))) == 1


@pytest.mark.parametrize("command", ["status", "check"])
def test_commands_about_clusters_name_their_own_flag(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "")
    for words in ([], ["--address=127.0.0.1:9"]):
        assert main(["cluster", command, *words]) == 1
        assert capsys.readouterr().err.rstrip().endswith("or name yours: --address HOST:PORT")
    assert main(["cluster", command, "--address=nowhere"]) == 2
    assert list(tmp_path.iterdir()) == []


class Web(BaseHTTPRequestHandler):
    """A server that is no cluster, such as Ray's own dashboard."""

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_port_of_something_else_is_refused_at_once(tmp_path: Path, capsys: Captured) -> None:
    """Ray itself tries for almost two minutes."""
    server = HTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{server.server_address[1]}"
        began = time.monotonic()
        assert main(["cluster", "status", f"--address={address}", f"--output-dir={tmp_path}"]) == 1
        assert time.monotonic() - began < 10
    finally:
        server.shutdown()
        server.server_close()
    assert f"what listens at {address} is not the head of a Ray cluster" in capsys.readouterr().err


def test_a_cluster_that_cannot_have_its_folder(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    assert main(["cluster", "up", "--local=1", f"--output-dir={tmp_path / 'file'}"]) == 1
    assert "error: cannot create a cluster in output_dir" in capsys.readouterr().err
