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
    """An alert rule of your own: a comparison of metrics, or a function."""

    __pydantic_config__ = STRICT

    name: str
    """What its alerts are called or, without `when`, the rule itself: your function as "package.module:name"."""
    when: str | None = None
    """Alert where this holds, such as "train/value_loss > 100 and env_steps > 10000"; the language of `rl list`."""
    rows: int = 1
    """In how many rows that have the metrics it must hold one after the other."""
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
    """A close look at every update, in `debug/` of the run; slow, and changes no number."""

    __pydantic_config__ = STRICT

    enabled: bool = False
    """Per-layer statistics, hints, a check of the environment; an update that gives NaN or Inf is saved for replay."""
    gradient_check: bool = False
    """Compare the gradients of the first update with finite differences."""
    profile: bool = False
    """Trace two train steps with torch's profiler, into debug/trace.json and profile.txt."""
    memory: bool = False
    """Where Python's memory grew after the first train step (or the profile), into debug/memory.txt."""
    capture_update: int | None = None
    """Also save this update, counted from 1, for `rl debug replay`."""

    def __post_init__(self) -> None:
        check_range(self, "capture_update", low=1, high=MAX_COUNT)


@dataclass(frozen=True)
class MonitorConfig:
    """Checks on a running experiment, and alerts: they tell, and never change the training."""

    __pydantic_config__ = STRICT

    checks: Literal["off", "cheap", "full"] = "cheap"
    """NaN/Inf guard: cheap looks at actions, rollouts, gradient norms, losses and parameters; full also at every tensor
    after every update, and at gradients before every step on a GPU too."""
    alerts: bool = True
    """Look for trouble after every train step and tell: console, logs/alerts.jsonl, `command`, `url`."""
    max_kl: float | None = 0.2
    """Alert where an update moves the policy by more than this KL divergence (nats); null never does."""
    min_entropy: float | None = 0.01
    """Alert where the policy's entropy (Gaussian: its standard deviation) falls below this share of its first value;
    null never does."""
    progress_patience: float | None = 0.5
    """Alert after this share of the budget without a new best mean return of 100 episodes, where the run has learnt
    nothing or lost a quarter of it; one that is solved is silent, and null never alerts."""
    max_memory: float | None = 0.95
    """Alert where more than this share of the machine's memory is in use; null never does."""
    min_speed: float | None = 0.3
    """Alert where training runs at less than this share of its usual speed; null never does."""
    alert_interval: float = 0.1
    """Share of the budget for which a rule is silent after it has alerted."""
    rules: tuple[AlertRuleConfig, ...] = ()
    """Alert rules of your own."""
    command: tuple[str, ...] = ()
    """Program with its arguments that is run for every alert, which it gets as JSON on stdin; no shell. Of the
    environment it gets PATH, HOME, USER, SHELL, LANG, LC_*, TZ, TMPDIR and what `hook_env` names."""
    hook_env: tuple[str, ...] = ()
    """Names of further environment variables for the command, such as SLACK_TOKEN."""
    url: str | None = None
    """Address that every alert is posted to as JSON, such as "${env:ALERT_URL}"."""
    hook_timeout: float = 10.0
    """Seconds that the command or the address may take; the run never waits for them."""
    debug: DebugConfig = field(default_factory=DebugConfig)
    """A close look at every update."""

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
