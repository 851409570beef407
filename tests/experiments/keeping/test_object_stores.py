"""Archives at an address: fsspec's own store in memory stands for a bucket."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.experiments.keeping.archive import unpack


def test_an_archive_in_a_store_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fake_run(tmp_path / "runs", 1, reward=1.0)
    address = "memory://bucket/one.tar.gz"
    assert main(["archive", str(run), "--output", address]) == 0
    assert address in capsys.readouterr().out
    with fsspec.open(address, "rb") as stored:
        (tmp_path / "one.tar.gz").write_bytes(stored.read())
    back = unpack(tmp_path / "one.tar.gz", tmp_path / "back")
    assert (back.path / "metrics.json").read_bytes() == (run / "metrics.json").read_bytes()
    assert main(["archive", str(run), "--output", address]) == 1
    assert "exists already" in capsys.readouterr().err


def test_an_address_that_nothing_knows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fake_run(tmp_path / "runs", 1, reward=1.0)
    assert main(["archive", str(run), "--output", "nosuch://bucket/x"]) == 2
    assert "nosuch" in capsys.readouterr().err
