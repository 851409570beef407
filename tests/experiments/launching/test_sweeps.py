"""A sweep on disk: trials frozen and checked, members found again, one table whatever was killed, nothing secret."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from group_cases import tiny

import rl_training
from rl_training.config.searches.sweeps import parse_sweep
from rl_training.experiments.analysis.group_summary import aggregate
from rl_training.experiments.launching.group_display import LineView
from rl_training.experiments.launching.group_runner import GroupRunner
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.runner import ExperimentRunner
from rl_training.experiments.launching.scheduling.slurm_script import write_slurm_scripts
from rl_training.experiments.launching.sweeps import RECORD, Sweep, find_runs, summarize_sweep
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError, RunError


def new_sweep(
    folder: Path, *, seeds: tuple[int, ...] = (1, 2), base: dict[str, Any] | None = None, **fields: Any
) -> Sweep:
    """Two learning rates, two seeds, which nobody has started."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.json").write_text(json.dumps({**tiny(folder / "runs"), **(base or {})}))
    what = fields or {"sweep": {"algorithm.lr": [1e-3, 3e-4]}}
    config = parse_sweep({"base_config": str(folder / "base.json"), "seeds": list(seeds), "parallel_jobs": 2, **what})
    return Sweep.create(config, argv=["rl", "sweep"], source="# mine\n")


def train_member(sweep: Sweep, member: Member) -> None:
    """Train a member as its process would, but in this one."""
    cfg = replace(sweep.config(member.trial or 0), seed=member.seed)
    rl_training.train(cfg, group=sweep.group_of(member), sweep=sweep.info.id)


def test_what_is_written(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    assert sweep.path.parent == tmp_path / "runs" / "sweeps"
    assert sorted(path.name for path in (sweep.path / "configs").iterdir()) == ["base.yaml", "source.yaml"]
    assert [sweep.config(trial).hparams.learning_rate for trial in (0, 1)] == [1e-3, 3e-4]
    assert [(member.trial, member.seed) for member in sweep.members] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    again = Sweep.open(sweep.path.name, tmp_path / "runs")
    assert (again.info, again.members) == (sweep.info, sweep.members)
    member = sweep.members[3]
    words = ["train", f"--config={sweep.path}/configs/base.yaml", "--seed=2", "--hparams.learning_rate=0.0003"]
    assert sweep.command(member) == words
    assert sweep.log(member).name == "trial_001_seed2.log"


def test_sweeps_of_the_same_second_plan_different_runs(tmp_path: Path) -> None:
    sweeps = [new_sweep(tmp_path), new_sweep(tmp_path)]
    names = [sweep.planned_run(member) for member in sweeps[0].members for sweep in sweeps]
    assert len(set(names)) == 8


def test_members_find_their_runs_and_the_table_says_what_they_scored(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    for member in sweep.members[:3]:
        train_member(sweep, member)
    sweep = Sweep.open(sweep.path)
    assert [member.status for member in sweep.members] == ["finished"] * 3 + ["waiting"]
    infos = [RunDir(sweep.output_dir / str(member.run)).info() for member in sweep.members[:3]]
    assert [info["config_sha256"] for info in infos] == [member.config_sha256 for member in sweep.members[:3]]
    assert {info["sweep"] for info in infos} == {sweep.info.id}
    assert [info["group"] for info in infos] == [f"{sweep.info.id}/trial_00{trial}" for trial in (0, 0, 1)]
    scores = [sweep.final_metrics(member)["eval/return_mean"] for member in sweep.members[:3]]
    summary = summarize_sweep(sweep)
    by_trial = {trial["trial"]: trial for trial in summary["trials"]}
    assert by_trial[0]["return"] == aggregate(scores[:2])
    assert (by_trial[1]["return"], by_trial[1]["num_scores"]) == (aggregate(scores[2:]), 1)
    assert by_trial[1]["values"] == {"hparams.learning_rate": 3e-4}
    best = max((0, 1), key=lambda trial: by_trial[trial]["return"]["iqm"]["value"])
    assert summary["trials"][0]["trial"] == best
    assert sweep.command(sweep.members[0])[0] == "resume"


def test_the_seed_of_the_base_is_the_only_one_where_none_is_given(tmp_path: Path) -> None:
    assert [m.key for m in new_sweep(tmp_path, seeds=(), base={"seed": 7}).members] == [(0, 7), (1, 7)]
    listed = new_sweep(tmp_path / "b", seeds=(), trials=[{"seed": 3}, {"algorithm.lr": 0.1}])
    assert [m.key for m in listed.members] == [(0, 3), (1, 0)]


def test_values_that_do_not_fit_together_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trial 1 .*32 is not hparams\.num_steps 16 x env\.num_envs 4"):
        new_sweep(tmp_path, sweep={"env.num_envs": [2, 4], "buffer.size": [32]})
    with pytest.raises(ConfigError, match="it cannot be swept"):
        new_sweep(tmp_path, sweep={"output_dir": [str(tmp_path / "a"), str(tmp_path / "b")]})
    assert [path.name for path in tmp_path.iterdir()] == ["base.json"]


def test_a_sweep_that_was_moved_starts_its_runs_where_it_is(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    moved = Sweep.open(sweep.info.id, tmp_path / "elsewhere")
    assert f"--output-dir={tmp_path / 'elsewhere'}" in moved.command(moved.members[0])


@pytest.mark.filterwarnings("ignore:secrets are never written")
def test_swept_secrets_are_not_written(tmp_path: Path) -> None:
    values = ["hunter2-very-secret", "sesame-open-secret"]
    sweep = new_sweep(tmp_path, sweep={"env.kwargs.api_key": values})
    (tmp_path / "base.json").unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if any(value.encode() in path.read_bytes() for value in values)] == []
    assert [trial["env.kwargs.api_key"] for trial in sweep.info.trials] == [
        *("${env:ENV_KWARGS_API_KEY}", "${env:ENV_KWARGS_API_KEY_2}"),
    ]
    assert sweep.redactor.needed_values == {"ENV_KWARGS_API_KEY": values[0], "ENV_KWARGS_API_KEY_2": values[1]}


def test_names(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    sweep = new_sweep(tmp_path, base={"name": "mine"})
    assert find_runs("mine", runs).path == sweep.path
    train_member(sweep, sweep.members[0])
    run = find_runs("latest", runs)
    assert isinstance(run, RunDir)
    assert find_runs("mine", runs).path == sweep.path  # its only run has the name too
    assert find_runs(run.path.name, runs).path == run.path
    assert Sweep.open("latest", runs).path == sweep.path
    with pytest.raises(RunError, match="no run 'nothing'"):
        find_runs("nothing", runs)
    with pytest.raises(RunError, match="holds no sweeps"):
        Sweep.open("nothing", tmp_path / "empty")


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("trials"),
        lambda record: record["trials"].pop(),
        lambda record: record["members"].pop(0),
        lambda record: record["members"][0].update(run="../../etc"),
        lambda record: record["members"][0].update(trial="0"),
        lambda record: record["members"][0].update(trial=7),
        lambda record: record["totals"].append("many"),
        lambda record: record.update(id="a/b"),
        lambda record: record.update(schema=99),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path, change: Any) -> None:
    sweep = new_sweep(tmp_path, seeds=(1,))
    record = json.loads((sweep.path / RECORD).read_text())
    change(record)
    (sweep.path / RECORD).write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"does not describe a sweep|newer version"):
        Sweep.open(sweep.path)


def test_a_member_of_no_trial_is_refused_in_a_sweep_that_grows_too(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, seeds=(1,))
    (sweep.path / "tune.json").write_text("{}")
    record = json.loads((sweep.path / RECORD).read_text())
    assert Sweep.open(sweep.path).info == sweep.info
    record["members"][0]["trial"] = 99
    (sweep.path / RECORD).write_text(json.dumps(record))
    with pytest.raises(RunError, match="trials and members do not agree"):
        Sweep.open(sweep.path)


class Quick(Sweep):
    """Members that end at once: trial 1 fails as often as `failures` says, the others show a page of help."""

    failures = 99

    def command(self, member: Member) -> list[str]:
        if member.trial != 1 or self.failures == 0:
            return ["--version"]
        self.failures -= 1
        return ["train", "--nosuch", "1"]

    def observe_member(self, member: Member) -> None:
        """They have no run directories."""


def quick(sweep: Sweep) -> Quick:
    return Quick(sweep.path, sweep.info, sweep.members, sweep.redactor)


def test_failures_are_told_and_tried_again_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = quick(new_sweep(tmp_path, seeds=(1,)))
    assert GroupRunner(sweep, 2, LineView(sys.stderr)).run() == 1
    reason = "unknown flag '--nosuch' (see 'rl train --help')"
    assert [(m.status, m.reason) for m in sweep.members] == [("finished", None), ("failed", reason)]
    assert f"trial 1 seed 1: failed; {reason}" in capsys.readouterr().err
    assert sweep.to_run(retry_failed=False) == []
    sweep.failures = 2
    assert GroupRunner(sweep, 2, LineView(sys.stderr), members=sweep.to_run(retry_failed=True), retries=2).run() == 0
    assert capsys.readouterr().err.count("trying again") == 2
    assert [member.status for member in sweep.members] == ["finished"] * 2


def test_the_array_job(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path / "with space")
    (script,) = write_slurm_scripts(sweep)
    text = script.read_text()
    assert script.name == "slurm.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert f"#SBATCH --array=0-3%2\n#SBATCH --output='{sweep.path}/logs/slurm_%A_%a.out'\n" in text
    assert f"""-m rl_training sweep --resume '{sweep.path}' --only "$SLURM_ARRAY_TASK_ID"\n""" in text
    assert script.stat().st_mode & 0o111


def test_an_array_is_cut_to_the_size_that_slurm_allows(tmp_path: Path) -> None:
    """Every run is a task of one of the scripts, by the number that the script computes."""
    sweep = new_sweep(tmp_path, seeds=(1, 2, 3, 4, 5), sweep={"algorithm.lr": [1e-3]})
    scripts = write_slurm_scripts(sweep, array_size=2)
    assert [script.name for script in scripts] == ["slurm_000.sh", "slurm_001.sh", "slurm_002.sh"]
    numbers = []
    for script in scripts:
        tasks = int(script.read_text().partition("--array=0-")[2].partition("%")[0]) + 1
        expression = script.read_text().rpartition("--only ")[2].strip()
        for task in range(tasks):
            words = ["bash", "-c", f"echo {expression}"]
            out = subprocess.run(words, env={"SLURM_ARRAY_TASK_ID": str(task)}, capture_output=True, check=True).stdout
            numbers.append(int(out))
    assert numbers == [0, 1, 2, 3, 4]


def test_a_trial_that_changes_more_than_its_values_is_stored_whole(tmp_path: Path) -> None:
    """Another algorithm has other hyperparameters and another network: the base with one value is not its config."""
    sweep = new_sweep(tmp_path, seeds=(1,), trials=[{"algo": "a2c"}, {"hparams.gamma": 0.9}], base={"hparams": {}})
    assert sorted(path.name for path in (sweep.path / "configs").glob("trial_*")) == ["trial_000.yaml"]
    assert [sweep.config(trial).algo for trial in (0, 1)] == ["a2c", "ppo"]
    assert sweep.command(sweep.members[0])[1] == f"--config={sweep.path}/configs/trial_000.yaml"
    assert sweep.config(1).hparams.gamma == 0.9


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("network.actor.hidden_dims", [[32], [64, 64]]),
        ("hparams.learning_rate", [1, {"type": "linear", "start": 1e-3, "end": 0}]),
        ("tags", [["a"], ["a,b", "007"]]),
        ("name", ["007", "null-run"]),
        ("training.stop_at_return", [None, 100]),
        ("env.normalize_obs", [True, False]),
    ],
)
def test_values_survive_the_command_line(tmp_path: Path, key: str, values: list[Any]) -> None:
    """A member that reads the base and the flags has the config that was planned, hash for hash."""
    from rl_training.config.loading import parse_override_value, resolve_config
    from rl_training.experiments.launching.trial_configs import flag_text
    from rl_training.runs.description import public_config, public_sha256
    from rl_training.runs.redaction import Redactor

    sweep = new_sweep(tmp_path, seeds=(1,), sweep={key: values})
    for member in sweep.members:
        words = sweep.command(member)
        flags = {word.split("=", 1)[0][2:]: word.split("=", 1)[1] for word in words[2:]}
        typed = {name: parse_override_value(text, name) for name, text in flags.items()}
        found = resolve_config(words[1].removeprefix("--config="), typed)
        assert public_sha256(public_config(found, Redactor())) == member.config_sha256
    assert flag_text("env.kwargs.level", "1e3") == '"1e3"'


def test_what_happens_to_members_is_appended_and_found_again(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    before = (sweep.path / RECORD).read_bytes()
    sweep.members[1].status, sweep.members[1].reason = "failed", "no room"
    sweep.note(sweep.members[1])
    sweep.members[1].reason = None
    sweep.note(sweep.members[1])
    assert (sweep.path / RECORD).read_bytes() == before
    journal = sweep.path / "members.jsonl"
    assert len(journal.read_text().splitlines()) == 3
    with open(journal, "a") as file:
        file.write('{"trial": 0, "seed": 2, "rea')  # killed in the middle of a line
    again = Sweep.open(sweep.path)
    assert [(member.status, member.reason) for member in again.members[:2]] == [("waiting", None), ("failed", None)]
    again.save()
    assert not journal.exists()
    assert Sweep.open(sweep.path).members == again.members
    journal.write_text('{"generation": 1}\n{"trial":0,"seed":1,"status":"failed"}\n')  # of an older record
    assert Sweep.open(sweep.path).members[0].status == "waiting"


def test_the_runner_for_python(tmp_path: Path) -> None:
    runner = ExperimentRunner(tmp_path / "out")
    one = runner.run_single_experiment(tiny(tmp_path), seed=3)
    assert (one["run"].parent, one["metrics"]["env_steps"]) == (tmp_path / "out", 96)
    assert RunDir(one["run"]).info()["seed"] == 3
    (tmp_path / "base.json").write_text(json.dumps(tiny(tmp_path)))
    group = runner.run_multiple_runs(tmp_path / "base.json", [3], jobs=1)
    assert group["return"]["mean"] == one["metrics"]["eval/return_mean"]
    trials = [{"algorithm.lr": 3e-4, "seed": 3}]
    sweep = runner.run_hyperparameter_sweep({"base_config": str(tmp_path / "base.json"), "trials": trials})
    assert sweep["trials"][0]["return"]["mean"] == one["metrics"]["eval/return_mean"]
    saved = json.loads(runner.save_results(tmp_path / "deep" / "results.json").read_text())
    assert [record.get("metric") for record in saved] == [None, "eval/return_mean", "eval/return_mean"]
