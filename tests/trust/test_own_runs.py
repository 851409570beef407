"""Runs that were made here are trusted, wherever they are; other runs once the user consents, until that is revoked."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.cli import main
from rl_training.config.loading import parse_config, read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.experiments.keeping.debug_replay import replay_capture
from rl_training.experiments.keeping.verify import ReproducibilityChecker
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.directory import RunDir
from rl_training.trust import seals
from rl_training.types import ConfigError, TrustError

PART = """
import gymnasium


class Env(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
"""


@pytest.fixture(autouse=True)
def own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user-defined environment, and an empty config directory."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "own_part.py").write_text(PART)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, "own_part", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def tiny(**fields: Any) -> TrainConfig:
    base = {
        "env_id": "own_part:Env",
        "output_dir": "runs",
        "env": {"num_envs": 1},
        "hparams": {"num_steps": 32, "num_minibatches": 1, "num_epochs": 1},
        "training": {"total_timesteps": 32, "num_eval_episodes": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    return parse_config({**base, **fields})


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Switch to the machine of another user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another config"))


def test_a_run_of_ones_own_passes_moved_renamed_and_copied(tmp_path: Path) -> None:
    run = rl_training.train(tiny()).run_dir
    copied = tmp_path / "copied" / "renamed"
    shutil.copytree(run, copied)
    moved = tmp_path / "moved"
    run.rename(moved)
    for path in (copied, moved):
        assert rl_training.load(path).config.env_id == "own_part:Env"
        assert rl_training.evaluate(path, episodes=1)["episodes"] == 1
    assert rl_training.resume(copied, total_timesteps=64).metrics["env_steps"] == 64
    assert rl_training.resume(copied, total_timesteps=96).metrics["env_steps"] == 96  # the seal allows a new budget
    assert ReproducibilityChecker().verify_experiment(moved).reproduced
    assert seals.remembered() == []


def test_no_key_is_in_a_run_directory(tmp_path: Path) -> None:
    run = rl_training.train(tiny()).run_dir
    key = (tmp_path / "config" / "rl_training" / "trust.key").read_bytes().strip()
    assert len(key) == 64
    assert [path for path in run.rglob("*") if path.is_file() and key in path.read_bytes()] == []


def test_machines_that_share_the_key_trust_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_TRAINING_TRUST_KEY", "one lab, one key")
    run = rl_training.train(tiny()).run_dir
    elsewhere(monkeypatch, tmp_path)
    assert rl_training.load(run).env_steps == 32
    monkeypatch.setenv("RL_TRAINING_TRUST_KEY", "another lab")
    with pytest.raises(TrustError, match="env_id own_part:Env"):
        rl_training.load(run)


def test_what_was_swapped_after_the_start_is_not_what_was_sealed() -> None:
    run = rl_training.train(tiny(env_id="CartPole-v1")).run_dir
    resolved = run / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("CartPole-v1", "'own_part:Env'"))
    with pytest.raises(TrustError, match="env_id own_part:Env"):
        rl_training.load(run)
    # nor does the seal of another run fit
    other = rl_training.train(tiny()).run_dir
    RunDir(run).update_info(trust_seal=RunDir(other).info()["trust_seal"])
    with pytest.raises(TrustError):
        rl_training.load(run)
    assert "own_part" in sys.modules  # through the other one, which is the user's own


def test_runs_of_before_there_were_seals(tmp_path: Path) -> None:
    plain, own = rl_training.train(tiny(env_id="CartPole-v1")).run_dir, rl_training.train(tiny()).run_dir
    for run in (plain, own):
        info = json.loads((run / "run.json").read_text())
        del info["trust_seal"]
        (run / "run.json").write_text(json.dumps(info))
    assert rl_training.evaluate(plain, episodes=1)["episodes"] == 1
    assert rl_training.resume(plain, total_timesteps=64).metrics["env_steps"] == 64
    with pytest.raises(TrustError):
        rl_training.load(own)
    assert rl_training.load(own, trust_plugins=True).env_steps == 32
    assert rl_training.load(own).env_steps == 32


def test_the_users_agreement_is_remembered_until_it_is_forgotten_or_the_config_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rl_training.train(tiny()).run_dir
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(TrustError):
        rl_training.evaluate(run, episodes=1)
    assert rl_training.evaluate(run, episodes=1, trust_plugins=True)["episodes"] == 1
    before = (run / "run.json").read_bytes()
    moved = run.rename(tmp_path / "moved")
    assert rl_training.load(moved).env_steps == 32
    assert (moved / "run.json").read_bytes() == before  # the consent is not in the run
    assert main(["trust", "list"]) == 0
    assert f"{run.name}  " in (out := capsys.readouterr().out)
    assert "env_id own_part:Env" in out
    resolved = moved / "configs" / "resolved.yaml"
    text = resolved.read_text()
    resolved.write_text(text.replace("seed: 0", "seed: 1"))
    with pytest.raises(TrustError):
        rl_training.load(moved)
    resolved.write_text(text)
    assert main(["trust", "forget", "no such run"]) == 2
    assert main(["trust", "forget", str(moved)]) == 0
    with pytest.raises(TrustError):
        rl_training.load(moved)
    assert main(["trust", "list", "--json"]) == 0
    assert capsys.readouterr().out.endswith("[]\n")
    assert main(["trust"]) == 2


def test_training_goes_on_without_a_config_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert RunDir(rl_training.train(tiny(env_id="CartPole-v1")).run_dir).info()["trust_seal"] is None
    with pytest.warns(UserWarning, match="cannot be written to your config directory") as said:
        run = rl_training.train(tiny()).run_dir
    assert len(said) == 1
    with pytest.raises(TrustError):
        rl_training.load(run)
    with pytest.warns(UserWarning, match="holds for this command only"):
        assert rl_training.load(run, trust_plugins=True).env_steps == 32


def test_a_config_that_the_user_gives_is_agreed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = rl_training.train(tiny()).run_dir
    elsewhere(monkeypatch, tmp_path)
    again = rl_training.train(theirs / "configs" / "resolved.yaml").run_dir
    assert rl_training.load(again).env_steps == 32  # made here, so sealed here


def test_an_environment_that_the_user_brings_needs_no_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gymnasium

    run = rl_training.train(tiny()).run_dir
    monkeypatch.delitem(sys.modules, "own_part")
    elsewhere(monkeypatch, tmp_path)
    assert rl_training.load(run, env_fn=lambda: gymnasium.make("CartPole-v1")).env_steps == 32
    assert "own_part" not in sys.modules


def test_secrets_are_filled_in_only_where_that_is_agreed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PART_OF_MINE", "CartPole-v1")
    run = rl_training.train(tiny(env_id="CartPole-v1", env={"num_envs": 1, "wrappers": []})).run_dir
    resolved = run / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("env_id: CartPole-v1", "env_id: ${env:PART_OF_MINE}"))
    with pytest.raises(TrustError, match=r"\$\{env:PART_OF_MINE\}"):
        rl_training.load(run)
    found = rl_training.load(run, trust_plugins=True, allow_changed_config=True)
    assert found.config.env_id == "CartPole-v1"


def test_updates_that_were_captured_here_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debug = {"enabled": True, "capture_update": 1}
    run = rl_training.train(tiny(monitor={"debug": debug})).run_dir
    capture = next((run / "debug").glob("*.capture"))
    assert replay_capture(capture).reproduced
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(TrustError, match="env_id own_part:Env"):
        replay_capture(capture)
    assert replay_capture(capture, trust_plugins=True).reproduced


# -- groups and sweeps ------------------------------------------------------------------------------------------------


def test_a_group_that_was_planned_elsewhere_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = SeedGroup.create(tiny(), [1, 2])
    assert SeedGroup.open(group.path).consent(group.members[0]).level == "own"
    plain = SeedGroup.create(tiny(env_id="CartPole-v1"), [1])
    elsewhere(monkeypatch, tmp_path)
    assert main(["resume", str(group.path)]) == 2
    said = capsys.readouterr().err
    assert "env_id own_part:Env" in said
    assert "own_part" not in sys.modules
    assert not [path for path in Path("runs").iterdir() if path.name.startswith("ppo")]
    opened = SeedGroup.open(group.path)
    with pytest.raises(TrustError):
        opened.command(opened.members[0])
    opened.trusted = True
    assert opened.command(opened.members[0])[0] == "train"
    again = SeedGroup.open(group.path)
    assert again.consent(again.members[0]).level == "trusted"
    assert main(["trust", "forget", str(group.path)]) == 0
    with pytest.raises(TrustError):
        again.consent(again.members[0])
    opened = SeedGroup.open(plain.path)
    assert opened.consent(opened.members[0]).level == "none"


def test_a_sweep_and_a_search_that_were_planned_elsewhere_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.config.searches.sweeps import parse_sweep
    from rl_training.config.searches.tuning import parse_tune
    from rl_training.experiments.launching.tuning import Tuning

    Path("base.yaml").write_text("env_id: CartPole-v1\noutput_dir: runs\n")
    sweep = Sweep.create(parse_sweep({"base_config": "base.yaml", "sweep": {"env_id": ["own_part:Env"]}}))
    search = {"base_config": "base.yaml", "sweep": {"env_id": ["own_part:Env"]}, "num_trials": 1, "sampler": "random"}
    tuning = Tuning.create(parse_tune(search))
    opened = Tuning.open_existing(tuning.sweep.path)
    assert opened.sweep.is_own
    number = opened.sweep.add_trial({"env_id": "own_part:Env"})
    assert opened.sweep.consent(opened.sweep.add_member(number, 0)).level == "own"
    elsewhere(monkeypatch, tmp_path)
    for words in (["sweep", "--resume"], ["sweep", "--only=0", "--resume"], ["resume"]):
        assert main([*words, str(sweep.path)]) == 2
    assert main(["tune", "--resume", str(tuning.sweep.path)]) == 2
    opened = Tuning.open_existing(tuning.sweep.path)
    assert not opened.sweep.is_own
    later = opened.sweep.add_trial({"env_id": "own_part:Env"})
    with pytest.raises(TrustError):
        opened.sweep.consent(opened.sweep.add_member(later, 3))
    assert "own_part" not in sys.modules


def test_a_group_record_with_a_base_is_refused(tmp_path: Path) -> None:
    group = SeedGroup.create(tiny(env_id="CartPole-v1"), [1])
    file = group.config_file()
    file.write_text(file.read_text().replace("base: null", "base: ppo/cartpole"))
    with pytest.raises(ConfigError, match="'base' in the config of a run"):
        SeedGroup.open(group.path).config()


def test_only_the_fields_of_the_public_config_are_sealed(tmp_path: Path) -> None:
    run = RunDir(rl_training.train(tiny()).run_dir)
    assert run.stored_config().is_own
    run.update_info(status="stopped", tags=["x"], name="other")
    assert run.stored_config().is_own
    assert not replace(run.stored_config(), id="other").is_own
    assert not replace(run.stored_config(), mapping={**read_yaml(run.path / "configs/resolved.yaml"), "seed": 9}).is_own
