"""Pictures of dreams: what a frame and a panel show."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from rl_training.logging.dream_pictures import ALONE, BORDER, LARGER, SEEN, frames, write_dream
from rl_training.types import Array, Dream


def made(length: int = 4, known: int = 4) -> Dream:
    rng = np.random.default_rng(0)
    predicted: dict[str, Array] = {"camera": rng.random((2, length, 8, 8, 1)), "a/speed": rng.random((2, length, 3))}
    true = {"camera": rng.random((known, 8, 8, 1)), "a/speed": rng.random((known, 3))}
    return Dream(predicted, np.zeros((2, length)), np.ones((2, length)), 2, true, ("camera",))


def test_a_frame_shows_truth_model_and_error_in_the_border_of_the_phase() -> None:
    dream = made()
    shown = list(frames(dream, "camera"))
    size = 8 * LARGER + 2 * BORDER
    assert [frame.shape for frame in shown] == [(size, 3 * size, 3)] * 4
    assert [tuple(frame[0, 0]) for frame in shown] == [SEEN, SEEN, ALONE, ALONE]
    middle = BORDER + LARGER // 2
    for t, frame in enumerate(shown):
        true, model = dream.true["camera"][t, 0, 0, 0], dream.predicted["camera"][0, t, 0, 0, 0]
        expected = [int(255 * value) for value in (true, model, abs(true - model))]
        assert [frame[middle, middle + i * size, 0] for i in range(3)] == expected


def test_files_are_written_and_valid(tmp_path: Path) -> None:
    videos, plots = tmp_path / "videos", tmp_path / "plots"
    written = write_dream(made(6, 4), videos, plots, "dream_000000000100")
    assert [path.name for path in written] == ["dream_000000000100.mp4", "dream_000000000100_a-speed.svg"]
    assert all(path.stat().st_size > 200 for path in written)
    root = ElementTree.fromstring(written[1].read_text())
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 6, "mean and truth of three features"
    assert [len(line.attrib["points"].split()) for line in lines[:2]] == [6, 4], "the truth ends where it is unknown"
