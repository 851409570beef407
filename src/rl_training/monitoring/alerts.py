"""Alerts: rules that check every row of metrics of a running experiment and notify the user. They never change it.

A rule is a function `rule(row, memory, **options)`: `row` holds `env_steps`, the metrics of one train step and the
returns of its episodes (`rollout/returns`), `memory` is a dict of the rule's own that is saved with the run, and what
is returned is a sentence, or None where all is well.
A rule that holds raises one alert; it is then silent until it no longer holds and `monitor.alert_interval` has passed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil

from rl_training.config.expressions import Lookup, parse_expression
from rl_training.config.monitor import AlertRuleConfig, MonitorConfig
from rl_training.logging.logger import Logger
from rl_training.logging.progress_display import Display
from rl_training.monitoring.alert_hooks import AlertHook
from rl_training.monitoring.progress_rule import RETURNS, WINDOW, no_progress
from rl_training.registry import check_call, import_attr
from rl_training.runs.row import REWARDS
from rl_training.system.error_text import describe
from rl_training.system.json_lines import Row, plain_row, steps_of
from rl_training.training.callbacks import Callback
from rl_training.training.loop import Report, Trainer
from rl_training.types import ConfigError, StateDict

Memory = dict[str, Any]
RuleFunction = Callable[[Row, Memory], Any]

SPEED_SECONDS = 10.0
"""Training time over which a speed is measured."""
SPEED_WINDOWS = 3
"""Measurements that define the usual speed, before a later one can be too slow."""
LOOK_SECONDS = 1.0
"""Seconds between two measurements of the memory in use."""
NOT_TRAINING = ("evaluation", "video", "checkpoint")
"""Parts of the clock that do not count towards the speed of training."""


@dataclass(frozen=True)
class Alert:
    """Something the user should look at."""

    rule: str
    message: str
    env_steps: int = 0


@dataclass
class Rule:
    """A rule with its memory and the alerts it has raised."""

    check: RuleFunction
    by_the_clock: bool = False
    """Whether it depends on the machine, so that its memory is not part of a checkpoint."""
    by_user: bool = False
    """Whether it comes from the user, so that its memory must be checked for what a checkpoint cannot hold."""
    memory: Memory = field(default_factory=dict)
    holds: bool = False
    silent_until: int = 0
    is_broken: bool = False


class TrainingMonitor:
    """The rules of a config. Call `check_alerts(row)` with every row, in order."""

    def __init__(
        self, cfg: MonitorConfig | None = None, *, total_timesteps: int = 100_000, solved_at: float | None = None
    ) -> None:
        cfg = cfg or MonitorConfig()
        self.interval = int(cfg.alert_interval * total_timesteps)
        self.rules = dict(built_in_rules(cfg, total_timesteps, solved_at)) if cfg.alerts else {}
        for rule in cfg.rules if cfg.alerts else ():
            if rule.name in self.rules:
                raise ConfigError(f"monitor.rules: '{rule.name}' is the name of a built-in rule; choose another")
            self.rules[rule.name] = Rule(user_rule(rule), by_user=True)

    def check_alerts(self, row: Mapping[str, Any]) -> list[Alert]:
        """The alerts that this row raises."""
        plain = plain_row(row)
        env_steps = steps_of(plain) or 0
        found = [self._look(name, rule, plain, env_steps) for name, rule in self.rules.items() if not rule.is_broken]
        return [alert for alert in found if alert is not None]

    def _look(self, name: str, rule: Rule, row: Row, env_steps: int) -> Alert | None:
        held = rule.holds
        try:
            said = rule.check(dict(row), rule.memory)
            if rule.by_user:
                json.dumps(rule.memory)  # a checkpoint takes nothing else
        except Exception as error:  # a user's rule may raise anything, and none of it ends the run
            rule.is_broken, rule.memory = True, {}
            return Alert(name, f"this rule failed and is switched off: {describe(error)}", env_steps)
        rule.holds = bool(said)
        if not said or held or env_steps < rule.silent_until:
            return None
        rule.silent_until = env_steps + self.interval
        return Alert(name, said if isinstance(said, str) else f"{name} at {env_steps:,} env steps", env_steps)

    def state_dict(self) -> StateDict:
        saved = {name: rule for name, rule in self.rules.items() if not rule.by_the_clock}
        return {
            name: {
                "memory": json.loads(json.dumps(rule.memory)),
                "holds": rule.holds,
                "silent_until": rule.silent_until,
                "is_broken": rule.is_broken,
            }
            for name, rule in saved.items()
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        for name, saved in state.items():
            rule = self.rules[name]
            rule.memory, rule.holds = dict(saved["memory"]), bool(saved["holds"])
            rule.silent_until, rule.is_broken = int(saved["silent_until"]), bool(saved["is_broken"])


# -- the built-in rules -----------------------------------------------------------------------------------------------


def built_in_rules(
    cfg: MonitorConfig, total_timesteps: int, solved_at: float | None = None
) -> Iterator[tuple[str, Rule]]:
    """Rules that the config does not switch off with null. A run whose mean return is `solved_at` is never stuck."""
    yield "nan", Rule(not_finite)
    if cfg.max_kl is not None:
        yield "kl", Rule(partial(kl_blow_up, limit=cfg.max_kl))
    if cfg.min_entropy is not None:
        yield "entropy", Rule(partial(entropy_collapse, share=cfg.min_entropy))
    if cfg.progress_patience is not None:
        patience = int(cfg.progress_patience * total_timesteps)
        yield "no_progress", Rule(partial(no_progress, patience=patience, solved_at=solved_at))
    if cfg.max_memory is not None:
        yield "memory", Rule(partial(memory_high, limit=cfg.max_memory), by_the_clock=True)
    if cfg.min_speed is not None:
        yield "speed", Rule(partial(speed_drop, share=cfg.min_speed), by_the_clock=True)


def not_finite(row: Row, memory: Memory) -> str | None:
    """A loss, a return or any other metric that is NaN or infinite."""
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value) and name.startswith(("train/", "rollout/", "eval/")):
            return f"{name} is {value}; lower hparams.learning_rate, or look with monitor.checks: full"
    return None


def kl_blow_up(row: Row, memory: Memory, *, limit: float) -> str | None:
    """An update that moved the policy much further than intended."""
    kl = row.get("train/approx_kl")
    if kl is None or not kl > limit:
        return None
    return f"train/approx_kl is {kl:.3g}, more than {limit:g}; lower hparams.learning_rate or set hparams.target_kl"


def entropy_collapse(row: Row, memory: Memory, *, share: float) -> str | None:
    """A policy that hardly explores any more, judged by its entropy or the standard deviation of its Gaussian."""
    name, value = "train/action_std", row.get("train/action_std")
    if value is None and "train/entropy_loss" in row:
        name, value = "policy entropy", -row["train/entropy_loss"]
    if value is None or not math.isfinite(value):
        return None
    first: float = memory.setdefault("first", float(value))
    if first <= 0 or value >= share * first:
        return None
    return f"{name} fell from {first:.3g} to {value:.3g}; raise hparams.ent_coef if the return is not yet what you want"


def memory_high(row: Row, memory: Memory, *, limit: float) -> str | None:
    """The machine is about to run out of memory, whichever process uses it."""
    used = row.get("system/memory_share")
    if used is None or used <= limit:
        return None
    own = row.get("system/rss_bytes", 0) / 1e9
    return f"{used:.0%} of the machine's memory is in use, {own:.1f} GB by this run; shrink buffer.size or env.num_envs"


def speed_drop(row: Row, memory: Memory, *, share: float) -> Any:
    """Training that became much slower: because of another job, a throttled machine, an environment that grows.

    Only train steps that learn count, so that the fast ones before learning starts do not set the standard.
    """
    seconds, env_steps = row.get("time/training_seconds"), steps_of(row) or 0
    if seconds is None or row.get("updates") == memory.get("updates"):
        memory.update(seconds=seconds, env_steps=env_steps, updates=row.get("updates"))
        return None
    memory["updates"] = row.get("updates")
    if memory.get("seconds") is None:
        memory.update(seconds=seconds, env_steps=env_steps)
    if seconds - memory["seconds"] < SPEED_SECONDS:
        return memory.get("said")
    speed = (env_steps - memory["env_steps"]) / (seconds - memory["seconds"])
    memory.update(seconds=seconds, env_steps=env_steps, said=None)
    usual: list[float] = memory.setdefault("speeds", [])
    if len(usual) >= SPEED_WINDOWS and speed < share * statistics.median(usual):
        memory["said"] = f"{speed:,.0f} env steps/s, usually {statistics.median(usual):,.0f}; is the machine busy?"
    else:
        usual.append(speed)
    return memory["said"]


# -- rules of a user --------------------------------------------------------------------------------------------------


def user_rule(rule: AlertRuleConfig) -> RuleFunction:
    """The function behind a rule of the config."""
    if rule.when is not None:
        return when_rule(rule.when, rule.rows)
    function = import_attr(rule.name, "alert rule")
    check_call(function, f"alert rule '{rule.name}'", {"row": {}, "memory": {}}, rule.kwargs)
    return in_a_row(lambda row, memory: function(row, memory, **rule.kwargs), rule.rows)


def when_rule(text: str, rows: int) -> RuleFunction:
    """A comparison of metrics; rows that lack one of them are passed over."""
    lookups: list[Lookup] = []

    def find_key(key: str) -> Lookup:
        lookups.append(metric_lookup(key))
        return lookups[-1]

    accepts = parse_expression(text, find_key, what="rule", example="train/value_loss > 100")

    def check(row: Row, memory: Memory) -> Any:
        values = [lookup(row) for lookup in lookups]
        if any(value is None for value in values):
            return memory.get("said")
        memory["count"] = memory.get("count", 0) + 1 if accepts(row) else 0
        shown = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        memory["said"] = f"{text} ({shown})" if memory["count"] >= rows else None
        return memory["said"]

    return check


def metric_lookup(key: str) -> Lookup:
    """A metric by its name; `reward` and `loss` stand for the usual ones."""
    if key in ("reward", "return"):
        return lambda row: next((row[name] for name in REWARDS if row.get(name) is not None), None)
    name = "train/loss" if key == "loss" else key
    return lambda row: row.get(name)


def in_a_row(check: RuleFunction, rows: int) -> RuleFunction:
    """The same rule, which holds only after it did so for `rows` rows in succession."""
    if rows == 1:
        return check

    def counted(row: Row, memory: Memory) -> Any:
        said = check(row, memory.setdefault("own", {}))
        memory["count"] = memory.get("count", 0) + 1 if said else 0
        return said if memory["count"] >= rows else None

    return counted


# -- in a run ---------------------------------------------------------------------------------------------------------


class MonitorCallback(Callback):
    """Feeds the monitor and passes its alerts on: to the console, logs/alerts.jsonl and the hook of the user."""

    may_start_afresh = True
    """A run that was saved without alerts can be resumed."""

    def __init__(
        self, monitor: TrainingMonitor, logger: Logger, display: Display, hook: AlertHook | None, run: str
    ) -> None:
        self.monitor = monitor
        self.logger = logger
        self.display = display
        self.hook = hook
        self.run = run
        """Name of the run, to tell its alerts from those of others."""
        self.process = psutil.Process()
        self.memory: Row = {}
        self.next_look = 0.0

    def on_step(self, trainer: Trainer, report: Report) -> None:
        machine = self.machine(trainer)
        for update in report.updates:
            returns = {RETURNS: [episode.episode_return for episode in update.episodes[-WINDOW:]]}
            row = {**update.after.state_dict(), **update.metrics, **returns, **machine}
            for alert in self.monitor.check_alerts(row):
                self.tell(alert)
        self.pass_on_notes()

    def on_failure(self, trainer: Trainer, error: BaseException) -> None:
        """The last alert of a run."""
        self.tell(Alert("failed", describe(error), trainer.progress.env_steps))
        self.close()

    def tell(self, alert: Alert) -> None:
        row = {"env_steps": alert.env_steps, "rule": alert.rule, "message": alert.message}
        row["time/at"] = datetime.now(UTC).isoformat(timespec="seconds")
        row = self.logger.log_alert(row)
        self.display.message(f"alert {alert.rule}: {row['message']} (at {alert.env_steps:,} env steps)")
        if self.hook is not None:
            self.hook.send({"run": self.run, **row})

    def machine(self, trainer: Trainer) -> Row:
        """Measurements for the rules on speed and memory."""
        clock = trainer.clock
        idle = sum(clock.seconds[name] for name in NOT_TRAINING if name in clock.seconds)
        if clock.elapsed >= self.next_look:
            self.next_look = clock.elapsed + LOOK_SECONDS
            share, own = psutil.virtual_memory().percent / 100, self.process.memory_info().rss
            self.memory = {"system/memory_share": share, "system/rss_bytes": own}
        return {"time/training_seconds": clock.elapsed - idle, **self.memory}

    def close(self, patience: float | None = None) -> None:
        """Wait for the hook to deliver its alerts, at most `patience` seconds."""
        if self.hook is not None:
            self.hook.close(patience)
            self.pass_on_notes()

    def pass_on_notes(self) -> None:
        for note in self.hook.notes() if self.hook is not None else ():
            self.logger.message(note)

    def state_dict(self) -> StateDict:
        return self.monitor.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.monitor.load_state_dict(state)
