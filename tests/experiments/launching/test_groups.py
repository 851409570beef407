"""A group on disk: what is recorded, how it is found, and that the run directories are the truth."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from group_cases import new_group, tiny, train_members

from rl_training.config.loading import parse_config
from rl_training.experiments.launching.groups import SeedGroup, find_run_or_group, group_directories, pinned
from rl_training.runs.directory import RunDir
from rl_training.runs.lock import holder_of
from rl_training.types import ConfigError, RunError


def record(group: SeedGroup) -> dict[str, object]:
    return json.loads((group.path / "group.json").read_text())  # type: ignore[no-any-return]


def member_run(group: SeedGroup, seed: int) -> RunDir:
    """The run directory that a member's process would make."""
    return RunDir.create(replace(group.config(), seed=seed), group=group.info.id)


# -- the record -------------------------------------------------------------------------------------------------------


def test_a_group_is_a_folder_with_the_frozen_config(tmp_path: Path) -> None:
    cfg = parse_config(tiny(tmp_path, env_id="ALE/Pong-v5", name="mine"))
    group = SeedGroup.create(cfg, [4, 2], argv=["rl", "train"], source="algo: ppo  # mine\n", jobs=3)
    assert group.path.parent == tmp_path / "groups"
    assert group.path.name.startswith("ppo__ALE-Pong-v5__2")
    assert replace(group.config(), seed=0) == replace(cfg, seed=0)
    assert (group.path / "configs" / "source.yaml").read_text() == "algo: ppo  # mine\n"
    written = record(group)
    assert written["schema"] == 1
    assert (written["id"], written["name"], written["jobs"]) == (group.path.name, "mine", 3)
    members = written["members"]
    assert isinstance(members, list)
    assert [(member["seed"], member.get("run"), member.get("status", "waiting")) for member in members] == [
        (4, None, "waiting"),
        (2, None, "waiting"),
    ]
    same = SeedGroup.open(group.path)
    assert (same.info, same.members) == (group.info, group.members)


def test_two_groups_of_one_second_have_two_names(tmp_path: Path) -> None:
    names = {new_group(tmp_path).path.name for _ in range(3)}
    assert len(names) == 3
    assert {path.name for path in group_directories(tmp_path)} == names


def test_the_config_hash_of_a_member_is_known_before_its_run(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    hashes = [member_run(group, seed).info()["config_sha256"] for seed in (1, 2)]
    assert [member.config_sha256 for member in group.members] == hashes
    assert hashes[0] != hashes[1]


def test_a_secret_of_the_config_is_nowhere_but_reaches_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-very-secret"
    cfg = parse_config(tiny(tmp_path, env={"num_envs": 1, "kwargs": {"api_key": secret}}))
    with pytest.warns(UserWarning, match="ENV_KWARGS_API_KEY"):
        group = SeedGroup.create(cfg, [1, 2], argv=["rl", "train", "--env.kwargs.api-key", secret], source=secret)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_text()]
    assert group.redactor.needed_values == {"ENV_KWARGS_API_KEY": secret}
    monkeypatch.setenv("ENV_KWARGS_API_KEY", secret)  # as in a member's process
    run = RunDir.create(replace(cfg, seed=1), group=group.info.id)
    assert run.info()["config_sha256"] == group.members[0].config_sha256


def test_a_secret_that_is_not_exported_is_missed_before_anything_starts(tmp_path: Path) -> None:
    cfg = parse_config(tiny(tmp_path, env={"kwargs": {"api_key": "${env:NO_SUCH_VARIABLE_HERE}"}}))
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE_HERE"):
        SeedGroup.create(cfg, [1, 2])
    assert not (tmp_path / "groups").exists()


def test_a_group_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot create a group in output_dir .* a file is in the way"):
        new_group(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "newer version"),
        ({"members": []}, "no seeds"),
        ({"members": None}, "does not describe a group"),
        ({"id": "x", "members": [{"seed": 1}]}, "does not describe a group"),
        ({"id": 5}, r"does not describe a group \(id: .*string"),
        ({"id": "mine:x:/etc"}, r"does not describe a group \(id 'mine:x:/etc'\)"),
        ({"id": ".."}, "does not describe a group"),
        ({"jobs": "3"}, r"does not describe a group \(jobs: .*integer"),
        ({"argv": [1]}, r"does not describe a group \(argv.0: "),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    group = new_group(tmp_path)
    (group.path / "group.json").write_text(json.dumps({**record(group), **change}))
    with pytest.raises(RunError, match=message):
        SeedGroup.open(group.path)


@pytest.mark.parametrize("run", ["../elsewhere", "/etc", "..", "", "a/b"])
def test_a_record_cannot_point_outside_the_output_directory(tmp_path: Path, run: str) -> None:
    group = new_group(tmp_path)
    members = [{**member, "run": run} for member in record(group)["members"]]  # type: ignore[attr-defined]
    (group.path / "group.json").write_text(json.dumps({**record(group), "members": members}))
    with pytest.raises(RunError, match="does not describe a group"):
        SeedGroup.open(group.path)


def test_a_run_on_record_cannot_be_a_link_out_of_the_output_directory(tmp_path: Path) -> None:
    output_dir, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    group = new_group(output_dir, (1,))
    run = member_run(group, 1)
    elsewhere.mkdir()
    run.path.rename(elsewhere / run.path.name)
    run.path.symlink_to(elsewhere / run.path.name)
    group.observe()
    assert group.members[0].run is None  # a link is not taken for the member's run either
    members = [{**member, "run": run.path.name} for member in record(group)["members"]]  # type: ignore[attr-defined]
    (group.path / "group.json").write_text(json.dumps({**record(group), "members": members}))
    with pytest.raises(RunError, match=rf"names run '{run.path.name}', which is a link out of '{output_dir}'"):
        SeedGroup.open(group.path)
    run.path.unlink()
    (elsewhere / run.path.name).rename(output_dir / "renamed")
    run.path.symlink_to(output_dir / "renamed")  # inside, a link is as good as the run
    assert SeedGroup.open(group.path).members[0].run == run.path.name


@pytest.mark.parametrize("seed", [-1, 2**32, True, "1"])
def test_a_seed_that_no_run_can_have_is_refused(tmp_path: Path, seed: object) -> None:
    group = new_group(tmp_path)
    members = [{**member, "seed": seed} for member in record(group)["members"][:1]]  # type: ignore[index]
    (group.path / "group.json").write_text(json.dumps({**record(group), "members": members}))
    with pytest.raises(RunError, match="does not describe a group"):
        SeedGroup.open(group.path)


# -- members ----------------------------------------------------------------------------------------------------------


def test_members_are_found_by_what_their_runs_say(tmp_path: Path) -> None:
    """Nothing of this was recorded: the parent was killed before it could."""
    group = new_group(tmp_path, (1, 2, 3, 4, 5))
    RunDir.create(replace(group.config(), seed=1))  # of no group
    runs = {seed: member_run(group, seed) for seed in (1, 2, 3, 4)}
    runs[1].finish("finished")
    runs[2].finish("stopped", exit_code=143)
    runs[3].finish("failed", exit_code=1)
    with runs[1].lock():
        pass
    again = SeedGroup.open(group.path)
    assert [member.status for member in again.members] == ["finished", "stopped", "failed", "killed", "waiting"]
    assert [member.run for member in again.members] == [*(run.path.name for run in runs.values()), None]
    assert [member.seed for member in again.unfinished()] == [2, 3, 4, 5]
    with runs[4].lock():
        again.observe()
        assert again.members[3].status == "running"


def test_a_member_whose_run_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    runs = [member_run(group, seed) for seed in (1, 2)]
    runs[1].finish("finished")
    group.observe()
    (runs[0].path / "run.json").write_text("{")
    group.observe()
    assert [member.status for member in group.members] == ["failed", "finished"]
    assert "cannot read" in str(group.members[0].reason)


def test_a_run_that_was_removed_is_trained_anew(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    run = member_run(group, 1)
    group.observe()
    assert group.command(group.members[0]) == ["resume", str(run.path)]
    run.path.rename(tmp_path / "elsewhere")
    group.observe()
    assert (group.members[0].run, group.members[0].status) == (None, "waiting")
    assert group.command(group.members[0])[0] == "train"


def test_the_command_of_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    group = new_group(Path("runs"), (7, 8))
    config = f"--config={tmp_path}/runs/groups/{group.info.id}/configs/resolved.yaml"
    assert group.command(group.members[1]) == ["train", config, "--seed=8"]
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")  # where `runs` is another folder
    there = SeedGroup.open(Path("..") / "runs" / "groups" / group.info.id)
    assert there.command(there.members[0])[-2:] == ["--seed=7", f"--output-dir={tmp_path}/deeper/../runs"]


def test_a_member_is_busy_while_a_process_has_it(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    first, second = group.members
    assert group.busy(first) is None
    with member_run(group, 1).lock():
        group.adopt_runs()
        holder = group.busy(first)
        assert holder is not None
        assert holder.pid == os.getpid()
    assert group.busy(first) is None
    second.process = holder_of(os.getpid())  # left behind by an earlier parent, without a run yet
    assert group.busy(second) == second.process
    second.process = replace(second.process, started=0.0)  # the number belongs to another process by now
    assert group.busy(second) is None


def test_one_parent_at_a_time(tmp_path: Path) -> None:
    group = new_group(tmp_path)
    with group.lock(), pytest.raises(RunError, match=rf"group '.*{group.info.id}' is in use by process {os.getpid()}"):
        SeedGroup.open(group.path).lock().acquire()


def test_a_warm_start_is_the_same_for_every_member(tmp_path: Path) -> None:
    """`latest` would be the first member's run for the second one."""
    source = train_members(new_group(tmp_path, (1,)), [1])
    run = tmp_path / str(source.members[0].run)
    assert pinned("latest", str(tmp_path)) == f"{run}:96"
    assert pinned(f"{run.name}:best", str(tmp_path)).startswith(f"{run}:")
    assert pinned(f"{run}:0", str(tmp_path)) == f"{run}:0"
    cfg = parse_config(tiny(tmp_path))
    group = SeedGroup.create(cfg, [1, 2], init_from="latest")
    assert group.command(group.members[1])[-1] == f"--init-from={run}:96"
    with pytest.raises(RunError, match="no run 'nosuch'"):
        SeedGroup.create(cfg, [1, 2], init_from="nosuch")
    with pytest.raises(RunError, match="has no checkpoint 'best'"):
        pinned(f"{member_run(group, 1).path}:best", str(tmp_path))


# -- a larger budget --------------------------------------------------------------------------------------------------


def test_a_larger_budget_is_for_finished_groups_and_reaches_every_member(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    runs = [member_run(group, seed) for seed in (1, 2)]
    runs[0].finish("finished")
    group.observe()
    with pytest.raises(RunError, match=r"is not finished \(seeds 2\); finish it first with `rl resume"):
        group.extend(500)
    runs[1].finish("finished")
    group.observe()
    group.extend(500)
    assert [member.status for member in group.members] == ["waiting", "waiting"]
    assert group.command(group.members[0]) == ["resume", str(runs[0].path), "--total-timesteps=500"]
    runs[0].update_info(total_timesteps=500)  # as `rl resume` does it first, and is then killed
    runs[0].write_summary({"env_steps": 96, "stop_reason": "budget spent"})
    again = SeedGroup.open(group.path)
    assert [member.status for member in again.members] == ["waiting", "waiting"]
    assert again.command(again.members[0]) == ["resume", str(runs[0].path)]
    runs[0].write_summary({"env_steps": 512, "stop_reason": "budget spent"})
    again.extend(500)  # the same again: continues
    again.observe()
    assert [member.status for member in again.members] == ["finished", "waiting"]


# -- finding ----------------------------------------------------------------------------------------------------------


def test_a_group_is_found_by_path_name_given_name_and_prefix(tmp_path: Path) -> None:
    group, other = new_group(tmp_path, name="mine"), new_group(tmp_path, algo="a2c", hparams={})
    for name in (str(group.path), group.info.id, "mine", "ppo__"):
        assert SeedGroup.open(name, tmp_path).path == group.path
    assert SeedGroup.open("a2c", tmp_path).path == other.path
    with pytest.raises(RunError, match="no group 'sac' in"):
        SeedGroup.open("sac", tmp_path)
    new_group(tmp_path)
    with pytest.raises(RunError, match="'ppo' fits 2 groups"):
        SeedGroup.open("ppo", tmp_path)
    assert SeedGroup.open("latest", tmp_path).path == group_directories(tmp_path)[-1]
    (other.path / "group.json").write_text('{"id": 5, "name": ["x"]}')  # a damaged record does not hide the others
    assert SeedGroup.open("mine", tmp_path).path == group.path
    with pytest.raises(RunError, match="holds no groups"):
        SeedGroup.open("ppo", tmp_path / "empty")


def test_a_name_means_a_run_or_else_the_group(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2), name="mine")
    for name in ("nosuch", "latest"):  # `latest` is always a run
        with pytest.raises(RunError, match="holds no runs"):
            find_run_or_group(name, tmp_path)
    first = member_run(group, 1)
    found = find_run_or_group("mine", tmp_path)  # the name of its only run so far, too
    assert isinstance(found, SeedGroup)
    member_run(group, 2)
    assert isinstance(find_run_or_group("mine", tmp_path), SeedGroup)
    for name in (str(first.path), first.path.name):
        run = find_run_or_group(name, tmp_path)
        assert isinstance(run, RunDir)
        assert run.path == first.path
    assert isinstance(find_run_or_group("latest", tmp_path), RunDir)
    assert isinstance(find_run_or_group(str(group.path), tmp_path), SeedGroup)
    (group.path / "group.json").write_text("{}")
    with pytest.raises(RunError, match="does not describe a group"):
        find_run_or_group(str(group.path), tmp_path)


def test_a_name_that_fits_a_stranger_and_a_group_is_refused(tmp_path: Path) -> None:
    group = new_group(tmp_path, (1, 2))
    run = RunDir.create(replace(group.config(), seed=9))
    with pytest.raises(RunError, match=f"'ppo' fits run '{run.path.name}' and group '{group.info.id}'"):
        find_run_or_group("ppo", tmp_path)
