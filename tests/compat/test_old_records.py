"""What else the old code leaves on a disk: groups of seeds, sweeps, archives and captured updates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compat_cases import CARTPOLE, EPOCHS, rollouts
from compat_runs import TODAY, Played, differences, run_jobs, run_named

from rl_training.checkpointing import CheckpointManager

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEEDS = (1, 2)
SINGLE = rollouts("single", "ppo", EPOCHS, CARTPOLE, {"monitor.debug.enabled": True, "monitor.debug.capture_update": 2})
MEMBER = rollouts("member", "ppo", EPOCHS, CARTPOLE)
TRIALS = {"base_config": "configs/trial.yaml", "sweep": {"hparams.learning_rate": [1e-3, 3e-3]}}


@pytest.fixture(scope="session")
def records(played_once: Callable[..., Played], shared: Path, old_package: Path) -> Played:
    def make(folder: Path) -> Played:
        old = run_jobs(folder, old_package, shared, making(folder))
        old |= run_jobs(folder, old_package, shared, [replaying(folder)])
        for outcome in old.values():
            assert outcome.code == 0, f"the old code cannot {outcome.name}:\n{outcome.err}"
        shutil.copytree(folder / "runs", folder / "whole")
        (group,) = (folder / "runs" / "groups").iterdir()
        cut_back(run_of_seed(folder / "runs", SEEDS[-1]), MEMBER.half)
        return Played(folder, old, run_jobs(folder, TODAY, shared, taking_over(folder, group)))

    return played_once("records", make)


def making(folder: Path) -> list[dict[str, Any]]:
    """Commands of the old code."""
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "modules").mkdir(exist_ok=True)
    for name, config in {
        "single": SINGLE.config,
        "member": MEMBER.config,
        "trial": {**MEMBER.config, "name": "trial"},
        "trials": TRIALS,
    }.items():
        (folder / "configs" / f"{name}.yaml").write_text(json.dumps(config))
    commands = {
        "train": ["train", "configs/single.yaml"],
        "archive": ["archive", "single", "--output", "single.tar.gz"],
        "train a group": ["train", "configs/member.yaml", "--seed", ",".join(map(str, SEEDS)), "--jobs", "1"],
        "sweep": ["sweep", "configs/trials.yaml", "--jobs", "1"],
        "evaluate": ["eval", "single", "--json", "--episodes", "2"],
        "show the group": ["show", "latest-group", "--json"],
        "show the sweep": ["show", "latest-sweep", "--json"],
    }
    return [job(name, words) for name, words in commands.items()]


def taking_over(folder: Path, group: Path) -> list[dict[str, Any]]:
    """Commands of today's code, after one run of the group was cut back."""
    commands = {
        "show the sweep": ["show", "latest-sweep", "--json"],
        "verify the sweep": ["verify", "latest-sweep", "--json"],
        "resume the sweep": ["resume", "latest-sweep", "--json"],
        "resume the group": ["resume", str(group), "--json"],
        "show the group": ["show", str(group), "--json"],
        "verify the group": ["verify", str(group), "--json"],
    }
    imported = ["--output-dir", "imported"]
    return [
        *(job(name, words) for name, words in commands.items()),
        replaying(folder),
        {"name": "import", "words": ["import", "single.tar.gz", *imported]},
        {"name": "evaluate", "words": ["eval", "single", "--json", "--episodes", "2", *imported]},
    ]


def replaying(folder: Path) -> dict[str, Any]:
    """Run the update again that the old code has captured."""
    (capture,) = (folder / "runs").glob("*/debug/*.capture")
    return {"name": "replay", "words": ["debug", "replay", str(capture), "--json"]}


def job(name: str, words: list[str]) -> dict[str, Any]:
    return {"name": name, "words": [*words, "--output-dir", "runs"]}


def cut_back(run: Path, step: int) -> None:
    """Leave of a finished run what `kill -9` would have left some time after the checkpoint of `step`."""
    checkpoints = run / "checkpoints"
    for folder in checkpoints.glob("step_*"):
        if int(folder.name.removeprefix("step_")) > step:
            shutil.rmtree(folder)
    (checkpoints / "latest").write_text(f"step_{step:012d}\n")
    (run / "metrics.json").unlink()
    record = json.loads((run / "run.json").read_text())
    record |= {"status": "running", "ended": None, "exit_code": None, "metrics_sha256": None}
    (run / "run.json").write_text(json.dumps(record))


def run_of_seed(folder: Path, seed: int) -> Path:
    """The run of the group with this seed."""
    records = {path.parent: json.loads(path.read_text()) for path in folder.glob("*/run.json")}
    (run,) = [run for run, record in records.items() if (record["name"], record["seed"]) == ("member", seed)]
    return run


def test_the_group_and_the_sweep_show_the_same_results(records: Played) -> None:
    for what in ("show the group", "show the sweep"):
        assert without_clock(records.today[what].json()) == without_clock(records.old[what].json())


def without_clock(tree: Any) -> Any:
    """A summary without what depends on the clock: when members started and ended, and how long they took."""
    if isinstance(tree, dict):
        clock = ("time/", "system/", "started", "ended", "seconds", "attempts")
        return {key: without_clock(value) for key, value in tree.items() if not key.startswith(clock)}
    return [without_clock(value) for value in tree] if isinstance(tree, list) else tree


def test_a_run_of_a_group_that_was_cut_off_reaches_the_same_end(records: Played) -> None:
    assert records.today["resume the group"].code == 0, records.today["resume the group"].err
    for seed in SEEDS:
        run, whole = (run_of_seed(records.folder / place, seed) for place in ("runs", "whole"))
        assert CheckpointManager(run).latest_step() == MEMBER.total
        assert differences(whole, run) == []


def test_a_finished_sweep_has_nothing_left_to_do(records: Played) -> None:
    assert records.today["resume the sweep"].code == 0, records.today["resume the sweep"].err
    for place in ("runs", "whole"):
        assert len(list((records.folder / place).glob("*/run.json"))) == 1 + len(SEEDS) + 2


@pytest.mark.parametrize("what", ["verify the group", "verify the sweep"])
def test_every_run_of_the_group_and_the_sweep_is_verified(records: Played, what: str) -> None:
    report = records.today[what].json()
    assert report["reproduced"], report["runs"]
    assert len(report["runs"]) == 2


def test_an_archive_is_imported_and_played_without_being_asked(records: Played) -> None:
    assert records.today["import"].code == 0, records.today["import"].err
    run, again = records.old["evaluate"].json(), records.today["evaluate"].json()
    assert run_named(records.folder / "imported", "single").name == Path(again["run"]).name
    assert {**again, "run": None} == {**run, "run": None}


def test_a_captured_update_ends_as_it_did(records: Played) -> None:
    old = records.old["replay"].json()
    assert old["metrics"]["loss"] > 0.0
    assert records.today["replay"].json() == old
