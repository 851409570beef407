"""A run's memory does not grow with its length."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fault_runs import Shell

WARM = 50_000
TOTAL = 350_000
NO_HOLES = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Large blocks go back to the system at once: what is left is what the run holds, without the holes in the heap."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("words", "variables", "limit"),
    [
        (["ppo/cartpole"], {}, 1.0),
        (["ppo/lunarlander"], {}, 3.0),
        (["ppo/lunarlander"], NO_HOLES, 0.5),
        (["dqn/cartpole", "--hparams.updates_per_step=0.1"], {}, 1.0),  # its buffer is full at the 50,000th step
    ],
    ids=["cartpole", "lander", "lander without holes", "replay"],
)
def test_memory_stays_where_it_is(
    shell: Shell, folder: Path, words: list[str], variables: dict[str, str], limit: float
) -> None:
    """MB per 100,000 steps from the 50,000th on, with the preset's own evaluation, logs and checkpoints."""
    callbacks = [{"name": "memory_log:MemoryLog", "kwargs": {"path": str(folder / "memory")}}]
    settings = [f"--output_dir={folder}/runs", f"--training.total_timesteps={TOTAL}"]
    full = ["train", *words, *settings, f"--callbacks={json.dumps(callbacks)}"]
    command = shell.start_fresh(folder, full, variables)
    assert command.wait(900) == 0, command.err()
    steps, resident = np.loadtxt(folder / "memory").T
    warm = steps >= WARM
    growth = np.polyfit(steps[warm], resident[warm], 1)[0] * 100_000 / 2**20
    print(f"{words[0]}: {resident[-1] / 2**20:.0f} MB, growing by {growth:.2f} MB per 100,000 steps")
    assert warm.sum() > 60
    assert growth < limit
