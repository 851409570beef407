"""The power goes at any operation of a run: what was reported as saved is there, and the resumed run is equal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_runs import CASES, ROLLOUT, Reference, Shell, flags, latest_step, outcome, run_directories, the_run

FindReference = Callable[..., Reference]
SHORT = {"training.total_timesteps": 5 * ROLLOUT, "checkpoint.keep_last": 2}
KILLED = 128 + 9
SAMPLE = [
    ("rename run.json 1", "all lost"),
    ("rename checkpoints/latest 1", "contents kept"),
    ("fsync logs/metrics.jsonl 2", "names kept"),
    ("remove checkpoints/* 1", "chance 3"),
    ("the end 1", "all lost"),
]


def train(folder: Path) -> list[str]:
    return ["train", *flags(CASES["cartpole-sync"], SHORT, {"output_dir": folder / "disk" / "runs"})]


def power(folder: Path, fate: str, **options: Any) -> tuple[str, str]:
    (folder / "disk").mkdir(exist_ok=True)
    return "power", json.dumps({"root": str(folder / "disk"), "fate": fate, **options})


def check_image(shell: Shell, folder: Path, expected: Reference, image: Path) -> None:
    """Boot from an image: everything that was reported is there, and the run goes on to the same end."""
    told = json.loads(image.with_name(f"{image.name}.json").read_text())
    shutil.rmtree(folder / "disk")
    image.rename(folder / "disk")
    runs = folder / "disk" / "runs"
    found = run_directories(runs) if runs.is_dir() else []
    if not found:
        assert told["saved"] == -1, f"the run is gone: {told}"
        return
    (run,) = found
    assert latest_step(run) >= told["saved"], told
    if latest_step(run) >= 0:
        expected.assert_on_the_way(run)
    if told["over"]:
        # what was being removed may come back under its temporary name; a resume removes it again
        assert {**outcome(run), "litter": []} == expected.outcome
    expected.assert_finishes(shell, folder, run)


@pytest.mark.parametrize(("point", "fate"), SAMPLE)
def test_the_power_goes(shell: Shell, folder: Path, reference: FindReference, point: str, fate: str) -> None:
    image = folder / "image"
    point = point.removesuffix(" 1") if point.startswith("the end") else point
    command = shell.start(folder, train(folder), fault=power(folder, fate, image=str(image), point=point))
    assert command.wait() == KILLED, command.err()
    check_image(shell, folder, reference("cartpole", SHORT), image)


def killed_run(shell: Shell, folder: Path) -> Path:
    """A run that was killed after rows, points and a checkpoint that a resume has to give up."""
    (folder / "disk").mkdir()
    assert shell.start(folder, train(folder), fault=("kill", "rename checkpoints/latest 4")).wait() == KILLED
    return the_run(folder / "disk" / "runs")


def test_the_power_goes_at_the_end_of_a_resume(shell: Shell, folder: Path, reference: FindReference) -> None:
    """What was cut off the logs does not come back."""
    run = killed_run(shell, folder)
    fault = power(folder, "all lost", image=str(folder / "image"), point="the end")
    assert shell.start(folder, ["resume", str(run)], fault=fault).wait() == KILLED
    check_image(shell, folder, reference("cartpole", SHORT), folder / "image")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fate", ["all lost", "names kept", "contents kept", "chance"])
def test_the_power_goes_at_every_operation(shell: Shell, folder: Path, reference: FindReference, fate: str) -> None:
    expected = reference("cartpole", SHORT)
    images = folder / "images"
    images.mkdir()
    shell.run(folder, train(folder), fault=power(folder, fate, image=str(images)))
    made = sorted(path for path in images.iterdir() if path.is_dir())
    for image in made:
        check_image(shell, folder, expected, image)
    print(f"{len(made)} operations, {fate}")
    assert len(made) > 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fate", ["all lost", "names kept", "chance"])
def test_the_power_goes_at_every_operation_of_a_resume(
    shell: Shell, folder: Path, reference: FindReference, fate: str
) -> None:
    expected = reference("cartpole", SHORT)
    run = killed_run(shell, folder)
    images = folder / "images"
    images.mkdir()
    shell.run(folder, ["resume", str(run)], fault=power(folder, fate, image=str(images)))
    made = sorted(path for path in images.iterdir() if path.is_dir())
    for image in made:
        check_image(shell, folder, expected, image)
    print(f"{len(made)} operations of a resume, {fate}")
    assert len(made) > 50
