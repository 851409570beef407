"""Few cases of a long list in every run of the tests, the others in the slow suite."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], often: Collection[Any]) -> list[Any]:
    """The cases as parameters of a test; all but those in `often` are slow. What is no case is an error."""
    cases = list(cases)
    if unknown := [case for case in often if case not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in often else slow(case) for case in cases]


def slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
