"""The dashboard: every run in the browser, live, offline. `rl dashboard` starts it, `show` does so from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.system.imports import lazily

if TYPE_CHECKING:
    from rl_training.dashboard.showing import Shown, show

__all__ = ["Shown", "show"]

__getattr__ = lazily(__name__, {"Shown": "showing", "show": "showing"})
