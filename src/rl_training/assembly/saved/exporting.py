"""Writes a policy as a file and checks it by playing: what does not do as the policy does is not kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.export.check import Agreement, CheckedPolicy, FilePolicy, Runner
from rl_training.export.graph import HasGraph, PolicyGraph, Value
from rl_training.export.numpy_file import npz_bytes, numpy_runner, program_text
from rl_training.export.onnx_file import onnx_bytes, onnx_runner
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import make_folder, rename
from rl_training.training.evaluation import EnvMaker, evaluate_policy
from rl_training.types import Array, ConfigError, Policy, RunError, SpaceSpec

PLANNERS = ("planet", "pets")
"""Algorithms that search for each action; there is no network to export."""


FORMATS = ("onnx", "numpy", "torch")
FILE_ENDINGS = (".onnx", ".npz", ".py", ".pt2", ".pt", ".pth")
"""Endings of files that a user may have meant where the format writes others."""


class Files(NamedTuple):
    """A policy as files that are not written yet."""

    contents: Mapping[str, bytes]
    """By name."""
    open: Callable[[Path], Runner]
    """(folder) -> the files there as a function."""
    inputs: tuple[Value, ...]


def onnx_files(graph: PolicyGraph) -> Files:
    name = "policy.onnx"
    return Files({name: onnx_bytes(graph)}, lambda folder: onnx_runner((folder / name).read_bytes()), graph.inputs)


def numpy_files(graph: PolicyGraph) -> Files:
    contents = {"policy.npz": npz_bytes(graph), "policy.py": program_text().encode()}
    return Files(contents, numpy_runner, graph.inputs)


def torch_files(policy: Policy, algo: str, meta: Mapping[str, str]) -> Files:
    """A program of `torch.export`; ConfigError in one sentence where the policy is not one torch network."""
    from rl_training.algorithms.torch_export import greedy_module, program_bytes, program_runner

    refuse_planners(algo)
    module, name = greedy_module(policy), "policy.pt2"
    if module is None:
        raise ConfigError(f"format torch is for policies made of torch networks, which that of '{algo}' is not")
    contents = {name: program_bytes(module, meta)}
    return Files(contents, lambda folder: program_runner((folder / name).read_bytes()), module.inputs())


def files_of(policy: Policy, algo: str, kind: str, meta: Mapping[str, str]) -> Files:
    """The files of a format; ConfigError where the policy cannot be written in it."""
    if kind == "torch":
        return torch_files(policy, algo, meta)
    graph = graph_for_export(policy, algo, meta)
    return onnx_files(graph) if kind == "onnx" else numpy_files(graph)


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


def refuse_planners(algo: str) -> None:
    """ConfigError for algorithms without a policy network."""
    if algo in PLANNERS:
        raise ConfigError(f"a policy of '{algo}' plans each action with its model, so there is no network to export")


def graph_for_export(policy: Policy, algo: str, meta: Mapping[str, str]) -> PolicyGraph:
    """The graph of a policy; ConfigError in one sentence where it has none."""
    refuse_planners(algo)
    graph = policy.graph() if isinstance(policy, HasGraph) else None
    if graph is None:
        raise ConfigError(
            f"this policy of '{algo}' has no graph: onnx and numpy are for the package's own mlp, cnn, gru and lstm "
            "networks; torch takes transformers, Dreamer and networks of your own in torch"
        )
    return graph.with_meta(meta)


def export_policy(
    policy: Policy, files: Files, action_space: SpaceSpec, target: Path, playing: Playing
) -> ExportReport:
    """Write files into the folder `target`, or to `target` itself where it ends as the one file does.

    They are written beside their place, played with, and moved there only if they do what the policy does.
    """
    suffixes = {Path(name).suffix for name in files.contents}
    folder = target.parent if suffixes == {target.suffix} else target
    if folder == target and target.suffix in FILE_ENDINGS and not target.is_dir():
        names = " and ".join(files.contents)
        raise ConfigError(f"'{target}' ends as a file of another kind: this format writes {names}, so name a folder")
    with readable_errors(f"cannot write '{target}'", "folder"):
        make_folder(folder)
        workplace = Path(tempfile.mkdtemp(prefix=".export-", dir=folder))
    try:
        for name, content in files.contents.items():
            (workplace / name).write_bytes(content)
        file = FilePolicy(files.open(workplace), files.inputs)
        report = played(policy, file, action_space, playing)
        kept = []
        for name in files.contents:
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
