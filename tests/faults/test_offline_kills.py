"""kill -9 of an offline run, of the online one that goes on from it, and of one that records: the same last bits."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from fault_runs import Reference, Shell, the_run

from rl_training.data.datasets.native import write_native
from rl_training.data.datasets.opening import open_dataset
from rl_training.eval import record
from rl_training.training.offline.recording import Amount

KILLED = 128 + SIGKILL
SMALL = ["--network.actor.hidden-dims=[16]", "--network.critic.hidden-dims=[16]", "--hparams.batch-size=16", "--seed=5"]
SAVING = ["--training.checkpoint-frequency=256", "--training.num-eval-episodes=1"]
POINTS = ["fsync checkpoints/*/algorithm.safetensors 2", "rename checkpoints/latest 2"]


def survives(shell: Shell, folder: Path, words: list[str], name: str) -> tuple[Path, Path]:
    """Run a command whole, and again with kills inside of saves: both end alike. Gives the two runs."""
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    whole = [*words, f"--output_dir={folder}/{name}-whole", "--checkpoint.keep_last=99"]
    shell.run(folder, ["train", *whole], variables=cache)
    expected = Reference.read(the_run(folder / f"{name}-whole"))
    command = ["train", *words, f"--output_dir={folder}/{name}"]
    for point in POINTS:
        ended = shell.start(folder, command, fault=("kill", point), variables=cache)
        assert ended.wait() == KILLED, f"{point}: {ended.err()}"
        expected.assert_on_the_way(the_run(folder / name))
        command = ["resume", str(the_run(folder / name))]
    expected.assert_finishes(shell, folder, the_run(folder / name))
    return the_run(folder / f"{name}-whole"), the_run(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "options"),
    [("iql", []), ("cql", ["--hparams.num-sampled=2"]), ("td3_bc", []), ("td3_bc", ["--backend=jax"])],
    ids=["iql", "cql", "td3_bc", "td3_bc-jax"],
)
def test_killed_offline_and_online(shell: Shell, folder: Path, algo: str, options: list[str]) -> None:
    data = write_native(record(None, Amount(steps=600), random_env="Pendulum-v1"), folder / "data")
    common = [f"--algo={algo}", f"--dataset={data}", "--env-id=Pendulum-v1", "--env.normalize-obs=true"]
    common += [*SMALL, *SAVING, *options]
    offline, _ = survives(shell, folder, [*common, "--total-updates=1024"], "offline")
    online = [*common, f"--init-from={offline}", "--total-timesteps=1024", "--env.num-envs=2"]
    survives(shell, folder, online, "online")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [["--algo=ppo", "--hparams.num-steps=64"], ["--algo=dqn"]], ids=["ppo", "dqn"])
def test_killed_while_recording(shell: Shell, folder: Path, settings: list[Any]) -> None:
    """The dataset of the resumed run has the SHA-256 of the uninterrupted one."""
    words = [*settings, "--env-id=CartPole-v1", "--seed=5", "--env.num-envs=2", "--total-timesteps=1024"]
    runs = survives(shell, folder, [*words, "--logging.record=true", *SAVING], "recorded")
    one, other = (open_dataset(run / "dataset") for run in runs)
    assert one.sha256 == other.sha256
    assert len(one) == 1024
