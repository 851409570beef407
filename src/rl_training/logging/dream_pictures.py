"""Pictures of what a world model foresees: frames for a video where observations are images, curves where not.

Frames show truth, model and their difference side by side, in a border that is green while the model sees the
observations and red once it is on its own. Curves are SVG files: the true value, the mean of the samples, and a band of
one standard deviation around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from rl_training.logging.video import write_video
from rl_training.system.atomic_io import atomic_write
from rl_training.types import Array, Dream

SEEN, ALONE = (0, 158, 115), (213, 94, 0)
"""Colours of the border: green and red that stay apart for all kinds of colour blindness."""
LARGER = 4
"""Pixels of the video per pixel of a small image."""
BORDER = 4
FRAMES_PER_SECOND = 5.0
MAX_CURVES = 16
"""Most features of one key that are drawn."""
WIDTH, HEIGHT, MARGIN = 640, 96, 40


def write_dream(dream: Dream, videos: Path, plots: Path, stem: str) -> list[Path]:
    """Write `videos/STEM.mp4`, or `STEM_KEY.mp4` of several images, and `plots/STEM_KEY.svg`; returns the files."""
    written = []
    for name in dream.images:
        ending = f"_{file_name(name)}" if len(dream.images) > 1 else ""
        written.append(write_video(videos / f"{stem}{ending}.mp4", frames(dream, name), fps=FRAMES_PER_SECOND))
    for name in dream.predicted:
        if name not in dream.images:
            path = plots / f"{stem}_{file_name(name)}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, curves_svg(dream, name).encode())
            written.append(path)
    return written


def file_name(key: str) -> str:
    """The key of an observation as a part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in key)


def frames(dream: Dream, name: str) -> Iterator[Array]:
    """Frames (height, width, 3): truth | model | error, with the border of the phase."""
    for t in range(dream.predicted[name].shape[1]):
        model = dream.predicted[name][0, t]
        true = dream.true[name][t] if t < len(dream.true[name]) else np.zeros_like(model)
        parts = [colours(image) for image in (true, model, np.abs(true - model))]
        colour = np.array(SEEN if t < dream.context else ALONE, np.uint8)
        yield np.concatenate([framed(part, colour) for part in parts], axis=1)


def colours(image: Array) -> Array:
    """An image (height, width, channels) in 0..1 as bytes with three channels, enlarged where it is small."""
    channels = image.shape[2]
    shown = image[:, :, :3] if channels >= 3 else np.repeat(image[:, :, -1:], 3, axis=2)
    small = max(image.shape[:2]) < 128
    bytes_of = (np.clip(shown, 0.0, 1.0) * 255).astype(np.uint8)
    return np.kron(bytes_of, np.ones((LARGER, LARGER, 1), np.uint8)) if small else bytes_of


def framed(picture: Array, colour: Array) -> Array:
    height, width, _ = picture.shape
    frame = np.empty((height + 2 * BORDER, width + 2 * BORDER, 3), np.uint8)
    frame[:] = colour
    frame[BORDER:-BORDER, BORDER:-BORDER] = picture
    return frame


# -- curves -----------------------------------------------------------------------------------------------------------


def curves_svg(dream: Dream, name: str) -> str:
    """All features of one key over time as an SVG document, one panel below the other."""
    predicted, true = dream.predicted[name], dream.true[name]
    count = min(predicted.shape[2], MAX_CURVES)
    panels = [panel(predicted[:, :, i], true[:, i], dream.context, f"{name}[{i}]", i) for i in range(count)]
    height = count * (HEIGHT + 24) + 28
    legend = (
        f'<text x="{MARGIN}" y="{height - 10}">black: true, blue: mean of {len(predicted)} samples and one standard '
        f"deviation; grey ground: seen by the model, then on its own</text>"
    )
    style = '<style>text{font:11px sans-serif;fill:#333}</style><rect width="100%" height="100%" fill="white"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f"{style}{''.join(panels)}{legend}</svg>\n"
    )


def panel(predicted: Array, true: Array, context: int, label: str, row: int) -> str:
    """One feature: samples (S, T) and the truth (up to T,)."""
    mean, spread = predicted.mean(0), predicted.std(0)
    low, high = float(min((mean - spread).min(), true.min())), float(max((mean + spread).max(), true.max()))
    span = max(high - low, 1e-6)
    top, steps = row * (HEIGHT + 24) + 18, max(len(mean) - 1, 1)

    def points(values: Array) -> str:
        return " ".join(f"{x(t):.1f},{top + HEIGHT * (high - float(v)) / span:.1f}" for t, v in enumerate(values))

    def x(t: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * t / steps

    backwards = " ".join(reversed(points(mean - spread).split(" ")))
    seen = x(max(context - 1, 0)) - MARGIN
    return (
        f'<rect x="{MARGIN}" y="{top}" width="{seen:.1f}" height="{HEIGHT}" fill="#eeeeee"/>'
        f'<text x="{MARGIN}" y="{top - 5}">{escape(label)}</text>'
        f'<text x="2" y="{top + 10}">{high:.3g}</text><text x="2" y="{top + HEIGHT}">{low:.3g}</text>'
        f'<polygon points="{points(mean + spread)} {backwards}" fill="#0072B2" fill-opacity="0.25"/>'
        f'<polyline points="{points(mean)}" fill="none" stroke="#0072B2" stroke-width="1.5"/>'
        f'<polyline points="{points(true)}" fill="none" stroke="black" stroke-width="1.5"/>'
    )
