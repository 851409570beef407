"""The documentation is true: its links lead somewhere, its commands run, every logged metric is explained."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import rl_training
from rl_training.cli import main
from rl_training.cli.dispatch import find_command, parse_words
from rl_training.config.loading import load_config
from rl_training.config.schema import builtin_spec
from rl_training.data.datasets.native import write_native
from rl_training.eval import record
from rl_training.registry import algorithms
from rl_training.training.offline.recording import Amount

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(
        path
        for folder in ("src", "examples", "scripts", "benchmarks", "configs", "tests", "tools")
        for path in (ROOT / folder).rglob("README.md")
    ),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
WITH_PATH = "PYTHONPATH=."
PARSED = frozenset(
    {
        *("eval", "resume", "show", "watch", "debug", "tag", "note", "diff", "verify", "cleanup", "archive", "import"),
        *("index", "compare", "export", "export-policy", "plot", "dream", "enjoy", "dashboard", "cluster", "record"),
        *("dataset", "ope", "league", "play"),
    }
)
"""Commands that need runs, or would change those of whoever runs the tests."""
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors_of(page: Path) -> set[str]:
    """The anchors that headings get on the web."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name_of(page)}: '{target}' does not exist"
        if anchor:
            assert anchor in anchors_of(found), f"{name_of(page)}: '{target}' has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_commands_name_exist(page: Path) -> None:
    named = re.findall(r"(?<![\w/.])(?:tests|benchmarks|tools|examples|scripts)/[\w/.-]*\w", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: object) -> list[str]:
        if isinstance(entry, dict):
            entry = list(entry.values())
        return [entry] if isinstance(entry, str) else [page for item in entry for page in pages(item)]  # type: ignore[attr-defined]

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def commands() -> list[str]:
    """Every line of a bash block that runs `rl`, without its comment; tests of their own run those of the tutorials."""
    pages = [page for page in PAGES if page not in (DOCS / "tutorial.md", DOCS / "paper-table.md")]
    blocks = [block for page in pages for language, block in FENCE.findall(page.read_text()) if language == "bash"]
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(("rl ", f"{WITH_PATH} rl "))]
    return sorted({shlex.join(shlex.split(line, comments=True)) for line in lines})


def recorded(env_id: str, folder: Path) -> Path:
    """A few random steps, for what needs a dataset."""
    return write_native(record(None, Amount(steps=40), random_env=env_id), folder / "dataset")


@pytest.mark.parametrize("line", commands())
def test_commands_run(
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    registrations: None,
) -> None:
    """`rl train` runs dry; what needs a finished run is parsed; everything else runs as it is."""
    words = shlex.split(line)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command adds the folder it is typed in
    if words[0] == WITH_PATH:
        monkeypatch.syspath_prepend(ROOT)
        monkeypatch.delitem(sys.modules, "examples.my_ppo_loss", raising=False)  # its decorator is to register again
    words = words[words.index("rl") + 1 :]
    monkeypatch.chdir(tmp_path if words[0] == "new" else ROOT)
    if words[0] in PARSED or "--resume" in words or "--init-from" in words:
        command, rest = find_command(words)
        assert command is not None
        options = parse_words(command, rest)
        if words[0] in ("eval", "resume"):
            assert options.run in ("latest", "baseline")  # a run, the group of docs/groups.md
        return
    if words[0] in ("train", "sweep", "tune") and "--help" not in words:
        words.append("--dry-run")
    algo = words[1].partition("/")[0] if words[0] == "train" else ""
    if algo in algorithms.names() and builtin_spec(algo).kind == "offline":
        words += ["--dataset", str(recorded(load_config(words[1]).env_id, tmp_path))]
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_examples_name_what_exists(page: Path) -> None:
    """Every block compiles, what it imports from the package can be imported, and `rl_training.name` is there."""
    for language, block in FENCE.findall(page.read_text()):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rl_training"):
                module = importlib.import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rl_training":
                assert hasattr(rl_training, node.attr), f"rl_training.{node.attr} does not exist"


LATENT = ("dreamer", "planet", "dynamics")
"""Algorithms that learn a latent world model."""


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_logged_metric_is_explained(algo: str, tmp_path: Path) -> None:
    """A short run on Box actions, which log the most; in JAX where there is no torch twin."""
    spec = builtin_spec(algo)
    replay: dict[str, Any] = {"learning_starts": 8, "batch_size": 4, "updates_per_step": 0.5}
    rollouts = {"num_steps": 8, **({"exploration": {"type": "rnd"}} if algo == "ppo" else {})}
    if algo in LATENT:  # long enough sequences for the errors of predictions
        widths = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 2, "units": 8, "layers": 1, "depth": 1, "bins": 5}
        replay = {"size": "custom", "custom": widths, "learning_starts": 8, "batch_size": 2, "sequence_length": 4}
        replay |= {"train_ratio": 2} | ({"candidates": 4, "elites": 2, "iterations": 1} if algo == "planet" else {})
    cfg = {
        "algo": algo,
        "backend": "jax" if spec.build is None else "torch",
        "env_id": "CartPole-v1" if algo in ("dqn", "pqn") else "Pendulum-v1",
        "output_dir": str(tmp_path),
        "env": {"num_envs": 2, "max_episode_steps": 30 if algo in LATENT else 8},
        "hparams": replay if spec.kind == "off_policy" else rollouts,
        "training": {"total_timesteps": 64 if algo in LATENT else 32, "num_eval_episodes": 1},
        "logging": {"terminal": False, "tensorboard": False},
    }
    if spec.whole_teams:  # in JAX agents end together
        env_id = "RLTeam/TwoStepGame-v0" if spec.build is None else "RLTeam/Leaving-v0"
        cfg |= {"env_id": env_id, "env": {"num_envs": 2, "agents": {"reward": "team_mean"}}}
    if spec.kind == "offline":
        cfg |= {"dataset": {"path": str(recorded("Pendulum-v1", tmp_path))}, "hparams": {"batch_size": 4}}
        cfg["training"] = {"total_updates": 4, "num_eval_episodes": 1}
    rows = (Path(rl_training.train(cfg).run_dir) / "logs" / "metrics.jsonl").read_text().splitlines()
    logged = {
        name for row in rows for name in json.loads(row) if name.startswith(("train/", "rollout/", "eval/", "model/"))
    }
    assert {"eval/return_mean"} | ({"rollout/return_mean"} if spec.kind != "offline" else set()) <= logged
    page, common = ((DOCS / "algorithms" / f"{name}.md").read_text() for name in (algo, "index"))
    assert sorted(name for name in logged if f"`{name}`" not in page + common) == []
    shares = spec.kind == "on_policy" and algo not in (
        "pqn",
        "pqn_vdn",
    )  # what policy gradients log is explained in the index
    updates = set(re.findall(r"`((?:train|model)/\w+)`", page + (common if shares else "")))
    assert sorted(updates - logged) == [], "explained, but not logged"


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_algorithm_page_has_its_parts(algo: str) -> None:
    """Paper, code, how to run it, deviations, metrics; the sanity agents say that there is no paper."""
    text = (DOCS / "algorithms" / f"{algo}.md").read_text()
    (code,) = re.findall(r"Code:\s+`(src/[\w/]+\.py)`", text)
    assert (ROOT / code).is_file()
    assert re.search(rf"^rl train {algo}/\w+$", text, re.M)
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings[-1] == "Metrics"
    if builtin_spec(algo).kind == "static":
        assert "There is no paper" in text
    else:
        assert "What differs" in headings
        assert re.search(r"\b(19|20)\d\d,\s+(\[arXiv:|Machine Learning)", text)
