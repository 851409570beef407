"""Writes a policy as a file and checks it by playing: what does not do as the policy does is not kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.export.check import Agreement, CheckedPolicy, FilePolicy, Runner
from rl_training.export.graph import HasGraph, PolicyGraph
from rl_training.export.numpy_file import npz_bytes, numpy_runner, program_text
from rl_training.export.onnx_file import onnx_bytes, onnx_runner
from rl_training.system.atomic_io import make_folder, rename
from rl_training.training.evaluation import EnvMaker, evaluate_policy
from rl_training.types import Array, ConfigError, Policy, RunError, SpaceSpec

PLANNERS = ("planet", "pets")
"""Algorithms that search for each action; there is no network to export."""


class Format(NamedTuple):
    """How a graph becomes files, and how these are run."""

    write: Callable[[PolicyGraph, Path], list[str]]
    """(graph, folder) -> names of the files written there."""
    open: Callable[[Path], Runner]
    """(folder) -> the files as a function."""


def write_onnx(graph: PolicyGraph, folder: Path) -> list[str]:
    (folder / "policy.onnx").write_bytes(onnx_bytes(graph))
    return ["policy.onnx"]


def write_numpy(graph: PolicyGraph, folder: Path) -> list[str]:
    (folder / "policy.npz").write_bytes(npz_bytes(graph))
    (folder / "policy.py").write_text(program_text(), encoding="utf-8")
    return ["policy.npz", "policy.py"]


FORMATS = {
    "onnx": Format(write_onnx, lambda folder: onnx_runner((folder / "policy.onnx").read_bytes())),
    "numpy": Format(write_numpy, numpy_runner),
}
"""Formats that are written from a graph."""


@dataclass(frozen=True)
class Playing:
    """The episodes that a file is checked with."""

    make_env: EnvMaker
    episodes: int
    seed: int


@dataclass(frozen=True)
class ExportReport:
    """Files that were kept, how well they agree with the policy, and the returns of both."""

    files: list[Path]
    agreement: Agreement
    policy_returns: Array
    file_returns: Array

    def record(self) -> dict[str, Any]:
        """As `rl export-policy --json` prints it."""
        return {
            "files": [str(file) for file in self.files],
            "observations": self.agreement.rows,
            "largest_difference": self.agreement.largest,
            "near_ties": self.agreement.near_ties,
            "policy_return": float(self.policy_returns.mean()),
            "file_return": float(self.file_returns.mean()),
            "episodes": len(self.policy_returns),
        }


def graph_for_export(policy: Policy, algo: str, meta: Mapping[str, str]) -> PolicyGraph:
    """The graph of a policy; ConfigError in one sentence where it has none."""
    if algo in PLANNERS:
        raise ConfigError(f"a policy of '{algo}' plans each action with its model, so there is no network to export")
    graph = policy.graph() if isinstance(policy, HasGraph) else None
    if graph is None:
        raise ConfigError(
            f"this policy of '{algo}' has no graph: onnx and numpy are for the package's own mlp, cnn, gru and lstm "
            "networks"
        )
    return graph.with_meta(meta)


def export_policy(
    policy: Policy, graph: PolicyGraph, action_space: SpaceSpec, kind: str, target: Path, playing: Playing
) -> ExportReport:
    """Write the files of a format into the folder `target`, or to `target` itself where it ends as the one file does.

    They are written beside their place, played with, and moved there only if they do what the policy does.
    """
    form = FORMATS[kind]
    folder = target.parent if target.suffix and kind != "numpy" else target
    make_folder(folder)
    workplace = Path(tempfile.mkdtemp(prefix=".export-", dir=folder))
    try:
        names = form.write(graph, workplace)
        file = FilePolicy.of(form.open(workplace), graph)
        report = played(policy, file, action_space, playing)
        kept = []
        for name in names:
            place = target if folder != target else folder / name
            rename(workplace / name, place)
            kept.append(place)
    except OSError as error:
        raise RunError(f"cannot write '{target}': {error}; is the disk full or the folder read-only?") from error
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return ExportReport(kept, *report)


def played(
    policy: Policy, file: FilePolicy, action_space: SpaceSpec, playing: Playing
) -> tuple[Agreement, Array, Array]:
    """The original plays and the file is shown the same; then the file plays by itself. Returns are not compared."""
    checked = CheckedPolicy(policy, file, action_space)
    original = evaluate_policy(checked, playing.make_env, episodes=playing.episodes, seed=playing.seed)
    alone = evaluate_policy(file, playing.make_env, episodes=playing.episodes, seed=playing.seed)
    return checked.agreement, original.returns, alone.returns
