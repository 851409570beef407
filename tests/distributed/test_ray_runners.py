"""Environments in actors of a real Ray cluster: equal for 1, 2 and 4 runners, after a kill, and resumed with another
number; nothing is left in the object store, and no process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import finished, rl

from rl_training.distributed.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

SCRIPT = '''
import json, os, signal, sys, time, warnings
import numpy as np
import psutil
import ray

from rl_training import Callback, resume, train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.distributed.local_node import keep_loopback
from rl_training.runs.directory import metrics_sha256

warnings.simplefilter("ignore")
output_dir = sys.argv[1]
COMMON = {
    "env_id": "CartPole-v1",
    "seed": 5,
    "output_dir": output_dir,
    "logging": {"terminal": False, "tensorboard": False},
}
CASES = {
    "ppo": {"algo": "ppo", "hparams": {"num_steps": 16, "num_epochs": 2}, "env": {"normalize_obs": True},
            "training": {"total_timesteps": 384, "num_eval_episodes": 2, "eval_frequency": 128}},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", "hparams": {"learning_starts": 256, "updates_per_step": 0.1},
            "buffer": {"size": 2000}, "training": {"total_timesteps": 768, "num_eval_episodes": 0}},
    "dqn": {"algo": "dqn", "hparams": {"learning_starts": 256, "n_step": 3, "updates_per_step": 0.1, "batch_size": 16},
            "buffer": {"size": 2000}, "training": {"total_timesteps": 768, "num_eval_episodes": 0}},
}
pids, in_store = [], []


class Watch(Callback):
    """Remembers the processes of runners; at `kill_at` updates ends one, at `stop_at` stops the run."""

    def __init__(self, kill_at=None, stop_at=None):
        self.kill_at, self.stop_at = kill_at, stop_at

    def on_step(self, trainer, report):
        runners = trainer.collector.fleet.pool.pids
        in_store.append(stored())
        pids.extend(runners)
        if self.kill_at is not None and report.after.env_steps >= self.kill_at:
            self.kill_at = None
            os.kill(runners[-1], signal.SIGKILL)
        if self.stop_at is not None and report.after.env_steps >= self.stop_at:
            trainer.request_stop("here", interrupted=True)


def found(result):
    parts = CheckpointManager(result.run_dir).load_latest().parts
    import hashlib
    digest = hashlib.sha256()
    def add(value, path):
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], path + "/" + key)
        elif isinstance(value, np.ndarray):
            digest.update(path.encode() + value.tobytes())
        elif hasattr(value, "arrays"):
            add(dict(value.arrays()), path)
    for name in ("policy", "algorithm", "collector", "env"):
        add(parts[name], name)
    return {"state": digest.hexdigest(), "metrics": metrics_sha256(result.run_dir / "logs" / "metrics.jsonl")}


def run(case, runners, **callback):
    sections = CASES[case]
    env = {"num_envs": 4, "collector": "ray", "runners": runners, **sections.get("env", {})}
    return train({**COMMON, **sections, "env": env}, callbacks=[Watch(**callback)])


def stored():
    """Objects in the stores of all nodes, and their bytes."""
    from ray._private import internal_api
    address = ray.get_runtime_context().gcs_address
    stats = internal_api.get_memory_info_reply(internal_api.get_state_from_address(address)).store_stats
    return [stats.num_local_objects, stats.object_store_bytes_used]


out = {"exact": {}}
for case in sys.argv[2:]:
    half = CASES[case]["training"]["total_timesteps"] // 2
    undisturbed = run(case, 1)
    stopped = run(case, 2, kill_at=half // 2, stop_at=half)
    assert stopped.stop_reason == "here"
    resumed = resume(stopped.run_dir, runners=4, callbacks=[Watch()])
    out[case] = [found(undisturbed), found(resumed)]
    out["exact"][case] = json.loads((stopped.run_dir / "run.json").read_text())["exact"]
late = {**COMMON, "algo": "impala", "hparams": {"num_steps": 8},
        "training": {"total_timesteps": 256, "num_eval_episodes": 0},
        "env": {"num_envs": 4, "collector": "ray", "runners": 2, "collection": "async"}}
late = train(late, callbacks=[Watch()])
out["late"] = str(late.run_dir)
out["lag"] = max(json.loads(line).get("rollout/policy_lag_max", 0)
                 for line in (late.run_dir / "logs" / "metrics.jsonl").read_text().splitlines())
deadline = time.monotonic() + 15
while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
    time.sleep(0.1)
out["started"] = len(set(pids))
out["alive"] = [pid for pid in set(pids) if psutil.pid_exists(pid)]
out["connected"] = ray.is_initialized()
out["during"] = max(count for count, _ in in_store)
keep_loopback()
ray.init(address=os.environ["CLUSTER"], _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="error")
while (left := stored()) != [0, 0] and time.monotonic() < deadline + 15:
    time.sleep(0.2)
out["left"] = left
print(json.dumps(out))
'''


def results(cluster: LocalCluster, folder: Path, *cases: str) -> dict[str, Any]:
    """All runs, in one process, as a script of a user would start them."""
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(cluster.folder.parent), *cases],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "CLUSTER": str(cluster.address())},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def equal(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results(cluster, tmp_path_factory.mktemp("runners"), "ppo")


def test_one_runner_and_two_of_which_one_is_killed_and_then_four_are_one_run(equal: dict[str, Any]) -> None:
    """Weights, optimiser, random streams, environments and metric rows; the kill and the resume leave no trace."""
    assert equal["exact"] == {"ppo": True}
    assert equal["ppo"][0] == equal["ppo"][1]
    assert equal["started"] == 1 + 2 + 1 + 4 + 2  # one was replaced; the last two collected asynchronously


def test_asynchronous_collection_says_that_it_is_not_exact(equal: dict[str, Any], tmp_path: Path) -> None:
    assert equal["lag"] >= 1
    shown = finished(rl(["show", equal["late"]], tmp_path))
    assert "exact         false" in shown
    refused = finished(rl(["verify", equal["late"]], tmp_path), code=1)
    assert "env.collection: async, which cannot be repeated bit for bit" in refused


def test_no_process_and_no_connection_is_left(equal: dict[str, Any]) -> None:
    assert equal["alive"] == []
    assert equal["connected"] is False


def test_nothing_is_left_in_the_object_store(equal: dict[str, Any]) -> None:
    """While a run goes on, weights and deliveries of a few rollouts are there; afterwards nothing."""
    assert equal["during"] <= 40
    assert equal["left"] == [0, 0]


@pytest.mark.slow
def test_blocks_for_replay_are_the_same_for_any_number_of_runners(cluster: LocalCluster, tmp_path: Path) -> None:
    found = results(cluster, tmp_path, "dqn", "sac")
    for case in ("dqn", "sac"):
        assert found[case][0] == found[case][1]


def test_without_the_extra_the_message_names_the_pip_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['ray'] = None\n"
        "from rl_training.cli import main\n"
        "sys.exit(main(['train', 'ppo/cartpole', '--env.collector', 'ray', '--output-dir', 'runs']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "env.collector: ray needs an extra: pip install 'rl-training[ray]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def learnt(cluster: LocalCluster, folder: Path, preset: str, seed: int, *words: str) -> float:
    """Mean return of 100 greedy episodes after a run on the cluster."""
    runs = cluster.folder.parent
    flags = [f"--seed={seed}", f"--output-dir={runs}", "--training.num-eval-episodes=0", "--json", *words]
    out = finished(rl(["train", preset, *flags], folder), seconds=1500)
    run = json.loads(out[out.index("{") :])["run"]
    out = finished(rl(["eval", run, "--episodes=100", "--json"], folder))
    return float(json.loads(out[out.index("{") :])["return_mean"])


@pytest.mark.slow
@pytest.mark.learning
def test_impala_solves_cartpole_with_runners_that_do_not_wait(cluster: LocalCluster, tmp_path: Path) -> None:
    words = ("--env.collector=ray", "--env.collection=async", "--env.runners=2")
    assert learnt(cluster, tmp_path, "impala/cartpole", 0, *words) >= 475


@pytest.mark.slow
@pytest.mark.learning
def test_ape_x_solves_cartpole(cluster: LocalCluster, tmp_path: Path) -> None:
    assert learnt(cluster, tmp_path, "dqn/ape_x_cartpole", 0) >= 475
