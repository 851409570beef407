"""Whether the runs of one comparison were trained alike: with the same versions of libraries, on the same processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from rl_training.experiments.launching.members import RunSet
from rl_training.runs.directory import RunDir
from rl_training.types import RunError

COMPARED = ("python", "rl-training", "torch", "jax", "jaxlib", "numpy", "gymnasium")
"""Versions that change the bits of a run."""
MOST_NAMED = 3


def mixture(infos: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What differs between runs, given the contents of their run.json: a version or the CPU, and its values."""
    found: dict[str, set[str]] = {}
    for info in infos:
        versions, hardware = info.get("versions") or {}, info.get("hardware") or {}
        facts = {name: versions.get(name) for name in COMPARED} | {"CPU": hardware.get("cpu")}
        for name, value in facts.items():
            if value is not None:
                found.setdefault(name, set()).add(str(value))
    return {name: sorted(values) for name, values in found.items() if len(values) > 1}


def mixture_text(runs: RunSet) -> str | None:
    """A warning where the runs of a group or sweep were trained in different surroundings; None where in the same."""
    infos = []
    for member in runs.members:
        if member.run is not None:
            with suppress(RunError):
                infos.append(RunDir(runs.output_dir / member.run).info())
    differences = mixture(infos)
    if not differences:
        return None
    texts = [f"{name} ({', '.join(values[:MOST_NAMED])})" for name, values in differences.items()]
    return (
        f"warning: these runs were trained with different {', '.join(texts)}: their last bits differ for that alone, "
        "and small differences in score may come from it"
    )
