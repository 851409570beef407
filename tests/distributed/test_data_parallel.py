"""The same bits for any number of processes, with everything on; saved, stopped and resumed as one run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rank_cases import BASES, config, digest, ended, only_run, torchrun, written

from rl_training import DistributedTrainer, resume, train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.data.datasets.opening import open_dataset
from rl_training.distributed.ranks import Failure, Ranks, RankShards, gpu_hint
from rl_training.runs.directory import RunDir
from rl_training.system.launch import Launch
from rl_training.types import ConfigError, NonFiniteError


def trained(folder: Path, cfg: dict[str, Any], ranks: int) -> tuple[str, str]:
    """Digest of a run of this config with so many processes; one is without torchrun."""
    words = ["train", written(folder, cfg)]
    if ranks == 1:
        train(cfg, output_dir=str(folder / "runs"))
    else:
        ended(torchrun(words, ranks, folder))
    run = only_run(folder)
    assert run.info()["ranks"] == ranks
    assert run.info()["status"] == "finished"
    return digest(run)


def test_four_processes_train_the_run_of_one(tmp_path: Path) -> None:
    cfg = config("ppo", steps=768)
    assert trained(tmp_path / "one", cfg, 1) == trained(tmp_path / "four", cfg, 4)


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(BASES))
def test_every_algorithm_is_the_same_with_one_two_and_four(algo: str, tmp_path: Path) -> None:
    cfg = config(algo, steps=2048)
    assert len({trained(tmp_path / str(ranks), cfg, ranks) for ranks in (1, 2, 4)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "steps"), [("ppo", 100_000), ("sac", 20_000)])
def test_long_runs_are_the_same_with_one_two_and_four(algo: str, steps: int, tmp_path: Path) -> None:
    cfg = config(algo, steps=steps, hparams={"num_steps": 128} if algo == "ppo" else {})
    assert len({trained(tmp_path / str(ranks), cfg, ranks) for ranks in (1, 2, 4)}) == 1


SCRIPT = """
import json, os, sys
from rl_training import DistributedTrainer
trainer = DistributedTrainer(json.load(open("config.json")))
ranks = trainer.setup_distributed()
result = trainer.train(pause_at=int(sys.argv[1]))
line = f"rank {ranks.rank} of {ranks.count}: {result.exit_code} {result.run_dir.name}\\n"
os.write(1, line.encode())  # in one piece: both processes write to the same pipe
"""


def test_a_run_of_two_processes_goes_on_in_one(tmp_path: Path) -> None:
    cfg = config("sac", steps=768)
    written(tmp_path / "halved", cfg)
    (tmp_path / "halved" / "script.py").write_text(SCRIPT)
    out = ended(torchrun(["script.py", "384"], 2, tmp_path / "halved"))
    halved = only_run(tmp_path / "halved")
    assert sorted(line for line in out.splitlines() if line.startswith("rank")) == [
        f"rank {rank} of 2: 75 {halved.path.name}" for rank in (0, 1)
    ]
    assert resume(halved.path).exit_code == 0
    assert halved.info()["ranks"] == 1
    assert digest(halved) == trained(tmp_path / "whole", cfg, 1)


def test_a_run_of_one_process_goes_on_in_two_by_the_same_command(tmp_path: Path) -> None:
    cfg = config("ppo", steps=768)
    words = ["train", written(tmp_path, cfg), "--auto-resume"]
    halved = DistributedTrainer(cfg, output_dir=str(tmp_path / "runs")).train(pause_at=300).run_dir
    assert RunDir(halved).info()["status"] == "stopped"
    ended(torchrun([*words, "--output-dir", str(tmp_path / "runs")], 2, tmp_path))
    assert only_run(tmp_path).info()["ranks"] == 2
    assert digest(only_run(tmp_path)) == trained(tmp_path / "whole", cfg, 1)
    again = ended(torchrun([*words, "--output-dir", str(tmp_path / "runs")], 2, tmp_path))
    assert again.count("nothing to do") == 1


@pytest.mark.slow
def test_rows_of_replay_on_other_processes_are_written_once(tmp_path: Path) -> None:
    cfg = config("sac", steps=1024, training={"checkpoint_frequency": 256}, buffer={"size": 1024})
    ended(torchrun(["train", written(tmp_path, cfg)], 2, tmp_path))
    run = only_run(tmp_path)
    rows = CheckpointManager(run.path).load("latest", {"buffer"}).parts["buffer"]
    assert sorted(rows) == [f"shard_{number}" for number in range(4)]
    dataset = open_dataset(f"run:{run.path}")
    assert len(dataset) == 1024, "the rows of all shards"
    for shard in rows.values():
        segments = shard["rows"]._segments
        assert len(segments) > 1, "later checkpoints go on behind the rows of earlier ones"
        assert (shard["rows"].start, shard["rows"].stop) == (0, 256)


# -- stopping ---------------------------------------------------------------------------------------------------------


def ranks_of(process: Any) -> list[int]:
    """Process ids of the ranks that torchrun has started, in their order."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            variables = dict(
                item.split("=", 1) for item in (entry / "environ").read_text().split("\0") if item.count("=")
            )
        except (OSError, ValueError):
            continue
        if parent == process.pid and "RANK" in variables:
            found[int(variables["RANK"])] = int(entry.name)
    return [found[rank] for rank in sorted(found)]


def is_alive(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def stopped_by_a_signal(folder: Path, algo: str, number: int, ranks: int = 2) -> float:
    """Send a signal to the last rank of a run in progress; returns the seconds until all ranks had ended."""
    cfg = config(algo, steps=10**7, training={"num_eval_episodes": 0, "checkpoint_frequency": 0})
    process = torchrun(["train", written(folder, cfg)], ranks, folder)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in folder.glob("runs/*/logs/metrics.jsonl")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the run has not begun"
        time.sleep(0.1)
    pids = ranks_of(process)
    assert len(pids) == ranks
    began = time.monotonic()
    os.kill(pids[-1], number)
    while any(map(is_alive, pids)) and time.monotonic() < began + 60:
        time.sleep(0.02)
    seconds = time.monotonic() - began
    out, _ = process.communicate(timeout=60)
    assert seconds < 60, out
    return seconds


@pytest.mark.wall_clock
def test_a_signal_to_one_process_stops_all_and_saves(tmp_path: Path) -> None:
    assert stopped_by_a_signal(tmp_path, "ppo", signal.SIGTERM) < 5.0
    run = only_run(tmp_path)
    info = run.info()
    assert (info["status"], info["exit_code"]) == ("stopped", 143)
    rows = (run.logs / "metrics.jsonl").read_text().splitlines()
    saved = CheckpointManager(run.path).latest_step()
    assert saved == json.loads(rows[-1])["env_steps"], "the last step is saved"
    assert saved is not None
    assert resume(run.path, total_timesteps=saved + 512).exit_code == 0


@pytest.mark.wall_clock
@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(10))
@pytest.mark.parametrize(("algo", "number"), [("ppo", signal.SIGTERM), ("sac", signal.SIGKILL)])
def test_nothing_hangs_when_one_process_is_stopped_or_killed(
    algo: str, number: int, attempt: int, tmp_path: Path
) -> None:
    seconds = stopped_by_a_signal(tmp_path, algo, number, ranks=4 if attempt % 2 else 2)
    assert seconds < 5.0 if number == signal.SIGTERM else seconds < 15.0
    run = only_run(tmp_path)
    assert run.info()["status"] == ("stopped" if number == signal.SIGTERM else "failed")
    step = CheckpointManager(run.path).latest_step()
    assert step is not None
    assert resume(run.path, total_timesteps=step + 512).exit_code == 0


BROKEN_ENV = """
import gymnasium, numpy as np
from gymnasium.envs.classic_control import CartPoleEnv


class Broken(CartPoleEnv):
    resets = 0

    def __init__(self):
        super().__init__()
        self.steps = 0

    def step(self, action):
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps == 200 and self.fails:
            obs = np.full_like(obs, np.nan)
        return obs, reward, terminated, truncated, info

    def reset(self, *, seed=None, options=None):
        from rl_training.seeding import reset_seed

        if seed is not None and not hasattr(self, "fails"):
            self.fails = seed == reset_seed(0, 7, 0)
        return super().reset(seed=seed, options=options)
"""


def test_a_nan_of_one_process_ends_all_and_says_where(tmp_path: Path) -> None:
    cfg = config("ppo", steps=20_000, env_id="broken:Broken", training={"num_eval_episodes": 0})
    written(tmp_path, {**cfg, "training": {**cfg["training"], "checkpoint_frequency": 256}})
    (tmp_path / "broken.py").write_text(BROKEN_ENV)
    process = torchrun(["train", "config.json"], 2, tmp_path)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.count("error: rank 1: ") == 1, out
    assert "in shard 3, whose environment 0 is environment 6 of the run" in out
    run = only_run(tmp_path)
    assert run.info()["status"] == "failed"
    assert CheckpointManager(run.path).latest_step() == 1536, "the last one before the NaN, at step 200 of 8"


SLOW_ENV = """
import time
from gymnasium.envs.classic_control import CartPoleEnv


class Slow(CartPoleEnv):
    def step(self, action):
        time.sleep(0.005)
        return super().step(action)
"""


@pytest.mark.slow
def test_the_time_in_environments_falls_with_the_number_of_processes(tmp_path: Path) -> None:
    seconds = {}
    for ranks in (1, 2, 4):
        folder = tmp_path / str(ranks)
        cfg = config("ppo", steps=2048, env_id="slow:Slow", training={"num_eval_episodes": 0})
        words = ["train", written(folder, cfg)]
        (folder / "slow.py").write_text(SLOW_ENV)
        ended(torchrun(words, ranks, folder))
        seconds[ranks] = json.loads((only_run(folder).path / "metrics.json").read_text())["time/environment_seconds"]
    assert seconds[1] > 10.0, seconds
    assert seconds[1] / seconds[2] > 1.7, seconds
    assert seconds[1] / seconds[4] > 3.0, seconds


# -- refusals ---------------------------------------------------------------------------------------------------------

PPO = ["--algo=ppo", "--env.num-envs=8"]
REFUSED = {
    "it does not divide env.num_envs 8": [*PPO, "--training.shards=3"],
    "fewer than hparams.num_minibatches 4": [*PPO, "--training.shards=8", "--hparams.num-steps=2"],
    "it does not divide hparams.batch_size 30": ["--algo=dqn", "--training.shards=4", "--hparams.batch-size=30"],
    "algorithm 'reinforce' cannot learn in shards": ["--algo=reinforce", "--training.shards=2"],
    "shards are for backend: torch": [*PPO, "--training.shards=2", "--backend=jax"],
    "does not go with logging.record: true": [*PPO, "--training.shards=2", "--logging.record"],
    "is a game, whose opponents": [*PPO, "--training.shards=2", "--env-id=RLGame/TicTacToe-v0"],
    "does not go with env.overlap: true": [*PPO, "--training.shards=2", "--env.overlap"],
    "does not go with hparams.exploration": [*PPO, "--training.shards=2", "--hparams.exploration.type=rnd"],
    "networks with memory learn from sequences": [
        "--algo=dqn",
        "--training.shards=2",
        "--network.critic.memory.type=gru",
        "--env-id=CartPole-v1",
    ],
}


@pytest.mark.parametrize("message", sorted(REFUSED))
def test_what_cannot_be_is_refused_before_anything_starts(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *REFUSED[message]]) == 2
    said = capsys.readouterr().err
    assert message in " ".join(said.split())
    assert len(said.splitlines()) <= 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*PPO, "--training.shards=4"], "3 processes, which do not divide training.shards 4"),
        ([*PPO], "3 processes, which do not divide training.shards 1"),
        ([*PPO, "--backend=jax"], "3 processes for a run with backend: jax"),
        ([*PPO, "--seed=1,2,3"], "start it for one seed at a time"),
    ],
)
def test_processes_that_cannot_share_a_run_are_refused_once(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for rank, says in ((0, True), (2, False)):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        assert main(["train", *words]) == 2
        assert (message in " ".join(capsys.readouterr().err.split())) is says
    assert list(tmp_path.iterdir()) == []


# -- parts ------------------------------------------------------------------------------------------------------------


def test_several_gpus_are_named_with_the_command_that_uses_them() -> None:
    assert gpu_hint(4, 1, ["train"]) is None
    assert "torchrun --nproc-per-node 2 -m rl_training train x.yaml" in str(gpu_hint(4, 3, ["train", "x.yaml"]))
    assert str(gpu_hint(1, 2, [])).endswith("train ... --training.shards 2")


def test_shards_are_spread_in_order() -> None:
    shards = RankShards(Ranks(Launch(rank=1, ranks=2)), 6)
    assert list(shards.own) == [3, 4, 5]
    assert [shards.owner(number) for number in range(6)] == [0, 0, 0, 1, 1, 1]


def test_errors_keep_their_kind_on_their_way() -> None:
    told = Failure.of(2, NonFiniteError("obs is nan", "obs")).error()
    assert isinstance(told, NonFiniteError)
    assert (str(told), told.name) == ("rank 2: obs is nan", "obs")
    assert isinstance(Failure.of(1, ConfigError("no")).error(), ConfigError)
    assert "ZeroDivisionError" in str(Failure.of(0, ZeroDivisionError("by 0")).error())
