"""Take the pictures of the dashboard that the documentation shows: python tools/dashboard_pictures.py [RUNS]

Without RUNS, an output directory, the runs of the pictures are trained first (a few minutes): PPO with two learning
rates and A2C on CartPole, five seeds each, and a small sweep. Needs Chromium and the `dev` extra.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import rl_training.dashboard

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "assets"
SWEEP = """base_config: ppo/cartpole
sweep:
  hparams.learning_rate: [0.0003, 0.001, 0.003]
  hparams.ent_coef: [0.0, 0.01]
seeds: [0, 1]
parallel_jobs: 2
"""
WIDTH, HEIGHT = 1200, 860


def rl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rl_training", *words], check=True)


def train(folder: Path) -> None:
    """The runs of the pictures."""
    common = ["--seed", "0..4", "--total-timesteps", "40000", "--output-dir", str(folder)]
    rl("train", "ppo/cartpole", *common)
    rl("train", "ppo/cartpole", *common, "--hparams.learning-rate", "3e-4")
    rl("train", "a2c/cartpole", *common)
    sweep = folder / "sweep.yaml"
    sweep.write_text(SWEEP)
    rl("sweep", str(sweep), "--total-timesteps", "8000", "--output-dir", str(folder))


def take(page: Page, origin: str, name: str, query: str) -> None:
    """One picture of one view, when its curves are drawn."""
    page.goto(f"{origin}/{query}")
    page.locator("main table, main .plot canvas").first.wait_for()
    page.wait_for_timeout(3000)
    target = PICTURES / f"dashboard_{name}.jpg"
    page.screenshot(path=target, type="jpeg", quality=72)
    print(f"{target.relative_to(ROOT)}  {target.stat().st_size // 1000} kB")


def pictures(folder: Path) -> None:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with rl_training.dashboard.show(folder, read_only=True) as shown, sync_playwright() as playwright:
        origin = shown.url.partition("/login")[0]
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(shown.url)
            where = "?view=runs&filter=sweep%3Dnone&panel=reward&panel=train/approx_kl"
            take(page, origin, f"runs_{scheme}", where)
            if scheme == "light":
                run = page.locator("table.runs tbody tr").last.get_attribute("data-key")
                take(page, origin, "run_light", f"?view=run&run={run}")
                take(page, origin, "compare_light", "?view=compare&filter=sweep%3Dnone&by=algorithm")
            else:
                page.goto(f"{origin}/?view=sweeps")
                page.locator("main table a").first.click()
                page.locator("svg").first.wait_for()
                take(page, origin, "sweep_dark", page.url.partition(origin + "/")[2])
        browser.close()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        pictures(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        train(Path(name))
        pictures(Path(name))


if __name__ == "__main__":
    main()
