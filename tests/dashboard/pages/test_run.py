"""The page of a run reads files alone, and only those that it lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_cases import write_rows
from run_cases import fake_run

from rl_training.dashboard.pages.run import checkpoints, default_config, file_of, files, problems, progress, text_end
from rl_training.dashboard.reading.exports import cell
from rl_training.types import RunError


def test_progress_speed_and_time_left(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    write_rows(run, [{"env_steps": 100 * n, "time/elapsed_seconds": 2.0 * n} for n in range(1, 11)])
    found = progress(run, {"status": "running", "env_steps": 1}, 2000)
    assert found == {"env_steps": 1000, "total": 2000, "steps_per_second": 50.0, "seconds_left": 20.0}
    assert progress(run, {"status": "finished", "env_steps": 1}, 2000)["seconds_left"] is None


def test_a_line_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    (run / "logs" / "metrics.jsonl").write_text('{"env_steps":1}\n{"env_st')
    assert problems(run) == []
    (run / "logs" / "metrics.jsonl").write_text('{"env_steps":1}\nxx\n{"env_st')
    assert problems(run) == ["row 2 of logs/metrics.jsonl cannot be read and is left out of the curves"]


def test_files_are_listed_by_kind_and_links_are_left_out(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    for name in (
        "videos/step_1.mp4",
        "videos/dreams/dream_1.mp4",
        "plots/prediction.png",
        "plots/x.html",
        "plots/a.svg",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(b"x")
    (run / "videos" / "link.mp4").symlink_to("/etc/passwd")
    found = {one["name"]: one["kind"] for one in files(run)}
    assert found == {
        "videos/step_1.mp4": "video",
        "videos/dreams/dream_1.mp4": "video",
        "plots/prediction.png": "image",
        "plots/a.svg": "other",
    }
    assert file_of(run, "plots/a.svg")[1].startswith("text/plain")
    with pytest.raises(RunError, match="no such file"):
        file_of(run, "plots/x.html")


def test_checkpoints(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    for step in (10, 20):
        folder = run / "checkpoints" / f"step_{step:012d}"
        folder.mkdir()
        (folder / "state.json").write_text("12345")
    (run / "checkpoints" / "best").write_text("step_000000000010")
    assert checkpoints(run) == [
        {"step": 20, "marks": [], "bytes": 5},
        {"step": 10, "marks": ["best"], "bytes": 5},
    ]


def test_the_end_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {n}\n" for n in range(100)))
    assert text_end(tmp_path / "log", 20) == "line 98\nline 99\n"
    assert text_end(tmp_path / "nothing") == ""


def test_defaults_of_foreign_algorithms_are_not_imported() -> None:
    assert default_config("my_package.my_module:Algorithm", "CartPole-v1") is None
    known = default_config("ppo", "CartPole-v1")
    assert known is not None
    assert known["hparams.gamma"] == 0.99


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_spreadsheets_get_no_formulas(text: str) -> None:
    assert cell(text).startswith("'") or cell(text).startswith("\\t")
