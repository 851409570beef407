"""What a run records about itself before training: config without secrets, seal, versions, hardware, git state."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rl_training.config.loading import ResolvedConfig, as_resolved
from rl_training.config.resolution import hash_of
from rl_training.config.schema import TrainConfig
from rl_training.runs.foreign_code import foreign_code
from rl_training.runs.redaction import Redactor
from rl_training.runs.stored_config import seal_config
from rl_training.system.machine import GitState, hardware, versions
from rl_training.trust.consent import FLAG, current

SEAL = "trust_seal"
"""Field of `run.json` that proves that the run was created on this machine; see `trust/`."""


def public_config(cfg: TrainConfig | ResolvedConfig, redactor: Redactor) -> dict[str, Any]:
    """Every field of a config with its secrets replaced, as a run directory stores it."""
    # all values are included, so the files that the config was based on are no longer needed
    tree: dict[str, Any] = redactor.mapping({**as_resolved(cfg).mapping, "base": None})
    return tree


def public_sha256(public: Mapping[str, Any]) -> str:
    """The `config_sha256` of `run.json`."""
    return hash_of(public)


def run_info(
    run_id: str, cfg: TrainConfig, public: Mapping[str, Any], relations: Mapping[str, str | None], argv: Sequence[str]
) -> dict[str, Any]:
    """The first `run.json` of a run, without its `git` entry; `relations` are its group, sweep and parent."""
    return {
        "id": run_id,
        "name": public["name"],
        **{field: public[field] for field in ("algo", "env_id", "seed", "tags")},
        "status": "running",
        "started": timestamp(),
        "ended": None,
        "exit_code": None,
        "config_sha256": public_sha256(public),
        "metrics_sha256": None,
        SEAL: sealed(run_id, public, cfg),
        **relations,
        "versions": versions(),
        "hardware": hardware(),
        "threads": cfg.training.num_threads,
        "exact": None,
        "argv": list(argv),
    }


def sealed(run_id: str, public: Mapping[str, Any], cfg: TrainConfig) -> str | None:
    """The trust seal of a new run. Warns if there is no key to make one and the run will need it."""
    seal = seal_config("run", run_id, public)
    if seal is None and current().level == "own" and foreign_code(cfg):
        warnings.warn(
            "the key that marks runs as yours cannot be written to your config directory, so this run will ask once "
            f"whether you trust its code: then {FLAG}",
            UserWarning,
            stacklevel=2,
        )
    return seal


def git_facts(state: GitState | None, redactor: Redactor) -> tuple[dict[str, Any] | None, str]:
    """The `git` entry of run.json and the diff to store, without secrets; the hash is of the diff as stored."""
    if state is None:
        return None, ""
    diff = redactor.diff(state.diff)
    facts = {
        "commit": state.commit,
        "branch": state.branch,
        "dirty": bool(state.diff) or state.truncated,
        "diff_sha256": hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest() if diff else None,
        "diff_truncated": state.truncated,
        "diff_redacted": diff != state.diff,
        "untracked": [redactor.text(name) for name in state.untracked],
    }
    return facts, diff


def timestamp() -> str:
    """The present time in UTC, as `run.json` writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
