"""kill -9 of runs with several agents: resumed to the end, the run is the uninterrupted one, agents' lives included."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from fault_runs import Reference, Shell, flags, the_run

KILLED = 128 + SIGKILL
REPLAY = {"hparams.learning_starts": 64, "hparams.batch_size": 16, "buffer.size": 600}
SETTINGS: dict[str, dict[str, Any]] = {
    "ippo": {"env_id": "mpe2/simple_spread_v3"},
    "mappo": {"env_id": "RLTeam/Leaving-v0", "env.agents.policies": '{early: ["agent_[01]"], late: [agent_2]}'},
    "qmix": {"env_id": "RLTeam/Leaving-v0", "env.agents.reward": "team_mean", **REPLAY},
}


@pytest.mark.slow
@pytest.mark.parametrize("algo", SETTINGS)
def test_killed_inside_saves(shell: Shell, folder: Path, algo: str) -> None:
    words = flags({"algo": algo, "network.critic.hidden_dims": "[16]"}, SETTINGS[algo])
    if algo == "qmix":
        words = [word for word in words if not word.startswith("--hparams.num_")]
    shell.run(folder, ["train", *words, f"--output_dir={folder}/whole", "--checkpoint.keep_last=9"])
    expected = Reference.read(the_run(folder / "whole"))
    command = ["train", *words, f"--output_dir={folder}/runs"]
    for point in ("fsync checkpoints/*/algorithm.safetensors 2", "rename checkpoints/latest 2"):
        ended = shell.start(folder, command, fault=("kill", point))
        assert ended.wait() == KILLED, f"{point}: {ended.err()}"
        expected.assert_on_the_way(the_run(folder / "runs"))
        command = ["resume", str(the_run(folder / "runs"))]
    expected.assert_finishes(shell, folder, the_run(folder / "runs"))
