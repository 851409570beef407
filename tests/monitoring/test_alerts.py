"""Alerts: each rule on rows made by hand, the monitor in a run, and that neither ever changes the training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.config.loading import parse_config
from rl_training.config.monitor import AlertRuleConfig, MonitorConfig
from rl_training.monitoring.alerts import Alert, TrainingMonitor, speed_drop
from rl_training.runs.directory import metrics_sha256
from rl_training.runs.foreign_code import foreign_code
from rl_training.trainer import resume
from rl_training.types import ConfigError, NonFiniteError

BASE: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "env": {"num_envs": 2},
    "hparams": {"num_steps": 32, "num_epochs": 1},
    "training": {"total_timesteps": 640, "num_eval_episodes": 0, "checkpoint_frequency": 128},
    "logging": {"terminal": False, "tensorboard": False},
}


def told(monitor: TrainingMonitor, rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(alert.rule, alert.env_steps) for row in rows for alert in monitor.check_alerts(row)]


def column(name: str, values: list[float], every: int = 100) -> list[dict[str, Any]]:
    return [{"env_steps": (i + 1) * every, name: value} for i, value in enumerate(values)]


def alerts_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs" / "alerts.jsonl").read_text().splitlines()]


# -- the rules --------------------------------------------------------------------------------------------------------


def test_a_healthy_row_says_nothing() -> None:
    row = {"env_steps": 1, "train/loss": 0.1, "train/approx_kl": 0.01, "train/entropy_loss": -0.69}
    assert TrainingMonitor().check_alerts(row) == []


def test_nan_is_told_once_and_again_after_the_interval() -> None:
    monitor = TrainingMonitor(total_timesteps=3000)  # silent for a tenth of it: 300 steps
    values = [0.1, math.nan, math.nan, 0.1, math.inf, 0.1, math.nan]
    assert told(monitor, column("train/loss", values)) == [("nan", 200), ("nan", 500)]
    (alert,) = TrainingMonitor().check_alerts({"env_steps": 7, "eval/return_mean": math.nan})
    assert alert == Alert("nan", alert.message, 7)
    assert alert.message.startswith("eval/return_mean is nan; lower hparams.learning_rate")


def test_kl_blow_up_has_a_limit_that_can_be_moved_or_dropped() -> None:
    rows = column("train/approx_kl", [0.05, 0.2, 0.21])
    assert told(TrainingMonitor(), rows) == [("kl", 300)]
    assert told(TrainingMonitor(MonitorConfig(max_kl=0.04)), rows) == [("kl", 100)]
    assert told(TrainingMonitor(MonitorConfig(max_kl=None)), rows) == []


def test_entropy_collapse_compares_with_the_first_value() -> None:
    entropy = column("train/entropy_loss", [-0.69, -0.3, -0.0070, -0.0068])
    assert told(TrainingMonitor(), entropy) == [("entropy", 400)]
    spread = [{**row, "train/entropy_loss": -1.4} for row in column("train/action_std", [1.0, 0.02, 0.009])]
    assert told(TrainingMonitor(), spread) == [("entropy", 300)]
    assert told(TrainingMonitor(), column("train/entropy_loss", [0.5, 0.4, 0.1])) == []  # Gaussians may be below 0


def test_memory_high() -> None:
    rows = column("system/memory_share", [0.5, 0.951])
    assert told(TrainingMonitor(), rows) == [("memory", 200)]


def test_speed_drop_needs_a_usual_speed_and_ignores_the_steps_before_learning() -> None:
    def rows() -> Iterator[dict[str, Any]]:
        steps = seconds = updates = 0
        for speed, learns, count in ((10_000, 0, 3), (1000, 1, 5), (310, 1, 2), (290, 1, 1)):
            for _ in range(count):
                steps, seconds, updates = steps + 10 * speed, seconds + 10, updates + learns
                yield {"env_steps": steps, "updates": updates, "time/training_seconds": float(seconds)}

    memory: dict[str, Any] = {}
    said = [speed_drop(row, memory, share=0.3) for row in rows()]
    assert [text for text in said if text] == ["290 env steps/s, usually 1,000; is the machine busy?"]
    assert said[-1] is not None


# -- rules of one's own -----------------------------------------------------------------------------------------------


def test_a_comparison_holds_for_rows_that_have_its_metrics() -> None:
    rule = AlertRuleConfig("explodes", when="train/value_loss > 100 and env_steps > 100", rows=2)
    monitor = TrainingMonitor(MonitorConfig(rules=(rule,)))
    rows = column("train/value_loss", [500, 500, 1, 500, 500])
    rows.insert(4, {"env_steps": 450, "rollout/return_mean": 1.0})  # between two rows that count
    assert told(monitor, rows) == [("explodes", 500)]
    monitor = TrainingMonitor(MonitorConfig(rules=(AlertRuleConfig("low", when="reward < 10"),)))
    (alert,) = monitor.check_alerts({"env_steps": 3, "rollout/return_mean": 5.0, "eval/return_mean": 9.5})
    assert alert == Alert("low", "reward < 10 (9.5)", 3)


def many_falls(row: dict[str, Any], memory: dict[str, Any], *, limit: int) -> str | None:
    memory["falls"] = memory.get("falls", 0) + row.get("rollout/episodes", 0)
    return f"{memory['falls']} falls" if memory["falls"] > limit else None


def raising(row: dict[str, Any], memory: dict[str, Any]) -> None:
    raise KeyError("gone")


def hoarding(row: dict[str, Any], memory: dict[str, Any]) -> None:
    memory["row"] = object()


def own_rule(function: Any, **kwargs: Any) -> MonitorConfig:
    return MonitorConfig(rules=(AlertRuleConfig(f"{__name__}:{function.__name__}", kwargs=kwargs),))


def test_a_function_keeps_its_memory_over_a_resume() -> None:
    rows = column("rollout/episodes", [3, 3, 3])
    straight = TrainingMonitor(own_rule(many_falls, limit=8))
    first, second = (TrainingMonitor(own_rule(many_falls, limit=8)) for _ in range(2))
    assert told(first, rows[:2]) == []
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert told(straight, rows) == told(second, rows[2:]) == [(f"{__name__}:many_falls", 300)]
    assert straight.state_dict() == second.state_dict()


@pytest.mark.parametrize("function", [raising, hoarding])
def test_a_function_that_fails_is_switched_off(function: Any) -> None:
    monitor = TrainingMonitor(own_rule(function))
    (alert,) = monitor.check_alerts({"env_steps": 1})
    assert "this rule failed and is switched off" in alert.message
    assert monitor.check_alerts({"env_steps": 2}) == []
    assert "object" not in json.dumps(monitor.state_dict())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"name": "x", "when": "loss >"}, "cannot read the rule"),
        ({"name": "x"}, 'name a function as "package.module:name"'),
        ({"name": "x", "when": "loss>1", "rows": 0}, "rows' must be"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config({"monitor": {"rules": [rule]}})


def test_names_and_addresses_are_checked() -> None:
    with pytest.raises(ConfigError, match="built-in"):
        TrainingMonitor(MonitorConfig(rules=(AlertRuleConfig("kl", when="loss>1"),)))
    with pytest.raises(ConfigError, match="http"):
        parse_config({"monitor": {"url": "file:///etc/passwd"}})
    with pytest.raises(ConfigError, match="takes names of environment variables") as refused:
        parse_config({"monitor": {"hook_env": ["TOKEN=hunter2"]}})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match="twice"):
        parse_config({"monitor": {"rules": [{"name": "a", "when": "loss>1"}] * 2}})


def test_an_imported_run_names_its_hooks_as_foreign() -> None:
    monitor = {"command": ["mail"], "url": None, "rules": [{"name": "a.b:c"}, {"name": "d:e", "when": "loss > 1"}]}
    cfg = parse_config({"monitor": monitor})
    assert foreign_code(cfg) == ["monitor.rules.*.name a.b:c", "monitor.command.* mail"]


# -- in a run ---------------------------------------------------------------------------------------------------------


def config(tmp_path: Path, **monitor: Any) -> dict[str, Any]:
    return {**BASE, "output_dir": str(tmp_path), "monitor": monitor}


RULES = [
    {"name": "often", "when": "updates > 2 and updates != 5"},
    {"name": f"{__name__}:many_falls", "kwargs": {"limit": 20}},
]


def test_alerts_never_change_the_training_and_resume_exactly(tmp_path: Path) -> None:
    loud = rl_training.train(config(tmp_path, rules=RULES, alert_interval=0.0))
    silent = rl_training.train(config(tmp_path, alerts=False))
    assert metrics_sha256(loud.run_dir / "logs/metrics.jsonl") == metrics_sha256(silent.run_dir / "logs/metrics.jsonl")
    assert alerts_of(silent.run_dir) == []
    rows = [(row["rule"], row["env_steps"]) for row in alerts_of(loud.run_dir)]
    assert [row for row in rows if row[0] == "often"] == [("often", 192), ("often", 384)]
    assert [rule for rule, _ in rows].count(f"{__name__}:many_falls") == 1

    short = {**config(tmp_path, rules=RULES, alert_interval=0.0), "callbacks": [{"name": f"{__name__}:StopAt"}]}
    stopped = rl_training.train(short)
    assert stopped.metrics["env_steps"] == 256
    resume(stopped.run_dir)
    assert [(row["rule"], row["env_steps"]) for row in alerts_of(stopped.run_dir)] == rows


class StopAt(rl_training.Callback):
    """Interrupts the first process that comes to 256 env steps."""

    def on_step(self, trainer: Any, report: Any) -> None:
        if report.before.env_steps < 256 <= report.after.env_steps:
            trainer.request_stop("interrupted by the test", interrupted=True)


def test_a_checkpoint_without_alerts_is_resumed(tmp_path: Path) -> None:
    run = rl_training.train({**config(tmp_path, alerts=False), "callbacks": [{"name": f"{__name__}:StopAt"}]}).run_dir
    resolved = run / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("alerts: false", "alerts: true"))
    # an edited config is no longer what was sealed, so its callback is asked about
    assert resume(run, trust_plugins=True).metrics["env_steps"] == 640


def test_alerts_go_to_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = config(tmp_path, rules=[{"name": "first", "when": "updates = 1"}])
    rl_training.train({**cfg, "logging": {"tensorboard": False, "terminal": True}})
    assert "alert first: updates = 1 (1) (at 64 env steps)" in capsys.readouterr().err


def test_a_run_that_fails_is_an_alert(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    with pytest.raises(NonFiniteError):
        rl_training.train({**cfg, "hparams": {**BASE["hparams"], "learning_rate": 1e30, "max_grad_norm": None}})
    (run,) = tmp_path.glob("ppo__*")
    assert alerts_of(run)[-1]["rule"] == "failed"
    assert "NonFiniteError" in alerts_of(run)[-1]["message"]


def test_secrets_stay_out_of_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2hunter2")
    monkeypatch.setenv("ALERT_URL", "http://127.0.0.1:9/T000/B000")
    cfg = config(tmp_path, url="${env:ALERT_URL}", rules=[{"name": f"{__name__}:leaking"}], hook_timeout=1.0)
    run = rl_training.train(cfg).run_dir
    (alert,) = alerts_of(run)
    assert alert["message"] == "the key is ${env:MY_API_KEY}"
    texts = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    assert not any(secret in text for text in texts for secret in (b"hunter2", b"T000"))
    assert "alert hook: the address failed: URLError" in (run / "logs" / "train.log").read_text()


def leaking(row: dict[str, Any], memory: dict[str, Any]) -> str:
    return "the key is hunter2hunter2"
