"""Every name on the page "Where to find what you know" is where the page says, with the methods it names."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "where-to-find.md"
ROWS = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \| (.+) \|$", PAGE.read_text(), re.M)

PROMISED = {
    "ConfigManager": "load save validate override",
    "EnvironmentFactory": "create_env apply_wrappers",
    "BaseEnvironment": "reset step check",
    "BaseWrapper": "observation action reward",
    "EnvRunner": "collect_rollouts reset",
    "BaseNetwork": "save load device num_parameters",
    "PolicyNetwork": "get_action",
    "QNetwork": "get_q_values",
    "ValueFunction": "state_values action_values update_target",
    "MLPActorCritic": "step act",
    "RolloutBuffer": "compute_returns_and_advantages",
    "ReplayBuffer": "add sample",
    "EpisodeBuffer": "add_step get_episode clear",
    "BaseAlgorithm": "setup act update save_checkpoint load_checkpoint get_metrics",
    "BaseAgent": "select_action update save load reset",
    "AgentTrainer": "train_episode evaluate train save_checkpoint",
    "Callback": "on_start on_step on_end",
    "CheckpointManager": "save load_latest auto_save",
    "Logger": "log_episode log_step save_logs",
    "MetricsTracker": "update get_episode_stats get_training_stats reset",
    "ExperimentRunner": "run_single_experiment run_multiple_runs run_hyperparameter_sweep save_results",
    "AutoTuner": "suggest_next_config update_with_result",
    "ExperimentTracker": "register_experiment find_experiments compare_experiments",
    "ReproducibilityChecker": "verify_experiment",
    "ExperimentCleaner": "cleanup_old_experiments",
    "Plotter": "plot_learning_curves plot_algorithm_comparison plot_hyperparameter_sensitivity save_plots",
    "TrainingMonitor": "check_alerts",
    "DebugMode": "wrap_update",
}
"""Methods that outside code relies on."""


def test_the_page_lists_every_promised_class() -> None:
    assert len(ROWS) >= 35
    assert PROMISED.keys() <= {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "module", "text"), ROWS, ids=[row[0] for row in ROWS])
def test_a_name_is_where_the_page_says(name: str, module: str, text: str) -> None:
    found = getattr(importlib.import_module(module), name)
    missing = [method for method in PROMISED.get(name, "").split() if not hasattr(found, method)]
    assert missing == []


def test_the_agent_of_the_page_reaches_the_known_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block, str(PAGE), "exec"), names)
    result = names["trainer"].evaluate(20)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(result.returns, np.ones(20))
    assert (tmp_path / "my_agent" / "checkpoints" / "latest").exists()
