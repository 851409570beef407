"""Videos are read back frame by frame; a file under its final name is always complete."""

from __future__ import annotations

import builtins
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.logging.video import find_ffmpeg, write_video
from rl_training.types import ConfigError, RunError


def read(path: Path) -> tuple[str, list[Any]]:
    """(ffmpeg's description of the stream, its frames)."""
    command = [find_ffmpeg(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(command, capture_output=True, check=True)
    (stream,) = re.findall(r"Stream #0.*: Video: (.*)", result.stderr.decode().partition("Output #0")[0])
    ((width, height),) = re.findall(r" (\d+)x(\d+)[ ,]", stream)
    return stream, list(np.frombuffer(result.stdout, np.uint8).reshape(-1, int(height), int(width), 3))


def picture(level: int, height: int = 32, width: int = 48) -> Any:
    """Left half red, right half grey, both of this level."""
    frame = np.full((height, width, 3), level, np.uint8)
    frame[:, : width // 2, 1:] = 0
    return frame


def test_frames_and_rate_come_back(tmp_path: Path) -> None:
    levels = [0, 60, 120, 180, 240]
    path = write_video(tmp_path / "new" / "a.mp4", [picture(level) for level in levels], fps=25)
    assert path == tmp_path / "new" / "a.mp4"
    stream, frames = read(path)
    assert stream.startswith("h264")
    assert all(fact in stream for fact in ("yuv420p", "48x32", "25 fps"))
    assert len(frames) == 5
    for frame, level in zip(frames, levels, strict=True):
        assert np.abs(frame[:, :20].mean((0, 1)) - [level, 0, 0]).max() < 12
        assert np.abs(frame[:, 28:].mean((0, 1)) - level).max() < 12
    assert [file.name for file in path.parent.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(("height", "width"), [(31, 48), (32, 47), (33, 49), (1, 1)])
def test_odd_sizes_keep_every_pixel(tmp_path: Path, height: int, width: int) -> None:
    frame = np.full((height, width, 3), 200, np.uint8)
    _, frames = read(write_video(tmp_path / "a.mp4", [frame] * 2, fps=10))
    assert [frame.shape for frame in frames] == [(height + height % 2, width + width % 2, 3)] * 2
    assert all(np.abs(frame.astype(int) - 200).max() < 12 for frame in frames)


@pytest.mark.parametrize("frame", [np.full((16, 16), 90, np.uint8), np.full((16, 16, 4), 90, np.uint8)])
def test_grey_and_transparent_frames(tmp_path: Path, frame: Any) -> None:
    _, frames = read(write_video(tmp_path / "a.mp4", iter([frame]), fps=30))
    assert len(frames) == 1
    assert np.abs(frames[0].astype(int) - 90).max() < 8


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "at least one frame"),
        ([picture(1), picture(1, 40)], r"frame 1 has size \(40, 48\), those before \(32, 48\)"),
        ([np.zeros((8, 8, 3))], r"frame 0 is float64 \(8, 8, 3\)"),
        ([np.zeros((8, 8, 5), np.uint8)], r"uint8 \(8, 8, 5\)"),
    ],
)
def test_invalid_frames_are_refused_and_the_old_file_stays(tmp_path: Path, frames: Any, message: str) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"old")
    with pytest.raises(RunError, match=message):
        write_video(path, frames, fps=30)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


def test_an_error_among_the_frames_leaves_the_old_file(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield picture(1)
        raise ZeroDivisionError

    path = write_video(tmp_path / "a.mp4", [picture(9)], fps=30)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        write_video(path, broken(), fps=30)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


def test_bad_names_rates_and_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must end in"):
        write_video(tmp_path / "a.gif", [picture(1)], fps=30)
    for fps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="fps must be a positive number"):
            write_video(tmp_path / "a.mp4", [picture(1)], fps=fps)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot write video"):
        write_video(tmp_path / "file" / "a.mp4", [picture(1)], fps=30)


def test_what_the_encoder_says_reaches_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").mkdir()
    with pytest.raises(RunError, match="cannot write video"):
        write_video(tmp_path / "a.mp4", [picture(1)], fps=30)
    with pytest.raises(RunError, match=r"cannot write video .*(fps|rate|range|Error)"):
        write_video(tmp_path / "b.mp4", [picture(1)] * 3, fps=1e12)


def test_a_missing_extra_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ffmpeg(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "imageio_ffmpeg":
            raise ImportError("No module named 'imageio_ffmpeg'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_ffmpeg)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[video\]'"):
        write_video(tmp_path / "a.mp4", [picture(1)], fps=30)
