"""The picture of the README comes from run directories, and the same runs give the same file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "learning_curve.py"


def test_the_picture_shows_every_run_and_their_mean(tmp_path: Path) -> None:
    for seed, returns in enumerate([(100.0, 300.0), (200.0, 500.0)]):
        logs = tmp_path / f"ppo__CartPole-v1__seed{seed}__20260101-120000" / "logs"
        logs.mkdir(parents=True)
        rows = [{"env_steps": 1000 * (i + 1), "return_mean": value} for i, value in enumerate(returns)]
        (logs / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = [str(path) for path in tmp_path.glob("ppo__*")]
    pictures = [tmp_path / name for name in ("a.svg", "b.svg")]
    for picture in pictures:
        subprocess.run([sys.executable, str(TOOL), *runs, "--output", str(picture)], check=True, capture_output=True)
    text = pictures[0].read_text()
    assert "PPO on CartPole-v1, 2 seeds and their mean" in text
    assert ">solved<" in text
    assert pictures[1].read_text() == text
