"""`rl enjoy`: a window where one can be opened, else a video."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training import train
from rl_training.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {
        "algo": "reinforce",
        "env_id": "CartPole-v1",
        "output_dir": str(tmp_path_factory.mktemp("runs")),
        "hparams": {"num_steps": 64},
        "training": {"total_timesteps": 128, "eval_frequency": 0, "num_eval_episodes": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    return train(config).run_dir


def test_without_a_screen_it_is_a_video(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["enjoy", str(run), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert Path(record["video"]).parent == run / "videos"
    assert Path(record["video"]).stat().st_size > 1000
    assert main(["enjoy", str(run), "--video", str(tmp_path / "seen.mp4")]) == 0
    assert (tmp_path / "seen.mp4").stat().st_size > 1000
    assert "return" in capsys.readouterr().out


def test_with_a_screen_it_is_a_window(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pygame

    shown = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: shown.append(flip()))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a screen that nobody sees
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["enjoy", str(run), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert "video" not in record
    assert len(shown) >= record["lengths"][0] > 0
    assert main(["enjoy", str(run), "--window", "--video"]) == 2
