"""The old package is the one that was stored, runs where it should, and every algorithm of it has a case."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path

import pytest
from compat_cases import RUNS
from compat_runs import ARCHIVE, HERE, run_jobs

SHA256 = "90e47b7ed356fa157529ec0b1e15640a4008c086fef7b2507aa105777bf188c3"
"""Of the archive without its compression, which other versions of gzip may do differently."""
CASES = [case.settings for cases in RUNS.values() for case in cases]


def test_the_archive_is_the_one_that_was_made() -> None:
    assert hashlib.sha256(gzip.decompress(ARCHIVE.read_bytes())).hexdigest() == SHA256


def test_it_holds_the_package_at_the_commit_that_the_readme_names() -> None:
    with tarfile.open(ARCHIVE) as archive:
        names = archive.getnames()
        commit = archive.pax_headers["comment"]
    assert all(name == "src" or name.startswith("src/rl_training") for name in names)
    assert "src/rl_training/py.typed" in names
    assert commit in (HERE / "README.md").read_text()


def test_a_process_that_finds_another_package_ends(tmp_path: Path, shared: Path) -> None:
    with pytest.raises(AssertionError, match="rl_training comes from"):
        run_jobs(tmp_path, tmp_path / "no package", shared, [])


def test_every_algorithm_backend_lane_and_kernel_has_a_case(tmp_path: Path, shared: Path, old_package: Path) -> None:
    listing = {"name": "algorithms", "words": ["algorithms", "--json"]}
    specs = run_jobs(tmp_path, old_package, shared, [listing])["algorithms"].json()
    wanted = {(spec["name"], lane) for spec in specs if "jax" in spec["backends"] for lane in ("host", "compiled")}
    wanted |= {(spec["name"], None) for spec in specs if "torch" in spec["backends"]}
    assert wanted - {(case["algo"], case.get("lane")) for case in CASES} == set()

    shows = [{"name": spec["name"], "words": ["config", "show", "--json", "--algo", spec["name"]]} for spec in specs]
    shown = run_jobs(tmp_path, old_package, shared, shows)
    choosing = {name for name, outcome in shown.items() if "kernel" in outcome.json()["hparams"]}
    assert choosing >= {"ppo", "dqn", "sac", "td3", "ddpg"}
    kernels = {(case["algo"], case.get("hparams.kernel", "auto")) for case in CASES if "lane" not in case}
    assert {(name, kernel) for name in choosing for kernel in ("auto", "reference")} - kernels == set()
