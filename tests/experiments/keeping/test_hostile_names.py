"""Whatever a folder, a run, a tag, an error or a metric on the disk is called: no terminal gets it raw."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.cli.completion import print_candidates
from rl_training.cli.output import show, table
from rl_training.system.terminal_text import printable

Captured = pytest.CaptureFixture[str]
HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\rz"
"""Sets a title, clears the screen, colours, turns the line round, and overwrites it."""
COMMANDS = [
    ["list"],
    ["list", "--columns", "directory,name,tags,status"],
    ["show", "{run}"],
    ["show", "{group}"],
    ["diff", "{run}", "{run}"],
    ["tag", "{run}", "mine"],
    ["watch", "{run}", "--once"],
    ["compare", "{run}"],
    ["export", "{run}", "--format", "markdown"],
    ["export", "{run}", "--format", "csv"],
    ["cleanup", "--keep-best", "0", "--keep-recent", "0", "--dry-run"],
    ["archive", "{run}"],
    ["eval", "{run}"],
    ["eval", "{group}"],
    ["resume", "{run}"],
    ["resume", "{group}"],
    ["verify", "{run}"],
    ["import", "{run}.tar.gz"],
    ["index", "rebuild"],
    ["show", "no-such-run"],
    ["show", "{run}/logs"],
    ["config", "validate", "{run}"],
    ["--traceback", "eval", "{run}"],
]


@pytest.fixture
def output_dir(tmp_path: Path) -> Path:
    """A run and a group whose every text is hostile, in a folder that is, too."""
    runs = tmp_path / f"runs{HOSTILE}"
    run = fake_run(runs, 1, reward=3.0, name=HOSTILE, tags=[HOSTILE], status=HOSTILE, env_id=HOSTILE, git={})
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({**metrics, HOSTILE: 1.0}))
    (run / "logs" / "alerts.jsonl").write_text(json.dumps({"rule": HOSTILE, "message": HOSTILE, "env_steps": 3}) + "\n")
    run.rename(runs / HOSTILE)
    group = runs / "groups" / f"g{HOSTILE}"
    (group / "configs").mkdir(parents=True)
    shutil.copy(runs / HOSTILE / "configs" / "resolved.yaml", group / "configs")
    member = {"seed": 1, "config_sha256": "x", "run": HOSTILE, "status": "failed", "reason": HOSTILE}
    record = {"schema": 1, "id": HOSTILE, "name": HOSTILE, "algo": "ppo", "env_id": HOSTILE, "started": "x"}
    text = json.dumps({**record, "argv": [], "jobs": None, "init_from": None, "members": [member]})
    (group / "group.json").write_text(text)
    return runs


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nothing_hostile_reaches_the_terminal(output_dir: Path, capsys: Captured, words: list[str]) -> None:
    places = {"{run}": str(output_dir / HOSTILE), "{group}": str(output_dir / "groups" / f"g{HOSTILE}")}
    typed = list(words)
    for name, place in places.items():
        typed = [word.replace(name, place) for word in typed]
    if words[0] not in ("config", "--traceback"):
        typed += ["--output-dir", str(output_dir)]
    main(typed)
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert shown
    assert {letter for letter in shown if not letter.isprintable()} <= {"\n", "\t"}


def test_completion_leaves_out_what_no_shell_should_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_run(Path("runs"), 1).rename(Path("runs") / HOSTILE)
    plain = fake_run(Path("runs"), 2).name
    print_candidates(["show", ""])
    assert capsys.readouterr().out.split("\n") == ["latest", plain, ""]


def test_one_function_shows_foreign_text(capsys: Captured) -> None:
    assert printable("ü 日本 a-b_c/d") == "ü 日本 a-b_c/d"
    assert printable("a\nb\tc") == "a\\nb\\tc"
    assert printable("a\nb\tc\x1b", lines=True) == "a\nb\tc\\x1b"
    assert printable("\udcff") == "\\udcff"  # a name that is no UTF-8
    assert table(["a\x1b"], [["b\nc\x9b"]]) == "a\\x1b\nb\\nc\\x9b"
    show("\033[1mbold\033[0m \033[31mred \033[2J")
    assert capsys.readouterr().out == "\033[1mbold\033[0m \\x1b[31mred \\x1b[2J\n"
