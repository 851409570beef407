"""Members as processes: a limit, failures that stay alone, a log without secrets, and what the log says went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from group_cases import new_group

from rl_training.experiments.launching.group_display import LineView
from rl_training.experiments.launching.group_runner import GroupRunner, error_line
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.membership import VARIABLE
from rl_training.experiments.launching.progress import latest_progress
from rl_training.system.json_lines import tail_rows
from rl_training.system.lifeline import Lifeline


class QuickGroup(SeedGroup):
    """Members that end at once: seed 2 fails, the others show a page of help."""

    def command(self, member: Member) -> list[str]:
        return ["train", "--nosuch", "1"] if member.seed == 2 else ["--help"]


class Times(LineView):
    """Notes when members start and end."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.events: list[str] = []

    def event(self, text: str) -> None:
        self.events.append(text)
        super().event(text)


def quick(folder: Path, seeds: tuple[int, ...], **fields: Any) -> QuickGroup:
    group = new_group(folder, seeds, **fields)
    made = QuickGroup(group.path, group.info, group.members, group.redactor)
    made.planned_here = True
    return made


def test_one_failing_member_does_not_end_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = quick(tmp_path, (1, 2, 3))
    assert GroupRunner(group, 3, LineView(sys.stderr)).run() == 1
    assert [(member.status, member.exit_code) for member in group.members] == [
        ("finished", 0),
        ("failed", 2),
        ("finished", 0),
    ]
    reason = "unknown flag '--nosuch' (see 'rl train --help')"
    assert group.members[1].reason == reason
    err = capsys.readouterr().err
    assert f"seed 2: failed; {reason}\n  error: {reason}\n  see {group.log(group.members[1])}\n" in err
    recorded = json.loads((group.path / "group.json").read_text())["members"]
    assert [member["status"] for member in recorded] == ["finished", "failed", "finished"]
    assert recorded[1]["words"] == ["rl", "train", "--nosuch", "1"]


def test_at_most_jobs_at_a_time(tmp_path: Path) -> None:
    view = Times()
    assert GroupRunner(quick(tmp_path, (1, 3, 4)), 1, view).run() == 0
    assert [event.split(" after")[0] for event in view.events] == [
        f"seed {seed}: {what}" for seed in (1, 3, 4) for what in ("started", "finished")
    ]


def test_finished_members_are_left_alone(tmp_path: Path) -> None:
    group = quick(tmp_path, (1, 2))
    group.members[1].status = "finished"
    view = Times()
    assert GroupRunner(group, 2, view).run() == 0
    assert [event.split(" ")[1] for event in view.events] == ["1:", "1:"]


@pytest.mark.filterwarnings("ignore:secrets are never written")
def test_what_members_print_is_kept_without_secrets(tmp_path: Path) -> None:
    group = quick(tmp_path, (1,), env={"kwargs": {"api_key": "hunter2-very-secret"}})
    log = group.log(group.members[0])
    log.write_text("before: hunter2-very-secret\n")  # an earlier parent was killed before it could see to it
    assert GroupRunner(group, 1, LineView(sys.stderr)).run() == 0
    lines = log.read_text().splitlines()
    assert lines[0] == "before: ${env:ENV_KWARGS_API_KEY}"
    assert any(line.startswith("rl ") for line in lines)


def test_a_terminal_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    with open(os.devnull, "w") as stream:
        view = LineView(stream)
    assert GroupRunner(quick(tmp_path, (1,)), 1, view).run() == 0


# -- the lifeline -----------------------------------------------------------------------------------------------------

MEMBER = """
import os, signal, sys, time
from rl_training.experiments.launching.membership import join_group
member = join_group()
print(member.group, member.folder, os.environ.get("RL_TRAINING_GROUP"), flush=True)
time.sleep(60)
"""


def start_member(lifeline: Lifeline) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MEMBER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[lifeline.descriptor],
        env={**os.environ, **lifeline.variables(), VARIABLE: "the-group::/some:where"},
    )


def test_members_know_their_group_and_stop_when_the_parent_is_gone() -> None:
    lifeline = Lifeline()
    member = start_member(lifeline)
    assert member.stdout is not None
    assert member.stdout.readline() == "the-group /some:where None\n"
    lifeline.close()
    _, err = member.communicate(timeout=30)
    assert member.returncode == -15
    assert err == "the parent of this run is gone: stopping\n"


def test_a_member_whose_parent_is_gone_already_does_not_begin() -> None:
    lifeline = Lifeline()
    member = start_member(lifeline)
    lifeline.close()
    out, _ = member.communicate(timeout=30)
    assert (member.returncode, out) in ((143, ""), (-15, "the-group /some:where None\n"))


def test_nobody_is_a_member_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.experiments.launching.membership import join_group

    monkeypatch.delenv(VARIABLE, raising=False)
    assert join_group() is None


# -- reading along ----------------------------------------------------------------------------------------------------


def test_the_newest_numbers_of_a_growing_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert latest_progress(log) == {}
    rows = [{"env_steps": step, "rollout/return_mean": float(step)} for step in range(5000)]
    rows[4998]["eval/return_mean"] = 7.0
    text = "".join(json.dumps(row) + "\n" for row in rows)
    log.write_text(text + '{"env_steps": 99999, "rollout')
    assert latest_progress(log) == {"env_steps": 4999, "rollout/return_mean": 4999.0, "eval/return_mean": 7.0}
    assert len(tail_rows(log)) < 2000
    log.write_text('{"env_steps": 5, "eval/return_mean": null}\nnonsense\n[1]\n')
    assert latest_progress(log) == {"env_steps": 5}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["env_steps 5", "error: no room", "", "see above"], "no room"),
        (["Traceback", "  x", "ValueError: boom", "error: unexpected ValueError; please report"], "ValueError: boom"),
        (["Segmentation fault"], "Segmentation fault"),
        ([], "it printed nothing"),
    ],
)
def test_the_line_that_says_why(lines: list[str], reason: str) -> None:
    assert error_line(lines) == reason
