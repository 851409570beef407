"""Run directories and logging start without the heavy libraries."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    *(
        "runs",
        "runs.lock",
        "runs.redaction",
        "system.machine",
        "system.json_lines",
        "logging",
        "logging.metrics_tracker",
    ),
    *("logging.tensorboard", "logging.wandb_sink", "logging.progress_display"),
)
HEAVY = ("torch", "jax", "gymnasium", "matplotlib", "tensorboard", "wandb", "rich", "psutil", "pandas", "scipy")


def test_none_of_these_modules_imports_anything_heavy() -> None:
    imports = "; ".join(f"import rl_training.{module}" for module in MODULES)
    program = f"import sys; {imports}; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_the_standard_library_keeps_its_names() -> None:
    program = (
        "import rl_training.logging, rl_training.runs.redaction, logging, secrets; logging.getLogger; secrets.token_hex"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
