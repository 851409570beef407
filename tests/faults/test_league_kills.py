"""kill -9 of a run with a league, inside saves and at random moments: the same weights, members and Elo table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pytest
from fault_runs import ENVIRONMENTS, VECTORS, Reference, Shell, flags, latest_step, the_run
from test_kills import killed_at_random

from rl_training.assembly.multi_agent.matches import league_table
from rl_training.runs.directory import RunDir

KILLED = 128 + SIGKILL
LIVES = {
    "sync": ["write checkpoints/segments/* 3", "rename checkpoints/step_000000000256 1"],
    "workers": ["write checkpoints/*/env.safetensors 3", "rename checkpoints/latest 3"],
}


@pytest.mark.slow
@pytest.mark.parametrize("vector", VECTORS)
def test_killed_league_goes_on_as_if_nothing_had_happened(
    shell: Shell, folder: Path, reference: Callable[..., Reference], vector: str
) -> None:
    expected = reference("game")
    runs = folder / "runs"
    settings = {**ENVIRONMENTS["game"], **VECTORS[vector], "output_dir": runs, "checkpoint.keep_last": 2}
    words = ["train", *flags(settings)]
    for point in LIVES[vector]:
        assert shell.start(folder, words, fault=("kill", point)).wait() == KILLED, point
        if latest_step(the_run(runs)) >= 0:
            expected.assert_on_the_way(the_run(runs))
        words = ["resume", str(the_run(runs))]
    rng = np.random.default_rng(7)
    for _ in range(2):
        expected.assert_on_the_way(killed_at_random(shell, folder, words, runs, rng))
    expected.assert_finishes(shell, folder, the_run(runs))
    tables = [league_table(RunDir.open(run))["members"] for run in (expected.run, the_run(runs))]
    assert tables[0] == tables[1]
    assert sum(member.get("games", 0) for member in tables[0]) > 100
