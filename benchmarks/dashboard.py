"""What the dashboard costs: the first paint of 10,000 runs, memory, idle and live CPU, 100 curves of 10,000 points.

    python benchmarks/dashboard.py [--repeats 5 | --quick]

The server is a process of its own, the page a headless Chromium. Prints medians beside the goals. `--quick` makes
everything twenty times smaller and tries every line once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from rl_training.config.loading import dump_yaml
from rl_training.config.schema import TrainConfig
from rl_training.runs.directory import RunDir
from rl_training.runs.index import RunIndex

METRICS = [f"train/metric_{number}" for number in range(34)]
Get = Callable[[str], bytes]


def make_run(folder: Path, number: int, config: str, *, status: str = "finished") -> Path:
    """A run directory with everything that the index reads."""
    run = folder / f"ppo__CartPole-v1__seed{number % 10}__20260101-{number:06d}"
    (run / "configs").mkdir(parents=True)
    (run / "logs").mkdir()
    info: dict[str, Any] = {
        "id": run.name,
        "name": None,
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "seed": number % 10,
        "tags": [],
    }
    info |= {"status": status, "started": f"2026-01-01T00:00:00.{number:06d}+00:00", "ended": None, "exit_code": 0}
    (run / "run.json").write_text(json.dumps(info))
    (run / "configs" / "resolved.yaml").write_text(
        config.replace("num_epochs: 4", f"num_epochs: {number // 10 % 50 + 1}")
    )
    (run / "metrics.json").write_text(json.dumps({"env_steps": 1000, "eval/return_mean": float(number % 500)}))
    return run


def row(step: int) -> str:
    values = dict.fromkeys(METRICS, 0.123456789 + step % 7)
    spike = 99.0 if step == 5_432 else 0.01
    counters = {"env_steps": step * 256, "updates": step, "episodes": step // 2}
    return json.dumps({**counters, **values, "train/approx_kl": spike}, separators=(",", ":")) + "\n"


@contextmanager
def server(folder: Path) -> Iterator[tuple[psutil.Process, str, Get]]:
    """A dashboard as a process: it, its address, and a function that asks it."""
    command = [sys.executable, "-m", "rl_training", "dashboard", f"--output-dir={folder}", "--port=0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    origin = address.partition("/login")[0]
    try:
        opener.open(address, timeout=120).read()
        yield psutil.Process(process.pid), address, lambda path: bytes(opener.open(origin + path, timeout=300).read())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def cpu_share(process: psutil.Process, seconds: float) -> float:
    """Share of a core that a process uses."""
    before, begun = cpu(process), time.perf_counter()
    time.sleep(seconds)
    return (cpu(process) - before) / (time.perf_counter() - begun)


@contextmanager
def logged_in(address: str) -> Iterator[Any]:
    """An empty page of a new browser that has the cookie."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        page.goto("about:blank")
        yield page
        browser.close()


def first_paint(address: str, total: int) -> float:
    """Seconds from the request until the rows of the table are in the document, in a browser that knows nothing."""
    with logged_in(address) as page:
        begun = time.perf_counter()
        page.goto(address.partition("/login")[0] + "/?view=runs", wait_until="commit")
        page.locator("table.runs tbody tr[data-key]").first.wait_for()
        seconds = time.perf_counter() - begun
        assert f"{total:,} of {total:,} runs" in page.locator(".count").inner_text()
    return seconds


def many_runs(count: int, repeats: int, seconds: float) -> dict[str, list[float]]:
    """First paint, memory and idle CPU with many finished runs."""
    with tempfile.TemporaryDirectory() as name:
        config = dump_yaml(TrainConfig())
        for number in range(count):
            make_run(Path(name), number, config)
        RunIndex(name).rebuild()
        found: dict[str, list[float]] = {"paint": [], "memory": [], "idle": []}
        for _ in range(repeats):
            with server(Path(name)) as (process, address, get):
                get("/api/runs")
                found["paint"].append(first_paint(address, count))
                found["memory"].append(process.memory_info().rss / 1e6)
                found["idle"].append(100 * cpu_share(process, seconds))
    return found


def curves(runs: int, rows: int, repeats: int) -> dict[str, list[float]]:
    """CPU of the first curves from a fresh server without cache, time to the first ten, and all of them again."""
    found: dict[str, list[float]] = {"cold": [], "first": [], "warm": []}
    with tempfile.TemporaryDirectory() as name:
        folder, config, text = Path(name), dump_yaml(TrainConfig()), "".join(map(row, range(rows)))
        paths = [make_run(folder, number, config) for number in range(runs)]
        for path in paths:
            (path / "logs" / "metrics.jsonl").write_text(text)
        RunIndex(folder).rebuild()
        asked = ["".join(f"&run={path.name}" for path in paths[i : i + 10]) for i in range(0, runs, 10)]
        for _ in range(repeats):
            shutil.rmtree(folder / ".cache", ignore_errors=True)
            with server(folder) as (process, _, get):
                get("/api/runs")
                for kind in ("cold", "warm"):
                    before, begun = cpu(process), time.perf_counter()
                    for number, part in enumerate(asked):
                        answer = get(f"/api/curves?metric=train/approx_kl{part}")
                        if kind == "cold" and number == 0:
                            found["first"].append(time.perf_counter() - begun)
                    found[kind].append(cpu(process) - before)
                assert b"train/approx_kl" in answer
    return found


def live_runs(count: int, seconds: float) -> float:
    """CPU share of the server while it follows runs that each log a row per second, with one page open."""
    with tempfile.TemporaryDirectory() as name:
        config = dump_yaml(TrainConfig())
        paths = [make_run(Path(name), number, config, status="running") for number in range(count)]
        locks = [RunDir(path).lock() for path in paths]
        for lock in locks:
            lock.acquire()
        for path in paths:
            (path / "logs" / "metrics.jsonl").write_text("".join(map(row, range(500))))
        RunIndex(name).rebuild()
        over = threading.Event()

        def write() -> None:
            step = 500
            while not over.wait(1.0):
                step += 1
                for path in paths:
                    with open(path / "logs" / "metrics.jsonl", "a") as log:
                        log.write(row(step))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with server(Path(name)) as (process, address, _):
                opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
                opener.open(address, timeout=60).read()
                wanted = "".join(f"&run={path.name}" for path in paths)
                origin = address.partition("/login")[0]
                stream = opener.open(f"{origin}/api/events?metric=train/approx_kl{wanted}", timeout=60)
                threading.Thread(target=lambda: drain(stream), daemon=True).start()
                time.sleep(3)
                return 100 * cpu_share(process, seconds)
        finally:
            over.set()
            writer.join()
            for lock in locks:
                lock.release()


def drawn_after(repeats: int) -> list[float]:
    """Seconds from the moment a row is in the log until it is in the plot of an open page."""
    lines = "(document.querySelector('.panels')?.panels.panels[0].lines || []).map((line) => Math.max(...line.x))"
    found: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        run = make_run(Path(name), 0, dump_yaml(TrainConfig()), status="running")
        (run / "logs" / "metrics.jsonl").write_text("".join(map(row, range(500))))
        RunIndex(name).rebuild()
        with RunDir(run).lock(), server(Path(name)) as (_, address, _), logged_in(address) as page:
            page.goto(address.partition("/login")[0] + "/?view=runs&draw=runs&panel=train/approx_kl")
            for step in range(500, 501 + repeats):
                while page.evaluate(lines) != [(step - 1) * 256]:
                    page.wait_for_timeout(10)
                page.wait_for_timeout(700 + 130 * (step % 7))  # rows come at any moment between two looks
                with open(run / "logs" / "metrics.jsonl", "a") as log:
                    log.write(row(step))
                begun = time.perf_counter()
                while page.evaluate(lines) != [step * 256]:
                    page.wait_for_timeout(10)
                found.append(time.perf_counter() - begun)
    return found


def drain(stream: Any) -> None:
    try:
        while stream.read1(2**16):
            pass
    except (OSError, ValueError, AttributeError):
        return


def line(what: str, values: Sequence[float], unit: str, goal: str) -> None:
    print(f"{what:<58}{statistics.median(values):>9.2f} {unit:<4} goal {goal}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="fresh servers per line (default 5)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything, once")
    arguments = parser.parse_args()
    share, repeats = (20, 1) if arguments.quick else (1, arguments.repeats)
    found = many_runs(10_000 // share, repeats, 3.0 if arguments.quick else 20.0)
    line(f"{10_000 // share:,} runs: request to painted table", found["paint"], "s", "1.0")
    line(f"{10_000 // share:,} runs: memory of the server", found["memory"], "MB", "250")
    line(f"{10_000 // share:,} runs: idle, one core", found["idle"], "%", "2")
    found = curves(100 // (5 if arguments.quick else 1), 10_000 // share, repeats)
    line("100 curves of 10,000 points, fresh server: CPU", found["cold"], "s", "5")
    line("100 curves of 10,000 points, fresh server: first ten after", found["first"], "s", "1")
    line("100 curves of 10,000 points, again: CPU", found["warm"], "s", "0.3")
    shares = [live_runs(50 // (5 if arguments.quick else 1), 3.0 if arguments.quick else 20.0) for _ in range(repeats)]
    line("50 live runs, a row per second each, one core", shares, "%", "10")
    line("a new row of a run: logged to drawn", drawn_after(2 * repeats), "s", "2")


if __name__ == "__main__":
    main()
