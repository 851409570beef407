"""Groups of seeds stand wherever a run does; folders and names that are not there are mistakes of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.config.schema import TrainConfig
from rl_training.experiments.keeping.verify import ReproducibilityChecker, VerifyReport
from rl_training.experiments.launching.groups import SeedGroup

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def groups(in_a_folder: Path) -> list[SeedGroup]:
    """Two groups of two seeds each, `one` of PPO and `two` of A2C, and a run of its own."""
    found, number = [], 0
    for name, algo in (("one", "ppo"), ("two", "a2c")):
        group = SeedGroup.create(TrainConfig(algo=algo, name=name, output_dir="runs"), [1, 2])
        for seed in (1, 2):
            number += 1
            fake_run(Path("runs"), number, reward=10.0 * number, algo=algo, seed=seed, name=name, group=group.info.id)
        found.append(group)
    fake_run(Path("runs"), 9, reward=100.0, name="alone", seed=9)
    return found


def test_tagging_a_group_tags_its_runs(groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(["tag", "one", "keep", "paper"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ppo__CartPole-v1__seed1__20260101-000001: keep, paper",
        "ppo__CartPole-v1__seed2__20260101-000002: keep, paper",
    ]
    assert main(["tag", str(groups[0].path), "--remove", "paper", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [one["tags"] for one in record["runs"]] == [["keep"], ["keep"]]
    assert main(["list", "tag=keep", "--json"]) == 0
    assert [row["seed"] for row in json.loads(capsys.readouterr().out)] == [2, 1]


def test_groups_differ_in_the_fields_that_their_runs_do_not_share(groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(["diff", "one", "two", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["algo"] == ["ppo", "a2c"]
    assert "seed" not in found["config"]  # both have 1 and 2
    assert found["results"]["eval/return_mean"] == [15.0, 35.0]
    assert main(["diff", "one", "alone"]) == 0
    out = capsys.readouterr().out
    assert "(2 runs)" in out
    assert "results (means of the runs)" in out
    seeds = next(line for line in out.splitlines() if line.startswith("  seed "))
    assert seeds.split() == ["seed", "1,", "2", "->", "9"]


def test_verifying_a_group_verifies_each_run(
    groups: list[SeedGroup], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(self: ReproducibilityChecker, run: Path, *, steps: int | None = None, **options: object) -> VerifyReport:
        return VerifyReport(str(run), 100, 3, 1, ["step 1"] if "seed2" in str(run) else [], [])  # type: ignore[list-item]

    monkeypatch.setattr(ReproducibilityChecker, "verify_experiment", verify)
    assert main(["verify", "one"]) == 3
    out = capsys.readouterr().out
    assert "1 of 2 runs are the same" in out
    assert main(["verify", "one", "--json"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert [one["reproduced"] for one in record["runs"]] == [True, False]
    assert main(["verify", "alone"]) == 0


def test_archiving_a_group_packs_each_run(groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(["archive", "one", "--output", "x.tar.gz"]) == 2
    assert "one by one" in capsys.readouterr().err
    assert main(["archive", "one"]) == 0
    assert len(list(Path("runs/archives").glob("ppo__*.tar.gz"))) == len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("line", ["show one", "compare one two", "export one --format csv", "watch one --once"])
def test_the_other_commands_take_groups_too(line: str, groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(line.split()) == 0
    assert "seed1" in capsys.readouterr().out or line.startswith("compare")


@pytest.mark.parametrize("line", ["eval", "verify", "tag {} x", "archive", "watch"])
def test_a_group_without_runs_is_said_in_one_sentence(line: str, capsys: Captured) -> None:
    group = SeedGroup.create(TrainConfig(name="empty", output_dir="runs"), [1, 2])
    words = line.format(group.path).split() if "{}" in line else [line, str(group.path)]
    assert main(words) == 2
    assert f"start them with 'rl resume {group.path}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "list",
        "show latest",
        "watch --once",
        "tag latest x",
        "diff latest latest",
        "verify latest",
        "cleanup --dry-run",
        "archive latest",
        "index rebuild",
        "compare latest",
        "export latest --format csv",
        "plot curves latest",
        "eval latest",
        "resume latest",
    ],
)
def test_an_unknown_folder_is_a_mistake(line: str, capsys: Captured) -> None:
    assert main([*line.split(), "--output-dir", "nowhere"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: no folder 'nowhere'; --output-dir names the folder of the runs (default runs)\n"
    assert captured.out == ""


def test_init_from_takes_one_run(groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(["train", "ppo/cartpole", "--init-from", "one:100", "--dry-run"]) == 2
    assert "--init-from takes one run, and 'one' is a group; name one of its runs" in capsys.readouterr().err
    assert main(["train", "ppo/cartpole", "--init-from", "nothing"]) == 2
    assert "--init-from nothing: no run 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("debug replay nothing.capture", "no file 'nothing.capture'"),
        ("cleanup one", "unexpected argument 'one'; 'rl cleanup' takes only flags"),
        ("import nothing.tar.gz", "no file 'nothing.tar.gz'"),
        ("show nothing", "no run 'nothing'"),
        ("tag one", "'rl tag' needs tags to add"),
        ("diff one", "'rl diff' needs RUN"),
        ("eval one --episodes 0", "--episodes must be at least 1"),
    ],
)
def test_wrong_input_is_one_sentence(line: str, message: str, groups: list[SeedGroup], capsys: Captured) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1


def test_a_folder_without_runs_is_no_mistake(in_a_folder: Path, capsys: Captured) -> None:
    (in_a_folder / "empty").mkdir()
    for words in (["list"], ["list", "--output-dir", "empty"]):
        assert main(words) == 0
        assert "no runs yet in '" in capsys.readouterr().err


def test_the_list_shows_names_and_what_was_cleaned(in_a_folder: Path, capsys: Captured) -> None:
    fake_run(Path("runs"), 1, name="baseline", reward=0.0123)
    fake_run(Path("runs"), 2, cleaned="2026-02-01T00:00:00+00:00", reward=0.0119)
    assert main(["list"]) == 0
    head, second, first = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["directory", "name", "status"]
    assert "finished, cleaned" in second
    assert "0.0119" in second
    assert "baseline  finished  " in first
    assert "0.0123" in first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reward>>3"], "near '>3' (character 8): a value cannot begin with '>'"),
        (["reward>"], "at its end: a value is missing after 'reward>'"),
        (["and and"], "near 'and and' (character 1): a comparison is missing before it"),
        (["=5"], "near '=5' (character 1): a key is missing"),
        (["rewrd>3"], "unknown key 'rewrd'; did you mean 'reward'?"),
        (['tag="x'], "near '\"x' (character 5): this quote is not closed"),
        (["(reward>3"], "at its end: a ')' is missing"),
        (["tag=[x"], "near '[x' (character 5): a value cannot begin with '['"),
        (["reward>3)"], "near ')' (character 9): this ')' has no '('"),
        (["reward>abc"], "near 'abc' (character 8): 'reward' is a number and 'abc' is not"),
        (["status=finishd"], "did you mean 'finished'?"),
        (["hparams.learning_rat>3"], "no config has the field 'hparams.learning_rat'; did you mean 'hparams.learning"),
        (["eval/retrn_mean>3"], "no run has the metric 'eval/retrn_mean'; did you mean 'eval/return_mean'?"),
        (["--sort", "hparams.lerning_rate"], "did you mean 'hparams.learning_rate'?"),
        (["--columns", "hparams.lerning_rate"], "did you mean 'hparams.learning_rate'?"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_at_its_place(
    words: list[str], message: str, in_a_folder: Path, capsys: Captured
) -> None:
    fake_run(Path("runs"), 1, reward=3.0)
    assert main(["list", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_fields_and_metrics_of_other_algorithms_are_no_mistake(in_a_folder: Path, capsys: Captured) -> None:
    fake_run(Path("runs"), 1)
    for text in ("hparams.tau>0", "eval/return_iqm>3", "env.kwargs=none"):
        assert main(["list", text]) == 0
    assert main(["compare", "reward>>3"]) == 2
    assert "near '>3'" in capsys.readouterr().err
