"""Untrusted run directories, archives and captured updates: nothing that their configs name is executed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile_cases import EVIL, INVALID, SPELLINGS, write_run

import rl_training
from rl_training.checkpointing.capture import save_capture
from rl_training.cli import main
from rl_training.config.loading import config_to_mapping, dump_yaml, parse_config, read_yaml
from rl_training.config.schema import TrainConfig
from rl_training.experiments.keeping.archive import pack, unpack
from rl_training.experiments.keeping.debug_replay import replay_capture
from rl_training.experiments.keeping.verify import ReproducibilityChecker
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError, RLTrainingError, TrustError

CALLS: dict[str, Callable[[Path], object]] = {
    "load": rl_training.load,
    "evaluate": lambda run: rl_training.evaluate(run, episodes=1),
    "resume": lambda run: rl_training.resume(run, total_timesteps=128),
    "verify": lambda run: ReproducibilityChecker().verify_experiment(run),
    "verify resume": lambda run: ReproducibilityChecker().verify_resume(run),
}


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that shows that something ran; the module that writes it can be imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    file = tmp_path / "marker"
    (folder / "evil_part.py").write_text(EVIL.replace("{marker}", str(file)))
    (tmp_path / "evil.yaml").write_text('env_id: "evil_part:Env"')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return file


def nothing_ran(marker: Path) -> bool:
    return not marker.exists() and "evil_part" not in sys.modules and not (marker.parent / "marker").is_dir()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_nothing_of_an_untrusted_config_runs(spelling: str, tmp_path: Path, marker: Path) -> None:
    text = SPELLINGS[spelling].replace("MARKER", str(marker))
    copied = write_run(tmp_path / "theirs", text)
    imported = unpack(pack(RunDir(copied)), tmp_path / "runs").path
    for run in (copied, imported):
        for name, call in CALLS.items():
            with pytest.raises(TrustError, match="--trust-plugins") as caught:
                call(run)
            assert "\n" not in str(caught.value), name
            assert str(run) in str(caught.value), name
    capture = tmp_path / "update.capture"
    save_capture(capture, captured(json.dumps(read_yaml(copied / "configs" / "resolved.yaml"))))
    with pytest.raises(TrustError, match="--trust-plugins"):
        replay_capture(capture)
    assert nothing_ran(marker)


@pytest.mark.parametrize("spelling", INVALID)
def test_a_stored_text_that_is_not_a_config_is_refused_too(spelling: str, tmp_path: Path, marker: Path) -> None:
    run = write_run(tmp_path / "theirs", INVALID[spelling])
    for call in CALLS.values():
        with pytest.raises(ConfigError):
            call(run)
    with pytest.raises(RLTrainingError):
        unpack(pack(RunDir(run)), tmp_path / "runs")
    assert nothing_ran(marker)


def test_what_runs_nothing_still_works_on_them(
    tmp_path: Path, marker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (spelling, text) in enumerate(SPELLINGS.items()):
        folder = tmp_path / "each" / str(number)
        run = write_run(folder, text.replace("MARKER", str(marker)), name=spelling)
        run.rename(tmp_path / f"runs{number}")
        shutil.rmtree(folder)
        target = tmp_path / "runs" / f"{run.name}-{number}"
        target.parent.mkdir(exist_ok=True)
        (tmp_path / f"runs{number}").rename(target)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith("ppo"))
    assert main(["index", "rebuild"]) == 0
    assert main(["list", "--limit=0"]) == 0
    assert main(["diff", runs[0], runs[1]]) == 0
    assert main(["watch", "--once", runs[0]]) == 0
    assert main(["export", *runs[:3], "--output=table.csv"]) in (0, 2)
    assert main(["tag", runs[0], "seen"]) == 0
    for run in runs:
        assert main(["show", run]) == 0
    capsys.readouterr()
    assert nothing_ran(marker)


def test_only_weights_are_taken_by_init_from(tmp_path: Path, marker: Path) -> None:
    tiny = {"output_dir": str(tmp_path / "runs"), "env": {"num_envs": 1}, "hparams": {"num_steps": 32}}
    cfg = parse_config({**tiny, "training": {"total_timesteps": 32, "num_eval_episodes": 0}, "logging.terminal": False})
    theirs = rl_training.train(cfg).run_dir
    resolved = theirs / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("CartPole-v1", '"evil_part:Env"'))
    ours = rl_training.train(cfg, init_from=str(theirs)).run_dir
    assert RunDir(ours).info()["parent"] == str(theirs)
    assert nothing_ran(marker)


@pytest.mark.parametrize("words", [["eval"], ["resume", "--total-timesteps=128"], ["verify"], ["debug", "replay"]])
def test_the_commands_end_with_code_2_and_one_sentence(words: list[str], tmp_path: Path, marker: Path) -> None:
    run = write_run(tmp_path / "runs", f"experiment: {{monitor: {{command: [touch, {marker}]}}}}\nplugins: [evil_part]")
    target = run
    if words[0] == "debug":
        target = tmp_path / "update.capture"
        save_capture(target, captured(json.dumps(read_yaml(run / "configs" / "resolved.yaml"))))
    command = [sys.executable, "-m", "rl_training", *words, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("training ")]
    assert len(said) == 1, done.stderr
    assert "plugins.* evil_part" in said[0]
    assert "monitor.command.* touch" in said[0]
    assert "--trust-plugins" in said[0]
    assert not marker.exists()


@pytest.mark.parametrize("library", ["ale_py", "evil_plugin"])
def test_nothing_is_imported_from_the_folder_of_an_untrusted_run(library: str, tmp_path: Path, marker: Path) -> None:
    """`rl` finds modules beside a config that the user gives; beside an untrusted run it imports neither the library of
    a suite nor an entry point from there."""
    write_run(tmp_path / "runs", "env_id: ALE/Pong-v5")
    (tmp_path / f"{library}.py").write_text(EVIL.replace("{marker}", str(marker)))
    (tmp_path / "evil-1.dist-info").mkdir()
    (tmp_path / "evil-1.dist-info" / "entry_points.txt").write_text(f"[rl_training.plugins]\nx = {library}\n")
    (tmp_path / "evil-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    command = [sys.executable, "-m", "rl_training", "resume", "latest", "--total-timesteps=128"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "the run has saved none" in done.stderr  # the environment was built; only the checkpoint is missing
    assert not marker.exists()


def test_escape_sequences_of_a_name_are_not_obeyed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", 'env_id: "a\\e]0;x\\a:b"')
    with pytest.raises(TrustError) as caught:
        rl_training.load(run)
    assert str(caught.value).isprintable()


def test_links_in_an_untrusted_directory_are_not_written_through(tmp_path: Path) -> None:
    """A copied directory may hold links, an imported one cannot; logs would be written to their targets."""
    run = write_run(tmp_path / "runs", dump_yaml(TrainConfig()))
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (run / "logs" / "metrics.jsonl").unlink()
    (run / "logs" / "metrics.jsonl").symlink_to(mine)
    with pytest.raises(TrustError, match=r"link logs/metrics\.jsonl"):
        rl_training.resume(run, total_timesteps=128)
    assert mine.read_text() == "mine"


def captured(config: str) -> dict[str, object]:
    """The config in the file of a captured update."""
    return {
        "why": "asked for",
        "updates": 1,
        "progress": {"env_steps": 0},
        "config": config,
        "batch": {"obs": np.zeros(1)},
        "policy": {"w": np.zeros(1)},
        "algorithm": {"w": np.zeros(1)},
    }


def test_a_plain_captured_config_is_not_asked_about() -> None:
    assert config_to_mapping(TrainConfig())["plugins"] == []
