"""A run as a folder to publish: a model card with scores, the policy as files, config, metrics, a video. No network."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from rl_training.assembly.saved.exporting import ExportReport
from rl_training.eval import evaluate, load
from rl_training.runs.directory import RunDir
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import make_folder, rename
from rl_training.types import ConfigError, EnvError
from rl_training.version import __version__

KINDS = ("onnx", "numpy")
VIDEO = "replay.mp4"
LEFT_OUT = ("run", "checkpoint", "video")
"""Entries of an evaluation that say where it was made."""


def write_bundle(
    run: RunDir,
    target: Path | None = None,
    *,
    checkpoint: str | int = "latest",
    episodes: int = 100,
    trust_plugins: bool = False,
    allow_changed_config: bool = False,
) -> dict[str, Any]:
    """Write the folder, by default `<run>/export/bundle`; returns the record that `rl export-policy --json` prints.

    The policy files are checked as those of `rl export-policy`. `episodes` are those of the scores.
    """
    folder = target or run.path / "export" / "bundle"
    trusted: dict[str, Any] = {"trust_plugins": trust_plugins, "allow_changed_config": allow_changed_config}
    with readable_errors(f"cannot write '{folder}'", "folder"):
        make_folder(folder)
        workplace = Path(tempfile.mkdtemp(prefix=".export-", dir=folder))
        try:
            saved = load(run.path, checkpoint, **trusted)
            reports = {kind: saved.write(kind, workplace) for kind in KINDS}
            scores, note = scored(run, workplace / VIDEO, checkpoint, episodes, trusted)
            metrics = {name: value for name, value in scores.items() if name not in LEFT_OUT}
            (workplace / "metrics.json").write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
            shutil.copyfile(run.path / "configs" / "resolved.yaml", workplace / "config.yaml")
            (workplace / "README.md").write_text(card(saved.description(), metrics, reports, note), encoding="utf-8")
            files = sorted(path.name for path in workplace.iterdir())
            for name in files:
                rename(workplace / name, folder / name)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    worst = max(reports.values(), key=lambda report: report.agreement.largest).record()
    return {**worst, "files": [str(folder / name) for name in files], "note": note}


def scored(
    run: RunDir, video: Path, checkpoint: str | int, episodes: int, trusted: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """The scores of the policy and, where the environment can draw, a video; a note says why there is none."""
    try:
        record = evaluate(run.path, checkpoint=checkpoint, episodes=1, video=video, **trusted)
        note = "" if "video" in record else "no video"
    except (EnvError, ConfigError) as error:
        note = f"no video: {error}"
    return evaluate(run.path, checkpoint=checkpoint, episodes=episodes, **trusted), note


def reached(description: dict[str, str]) -> str:
    """How long a run was trained, in words.

    >>> reached({"env_steps": "0", "updates": "50000"})
    '50,000 updates from a dataset'
    """
    if "updates" in description:
        return f"{int(description['updates']):,} updates from a dataset"
    return f"{int(description['env_steps']):,} env steps"


def card(description: dict[str, str], metrics: dict[str, Any], reports: dict[str, ExportReport], note: str) -> str:
    """The model card: front matter that model hubs read, then what the files are and how to use them."""
    algo, env_id = description["algo"], description["env_id"]
    mean, std = metrics["return_mean"], metrics["return_std"]
    score = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"type": env_id, "name": env_id},
        "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": f"{mean:.2f} +/- {std:.2f}"}],
    }
    front = {
        "library_name": "rl_training",
        "tags": [env_id, algo, "reinforcement-learning", "rl_training"],
        "model-index": [{"name": algo, "results": [score]}],
    }
    checks = "\n".join(f"- `{kind}`: {report.agreement.text()}" for kind, report in reports.items())
    seen = f"`{VIDEO}` shows an episode." if not note else f"There is {note}."
    return f"""---
{yaml.safe_dump(front, sort_keys=False)}---

# {algo} on {env_id}

Trained with rl_training {__version__} for {reached(description)}.

| greedy episodes | return | IQM | length |
|---|---|---|---|
| {metrics["episodes"]} | {mean:.2f} ± {std:.2f} | {metrics["return_iqm"]:.2f} | {metrics["length_mean"]:.1f} |

All numbers are in `metrics.json`, the settings in `config.yaml`. {seen}

## Use

```python
from policy import Policy  # policy.py and policy.npz, which need NumPy alone

policy = Policy()
action = policy.act(obs)  # policy.reset() before the next episode
```

`policy.onnx` is the same policy for any ONNX runtime. Raw observations go in and actions of the environment come out.
Both were compared with the trained policy in its evaluation episodes:

{checks}
"""
