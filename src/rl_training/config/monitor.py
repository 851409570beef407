"""The `monitor` section of a config: checks, alerts, debug mode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rl_training.config.expressions import parse_expression
from rl_training.hparams.base import MAX_COUNT, STRICT, Json, check_range
from rl_training.types import ConfigError

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RULE_EXAMPLE = "train/value_loss > 100 and env_steps > 10000"


@dataclass(frozen=True)
class AlertRuleConfig:
    """An alert rule of your own: an expression over metrics, or a function."""

    __pydantic_config__ = STRICT

    name: str
    """Name of its alerts or, without `when`, the rule itself: your function as "package.module:name"."""
    when: str | None = None
    """Alert when this is true, such as "train/value_loss > 100 and env_steps > 10000"; the language of `rl list`."""
    rows: int = 1
    """Number of consecutive rows with these metrics in which it must be true."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments of the function."""

    def __post_init__(self) -> None:
        check_range(self, "rows", low=1, high=MAX_COUNT)
        if self.when is not None:
            parse_expression(self.when, lambda key: lambda row: row.get(key), what="rule", example=RULE_EXAMPLE)
        elif ":" not in self.name:
            raise ConfigError(
                f"name '{self.name}': give the rule a `when` such as \"{RULE_EXAMPLE}\", or name a function as "
                '"package.module:name"'
            )


@dataclass(frozen=True)
class DebugConfig:
    """Diagnostics of every update, in `debug/` of the run; slow, and changes no result."""

    __pydantic_config__ = STRICT

    enabled: bool = False
    """Per-layer statistics, hints, a check of the environment; updates with non-finite results are saved for replay."""
    gradient_check: bool = False
    """Compare the gradients of the first update with finite differences."""
    profile: bool = False
    """Trace two train steps with torch's profiler, into debug/trace.json and profile.txt."""
    memory: bool = False
    """Write where Python's memory grew after the first train step (or the profile) to debug/memory.txt."""
    capture_update: int | None = None
    """Also save this update, counted from 1, for `rl debug replay`."""

    def __post_init__(self) -> None:
        check_range(self, "capture_update", low=1, high=MAX_COUNT)


@dataclass(frozen=True)
class MonitorConfig:
    """Checks on a running experiment, and alerts; they report and never change the training."""

    __pydantic_config__ = STRICT

    checks: Literal["off", "cheap", "full"] = "cheap"
    """NaN/Inf guard: cheap checks actions, rollouts, gradient norms, losses and parameters; full also checks every
    tensor after every update, and on a GPU the gradients before every step."""
    alerts: bool = True
    """Look for problems after every train step and report them: console, logs/alerts.jsonl, `command`, `url`."""
    max_kl: float | None = 0.2
    """Alert if an update changes the policy by more than this KL divergence (nats); null turns it off."""
    min_entropy: float | None = 0.01
    """Alert if the policy's entropy (Gaussian: its standard deviation) falls below this fraction of its first value;
    null turns it off."""
    progress_patience: float | None = 0.5
    """Alert after this fraction of the budget without a new best mean return over 100 episodes, if the run has learnt
    nothing or lost a quarter of its gain; a solved run does not alert, and null turns it off."""
    max_memory: float | None = 0.95
    """Alert if more than this fraction of the machine's memory is in use; null turns it off."""
    min_speed: float | None = 0.3
    """Alert if training is slower than this fraction of its usual speed; null turns it off."""
    alert_interval: float = 0.1
    """Fraction of the budget for which a rule does not alert again."""
    rules: tuple[AlertRuleConfig, ...] = ()
    """Alert rules of your own."""
    command: tuple[str, ...] = ()
    """Program with arguments to run for every alert, which it gets as JSON on stdin; no shell. Its environment contains
    only PATH, HOME, USER, SHELL, LANG, LC_*, TZ, TMPDIR and the variables in `hook_env`."""
    hook_env: tuple[str, ...] = ()
    """Names of further environment variables for the command, such as SLACK_TOKEN."""
    url: str | None = None
    """URL to which every alert is posted as JSON, such as "${env:ALERT_URL}"."""
    hook_timeout: float = 10.0
    """Timeout of the command and of the request, in seconds; both run in the background."""
    debug: DebugConfig = field(default_factory=DebugConfig)
    """Detailed diagnostics of every update."""

    def __post_init__(self) -> None:
        check_range(self, "max_kl", low=0.0)
        for share in ("min_entropy", "progress_patience", "max_memory", "min_speed", "alert_interval"):
            check_range(self, share, low=0.0, high=1.0)
        check_range(self, "hook_timeout", low=0.0, high=3600.0, above=True)
        if self.url is not None and not self.url.startswith(("http://", "https://", "${env:")):
            raise ConfigError(f"url must start with http:// or https://, not {self.url[:20]!r}")
        if not all(VARIABLE.fullmatch(name) for name in self.hook_env):
            raise ConfigError("hook_env takes names of environment variables such as SLACK_TOKEN, without values")
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ConfigError("rules: a name is there twice")
