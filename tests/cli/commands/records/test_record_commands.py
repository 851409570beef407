"""`rl list`, `show`, `tag`, `diff`, `index rebuild` on real runs, on hostile ones and on ten thousand."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rl_training
from rl_training.cli import main
from rl_training.runs.directory import RunDir
from rl_training.runs.index import RunIndex
from rl_training.runs.row import COLUMNS

Captured = pytest.CaptureFixture[str]
HOSTILE = [
    "<script>alert(1)</script>",
    "\x1b[2J\x1b[31mred\x07",
    "../../../etc/passwd",
    "n" * 300,
    "'; DROP TABLE runs; --",
    "a\nb\tc\x00d",
    "\u202egnp.exe",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short runs of agents that do not learn."""
    folder = tmp_path_factory.mktemp("records")
    for seed, algo in enumerate(("random", "constant", "random")):
        config = {
            "algo": algo,
            "env_id": "CartPole-v1",
            "seed": seed,
            "name": f"run {seed}",
            "tags": ["even"] if seed % 2 == 0 else [],
            "output_dir": str(folder / "runs"),
            "training": {"total_timesteps": 256, "num_eval_episodes": 2},
            "logging": {"terminal": False, "tensorboard": False},
        }
        rl_training.train(config)
    return folder


@pytest.fixture(autouse=True)
def in_a_copy(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)


def listed(capsys: Captured, *words: str) -> list[dict[str, object]]:
    assert main(["list", *words, "--json"]) == 0
    return list(json.loads(capsys.readouterr().out))


def test_listing(capsys: Captured) -> None:
    assert [row["seed"] for row in listed(capsys)] == [2, 1, 0]
    assert [row["seed"] for row in listed(capsys, "algorithm=random", "tag=even", "--sort", "-seed")] == [0, 2]
    assert [row["seed"] for row in listed(capsys, "--filter", "seed=1 or seed=2", "--sort=seed")] == [2, 1]
    assert set(listed(capsys)[0]) == set(COLUMNS) - {"config"}
    one = listed(capsys, "seed=1")[0]
    assert listed(capsys, "seed=1", "--columns=seed,algorithm,eval/return_mean,env.num_envs") == [
        {"seed": 1, "algorithm": "constant", "eval/return_mean": one["reward"], "env.num_envs": 4}
    ]
    assert listed(capsys, "--limit=1", "status=finished")[0]["seed"] == 2
    assert listed(capsys, "status=failed") == []


def test_the_table(capsys: Captured) -> None:
    assert main(["list", "--columns", "seed,name,tags,env_steps", "--limit", "2"]) == 0
    captured = capsys.readouterr()
    lines = [line.split("  ") for line in captured.out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["seed", "name", "tags", "env_steps"],
        ["2", "run 2", "even", "512"],
        ["1", "run 1", "-", "512"],
    ]
    assert captured.err == "2 of 3 runs; --limit 0 shows all\n"
    assert main(["list", "seed=77"]) == 0
    assert capsys.readouterr() == ("", "no run passes the filter\n")
    assert main(["list", "sed=1"]) == 2
    assert "did you mean 'seed'?" in capsys.readouterr().err


def test_show_names_a_run_in_every_way(capsys: Captured) -> None:
    (run,) = Path("runs").glob("constant__*")
    for named in (str(run), run.name, "constant__", "run 1"):
        assert main(["show", named, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["path"], shown["seed"], shown["info"]["id"]) == (str(run.absolute()), 1, run.name)
    run.rename("runs/another name")
    assert main(["show", "constant__CartPole", "--json"]) == 0  # the id is what it was
    assert json.loads(capsys.readouterr().out)["directory"] == "another name"
    assert main(["show", "latest"]) == 0
    out = capsys.readouterr().out
    assert "status        finished" in out
    assert "eval/return_mean" in out
    assert "next          rl eval" in out
    assert main(["show", "random__"]) == 2
    assert "'random__' fits 2 runs" in capsys.readouterr().err


def test_tags(capsys: Captured) -> None:
    assert main(["tag", "run 1", "keep", "paper 2"]) == 0
    assert capsys.readouterr().out.endswith(": keep, paper 2\n")
    assert [row["seed"] for row in listed(capsys, "tag='paper 2'")] == [1]
    assert main(["tag", "run 1", "--remove=keep,paper 2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == []
    assert main(["index", "rebuild", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"index": "runs/index.sqlite", "runs": 3, "journal_mode": "wal"}
    assert listed(capsys, "tag=keep") == []
    assert main(["tag", "run 1"]) == 2
    assert main(["tag", "run 1", "a\nb"]) == 2


def test_diff(capsys: Captured) -> None:
    assert main(["diff", "run 0", "run 2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"] == {"name": ["run 0", "run 2"], "seed": [0, 2]}
    assert found["versions"] == found["code"] == {}
    assert main(["diff", "run 0", "run 1"]) == 0
    out = capsys.readouterr().out
    assert "algo                              random  ->  constant" in out
    assert "versions  the same" in out


def test_rebuilding_nothing(capsys: Captured) -> None:
    assert main(["index", "rebuild", "--output-dir=nowhere"]) == 2
    assert "no folder 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_and_tags_are_only_text(text: str, capsys: Captured) -> None:
    run = RunDir.open("run 1")
    run.update_info(name=text, tags=[text], group=text)
    RunIndex("runs").rebuild()
    for words in (["list", "--columns=name,tags,group,seed"], ["show", "latest"], ["diff", "run 0", "constant__"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert all(letter.isprintable() or letter == "\n" for letter in out)
    assert [row["name"] for row in listed(capsys, "seed=1")] == [text]
    assert main(["show", text, "--json"]) in (0, 2)  # by its name, or refused: never another place
    printed = capsys.readouterr().out
    assert not printed or json.loads(printed)["path"] == str(run.path)


@pytest.mark.wall_clock
def test_ten_thousand_runs_are_listed_within_a_second() -> None:
    """Process start included. CPU time, so that a busy machine does not count; best of three."""
    output_dir = Path("many")
    results = {f"train/metric_{i}": i / 3 for i in range(25)}
    row = {
        **dict.fromkeys(COLUMNS),
        "status": "finished",
        "tags": ["a"],
        "results": results,
        "config": {"x": "y" * 999},
    }
    names = [f"ppo__CartPole-v1__seed{i}__20260101-000000" for i in range(10_000)]
    output_dir.mkdir()
    for name in names:
        (output_dir / name).mkdir()
    rows = [
        {**row, "directory": name, "id": name, "seed": i, "algorithm": ("ppo", "dqn")[i % 2], "reward": float(i % 500)}
        for i, name in enumerate(names)
    ]
    RunIndex(output_dir).put(rows)
    words = [sys.executable, "-X", "importtime", "-m", "rl_training", "list", "--output-dir=many", "--limit=0"]
    words += ["algorithm=ppo and reward>400", "--sort=reward", "--columns=reward,directory"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run(words, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    _, *found = result.stdout.splitlines()
    assert (len(found), found[0].split()[0]) == (10_000 * 49 // 500, "498.0")
    assert min(seconds) <= 1.0
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert imported & {"torch", "jax", "gymnasium", "matplotlib", "pydantic", "pandas"} == set()
