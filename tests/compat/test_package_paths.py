"""Paths into the package that old runs rely on: in their configs, and in modules that users wrote against 0.1.0.

All of this holds trivially as long as no module moves. It is here for the day when one does: a config on a disk cannot
be edited by whoever moves a module, and a user's own code should not have to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compat_cases import MODULES, PATHS, WITHOUT_CONSENT, Case
from compat_runs import Played, check_evaluated, check_resumed, check_verified

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Play = Callable[[str], Played]


def cases(groups: Any) -> list[Any]:
    return [pytest.param(group, case, id=case.name) for group in groups for case in groups[group]]


@pytest.mark.parametrize(("group", "case"), cases(PATHS))
def test_a_config_that_names_a_path_of_the_old_package_still_runs(played: Play, group: str, case: Case) -> None:
    made = played(group)
    check_resumed(made, case)
    check_verified(made, case)
    check_evaluated(made, case)


@pytest.mark.parametrize(("group", "case"), cases(PATHS))
def test_a_path_of_the_old_package_needs_no_other_consent_than_it_did(played: Play, group: str, case: Case) -> None:
    """Another user, who has another key, may play a run that spells out the path of a built-in part, and is refused
    before anything else is imported by path."""
    outcome = played(group).today[f"stranger {case.name}"]
    assert outcome.code == (0 if case.name in WITHOUT_CONSENT else 2), outcome.err


@pytest.mark.parametrize(("group", "case"), cases(MODULES))
def test_a_module_that_the_old_rl_new_wrote_still_runs(played: Play, group: str, case: Case) -> None:
    made = played(group)
    check_resumed(made, case)
    check_verified(made, case)
    check_evaluated(made, case)
