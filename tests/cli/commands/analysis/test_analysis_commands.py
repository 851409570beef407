"""`rl compare`, `export` and `plot` on real runs: tables, JSON, files, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rl_training
from rl_training.cli import main

Captured = pytest.CaptureFixture[str]
AGENTS = ("random", "constant")
HOSTILE = ["<script>alert(1)</script>", "\x1b[2Jred\x07", "../../../up", "n" * 300, "a\nb\x00c", "\u202egnp.exe"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds each of two agents that do not learn."""
    folder = tmp_path_factory.mktemp("analysis")
    for algo in AGENTS:
        for seed in (0, 1):
            config = {
                "algo": algo,
                "env_id": "CartPole-v1",
                "seed": seed,
                "name": f"{algo} {seed}",
                "output_dir": str(folder / "runs"),
                "training": {"total_timesteps": 1024, "eval_frequency": 512, "num_eval_episodes": 2},
                "logging": {"terminal": False, "tensorboard": False},
            }
            rl_training.train(config)
    return folder


@pytest.fixture(autouse=True)
def in_a_copy(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)


def run(capsys: Captured, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def refusal(capsys: Captured, *words: str) -> str:
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def finals() -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {algo: [] for algo in AGENTS}
    for path in sorted(Path("runs").glob("*/metrics.json")):
        scores[path.parent.name.split("__")[0]].append(json.loads(path.read_text())["eval/return_mean"])
    return scores


def test_compare_as_json(capsys: Captured) -> None:
    found = json.loads(
        run(capsys, "compare", "env=CartPole-v1", "--by", "algorithm", "--metrics=reward,loss", "--json")
    )
    reward, loss = found["metrics"]
    scores = finals()
    assert {one["entry"]: one["scores"] for one in reward["summaries"]} == scores
    assert {one["entry"]: one["mean"]["value"] for one in reward["summaries"]} == {
        algo: sum(values) / 2 for algo, values in scores.items()
    }
    assert loss["summaries"] == []  # agents that do not learn have no loss
    wins = [(a > b) + (a == b) / 2 for a in scores["random"] for b in scores["constant"]]
    assert reward["improvements"][0]["probability"]["value"] == sum(wins) / 4
    costs = {cost["entry"]: cost for cost in found["costs"]}
    assert costs["random"]["seconds"] > 0
    assert 1e7 < costs["random"]["peak_memory_bytes"] < 1e11
    assert found["written"] == []


def test_compare_as_a_table(capsys: Captured) -> None:
    assert main(["compare", "random 0", "algorithm=constant"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "reward on CartPole-v1"
    assert lines[1].split("  ")[0] == "entry"
    assert [line.split("  ")[0] for line in lines[2:4]] == ["random 0", "algorithm=constant"]
    assert "reward: probability of improvement" in lines
    assert "cost of a run (medians)" in lines
    assert "fewer than 5 runs: such an interval is too narrow" in captured.err


def test_compare_writes_report_and_plots(capsys: Captured) -> None:
    words = [
        "compare",
        "seed>=0",
        "--by=algo",
        "--html",
        "out/report.html",
        "--plots",
        "figures",
        "--formats",
        "svg,pdf",
    ]
    written = json.loads(run(capsys, *words, "--json"))["written"]
    assert written == [
        *("out/report.html", "figures/curves_reward.svg", "figures/curves_reward.pdf"),
        *("figures/compare_reward.svg", "figures/compare_reward.pdf"),
    ]
    assert Path("out/report.html").read_text().count("<svg") == 2
    assert Path("figures/curves_reward.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("kind", "more"), [("curves", []), ("compare", []), ("sensitivity", ["--parameters", "hparams.action,algo"])]
)
def test_plot(kind: str, more: list[str], capsys: Captured) -> None:
    out = run(capsys, "plot", kind, "seed>=0", *more)
    assert out == f"{kind}.png\n"
    assert Path(f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(run(capsys, "plot", kind, "seed>=0", *more, "--output=a/b.svg", "--json")) == {
        "written": ["a/b.svg"]
    }


def test_export(capsys: Captured) -> None:
    rows = list(csv.DictReader(io.StringIO(run(capsys, "export", "seed>=0", "--by", "algorithm", "--format", "csv"))))
    assert [(row["entry"], row["seed"]) for row in rows] == [(algo, seed) for algo in AGENTS for seed in "01"]
    assert run(capsys, "export", "seed>=0", "--by=algo", "--format=latex").count("CartPole{-}v1") == 1
    assert run(capsys, "export", "seed>=0", "--format=parquet", "--output=x/rows.parquet") == "x/rows.parquet\n"
    assert Path("x/rows.parquet").read_bytes().startswith(b"PAR1")
    layout = json.loads(run(capsys, "export", "seed>=0", "--by=algo", "--format=marl-eval"))
    steps = layout["gymnasium"]["cartpole-v1"]["random"]["seed_1"]
    assert [step["step_count"] for name, step in steps.items() if name != "absolute_metrics"] == [0, 512, 1024]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "nothing"], "error: no run 'nothing' in 'runs'"),
        (["compare", "algorithm=sac"], "error: no run in 'runs' passes the filter 'algorithm=sac'"),
        (["compare", "seed>=0", "--metrics", "rewrd"], "unknown key 'rewrd'; did you mean 'reward'?"),
        (["compare", "seed>=0", "--threshold", "high"], "error: --threshold takes a number, not 'high'"),
        (["compare", "seed>=0", "--formats", "png"], "error: --formats is for --plots DIR"),
        (["compare", "seed>=0", "--plots=p", "--formats=gif"], "error: a plot is one of png, svg, pdf, not 'gif'"),
        (["compare"], "error: 'rl compare' needs RUN..."),
        (["export", "seed>=0"], "error: 'rl export' needs --format"),
        (["export", "seed>=0", "--format", "latx"], "did you mean 'latex'?"),
        (["export", "seed>=0", "--format", "parquet"], "name a file with --output"),
        (["plot", "curve", "x"], "unknown command 'plot curve'; did you mean 'curves'?"),
        (["plot", "curves", "seed>=0", "--output", "x.gif"], "error: a plot is one of png, svg, pdf, not 'gif'"),
        (["plot", "sensitivity", "random 0"], "error: no field of the config differs between these runs"),
    ],
)
def test_what_is_refused(words: list[str], message: str, capsys: Captured) -> None:
    assert message in refusal(capsys, *words)
    assert not list(Path().glob("*.gif"))


@pytest.mark.parametrize("names", [HOSTILE[:4], HOSTILE[2:]], ids=["first", "last"])
def test_hostile_names_stay_where_they_are(names: list[str], capsys: Captured) -> None:
    """Nothing is written but what was asked for, and nothing reaches the terminal or the page but text."""
    for record, name in zip(sorted(Path("runs").glob("*/run.json")), names, strict=True):
        record.write_text(json.dumps({**json.loads(record.read_text()), "name": name, "tags": [name], "env_id": name}))
    Path("runs/index.sqlite").unlink()
    before = {path for path in Path("..").rglob("*") if path.is_file()}
    runs = sorted(str(path) for path in Path("runs").glob("*__*"))
    shown = run(capsys, "compare", *runs, "--html=report.html", "--plots=plots", "--formats=svg")
    shown += run(capsys, "export", *runs, "--format=markdown") + run(capsys, "export", *runs, "--format=csv")
    assert {letter for letter in shown if not letter.isprintable()} <= {"\n"}
    page = Path("report.html").read_text()
    assert "<script" not in page
    assert {letter for letter in page if not letter.isprintable()} <= {"\n"}
    new = {path for path in Path("..").rglob("*") if path.is_file()} - before
    here = Path("..") / Path.cwd().name
    assert new == {here / "report.html", here / "plots" / "curves_reward.svg"}


def test_numbers_need_no_plots() -> None:
    """Comparing and exporting import none of the heavy libraries."""
    program = (
        "import sys\nfrom rl_training.cli import main\n"
        "code = main(['compare', 'seed>=0', '--by=algo']) or main(['export', 'seed>=0', '--format=latex'])\n"
        "heavy = ('torch', 'gymnasium', 'matplotlib', 'scipy', 'pandas', 'duckdb')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "sys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"
