"""A page of the dashboard in a real browser, watched for errors and for requests to anywhere else, and runs to show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboard_cases import TOKEN, Served, write_rows
from playwright.sync_api import Browser, Page, Route, expect
from run_cases import fake_run

from rl_training.runs.index import record

expect.set_options(timeout=60_000)  # on a busy machine; an idle one answers in milliseconds


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "these tests drive Chromium: apt-get install -y --no-install-recommends chromium"
    return found


@contextmanager
def opened(browser: Browser, site: Served, query: str = "", prefix: str = "", **context: Any) -> Iterator[Page]:
    """A page that has logged in, below a proxy's prefix. Afterwards: no error on its console, no foreign request."""
    within = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True, **context)
    page, problems, foreign = within.new_page(), [], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))

    def watch(route: Route) -> None:
        if not route.request.url.startswith((site.origin + "/", "blob:", "data:")):
            foreign.append(route.request.url)
        route.continue_()

    page.route("**/*", watch)
    page.goto(f"{site.origin}{prefix}/login?token={TOKEN}")
    if query:
        page.goto(f"{site.origin}/{query}")
    try:
        yield page
        assert page.evaluate("window.hit") is None
        assert foreign == []
        assert [text for text in problems if "status of 4" not in text] == []
    finally:
        within.close()


def make_runs(folder: Path) -> list[Path]:
    """Two recipes of three seeds, with curves, evaluations, episodes, alerts, a video and a diff."""
    runs = []
    for number in range(6):
        run = fake_run(folder, number, reward=100.0 + number, steps=2000, seed=number % 3, name=None)
        if number >= 3:
            config = run / "configs" / "resolved.yaml"
            config.write_text(config.read_text().replace("learning_rate: 0.0003", "learning_rate: 0.001"))
        rows = [
            {
                "env_steps": 20 * step,
                "updates": step,
                "episodes": 2 * step,
                "train/loss": 1.0 / (step + number),
                "train/approx_kl": 9.0 if step == 57 and number == 0 else 0.01,
                "eval/return_mean": step + 10.0 * number,
                "time/elapsed_seconds": step / 10,
                "system/memory_bytes": 1e8,
            }
            for step in range(1, 101)
        ]
        write_rows(run, rows)
        evals = [
            {"env_steps": 20 * step, "return_mean": 1.0 * step, "returns": [step - 1.0, step + 1.0]}
            for step in (0, 50, 100)
        ]
        (run / "logs" / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evals))
        (run / "logs" / "episodes.jsonl").write_text('{"env_steps":5,"return":3.0,"length":4}\n')
        (run / "logs" / "alerts.jsonl").write_text('{"rule":"kl","message":"KL is high","env_steps":57}\n')
        (run / "logs" / "train.log").write_text("the last line of the log\n")
        (run / "git.diff").write_text("+an added line\n-a removed line\n")
        for step in (1000, 2000):
            (run / "checkpoints" / f"step_{step:012d}").mkdir()
        (run / "checkpoints" / "latest").write_text("step_000000002000")
        (run / "videos").mkdir()
        (run / "videos" / "step_000000002000.mp4").write_bytes(b"\0" * 100)
        (run / "plots").mkdir()
        (run / "plots" / "prediction.svg").write_text(
            "<svg xmlns='http://www.w3.org/2000/svg'><script>top.hit=1</script></svg>"
        )
        record(run)
        runs.append(run)
    return runs
