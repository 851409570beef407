"""What was typed becomes entries: runs, groups, sweeps, filters, and runs split by a key."""

from __future__ import annotations

import doctest
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from comparison_cases import scored_run, two_algorithms
from run_cases import fake_run

from rl_training.config.schema import TrainConfig
from rl_training.config.searches.sweeps import SweepConfig
from rl_training.experiments.analysis import entries
from rl_training.experiments.analysis.entries import find_entries
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.types import ConfigError, RunError


def labels(found: entries.Selection) -> list[tuple[str, int]]:
    return [(entry.label, len(entry.runs)) for entry in found.entries]


def test_runs_and_filters_are_one_entry_each(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    named = fake_run(tmp_path, 70, name="my run", status="failed")
    found = find_entries([named, "algorithm=a2c", "seed<2 and algorithm=ppo"], tmp_path)
    assert labels(found) == [("my run", 1), ("algorithm=a2c", 4), ("seed<2 and algorithm=ppo", 2)]
    assert found.notes == ()


def test_split_by_keys(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    everything = ["seed<9", "algorithm=ppo"]  # a run that is named twice counts once
    assert labels(find_entries(everything, tmp_path, by=["algo"])) == [("ppo", 4), ("a2c", 4)]
    assert labels(find_entries(everything, tmp_path, by=["algo", "hparams.gamma"])) == [
        ("ppo, gamma=0.99", 4), ("a2c, gamma=0.99", 4),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="unknown key 'algos'"):
        find_entries(everything, tmp_path, by=["algos"])


def test_of_several_only_finished_ones_count(tmp_path: Path) -> None:
    scored_run(tmp_path, 1, [1.0, 2.0, 3.0])
    fake_run(tmp_path, 2, status="failed")
    found = find_entries(["algorithm=ppo"], tmp_path)
    assert (labels(found), found.notes) == ([("algorithm=ppo", 1)], ("algorithm=ppo: 1 of 2 runs are not finished",))
    assert labels(find_entries(["algorithm=ppo"], tmp_path, unfinished=True)) == [("algorithm=ppo", 2)]
    with pytest.raises(RunError, match="no finished run in status=failed; --unfinished takes the others"):
        find_entries(["status=failed"], tmp_path)


def test_groups_and_sweeps(tmp_path: Path) -> None:
    cfg = TrainConfig(algo="ppo", name="many", output_dir=str(tmp_path))
    group = SeedGroup.create(cfg, [0, 1])
    for seed in (0, 1):
        fake_run(tmp_path, seed, group=group.info.id)
    sweep = Sweep.create(
        SweepConfig(base_config="ppo/cartpole", sweep={"hparams.learning_rate": [0.1, 0.01]}, seeds=[5]),
        overrides={"output_dir": str(tmp_path)},
    )
    for trial in (0, 1):
        fake_run(tmp_path, 10 + trial, seed=5, group=f"{sweep.info.id}/trial_00{trial}", sweep=sweep.info.id)
    found = find_entries(["many", sweep.path], tmp_path)
    assert labels(found) == [("many", 2), ("learning_rate=0.1", 1), ("learning_rate=0.01", 1)]
    assert [run.path.name.split("__")[2] for entry in found.entries for run in entry.runs] == [
        "seed0", "seed1", "seed5", "seed5",
    ]  # fmt: skip


def test_labels_are_distinct_and_harmless(tmp_path: Path) -> None:
    hostile = "<script>\x1b[31m\n\u202e../../etc"
    for number in (1, 2):
        fake_run(tmp_path, number, name=hostile)
    found = find_entries(sorted(tmp_path.iterdir()), tmp_path)
    assert [entry.label for entry in found.entries] == ["<script>?[31m??../../etc", "<script>?[31m??../../etc (2)"]


def test_what_is_nothing_of_these_is_refused(tmp_path: Path) -> None:
    fake_run(tmp_path)
    with pytest.raises(RunError, match="no run 'nothing' in"):
        find_entries(["nothing"], tmp_path)
    with pytest.raises(RunError, match="passes the filter 'algorithm=sac'"):
        find_entries(["algorithm=sac"], tmp_path)
    with pytest.raises(ConfigError, match="cannot read the filter"):
        find_entries(["algorithm=ppo and"], tmp_path)


def test_a_run_elsewhere_needs_no_index(tmp_path: Path) -> None:
    run = fake_run(tmp_path / "elsewhere", reward=3.0)
    found = find_entries([run], tmp_path / "runs")
    assert found.entries[0].runs[0].row["reward"] == 3.0
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [run.name]
    assert json.dumps(asdict(found.entries[0]), default=str)


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(entries).failed == 0
