"""What `rl sweep --dry-run` and `rl tune --dry-run` say about all runs together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rl_training.cli.output import bold, note, show, show_entries

if TYPE_CHECKING:
    from rl_training.config.loading import ResolvedConfig

Estimate = dict[str, int]


def estimated(first: ResolvedConfig, total: Callable[[dict[str, Any]], Estimate]) -> Estimate | None:
    """`total` of what one run costs; None, with the reason on the terminal, where that run cannot be built here."""
    from rl_training.assembly.cost import plan
    from rl_training.runs.redaction import with_secrets
    from rl_training.types import RLTrainingError

    try:
        return total(plan(with_secrets(first.config)))
    except (RLTrainingError, ImportError) as error:
        note(f"no estimate of what it costs: {error}")
        return None


def show_estimate(estimate: Estimate | None) -> None:
    """Print an estimate, if there is one."""
    if estimate is not None:
        show(f"\n{bold('All runs together')}, each to its end")
        show_entries(estimate)
