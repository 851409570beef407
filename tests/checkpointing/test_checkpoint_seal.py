"""A checkpoint records its run and config in the manifest, under its checksum; they are compared before it is used."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoint_cases import folder_of, forge_manifest, parts_of

from rl_training.checkpointing.manager import (
    ChangedConfigError,
    CheckpointManager,
    DamagedCheckpointError,
    ForeignCheckpointError,
    Seal,
    SealCheck,
)
from rl_training.checkpointing.seal import MAX_NAMED, fitting
from rl_training.config.loading import config_to_mapping, parse_config
from rl_training.config.seal import sealed_fields
from rl_training.types import CheckpointError, ConfigError

MINE = Seal("ppo__CartPole-v1__seed0__a", "2026-01-01T00:00:00", sealed_fields(config_to_mapping(parse_config({}))))


def with_config(**values: Any) -> Seal:
    return replace(MINE, config=sealed_fields(config_to_mapping(parse_config(values))))


def manager_of(run_dir: Path, seal: Seal = MINE, *, allow: bool = False, lines: list[str] | None = None) -> Any:
    report = [].append if lines is None else lines.append
    return CheckpointManager(run_dir, report=report, sealing=SealCheck(seal, allow))


@pytest.fixture
def saved(run_dir: Path) -> Path:
    for step in (10, 20):
        manager_of(run_dir).save(parts_of(step), step=step, best=step == 10)
    return run_dir


def test_the_seal_is_in_the_manifest_and_comes_back(saved: Path) -> None:
    manifest = json.loads((folder_of(saved, 20) / "manifest.json").read_bytes())
    assert (manifest["seal"]["run"], manifest["seal"]["started"]) == (MINE.run, MINE.started)
    assert manifest["seal"]["config"]["hparams"]["gamma"] == 0.99
    assert manager_of(saved).load_latest().seal == MINE
    assert manager_of(saved).seals() == [MINE, MINE]


def test_it_is_covered_by_the_checksum_of_the_manifest(saved: Path) -> None:
    path = folder_of(saved, 20) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"gamma": 0.99', b'"gamma": 0.98'))
    lines: list[str] = []
    assert manager_of(saved, lines=lines).load_latest().step == 10
    assert "manifest.json: checksum differs" in lines[0]


@pytest.mark.parametrize("which", ["latest", "best", 20])
def test_a_changed_config_is_refused_whatever_is_loaded(saved: Path, which: str | int) -> None:
    now = with_config(hparams={"gamma": 0.9}, seed=4)
    with pytest.raises(ChangedConfigError) as caught:
        manager_of(saved, now).load(which)
    message = str(caught.value)
    assert "hparams.gamma was 0.99 and is 0.9" in message
    assert "seed was 0 and is 4" in message
    assert "--allow-changed-config" in message
    assert "allow_changed_config=True" in message
    assert isinstance(caught.value, CheckpointError)
    assert isinstance(caught.value, ConfigError)
    assert [change.path for change in caught.value.changes] == ["seed", "hparams.gamma"]


def test_the_check_alone_reads_no_more_than_a_manifest(saved: Path) -> None:
    for path in saved.glob("checkpoints/step_*/*.safetensors"):
        path.unlink()
    manager_of(saved).check_seal()
    with pytest.raises(ChangedConfigError):
        manager_of(saved, with_config(seed=4)).check_seal()
    (folder_of(saved, 20) / "manifest.json").unlink()
    with pytest.raises(ChangedConfigError, match="checkpoint of step 10"):
        manager_of(saved, with_config(seed=4)).check_seal()


def test_on_purpose_it_is_taken_reported_and_sealed_anew(saved: Path) -> None:
    lines: list[str] = []
    manager = manager_of(saved, with_config(seed=4), allow=True, lines=lines)
    manager.check_seal()
    assert lines == []
    assert manager.load_latest().step == 20
    assert lines == [
        "taken on purpose: configs/resolved.yaml is not what the checkpoint of step 20 in "
        f"{saved / 'checkpoints'} was saved under: seed was 0 and is 4"
    ]
    manager.save(parts_of(30), step=30)
    assert manager_of(saved, with_config(seed=4)).load_latest().step == 30


def test_many_changes_are_counted(saved: Path) -> None:
    kwargs = {f"k{i}": i for i in range(MAX_NAMED + 3)}
    with pytest.raises(ChangedConfigError, match=r"env\.kwargs\.k7 was None and is 7, and 3 more; put"):
        manager_of(saved, with_config(env={"kwargs": kwargs})).load_latest()


def test_folders_of_another_run_are_refused_with_both_ids(saved: Path, tmp_path: Path) -> None:
    other = replace(MINE, run="ppo__CartPole-v1__seed1__b")
    manager_of(tmp_path, other).save(parts_of(30), step=30)
    shutil.copytree(folder_of(tmp_path, 30), folder_of(saved, 30))
    (saved / "checkpoints" / "latest").write_text("step_000000000030\n")
    with pytest.raises(ForeignCheckpointError, match=f"belongs to run '{other.run}', not to this run '{MINE.run}'"):
        manager_of(saved).load_latest()
    assert manager_of(saved, allow=True).load_latest().step == 30
    assert manager_of(saved).load(20).step == 20


def test_runs_of_two_machines_may_have_one_id(saved: Path) -> None:
    other = replace(MINE, started="2026-02-02T00:00:00")
    with pytest.raises(ForeignCheckpointError, match=r"of 2026-01-01T00:00:00', not to this run .* of 2026-02-02"):
        manager_of(saved, other).load_latest()
    assert manager_of(saved, replace(MINE, started=None)).load_latest().step == 20


def test_single_files_of_another_run_are_damage(saved: Path, tmp_path: Path) -> None:
    manager_of(tmp_path, replace(MINE, run="other")).save(parts_of(21), step=20)
    for name in ("policy.safetensors", "state.json"):
        shutil.copy(folder_of(tmp_path, 20) / name, folder_of(saved, 20) / name)
    with pytest.raises(DamagedCheckpointError, match=r"checksum differs|bytes instead of"):
        manager_of(saved).load(20)


def test_one_without_a_seal_loads_with_one_note_and_the_next_has_one(run_dir: Path) -> None:
    CheckpointManager(run_dir).save(parts_of(10), step=10)
    assert "seal" not in json.loads((folder_of(run_dir, 10) / "manifest.json").read_bytes())
    lines: list[str] = []
    manager = manager_of(run_dir, lines=lines)
    manager.check_seal()
    assert manager.load_latest().seal is None
    (line,) = lines
    assert "saved without its run and config" in line
    manager.save(parts_of(20), step=20)
    manager_of(run_dir, lines=lines).load_latest()
    assert len(lines) == 1
    with pytest.raises(ForeignCheckpointError):
        manager_of(run_dir, replace(MINE, run="other")).load_latest()


def test_a_manager_of_no_run_compares_nothing(saved: Path) -> None:
    assert CheckpointManager(saved).load_latest().seal == MINE


@pytest.mark.parametrize("seal", [3, {}, {"run": 1, "started": None, "config": {}}, {"run": "a", "started": None}])
def test_a_forged_seal_that_is_none_is_damage(saved: Path, seal: Any) -> None:
    forge_manifest(folder_of(saved, 20), lambda manifest: manifest.update(seal=seal))
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json is malformed"):
        manager_of(saved).load(20)


def test_a_state_that_does_not_fit_is_named_in_one_line() -> None:
    import torch

    network = torch.nn.Linear(2, 3)
    with (
        pytest.raises(
            CheckpointError, match=r"^the policy does not fit .*size mismatch for weight.*changed\?$"
        ) as caught,
        fitting("the policy"),
    ):
        network.load_state_dict(torch.nn.Linear(2, 4).state_dict())
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="as it was"), fitting("the policy"):
        raise ConfigError("as it was")
