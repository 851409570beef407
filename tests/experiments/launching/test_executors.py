"""What the runner does with any executor: lost members, wall time, an executor that is gone, one of the user's own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from group_cases import new_group, tiny

from rl_training.cli.commands.runs.train import take_executor
from rl_training.config.loading import as_resolved, parse_config
from rl_training.config.searches.sweeps import parse_sweep
from rl_training.config.sections.executor import ExecutorConfig, named_executor
from rl_training.distributed.executors import LOST, Executor, ExecutorGoneError, Resources, Task
from rl_training.experiments.launching.auto_resume import earlier_group
from rl_training.experiments.launching.executors import executor_config, make_executor
from rl_training.experiments.launching.group_display import LineView
from rl_training.experiments.launching.group_runner import GroupRunner, Limits
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.runs.holder import Holder
from rl_training.types import ConfigError, RunError, TrustError


class Played:
    """A handle whose answers are written down beforehand."""

    where, holder, is_running = "node 7", None, True

    def __init__(self, answers: list[int | None]) -> None:
        self.answers = answers
        self.signals: list[int] = []

    def poll(self) -> int | None:
        if self.signals:
            return 128 + self.signals[0]
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait(self) -> int | None:
        return self.poll()

    def send_signal(self, number: int, /) -> None:
        self.signals.append(number)


class Stage:
    """An executor that plays a list of handles, one per start."""

    name, is_remote = "stage", True

    def __init__(self, *plays: list[int | None], slots: Callable[[], int] = lambda: 1) -> None:
        self.plays = list(plays)
        self.started: list[Task] = []
        self.handles: list[Played] = []
        self.slots = slots
        self.is_closed = False

    def start(self, task: Task, /) -> Played:
        self.started.append(task)
        self.handles.append(Played(self.plays.pop(0)))
        return self.handles[-1]

    def lost(self, holder: Holder, /) -> bool | None:
        return None

    def close(self) -> None:
        self.is_closed = True


def run(group: SeedGroup, stage: Stage, limits: Limits | None = None, **options: Any) -> int:
    return GroupRunner(group, None, LineView(sys.stderr), executor=stage, limits=limits, **options).run()


def test_a_lost_member_goes_on_without_using_up_a_retry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = new_group(tmp_path, (1,))
    stage = Stage([None, LOST], [LOST], [None, 0])
    assert isinstance(stage, Executor)
    assert run(group, stage, retries=0) == 0
    assert len(stage.started) == 3
    err = capsys.readouterr().err
    assert err.count("seed 1: killed; node 7 is gone") == 2
    assert err.count("goes on elsewhere") == 2
    assert stage.is_closed
    names = [task.env["RL_TRAINING_RUN_NAME"] for task in stage.started]
    assert all(name.startswith("ppo__CartPole-v1__seed1__") for name in names)
    assert stage.started[0].env["RL_TRAINING_INDEX"] == "0"


def test_losses_are_limited_too(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1,))
    stage = Stage([LOST], [LOST], [LOST])
    assert run(group, stage, Limits(max_losses=2), retries=5) == 1
    assert (len(stage.started), group.members[0].status) == (3, "killed")


def test_a_failure_uses_up_a_retry(tmp_path: Path) -> None:
    stage = Stage([1], [-9], [0])
    assert run(new_group(tmp_path, (1,)), stage, retries=2) == 0
    assert len(stage.started) == 3


def test_a_member_is_stopped_at_its_wall_time(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1,))
    stage = Stage([None])
    assert run(group, stage, Limits(Resources(wall_time=0.2))) == 1
    assert stage.handles[0].signals == [signal.SIGTERM]
    assert group.members[0].reason == "stopped at its wall-time limit of 0.2 s"
    assert len(stage.started) == 1


def test_an_executor_that_is_gone_ends_the_group_with_the_line_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([2])

    def slots() -> int:
        try:
            return next(looks)
        except StopIteration:
            raise ExecutorGoneError("the cluster is gone") from None

    group = new_group(tmp_path, (1, 2, 3))
    assert run(group, Stage([0], [0], [0], slots=slots)) == 1
    assert f"the cluster is gone; `rl resume {group.path}` goes on, with any executor" in capsys.readouterr().err


def test_members_start_as_slots_appear(tmp_path: Path) -> None:
    """A cluster that grows is used at the next look, one that shrinks starts no more."""
    sizes = iter([1, 1, 3])
    last = [3]

    def slots() -> int:
        last[0] = next(sizes, last[0])
        return last[0]

    stage = Stage([None, None, 0], [None, 0], [0], slots=slots)
    assert run(new_group(tmp_path, (1, 2, 3)), stage) == 0
    assert len(stage.started) == 3


# -- by name ----------------------------------------------------------------------------------------------------------


def test_flags_and_sections() -> None:
    assert named_executor("ray").type == "ray"
    assert named_executor("ray:10.0.0.1:6379") == ExecutorConfig(type="ray", address="10.0.0.1:6379")
    before = ExecutorConfig(type="slurm", cpus=2.0, options={"partition": "gpu"})
    assert named_executor("local", before) == ExecutorConfig(cpus=2.0)
    assert named_executor("slurm", before) == before
    file = {"base_config": "ppo/cartpole", "sweep": {"hparams.gamma": [0.9]}}
    assert parse_sweep({**file, "executor": "ray:h:1"}).executor.address == "h:1"
    assert parse_sweep({**file, "executor": {"type": "slurm", "gpus": 1}}).executor.gpus == 1
    for wrong, words in (
        ({"type": "rya"}, "must be local, threads, slurm, ray"),
        ({"cpus": 0}, "'executor.cpus' must be between"),
        ({"type": "local", "address": "h:1"}, "is for the executor ray"),
        ({"type": "ray", "options": {"x": 1}}, "are for slurm"),
        ({"cups": 1}, "did you mean 'cpus'"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse_sweep({**file, "executor": wrong})


def test_a_record_that_makes_no_sense(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1,))
    group.info.executor = {"type": 5}
    with pytest.raises(RunError, match="makes no sense"):
        executor_config(group, None)


OWN = """
from pathlib import Path
Path("imported").touch()
class Mine:
    name, is_remote = "mine:Mine", True
    def __init__(self, config, flavour="plain"): self.flavour = flavour
    def slots(self): return 1
    def start(self, task): ...
    def lost(self, holder): return None
    def close(self): pass
class Half:
    def __init__(self, config): pass
"""


def test_one_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("own_executor.py").write_text(OWN)
    group = new_group(tmp_path, (1,))
    config = ExecutorConfig(type="own_executor:Mine", options={"flavour": "sour"})
    made = make_executor(config, group, group.members, None)
    assert made.flavour == "sour"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"is called with \(config, colour=\)"):
        make_executor(ExecutorConfig(type="own_executor:Mine", options={"colour": 1}), group, group.members, None)
    with pytest.raises(ConfigError, match=r"has no slots\(\)"):
        make_executor(ExecutorConfig(type="own_executor:Half"), group, group.members, None)


def test_an_executor_in_a_record_of_others_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that came from elsewhere may name any code as its executor; only this command line makes it run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("own_executor_2.py").write_text(OWN)
    path = new_group(tmp_path, (1,)).path
    record = json.loads((path / "group.json").read_text())
    (path / "group.json").write_text(json.dumps({**record, "executor": {"type": "own_executor_2:Mine"}}))
    group = SeedGroup.open(path)
    with pytest.raises(TrustError, match="executor own_executor_2:Mine"):
        executor_config(group, None)
    assert executor_config(group, "local") == ExecutorConfig()
    with pytest.raises(TrustError, match="own_executor_2:Mine"):
        make_executor(ExecutorConfig(type="own_executor_2:Mine"), group, group.members, None)
    assert not Path("imported").exists()
    group.executor_given = True
    config = executor_config(group, "own_executor_2:Mine")
    assert make_executor(config, group, group.members, None).slots() == 1


def test_variables_in_a_record_of_others_do_not_count(tmp_path: Path) -> None:
    """LD_PRELOAD would run code of theirs in every member."""
    config = ExecutorConfig(env={"LD_PRELOAD": "/theirs.so"})
    path = SeedGroup.create(parse_config(tiny(tmp_path)), [1], executor=config).path
    assert executor_config(SeedGroup.open(path), None) == config  # sealed here
    record = json.loads((path / "group.json").read_text())
    record["executor"]["env"] = {"LD_PRELOAD": "/others.so"}
    (path / "group.json").write_text(json.dumps(record))
    group = SeedGroup.open(path)
    with pytest.raises(TrustError, match="executor local"):
        executor_config(group, None)
    group.trusted = True
    assert executor_config(group, None).env == {"LD_PRELOAD": "/others.so"}


def test_secrets_are_not_sent_to_other_hosts(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="never written"):
        group = new_group(tmp_path, (1,), env={"kwargs": {"api_key": "hunter2-very-secret"}})
    with pytest.raises(ConfigError, match="secrets are not sent to other hosts; export ENV_KWARGS_API_KEY"):
        make_executor(ExecutorConfig(type="slurm"), group, group.members, None)


def test_threads_are_for_compiled_runs(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1,))
    with pytest.raises(ConfigError, match="only compiled runs"):
        make_executor(ExecutorConfig(type="threads"), group, group.members, None)


def test_a_group_starts_where_its_config_says(tmp_path: Path) -> None:
    cfg = parse_config({**tiny(tmp_path), "executor": {"type": "slurm", "cpus": 2}})
    path = SeedGroup.create(cfg, [1, 2]).path
    assert executor_config(SeedGroup.open(path), None) == ExecutorConfig("slurm", cpus=2.0)
    assert executor_config(SeedGroup.open(path), "local") == ExecutorConfig(cpus=2.0)  # a resume may name another
    flag = named_executor("ray:h:1", cfg.executor)
    named = SeedGroup.open(SeedGroup.create(cfg, [1, 2], executor=flag).path)
    assert executor_config(named, None) == ExecutorConfig("ray", "h:1", cpus=2.0)


def test_the_same_command_goes_on_where_the_config_says_now(tmp_path: Path) -> None:
    """`--auto-resume` finds the group by its hash, which knows no executor."""
    tree = tiny(tmp_path)
    path = SeedGroup.create(parse_config(tree), [1, 2]).path
    moved = as_resolved(parse_config({**tree, "executor": "slurm"}))
    earlier = earlier_group(moved, [1, 2])
    assert earlier is not None
    assert earlier.path == path
    take_executor(path, moved.config.executor)
    assert executor_config(SeedGroup.open(path), None) == ExecutorConfig("slurm")
    take_executor(path, ExecutorConfig())  # says nothing: it stays
    assert executor_config(SeedGroup.open(path), None) == ExecutorConfig("slurm")


def test_a_secret_of_an_executor_is_not_written(tmp_path: Path) -> None:
    tree = {**tiny(tmp_path), "executor": {"env": {"WANDB_API_KEY": "hunter2-very-secret"}}}
    with pytest.warns(UserWarning, match="never written"):
        group = SeedGroup.create(parse_config(tree), [1])
    assert "hunter2" not in "".join(file.read_text() for file in group.path.rglob("*") if file.is_file())
