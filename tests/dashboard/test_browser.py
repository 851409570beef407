"""The page in a real browser: every feature is touched, with its security policy on, and nothing leaves 127.0.0.1.

Run in a pytest call of its own, without xdist: `pytest -m browser`. It needs Chromium; `make test` installs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_cases import make_runs, opened
from dashboard_cases import HOSTILE, TOKEN, Served, served, write_rows
from group_cases import tiny
from playwright.sync_api import Browser, Page, expect
from run_cases import fake_run

from rl_training.runs.directory import RunDir
from rl_training.runs.index import record

pytestmark = pytest.mark.browser
NAMELESS = """[...document.querySelectorAll('button, input, select, a, [role=img]')].filter((one) => one.offsetParent &&
  !(one.getAttribute('aria-label') || one.textContent.trim() || one.title || (one.labels && one.labels.length)))
  .map((one) => one.outerHTML.slice(0, 200))"""
RUN = "ppo__CartPole-v1__seed0__20260101-000000"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    with served(folder) as found:
        yield found


def legend(page: Page) -> list[str]:
    return page.locator(".panel .legend .label").all_inner_texts()


def test_the_first_view_is_the_table_with_bands_over_seeds(browser: Browser, site: Served) -> None:
    with opened(browser, site) as page:
        expect(page.locator(".count")).to_contain_text("6 of 6 runs")
        expect(page.locator("table.runs tbody tr")).to_have_count(6)
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        expect(page.locator(".legend .label")).to_have_text(["learning_rate=0.001", "learning_rate=0.0003"])
        expect(page.locator(".legend .dim").first).to_contain_text("3 of 3 runs")
        assert page.locator(".plot canvas").count() == 1
        assert "last values: learning_rate=0.001" in (page.locator(".plot").get_attribute("aria-label") or "")
        expect(page.locator("#live")).to_have_text("live")
        page.get_by_text("values as a table").click()
        expect(page.locator(".values table")).to_contain_text("learning_rate=0.001")


def test_filters_sorting_columns_and_the_address(browser: Browser, site: Served) -> None:
    with opened(browser, site) as page:
        box = page.locator("#filter")
        box.fill("rewrd>3")
        expect(page.locator("#filter-problem")).to_have_text("unknown key 'rewrd'; did you mean 'reward'?")
        assert box.get_attribute("aria-invalid") == "true"
        box.fill("reward>103")
        expect(page.locator(".count")).to_contain_text("2 of 6 runs")
        expect(page.locator("#filter-problem")).to_be_hidden()
        page.locator("th button", has_text="reward").click()
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("reward")
        page.locator("summary", has_text="columns").click()
        page.locator(".menu input[type=text]").fill("hparams.learning_rate")
        page.locator(".menu input[type=text]").press("Enter")
        expect(page.locator("table.runs thead")).to_contain_text("learning_rate")
        expect(page.locator("table.runs tbody tr").first).to_contain_text("0.001")
        address = page.url
        assert "filter=reward" in address
        page.goto(address)  # shared or bookmarked
        expect(page.locator(".count")).to_contain_text("2 of 6 runs")
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("reward")
        page.locator("table.runs tbody a").first.click()
        expect(page.locator("h1")).to_contain_text("ppo__CartPole-v1")
        page.go_back()
        expect(page.locator(".count")).to_contain_text("2 of 6 runs")


def test_panels_metrics_axes_smoothing_and_scale(browser: Browser, site: Served) -> None:
    with opened(browser, site) as page:
        adder = page.locator("input.metric")
        adder.fill("train/approx_kl")
        adder.press("Enter")
        expect(page.locator(".panel")).to_have_count(2)
        expect(page.locator(".panel h3").last).to_have_text("train/approx_kl")
        page.get_by_label("log scale").check()
        page.locator("label", has_text="env steps").locator("select").select_option("updates")
        expect(page.locator(".panel .said").first).to_contain_text("6 of 6 runs drawn")
        page.get_by_label("smoothing").select_option("0.9")
        expect(page.locator(".panel .said").first).to_contain_text("6 of 6 runs drawn")
        expect(page.locator(".panel").first.locator(".legend li")).to_have_count(6)
        for axis in ("relative", "wall", "episodes", "env_steps"):
            page.locator("label", has_text="env steps").locator("select").select_option(axis)
            expect(page.locator(".panel .said").first).to_contain_text("6 of 6 runs drawn")
        page.get_by_label("close train/approx_kl").click()
        expect(page.locator(".panel")).to_have_count(1)


def test_groups_hiding_seeds_and_a_baseline(browser: Browser, site: Served) -> None:
    with opened(browser, site) as page:
        expect(page.locator(".legend .label")).to_have_count(2)
        page.get_by_role("checkbox", name="seeds").check()
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        page.get_by_label("show learning_rate=0.001").click()
        expect(page.get_by_label("show learning_rate=0.001")).to_have_attribute("aria-pressed", "false")
        assert "hide=" in page.url
        page.get_by_label("baseline learning_rate=0.0003").click()
        expect(page.locator(".legend")).to_contain_text("baseline: learning_rate=0.0003")
        group = page.locator("input.by")
        group.fill("seed")
        group.press("Enter")
        expect(page.locator(".legend .label")).to_have_count(3)
        group = page.locator("input.by")
        group.fill("nonsense")
        group.press("Enter")
        expect(page.locator(".said")).to_contain_text("unknown key 'nonsense'")


def test_a_zoom_fetches_finer_points_and_can_be_left(browser: Browser, site: Served) -> None:
    with opened(browser, site, "?view=runs&draw=runs&panel=train/approx_kl") as page:
        plot = page.locator(".plot .u-over")
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        box = plot.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        with page.expect_response(lambda answer: "/api/curves" in answer.url and "low=" in answer.url):
            page.mouse.move(box["x"] + box["width"] * 0.3, y)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
            page.mouse.up()
        assert "low=" in page.url
        page.get_by_role("button", name="whole range").click()
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        assert "low=" not in page.url
        page.locator(".plot").focus()
        with page.expect_response(lambda answer: "/api/curves" in answer.url and "low=" in answer.url):
            page.keyboard.press("+")
        page.keyboard.press("0")
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        assert page.locator(".panel").get_attribute("data-cursor")


def test_selection_and_keyboard(browser: Browser, site: Served) -> None:
    with opened(browser, site) as page:
        expect(page.locator("table.runs tbody tr")).to_have_count(6)
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(page.locator("tr[aria-selected=true]")).to_have_count(2)
        expect(page.locator(".said")).to_contain_text("2 of 2 runs drawn")
        page.keyboard.press("s")
        expect(page.locator(".legend li")).to_have_count(2)
        page.keyboard.press("l")
        assert "log=1" in page.url
        page.keyboard.press("/")
        expect(page.locator("#filter")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("m")
        expect(page.locator("input.metric")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_contain_text("Keyboard")
        page.keyboard.press("Escape")
        page.keyboard.press("c")
        expect(page.locator("h1")).to_have_text("Compare")
        page.keyboard.press("Escape")
        expect(page.locator("table.runs tbody tr")).to_have_count(6)
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("ppo__CartPole-v1")
        page.keyboard.press("3")
        expect(page.locator("h1")).to_have_text("Sweeps")
        page.keyboard.press("1")
        expect(page.locator("table.runs")).to_be_visible()


def test_the_page_of_a_run(browser: Browser, site: Served) -> None:
    run = "ppo__CartPole-v1__seed0__20260101-000000"
    with opened(browser, site, f"?view=run&run={run}") as page:
        expect(page.locator("h1")).to_have_text(run)
        expect(page.locator(".facts")).to_contain_text("finished")
        expect(page.locator(".panel h3").first).to_contain_text("reward")
        page.get_by_role("tab", name="Config").click()
        expect(page.locator("#tabpanel")).to_contain_text("hparams.learning_rate")
        page.get_by_role("button", name="differences from the default").click()
        expect(page.locator("#tabpanel")).to_contain_text("from default")
        other = page.get_by_label("compare with run")
        other.fill("ppo__CartPole-v1__seed0__20260101-000003")
        other.press("Enter")
        expect(page.locator("#tabpanel")).to_contain_text("Differences from ppo__CartPole-v1__seed0__20260101-000003")
        expect(page.locator("#tabpanel")).to_contain_text("0.001")
        page.get_by_role("tab", name="Code").click()
        expect(page.locator(".diff .added")).to_have_text("+an added line\n")
        page.get_by_role("tab", name="Episodes").click()
        expect(page.locator("#tabpanel svg").first).to_have_attribute(
            "aria-label", "returns of the last evaluation: 2 values from 99 to 101"
        )
        page.get_by_role("tab", name="Checkpoints").click()
        expect(page.locator("#tabpanel code").first).to_contain_text("--checkpoint 2000")
        expect(page.locator("video")).to_have_count(1)
        expect(page.locator("#tabpanel")).to_contain_text("plots/prediction.svg")
        page.get_by_role("tab", name="System").click()
        expect(page.locator(".panel h3").first).to_contain_text("system/memory_bytes")
        page.get_by_role("tab", name="Log").click()
        expect(page.locator("pre.log")).to_contain_text("the last line of the log")
        expect(page.locator("#tabpanel")).to_contain_text("KL is high")
        page.get_by_role("tab", name="Log").press("ArrowRight")
        expect(page.get_by_role("tab", name="Curves")).to_have_attribute("aria-selected", "true")


def test_compare_alerts_and_exports(browser: Browser, site: Served) -> None:
    with opened(browser, site, "?view=compare") as page:
        expect(page.locator("main")).to_contain_text("2 entries, 6 of 6 runs")
        expect(page.locator("main")).to_contain_text("IQM")
        expect(page.locator(".panel")).to_have_count(2)
        with page.expect_download() as download:
            page.get_by_role("link", name="HTML report").click()
        assert b"<svg" in Path(download.value.path()).read_bytes()
        page.get_by_label("group by").fill("seed")
        page.get_by_label("group by").press("Enter")
        expect(page.locator("main")).to_contain_text("3 entries")
        page.goto(f"{site.origin}/?view=alerts")
        expect(page.locator("main")).to_contain_text("6 of 6 alerts in 6 runs")
        page.goto(f"{site.origin}/?view=runs")
        expect(page.locator(".said")).to_contain_text("6 of 6 runs drawn")
        for name, first in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
            with page.expect_download() as download:
                page.get_by_role("button", name=name).click()
            assert Path(download.value.path()).read_bytes().startswith(first)
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        assert Path(download.value.path()).read_text().count("\n") == 607
        page.goto(f"{site.origin}/?view=run&run=ppo__CartPole-v1__seed0__20260101-000000")
        with page.expect_download() as download:
            page.get_by_role("link", name="raw rows").click()
        assert Path(download.value.path()).read_text().count("\n") == 100


@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes_and_narrow_screens(browser: Browser, site: Served, width: int, scheme: str) -> None:
    """No view is wider than the screen, and text has enough contrast."""
    with opened(browser, site, color_scheme=scheme) as page:
        page.set_viewport_size({"width": width, "height": 800})
        for query in ("?view=runs", "?view=compare", "?view=alerts", f"?view=run&run={RUN}"):
            page.goto(f"{site.origin}/{query}")
            page.wait_for_timeout(400)
            assert page.evaluate("document.documentElement.scrollWidth") <= width + 1, query
        colours = page.evaluate(
            "['--ink', '--dim', '--accent', '--bad', '--good', '--warn', '--paper', '--soft'].map((name) => "
            "getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
        )
        *inks, paper, soft = map(luminance, colours)
        assert (paper < 0.1) == (scheme == "dark")
        for ink in inks:
            for ground in (paper, soft):
                assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5
        page.locator("#theme").click()
        expect(page.locator("#theme")).to_have_text("light")
        page.keyboard.press("t")
        expect(page.locator("#theme")).to_have_text("dark")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_for_screen_readers(browser: Browser, site: Served) -> None:
    """Every control has a name, every plot says what it shows."""
    with opened(browser, site) as page:
        expect(page.locator("table.runs tbody tr")).to_have_count(6)
        for query in ("?view=runs", "?view=compare", f"?view=run&run={RUN}"):
            page.goto(f"{site.origin}/{query}")
            page.wait_for_timeout(500)
            nameless = page.evaluate(NAMELESS)
            assert nameless == []
        assert page.locator("html").get_attribute("lang") == "en"


def test_tags_and_notes_are_edited_in_place(browser: Browser, tmp_path: Path) -> None:
    runs = make_runs(tmp_path)
    with served(tmp_path) as site, opened(browser, site) as page:
        page.get_by_label("edit tags of " + runs[0].name).click()
        page.get_by_label("tags of " + runs[0].name, exact=True).fill("keep, paper")
        page.get_by_label("tags of " + runs[0].name, exact=True).press("Enter")
        expect(page.locator(f"tr[data-key='{runs[0].name}']")).to_contain_text("keep, paper")
        page.get_by_label("edit notes of " + runs[0].name).click()
        page.get_by_label("notes of " + runs[0].name, exact=True).fill("the best so far")
        page.get_by_label("notes of " + runs[0].name, exact=True).press("Enter")
        expect(page.locator(f"tr[data-key='{runs[0].name}']")).to_contain_text("the best so far")
        info = json.loads((runs[0] / "run.json").read_text())
        assert (info["tags"], info["notes"]) == (["keep", "paper"], "the best so far")
        page.goto(f"{site.origin}/?view=run&run={runs[1].name}")
        page.locator("#clean").click()
        expect(page.locator("dialog")).to_contain_text(runs[1].name)
        page.get_by_role("button", name="Cancel").click()
        assert (runs[1] / "checkpoints").exists()
        page.locator("#clean").click()
        page.locator("dialog").get_by_role("button", name="Clean").click()
        expect(page.locator(".facts")).to_contain_text("cleaned")
        assert not (runs[1] / "checkpoints").exists()
        page.goto(f"{site.origin}/?view=run&run={runs[0].name}")
        page.locator("#clean").click()
        page.locator("dialog").get_by_role("button", name="Clean").click()
        expect(page.locator("#message")).to_contain_text("tagged")


def test_read_only_has_no_controls(browser: Browser, tmp_path: Path) -> None:
    runs = make_runs(tmp_path)
    with served(tmp_path, read_only=True) as site, opened(browser, site) as page:
        expect(page.locator("table.runs tbody tr")).to_have_count(6)
        assert page.locator("button.edit").count() == 0
        page.goto(f"{site.origin}/?view=run&run={runs[0].name}")
        expect(page.locator(".facts")).to_contain_text("finished")
        assert page.locator("#clean, #stop, #resume").count() == 0


def test_the_login_page_returns_to_the_view(browser: Browser, site: Served) -> None:
    within = browser.new_context()
    page = within.new_page()
    page.goto(f"{site.origin}/?view=alerts")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    expect(page.locator("h1")).to_have_text("Alerts")
    assert TOKEN not in page.url
    within.close()


def test_hostile_texts_neither_run_nor_break_the_page(browser: Browser, tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        run = fake_run(tmp_path, number, reward=1.0, name=text, tags=[text], notes=text, group=text, env_id=text)
        write_rows(run, [{"env_steps": step, text or "m": 1.0, "eval/return_mean": 1.0} for step in (1, 2)])
        (run / "logs" / "alerts.jsonl").write_text(json.dumps({"rule": text, "message": text, "env_steps": 1}) + "\n")
        (run / "logs" / "train.log").write_text(text + "\n")
        (run / "git.diff").write_text("+" + text)
        (run / "plots").mkdir()
        name = text.replace("/", "-").replace("\0", "")[:60]
        (run / "plots" / f"{name}.png").write_bytes(b"no picture")
        record(run)
    with served(tmp_path) as site, opened(browser, site) as page:
        expect(page.locator(".count")).to_contain_text("25 of 25 runs")
        expect(page.locator(".said")).to_contain_text("runs drawn")
        first = page.locator("table.runs tbody tr").first
        assert (first.bounding_box() or {"height": 0})["height"] <= 40
        keys = [f"ppo__CartPole-v1__seed{n}__20260101-{n:06d}" for n in range(len(HOSTILE))]
        page.goto(f"{site.origin}/?view=runs&draw=runs&by=name&columns=name,tags,notes,group,environment")
        expect(page.locator(".count")).to_contain_text("25 of 25 runs")
        page.goto(f"{site.origin}/?view=compare&by=name")
        expect(page.locator("main")).to_contain_text("25 of 25 runs")
        page.goto(f"{site.origin}/?view=alerts")
        expect(page.locator("main")).to_contain_text("25 of 25 alerts")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1281
        for number, key in enumerate(keys):
            tab = ("curves", "log", "code", "files")[number % 4]
            page.goto(f"{site.origin}/?view=run&run={key}&tab={tab}")
            expect(page.locator(".facts")).to_contain_text("finished")
            page.wait_for_timeout(150)
            assert page.evaluate("window.hit") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= 1281
            assert page.locator("main script, main iframe, main style, main base, main meta").count() == 0


@pytest.mark.parametrize("draw", ["runs", "bands"])
def test_a_new_row_is_drawn_and_a_cut_log_leaves_no_point_twice(browser: Browser, tmp_path: Path, draw: str) -> None:
    run = fake_run(tmp_path, 0, status="running", ended=None)
    rows = [{"env_steps": step, "train/loss": float(step)} for step in range(1, 11)]
    write_rows(run, rows)
    with RunDir(run).lock():
        record(run)
        with served(tmp_path) as site, opened(browser, site, f"?view=runs&draw={draw}&panel=train/loss") as page:

            def points() -> list[float]:
                found: list[float] = page.evaluate(
                    "(document.querySelector('.panels')?.panels.panels[0].lines || []).flatMap((line) => line.x)"
                )
                return found

            def wait_for(expected: list[int], seconds: float) -> float:
                begun = time.monotonic()
                while time.monotonic() - begun < seconds:
                    if points() == expected:
                        return time.monotonic() - begun
                    page.wait_for_timeout(50)
                raise AssertionError(points())

            wait_for(list(range(1, 11)), 40)
            page.wait_for_timeout(1500)
            write_rows(run, [{"env_steps": 11, "train/loss": 11.0}], mode="a")
            wait_for(list(range(1, 12)), 20)
            write_rows(run, rows[:4])  # a resume cuts the log back
            wait_for([1, 2, 3, 4], 20)
            write_rows(run, [{"env_steps": step, "train/loss": 5.0} for step in (5, 6, 7)], mode="a")
            wait_for([1, 2, 3, 4, 5, 6, 7], 20)
            expect(page.locator("table.runs tbody tr").first).to_contain_text("7")
            for step in range(8, 14):  # rows that keep coming are drawn while they do
                write_rows(run, [{"env_steps": step, "train/loss": 5.0}], mode="a")
                page.wait_for_timeout(500)
            assert len(points()) > 8
            wait_for(list(range(1, 14)), 20)


def test_stop_and_resume_by_the_page(browser: Browser, tmp_path: Path) -> None:
    """A real run: killed and resumed, its curve has every logged point once."""
    (tmp_path / "config.yaml").write_text(json.dumps(tiny(tmp_path / "runs", seed=1)))
    words = [sys.executable, "-m", "rl_training", "train", f"--config={tmp_path / 'config.yaml'}"]
    words += ["--total-timesteps=100000000", "--training.checkpoint-frequency=3200"]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not list((tmp_path / "runs").glob("ppo__*/checkpoints/step_*[1-9]*")):
            time.sleep(0.1)
        run = next((tmp_path / "runs").glob("ppo__*"))
        with (
            served(tmp_path / "runs") as site,
            opened(browser, site, f"?view=run&run={run.name}&panel=train/loss") as page,
        ):
            expect(page.locator(".facts")).to_contain_text("running")
            process.send_signal(signal.SIGKILL)
            process.wait()
            expect(page.locator(".facts")).to_contain_text("killed")
            page.locator("#resume").click()
            expect(page.locator("dialog")).to_contain_text(run.name)
            page.locator("dialog").get_by_role("button", name="Resume").click()
            expect(page.locator(".facts")).to_contain_text("running")
            expect(page.locator("#stop")).to_be_visible()
            page.wait_for_timeout(2500)
            page.locator("#stop").click()
            page.locator("dialog").get_by_role("button", name="Stop").click()
            expect(page.locator(".facts")).to_contain_text("stopped")
            logged = [
                json.loads(line)["env_steps"] for line in (run / "logs" / "metrics.jsonl").read_text().splitlines()
            ]
            assert logged == sorted(set(logged))
            total = "document.querySelector('.panels').panels.panels[0].curves.values().next().value.total"
            until = time.monotonic() + 20
            while time.monotonic() < until and page.evaluate(total) != len(logged):
                page.wait_for_timeout(100)
            assert page.evaluate(total) == len(logged)
    finally:
        process.kill()
        process.wait()
        for found in (tmp_path / "runs").glob("ppo__*"):
            holder = RunDir(found).holder()
            if holder is not None:
                os.kill(holder.pid, signal.SIGKILL)
