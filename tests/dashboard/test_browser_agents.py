"""Runs of several agents in a real browser: policies, teams and leagues on the page of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cases import agent_runs
from browser_cases import opened
from dashboard_cases import Served, served
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return agent_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def site(runs: dict[str, Path]) -> Iterator[Served]:
    with served(runs["team"].parent) as found:
        yield found


def test_a_team_shows_its_policies(browser: Browser, site: Served, runs: dict[str, Path]) -> None:
    with opened(browser, site, f"?view=run&run={runs['team'].name}&tab=episodes") as page:
        table = page.locator("table", has_text="Policies")
        expect(table).to_contain_text("agent_0, agent_1")
        expect(table).to_contain_text("sum over all agents")
        assert page.locator("table", has_text="League").count() == 0


def test_a_game_shows_its_elo_table(browser: Browser, site: Served, runs: dict[str, Path]) -> None:
    with opened(browser, site, f"?view=run&run={runs['game'].name}&tab=episodes") as page:
        table = page.locator("table", has_text="League")
        expect(table).to_contain_text("learner")
        expect(table).to_contain_text("random")
        assert page.locator("table", has_text="Policies").count() == 0


def test_the_return_of_the_team_is_among_the_first_curves(
    browser: Browser, site: Served, runs: dict[str, Path]
) -> None:
    with opened(browser, site, f"?view=run&run={runs['team'].name}") as page:
        expect(page.locator(".panel").last).to_contain_text("rollout/team_return")
