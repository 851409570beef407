"""The classes that outside code uses for many runs: all in one place, each lazy, each with its promised methods."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rl_training import experiments

METHODS = {
    "AutoTuner": ["suggest_next_config", "update_with_result"],
    "ExperimentCleaner": ["cleanup_old_experiments"],
    "ExperimentRunner": [
        "run_single_experiment",
        "run_multiple_runs",
        "run_hyperparameter_sweep",
        "save_results",
    ],
    "ExperimentTracker": ["register_experiment", "find_experiments", "compare_experiments"],
    "Plotter": [
        "plot_learning_curves",
        "plot_algorithm_comparison",
        "plot_hyperparameter_sensitivity",
        "save_plots",
    ],
    "ReproducibilityChecker": ["verify_experiment"],
    "SeedGroup": ["create", "open"],
    "Sweep": ["create", "open"],
}


@pytest.mark.parametrize("name", experiments.__all__)
def test_a_front_has_its_methods(name: str) -> None:
    front = getattr(experiments, name)
    assert front.__name__ == name
    assert all(callable(getattr(front, method)) for method in METHODS[name])


def test_the_list_is_complete_and_nothing_else_is_there() -> None:
    assert set(METHODS) == set(experiments.__all__) == set(dir(experiments))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(experiments, "Nothing")  # noqa: B009


def test_the_package_imports_none_of_them_by_itself() -> None:
    program = "import sys, rl_training.experiments; print([m for m in sys.modules if 'experiments.' in m])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
