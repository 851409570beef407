"""kill -9 and SIGTERM in the compiled lane: resumed to the end, the run is the uninterrupted one, replay included."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from fault_runs import Reference, Shell, flags, the_run

KILLED, STOPPED = 128 + SIGKILL, 143
REPLAY = {"hparams.learning_starts": 64, "hparams.batch_size": 16, "buffer.size": 600}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"env_id": "CartPole-v1"},
    "dqn": {"env_id": "CartPole-v1", "hparams.n_step": 3, **REPLAY},
    "sac": {"env_id": "Pendulum-v1", **REPLAY},
}


@pytest.mark.slow
@pytest.mark.parametrize("algo", SETTINGS)
def test_killed_inside_a_save_and_stopped(shell: Shell, folder: Path, algo: str) -> None:
    small = {"algo": algo, "backend": "jax", "lane": "compiled", "network.actor.hidden_dims": "[16]"}
    words = flags(small, {**SETTINGS[algo], "training.checkpoint_frequency": 256})
    if algo != "ppo":
        words = [word for word in words if not word.startswith("--hparams.num_")]
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    whole = [*words, f"--output_dir={folder}/whole", "--checkpoint.keep_last=9"]
    shell.run(folder, ["train", *whole], variables=cache)
    expected = Reference.read(the_run(folder / "whole"))
    command = ["train", *words, f"--output_dir={folder}/runs"]
    faults = [("kill", "fsync checkpoints/*/algorithm.safetensors 2"), ("kill", "rename checkpoints/latest 2")]
    for kind, point in [*faults, ("stop", "rename checkpoints/latest 1")]:
        ended = shell.start(folder, command, fault=(kind, point), variables=cache)
        assert ended.wait() == (KILLED if kind == "kill" else STOPPED), f"{point}: {ended.err()}"
        expected.assert_on_the_way(the_run(folder / "runs"))
        command = ["resume", str(the_run(folder / "runs"))]
    expected.assert_finishes(shell, folder, the_run(folder / "runs"))
