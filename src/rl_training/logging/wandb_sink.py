"""Weights & Biases sink, off by default. Failures, lost connections and a missing key never disturb the run.

A resumed run continues under the same id. Rows that were sent before the interruption are sent again with the same
steps and, since a resume is exact, the same values; W&B ignores steps it already has, so no point is duplicated.
"""

from __future__ import annotations

import netrc
import os
import urllib.parse
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rl_training.config.loading import config_to_mapping
from rl_training.config.schema import WandbConfig
from rl_training.runs.directory import RunDir
from rl_training.system.error_text import describe
from rl_training.system.json_lines import Row, eval_name, steps_of
from rl_training.system.offspring import OUTLIVES
from rl_training.types import ConfigError

INIT_SECONDS = 30.0


class WandbSink:
    """Logs every number of every row over env steps. W&B's own files go to logs/wandb/ of the run."""

    def __init__(self, cfg: WandbConfig, run: RunDir) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("logging to W&B needs an extra: pip install 'rl-training[tracking]'") from error
        self._run: Any = None
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
        if mode == "offline" and "WANDB_MODE" not in os.environ:
            _warn(f"no W&B key found: it logs offline; later `wandb login` and `wandb sync {run.logs}/wandb/*run-*`")
        settings = wandb.Settings(
            silent=True,
            console="off",
            init_timeout=INIT_SECONDS,
            # W&B would store the command line and the git remote as they are, secrets included.
            x_disable_meta=True,
            disable_git=True,
            disable_code=True,
        )

        def start() -> None:
            info = run.info()
            self._run = wandb.init(
                dir=str(run.logs),
                id=run.tracking_id(),
                resume="allow",
                mode=mode,
                project=cfg.project,
                entity=cfg.entity,
                tags=list(cfg.tags),
                name=info["name"] or info["id"],
                config=config_to_mapping(run.config(secrets=False)),
                settings=settings,
            )

        # W&B's service process keeps uploading after the run, and serves the next one
        os.environ[OUTLIVES] = "1"
        try:
            self._guarded(start)
        finally:
            del os.environ[OUTLIVES]

    def log(self, row: Row, /) -> None:
        if self._run is not None:
            numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
            self._guarded(lambda: self._run.log(numbers, step=steps_of(row)))

    def log_eval(self, row: Row, /) -> None:
        self.log({eval_name(key): value for key, value in row.items()})

    def close(self) -> None:
        if self._run is not None:
            self._guarded(lambda: self._run.finish())
            self._run = None

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever W&B raises, training goes on
            self._run = None
            _warn(f"W&B failed and is off for the rest of this run: {describe(error)}")


def has_key() -> bool:
    """Whether W&B could log in without asking: a key in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            if path and host in netrc.netrc(os.path.expanduser(path)).hosts:
                return True
    return False


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)
