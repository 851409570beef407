"""Debug mode: statistics worked out by hand, a NaN that is found, named and replayed, and a run that stays the same."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.capture import load_capture, save_capture
from rl_training.checkpointing.safetensors_format import blob_chunks
from rl_training.checkpointing.state_tree import dump_json
from rl_training.cli import main
from rl_training.config.loading import parse_config
from rl_training.config.monitor import DebugConfig
from rl_training.monitoring.debug_mode import DebugMode, snapshot
from rl_training.runs.directory import metrics_sha256
from rl_training.types import CheckpointError, NonFiniteError, UpdateResult

BASE: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 2},
    "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 1},
    "training": {"total_timesteps": 64, "num_eval_episodes": 0},
    "logging": {"terminal": False, "tensorboard": False},
}
REPLAY = {"learning_starts": 32, "batch_size": 16, "updates_per_step": 0.5}


class Toy:
    """One linear layer with a ReLU, moved by SGD: every number can be worked out."""

    def __init__(self) -> None:
        self.networks = {"net": nn.Sequential(nn.Linear(2, 4, bias=False), nn.ReLU())}
        self.optimizers = {"net": torch.optim.SGD(self.networks["net"].parameters(), lr=0.1)}
        weights = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -2.0]]  # positive inputs: the last two units are dead
        self.networks["net"][0].weight.data = torch.tensor(weights)
        self.policy = self

    def update(self, batch: dict[str, Any]) -> UpdateResult:
        self.optimizers["net"].zero_grad()
        loss = self.networks["net"](torch.from_numpy(batch["obs"])).sum(1).mean()
        loss.backward()
        self.optimizers["net"].step()
        return UpdateResult({"loss": loss.detach()})

    def state_dict(self) -> dict[str, Any]:
        return {name: value.numpy().copy() for name, value in self.networks["net"].state_dict().items()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.networks["net"].load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})


OBS = np.array([[3.0, 4.0], [1.0, 2.0]], np.float32)


def test_statistics_and_hints_are_those_by_hand() -> None:
    mode = DebugMode(Toy())  # type: ignore[arg-type]
    result = mode.wrap_update()({"obs": OBS})
    assert float(result.metrics["loss"]) == 5.0  # ((3 + 4) + (1 + 2)) / 2
    gradient = math.sqrt(2 * (2.0**2 + 3.0**2))  # rows 0 and 1 get the mean observation (2, 3), the dead ones nothing
    assert mode.statistics == pytest.approx(
        {
            "net.0.weight/grad_norm": gradient,
            "net.0.weight/weight_norm": math.sqrt(7.0),
            "net.0.weight/update_norm": 0.1 * gradient,
            "net.0.weight/update_ratio": 0.1 * gradient / math.sqrt(7.0),
            "net.1/dead_share": 0.5,
        }
    )
    dead, large = sorted(mode.hints(), key=lambda hint: "moves" in hint)
    assert dead.startswith("net.1: 50% of its units are 0 for every row")
    assert large.startswith("net.0.weight: an update moves it by 19% of its size")


def test_the_first_bad_module_is_named_and_the_state_before_is_saved(tmp_path: Path) -> None:
    toy = Toy()
    toy.networks["net"][0].weight.data[1, 1] = 1e38
    mode = DebugMode(toy, tmp_path)  # type: ignore[arg-type]
    before = snapshot(toy)  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match=r"output of net\.0 \(Linear\); replay it with `rl debug replay .*000001"):
        mode.wrap_update()({"obs": 100 * OBS})
    (path,) = mode.captured
    captured = load_capture(path)
    np.testing.assert_array_equal(captured["batch"]["obs"], 100 * OBS)
    np.testing.assert_array_equal(captured["policy"]["0.weight"], before["policy"]["0.weight"])
    assert "train/loss is not finite" in captured["why"]


def test_a_capture_survives_and_strangers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.capture"
    state = {"batch": {"obs": OBS, "valid": np.array([True])}, "nothing": np.empty((0, 3)), "why": "é", "n": 2**70}
    save_capture(path, state)
    loaded = load_capture(path)
    assert (loaded["why"], loaded["n"], loaded["nothing"].shape) == ("é", 2**70, (0, 3))
    np.testing.assert_array_equal(loaded["batch"]["obs"], OBS)
    for damaged in (b"", b"hello", path.read_bytes()[:-1], path.read_bytes().replace(b"$meta", b"$mete")):
        (tmp_path / "b.capture").write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_capture(tmp_path / "b.capture")
    assert main(["debug", "replay", str(tmp_path / "none")]) == 2


def test_a_capture_is_checked_before_there_is_memory_for_it(tmp_path: Path) -> None:
    path, size = tmp_path / "a.capture", 32 * 2**20
    save_capture(path, {"batch": np.zeros(size, np.uint8), "last": np.zeros(8)})
    data = bytearray(path.read_bytes())
    assert load_capture(path)["batch"].nbytes == size
    data[size // 2] ^= 1
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="checksum differs"):
            load_capture(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2


def test_a_capture_that_is_no_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(CheckpointError):
            load_capture(path)


def test_a_capture_without_a_checksum_is_still_read(tmp_path: Path) -> None:
    """Captures of 0.1.0 have none."""
    meta = dump_json({"scalars": {"n": 1}, "aliases": {}, "dtypes": {}})
    blob = b"".join(map(bytes, blob_chunks({"$meta": np.frombuffer(meta, np.uint8)})))
    (tmp_path / "old.capture").write_bytes(blob)
    assert load_capture(tmp_path / "old.capture") == {"n": 1}


@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn", "sac", "td3"])
def test_the_gradients_of_every_kind_of_algorithm_agree(algo: str) -> None:
    """Both kinds of kernel, shared and several losses, an actor through a frozen critic."""
    env = "Pendulum-v1" if algo in ("sac", "td3") else "CartPole-v1"
    hparams = {"ppo": BASE["hparams"], "a2c": {"num_steps": 16}}.get(algo, {**REPLAY, "learning_starts": 0})
    trainer = build_trainer(parse_config({**BASE, "algo": algo, "env_id": env, "hparams": hparams, "buffer": {}}))
    batches: list[Any] = []
    update = trainer.algorithm.update
    trainer.algorithm.update = lambda batch: batches.append(batch) or update(batch)  # type: ignore[method-assign]
    trainer.train_step()
    trainer.close()
    trainer.algorithm.update = update  # type: ignore[method-assign]
    before = snapshot(trainer.algorithm)
    checks = DebugMode(trainer.algorithm).check_gradients(batches[-1])
    said = [check for check in checks if check.differences is not None]
    assert {check.loss for check in said} >= ({0, 1} if algo == "sac" else {0})
    assert len(said) >= 8
    assert [check for check in said if not check.ok] == []
    after = snapshot(trainer.algorithm)
    assert json.dumps(before, default=lambda a: a.tolist()) == json.dumps(after, default=lambda a: a.tolist())


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_debug_mode_changes_nothing(algo: str, tmp_path: Path) -> None:
    hparams = BASE["hparams"] if algo == "ppo" else REPLAY
    plain = {**BASE, "algo": algo, "hparams": hparams, "output_dir": str(tmp_path)}
    debug = {"enabled": True, "gradient_check": True, "capture_update": 2, "memory": True}
    runs = [rl_training.train(cfg).run_dir for cfg in (plain, {**plain, "monitor": {"debug": debug}})]
    assert len({metrics_sha256(run / "logs" / "metrics.jsonl") for run in runs}) == 1
    folder = runs[1] / "debug"
    rows = [json.loads(line) for line in (folder / "layers.jsonl").read_text().splitlines()]
    assert [row["updates"] for row in rows] == list(range(1, len(rows) + 1))
    assert any(name.endswith("/update_ratio") for name in rows[0])
    report = json.loads((folder / "report.json").read_text())
    assert all(check["ok"] for check in report["gradient_checks"])
    assert "largest growth first" in (folder / "memory.txt").read_text()
    assert "environment: no problems found" in (runs[1] / "logs" / "train.log").read_text()


def test_a_captured_update_replays_to_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = {**BASE, "output_dir": str(tmp_path), "monitor": {"debug": {"enabled": True, "capture_update": 2}}}
    run = rl_training.train(cfg).run_dir
    path = run / "debug" / "update_000002.capture"
    assert main(["debug", "replay", str(path), "--gradient-check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    row = json.loads((run / "logs" / "metrics.jsonl").read_text().splitlines()[1])
    assert {f"train/{name}": value for name, value in report["metrics"].items()}.items() <= row.items()
    assert report["reproduced"]
    assert all(check["ok"] for check in report["gradient_checks"])
    assert main(["debug", "replay", str(path)]) == 0
    assert "network.actor.layers.0.weight" in capsys.readouterr().out


def test_a_nan_in_a_run_is_captured_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = {**BASE, "output_dir": str(tmp_path), "monitor": {"debug": {"enabled": True, "profile": True}}}
    hparams = {**BASE["hparams"], "learning_rate": 1e30, "max_grad_norm": None, "num_minibatches": 2}
    with pytest.raises(NonFiniteError, match="rl debug replay"):
        rl_training.train({**cfg, "hparams": hparams})
    (path,) = tmp_path.glob("ppo__*/debug/update_*.capture")
    assert main(["debug", "replay", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failed_before"]
    assert "it shows first as train/value_loss" in report["error"]


def test_the_profile_is_a_trace_that_browsers_open(tmp_path: Path) -> None:
    debug = {"enabled": True, "profile": True}
    cfg = {**BASE, "output_dir": str(tmp_path), "monitor": {"debug": debug}}
    run = rl_training.train({**cfg, "training": {"total_timesteps": 128, "num_eval_episodes": 0}}).run_dir
    trace = json.loads((run / "debug" / "trace.json").read_text())
    assert any("aten::" in str(event.get("name")) for event in trace["traceEvents"])
    assert "aten::" in (run / "debug" / "profile.txt").read_text()


def test_the_config_is_checked() -> None:
    assert not DebugConfig().enabled
    with pytest.raises(rl_training.types.ConfigError, match="capture_update"):
        parse_config({"monitor": {"debug": {"capture_update": 0}}})


def test_with_jax_it_is_refused_before_there_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo/cartpole", "--backend=jax", "--debug", f"--output-dir={tmp_path / 'runs'}"]) == 2
    assert "looks into the modules of torch; use backend: 'torch'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
