"""An exception with 52 MB of text ends a run with a few lines, wherever it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_runs import VECTORS, Shell, flags, info, the_run

CALLBACK = {"env_id": "CartPole-v1", "callbacks": '[{"name": "fault_envs:LoudCallback"}]'}
CASES: dict[str, dict[str, Any]] = {
    "in-process": {"env_id": "fault_envs:Loud"},
    "worker": {"env_id": "fault_envs:Loud", **VECTORS["workers"]},
    "callback": CALLBACK,
}


@pytest.mark.parametrize("case", CASES)
def test_a_message_of_52_mb(shell: Shell, folder: Path, case: str) -> None:
    command = shell.start(folder, ["train", *flags(CASES[case], {"output_dir": folder / "runs"})])
    assert command.wait() == 1
    for text in (command.err(), (the_run(folder / "runs") / "logs" / "train.log").read_text()):
        assert "ValueError: far too much far too much" in text
        assert "(52,000,000 characters in all)" in text
        assert len(text) < 30_000
    assert info(the_run(folder / "runs"))["status"] == "failed"
    assert len((the_run(folder / "runs") / "logs" / "alerts.jsonl").read_text()) < 30_000
