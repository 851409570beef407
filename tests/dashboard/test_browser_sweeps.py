"""Sweeps, searches, several output directories and a proxy's prefix, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_cases import make_runs, opened
from dashboard_cases import served
from playwright.sync_api import Browser, expect
from sweep_cases import finish, searched

from rl_training.config.searches.sweeps import SweepConfig
from rl_training.experiments.launching.sweeps import Sweep

pytestmark = pytest.mark.browser


def test_a_sweep_from_the_list_to_a_run(browser: Browser, tmp_path: Path) -> None:
    """Progress, parallel coordinates, a scatter with a dot per seed, the table best first, links to the runs."""
    plan = SweepConfig("ppo/cartpole", sweep={"hparams.learning_rate": [1e-4, 1e-3]}, parallel_jobs=2)
    sweep = Sweep.create(plan, overrides={"output_dir": str(tmp_path)}, seeds=[0, 1])
    finish(sweep, {(0, 0): 10.0, (0, 1): 20.0, (1, 0): 50.0})
    with served(tmp_path) as site, opened(browser, site, "?view=sweeps") as page:
        expect(page.locator("main")).to_contain_text("1 of 1 sweeps")
        expect(page.locator("main")).to_contain_text("3 of 4 runs finished")
        page.get_by_role("link", name=sweep.info.id).click()
        expect(page.locator("h1")).to_have_text(sweep.info.id)
        expect(page.locator("progress")).to_have_attribute("value", "3")
        expect(page.get_by_label("parallel coordinates of 2 trials over learning_rate, score")).to_be_visible()
        expect(page.locator("polyline.trial")).to_have_count(2)
        expect(page.locator("circle.dot")).to_have_count(3)
        first = page.locator("main table tbody tr").first
        expect(first).to_contain_text("0.001")
        expect(first).to_contain_text("seed 1 waiting")
        expect(page.locator("main code").last).to_contain_text("rl sweep --resume")
        first.get_by_role("link", name="seed 0").click()
        expect(page.locator("h1")).to_contain_text("ppo__CartPole-v1__seed0")
        page.go_back()
        expect(page.locator("h1")).to_have_text(sweep.info.id)
        page.keyboard.press("Escape")
        expect(page.locator("h1")).to_have_text("Sweeps")


def test_a_search_shows_what_matters(browser: Browser, tmp_path: Path) -> None:
    search = searched(tmp_path)
    with served(tmp_path) as site, opened(browser, site, f"?view=sweeps&sweep={search.info.id}") as page:
        expect(page.locator("main")).to_contain_text("search of ppo on CartPole-v1")
        expect(page.locator("svg[aria-label^='importance: ']")).to_be_visible()
        expect(page.locator("main table")).to_contain_text("complete")


def test_several_output_directories(browser: Browser, tmp_path: Path) -> None:
    """Runs of the same name in two folders are two rows, each with its own page."""
    for name in ("here", "there"):
        make_runs(tmp_path / name)
    with served(tmp_path / "here", tmp_path / "there") as site, opened(browser, site) as page:
        expect(page.locator(".count")).to_contain_text("12 of 12 runs")
        keys = page.locator("table.runs tbody tr").evaluate_all("(rows) => rows.map((row) => row.dataset.key)")
        assert len(set(keys)) == 12
        page.goto(f"{site.origin}/?view=run&run={keys[-1]}")
        expect(page.locator(".facts")).to_contain_text("finished")


def test_behind_the_prefix_of_a_proxy(browser: Browser, tmp_path: Path) -> None:
    make_runs(tmp_path)
    prefix = "/user/me/proxy/8080"
    with (
        served(tmp_path, base_path=prefix) as site,
        opened(browser, site, "user/me/proxy/8080/?view=runs", prefix=prefix) as page,
    ):
        expect(page.locator(".count")).to_contain_text("6 of 6 runs")
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        page.locator("table.runs tbody a").first.click()
        expect(page.locator("h1")).to_contain_text("ppo__CartPole-v1")
        assert f"{prefix}/" in page.url


def test_a_range_of_runs_is_selected_with_shift(browser: Browser, tmp_path: Path) -> None:
    make_runs(tmp_path)
    with served(tmp_path) as site, opened(browser, site) as page:
        boxes = page.locator("table.runs tbody .pick input")
        expect(boxes).to_have_count(6)
        boxes.nth(1).click()
        boxes.nth(4).click(modifiers=["Shift"])
        expect(page.locator("tr[aria-selected=true]")).to_have_count(4)
        expect(page.locator(".said")).to_contain_text("4 of 4 runs drawn")
