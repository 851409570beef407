"""Writes frames to an mp4 file that browsers and notebooks play, with the ffmpeg of the `video` extra.

Rendering is the caller's task: frames are passed in.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from rl_training.system.atomic_io import fault_point, fsync_dir, make_folder, rename, temporary_path
from rl_training.system.signals import shielded
from rl_training.types import Array, ConfigError, RunError


def find_ffmpeg() -> str:
    """Path of ffmpeg; ConfigError with the pip command if it is missing. Call it before a run that will need it."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"videos need an extra: pip install 'rl-training[video]' ({error})") from error


def write_video(path: str | Path, frames: Iterable[Array], fps: float) -> Path:
    """Write (H, W, 3) uint8 frames at `fps` per second; grey (H, W) and RGBA ones are converted. Returns the path.

    The file appears under its name when it is complete, and replaces an existing one. Frames are taken one at a time.
    Odd sizes get one more row or column, a copy of the last: H.264 stores colour for blocks of 2 x 2.
    """
    path = Path(path)
    if path.suffix != ".mp4":
        raise ConfigError(f"video '{path}' must end in .mp4")
    if not (fps > 0 and math.isfinite(fps)):
        raise ConfigError(f"video '{path}': fps must be a positive number, not {fps}")
    ffmpeg = find_ffmpeg()
    temporary = temporary_path(path.parent)
    try:
        make_folder(path.parent)
        fault_point("create", temporary)
        _encode(ffmpeg, temporary, frames, fps)
        fault_point("fsync", temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        rename(temporary, path)
        fsync_dir(path.parent)
    except OSError as error:
        raise RunError(f"cannot write video '{path}': {error}; is the disk full or the folder read-only?") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _encode(ffmpeg: str, path: Path, frames: Iterable[Array], fps: float) -> None:
    encoder: subprocess.Popen[bytes] | None = None
    shape: tuple[int, ...] = ()
    with tempfile.TemporaryFile() as errors:
        try:
            for index, frame in enumerate(frames):
                picture = _rgb(np.asarray(frame), index)
                if encoder is None:
                    shape = picture.shape
                    encoder = _start(ffmpeg, path, shape, fps, errors)
                elif picture.shape != shape:
                    raise RunError(f"frame {index} has size {picture.shape[:2]}, those before {shape[:2]}")
                assert encoder.stdin is not None
                encoder.stdin.write(picture.data)
        except BrokenPipeError:
            pass  # ffmpeg ended early; its exit code and stderr say why
        except BaseException:
            if encoder is not None:
                encoder.kill()
            raise
        finally:
            if encoder is not None:
                encoder.communicate()
        if encoder is None:
            raise RunError("a video needs at least one frame; does the environment's render_mode give rgb arrays?")
        if encoder.returncode != 0:
            errors.seek(0)
            raise OSError(errors.read().decode(errors="replace").strip() or f"ffmpeg exit code {encoder.returncode}")


def _start(ffmpeg: str, path: Path, shape: tuple[int, ...], fps: float, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}", "-r", str(fps), "-i", "-"]
    codec = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "23"]
    # the temporary name has no suffix to infer the format from; faststart puts the index first, for streaming
    container = ["-f", "mp4", "-movflags", "+faststart", f"file:{path}"]
    with shielded():  # a stopped run finishes the file first
        return subprocess.Popen(
            [ffmpeg, "-y", "-loglevel", "error", *pictures, *codec, *container],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def _rgb(frame: Array, index: int) -> Array:
    """A contiguous (H, W, 3) image with even H and W."""
    if frame.ndim == 2:
        frame = np.repeat(frame[:, :, None], 3, axis=2)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4) or 0 in frame.shape:
        raise RunError(f"frame {index} is {frame.dtype} {frame.shape}; a video takes uint8 (height, width, 3)")
    height, width = frame.shape[:2]
    return np.ascontiguousarray(np.pad(frame[:, :, :3], ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
