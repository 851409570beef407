"""Run directories written by hand: what the index, filters and cleaning read, without training."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from rl_training.config.loading import dump_yaml
from rl_training.config.schema import TrainConfig


@cache
def config_text(algo: str) -> str:
    return dump_yaml(TrainConfig(algo=algo))


def fake_run(output_dir: Path, number: int = 0, *, reward: float | None = None, steps: int = 100, **info: Any) -> Path:
    """A finished run of seed `number`; `info` are fields of its `run.json`."""
    algo, seed = info.get("algo", "ppo"), info.get("seed", number)
    run = output_dir / f"{algo}__CartPole-v1__seed{seed}__20260101-{number:06d}"
    for folder in ("configs", "logs", "checkpoints"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    record = {
        "id": run.name,
        "name": None,
        "algo": algo,
        "env_id": "CartPole-v1",
        "seed": seed,
        "tags": [],
        "status": "finished",
        "started": f"2026-01-01T00:00:00.{number:06d}+00:00",
        "ended": "2026-01-01T01:00:00.000+00:00",
        "exit_code": 0,
        "config_sha256": "c0ffee",
        "group": None,
        "sweep": None,
        "parent": None,
        "git": {"commit": "abc123", "dirty": False},
        **info,
    }
    (run / "configs" / "resolved.yaml").write_text(config_text(algo).replace("seed: 0", f"seed: {seed}"))
    (run / "run.json").write_text(json.dumps(record))
    metrics = {"env_steps": steps, "train/loss": 0.5, "time/elapsed_seconds": 2.0}
    if reward is not None:
        metrics["eval/return_mean"] = reward
    (run / "metrics.json").write_text(json.dumps(metrics))
    (run / "logs" / "metrics.jsonl").write_text(json.dumps({**metrics, "time/elapsed_seconds": 1.0}) + "\n")
    return run
