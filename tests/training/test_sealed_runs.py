"""Runs whose config or checkpoints were changed behind their back: noticed wherever they are loaded, in both lanes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.checkpointing.manager import ChangedConfigError, CheckpointManager, ForeignCheckpointError
from rl_training.cli import main
from rl_training.experiments.keeping.archive import pack, unpack
from rl_training.experiments.keeping.verify import ReproducibilityChecker
from rl_training.runs.directory import RunDir
from rl_training.types import CheckpointError

Load = Callable[[Path], Any]


def config(folder: Path, **fields: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 1},
        "network": {"actor": {"hidden_dims": [4]}, "critic": {"hidden_dims": [4]}},
        "training": {"total_timesteps": 64, "num_eval_episodes": 1},
        "logging": {"terminal": False, "tensorboard": False},
        **fields,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rl_training.train(config(tmp_path_factory.mktemp("sealed"))).run_dir


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / trained.name))


def edit(run: Path, old: str, new: str) -> None:
    path = run / "configs" / "resolved.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


LOADS: dict[str, Load] = {
    "resume": lambda run: rl_training.resume(run, total_timesteps=96),
    "load": rl_training.load,
    "evaluate": lambda run: rl_training.evaluate(run, episodes=1),
}
EDITS = {
    "hparams.learning_rate": ("learning_rate: 0.0003", "learning_rate: 0.001"),
    "hparams.gamma": ("gamma: 0.99", "gamma: 0.9"),
    "seed": ("seed: 0", "seed: 7"),
    "network.actor.hidden_dims": ("hidden_dims: [4]", "hidden_dims: [8]"),
    "env_id": ("env_id: CartPole-v1", "env_id: Pendulum-v1"),
    "env.wrappers": ("wrappers: []", "wrappers: [{name: time_aware}]"),
}


@pytest.mark.parametrize("how", LOADS)
@pytest.mark.parametrize("field", EDITS)
def test_an_edited_config_is_named_wherever_it_is_loaded(run: Path, how: str, field: str) -> None:
    edit(run, *EDITS[field])
    with pytest.raises(ChangedConfigError) as caught:
        LOADS[how](run)
    assert field in [change.path for change in caught.value.changes]
    assert f"{field} was " in str(caught.value)


def test_on_purpose_it_goes_on_and_says_so(run: Path) -> None:
    edit(run, *EDITS["hparams.gamma"])
    assert rl_training.evaluate(run, episodes=1, allow_changed_config=True)["env_steps"] == 64
    assert rl_training.load(run, allow_changed_config=True).config.hparams.gamma == 0.9
    result = rl_training.resume(run, total_timesteps=96, allow_changed_config=True)
    assert result.metrics["env_steps"] == 96
    assert RunDir(run).info()["config_changes"] == [
        {"env_steps": 64, "fields": {"hparams.gamma": {"was": 0.99, "is": 0.9}}}
    ]
    rl_training.resume(run, total_timesteps=128)  # sealed anew
    (difference,) = ReproducibilityChecker().verify_experiment(run).differences
    assert (difference.kind, difference.env_steps) == ("config", 64)
    assert difference.what == "the run was continued with a changed config on purpose: hparams.gamma"


def test_what_does_not_fit_is_no_error_of_torch_even_on_purpose(run: Path) -> None:
    edit(run, *EDITS["network.actor.hidden_dims"])
    for load in (rl_training.load, rl_training.resume):
        with pytest.raises(CheckpointError, match="does not fit what this config builds"):
            load(run, allow_changed_config=True)


def test_the_commands(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run, *EDITS["hparams.gamma"])
    for words in (["resume", str(run)], ["eval", str(run), "--episodes=1"], ["train", f"--resume={run}"]):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert "hparams.gamma was 0.99 and is 0.9" in err
        assert "Traceback" not in err
    assert main(["verify", str(run)]) == 3
    assert "hparams.gamma was 0.99 and is 0.9" in capsys.readouterr().out
    assert main(["eval", str(run), "--episodes=1", "--allow-changed-config"]) == 0
    assert main(["train", f"--resume={run}", "--total-timesteps=96", "--allow-changed-config"]) == 0
    assert main(["train", "--allow-changed-config"]) == 2


def test_what_decides_no_number_may_be_edited(run: Path) -> None:
    edit(run, "keep_last: 3", "keep_last: 5")
    edit(run, "total_timesteps: 64", "total_timesteps: 96")
    assert rl_training.evaluate(run, episodes=1)["env_steps"] == 64
    assert rl_training.resume(run).metrics["env_steps"] == 96
    report = ReproducibilityChecker().verify_experiment(run)
    assert report.reproduced, report.differences
    assert report.notes == ["configs/resolved.yaml was changed after the start, in fields that decide no number"]


def test_checkpoints_of_another_run(run: Path, tmp_path: Path) -> None:
    other = rl_training.train(config(tmp_path / "other", seed=1)).run_dir
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    for load in LOADS.values():
        with pytest.raises(ForeignCheckpointError) as caught:
            load(run)
        assert (caught.value.stored, caught.value.now) == (other.name, run.name)
    difference = ReproducibilityChecker().verify_experiment(run).differences[0]
    assert f"belongs to run '{other.name}'" in difference.what
    with pytest.warns(UserWarning, match="logs in .* are not what the checkpoint covers"):
        rl_training.resume(run, total_timesteps=96, allow_changed_config=True)
    assert RunDir(run).info()["config_changes"][0]["fields"]["run"] == {"was": other.name, "is": run.name}
    warm = rl_training.train(config(tmp_path / "warm"), init_from=str(other)).run_dir
    assert rl_training.load(warm).env_steps == 64


def test_a_run_that_was_moved_renamed_or_packed_is_itself(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "renamed")
    assert rl_training.load(moved).env_steps == 64
    unpacked = unpack(pack(RunDir(moved)), tmp_path / "imported").path
    assert rl_training.resume(unpacked, total_timesteps=96).metrics["env_steps"] == 96


def test_a_run_of_the_first_version_is_sealed_at_its_next_save(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As 0.1.0 left it: manifests without seals, logs without checksums, run.json without budgets."""
    manager = CheckpointManager(run)
    for step in manager.steps():
        checkpoint = manager.load(step)
        del checkpoint.parts["logs"]["sha256"]
        metadata = {name: value for name, value in checkpoint.metadata.items() if name != "budgets"}
        manager.save(checkpoint.parts, step=step, metadata=metadata)
    info = json.loads((run / "run.json").read_bytes())
    old = {name: value for name, value in info.items() if name not in ("budgets", "logs_intact")}
    (run / "run.json").write_text(json.dumps(old))
    assert ReproducibilityChecker().verify_experiment(run).reproduced
    rl_training.resume(run, total_timesteps=96)
    assert capsys.readouterr().err.count("saved without its run and config") == 1
    assert CheckpointManager(run).load_latest().seal is not None
    rl_training.resume(run, total_timesteps=128)
    assert capsys.readouterr().err == ""
    report = ReproducibilityChecker().verify_experiment(run)
    assert (report.reproduced, report.env_steps) == (True, 128), report.differences


def test_a_compiled_run_is_sealed_too(tmp_path: Path) -> None:
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        run = rl_training.train(config(tmp_path, backend="jax", lane="compiled")).run_dir
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    edit(run, *EDITS["hparams.gamma"])
    for load in LOADS.values():
        with pytest.raises(ChangedConfigError, match=r"hparams\.gamma was 0\.99 and is 0\.9"):
            load(run)


def test_secrets_stay_out_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2hunter2")
    env = {"num_envs": 2, "wrappers": [{"name": "time_limit", "kwargs": {"max_episode_steps": 9}}]}
    mapping = config(
        tmp_path, env=env, callbacks=[{"name": f"{__name__}:Keyed", "kwargs": {"api_key": "${env:MY_API_KEY}"}}]
    )
    run = rl_training.train(mapping).run_dir
    manifest = next(run.glob("checkpoints/step_*/manifest.json")).read_text()
    assert "hunter2" not in manifest
    assert "${env:MY_API_KEY}" in manifest
    assert rl_training.resume(run).stop_reason == "already finished"


class Keyed(rl_training.Callback):
    def __init__(self, api_key: str) -> None:
        assert api_key == "hunter2hunter2"
