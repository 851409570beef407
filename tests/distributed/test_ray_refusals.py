"""What keeps a Ray cluster from being used, a sentence each, without any cluster: versions, folders, addresses."""

from __future__ import annotations

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
    assert list(tmp_path.glob("runs/ppo*")) == []


def test_a_search_without_its_cluster_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tune.yaml").write_text("base_config: ppo/cartpole\nsampler: random\nscheduler: asha\nseeds: [0]\n")
    assert main(["tune", "tune.yaml", "--executor=ray:127.0.0.1:9"]) == 1
    assert "no Ray cluster answers at 127.0.0.1:9" in capsys.readouterr().err
    assert list(tmp_path.glob("runs/ppo*")) == []
