"""Commands that need no training, through `main`: what they print where, and their exit codes."""

from __future__ import annotations

import json
import os
import resource
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import rl_training.cli
from rl_training.cli import load_config, main
from rl_training.cli.commands import COMMANDS as TABLE
from rl_training.cli.commands import load_command
from rl_training.cli.commands.listings import presets
from rl_training.cli.commands.listings.names import ListingOptions
from rl_training.cli.output import print_json, stdout_for_the_result, table
from rl_training.config.loading import config_to_mapping, preset_names, read_yaml
from rl_training.registry import algorithms
from rl_training.types import RunError
from rl_training.version import __version__

ROOT = Path(__file__).parents[2]
COMMANDS = {name: load_command(name) for name in TABLE}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RL_TRAINING_TRACEBACK", raising=False)


def outcome(capsys: Captured, line: str) -> tuple[int, str, str]:
    code = main(line.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# -- help -------------------------------------------------------------------------------------------------------------


def test_overview_lists_every_command_with_train_eval_resume_first(capsys: Captured) -> None:
    code, out, err = outcome(capsys, "--help")
    places = [out.index(f"\n  {name} ") for name in COMMANDS]
    assert (code, err) == (0, "")
    assert places == sorted(places)
    assert "rl train ppo/cartpole" in out


def test_no_command_is_a_usage_error_that_shows_the_help(capsys: Captured) -> None:
    code, out, err = outcome(capsys, "")
    assert (code, out) == (2, "")
    assert "rl COMMAND" in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_with_its_flags_and_an_example(name: str, capsys: Captured) -> None:
    code, out, err = outcome(capsys, f"{name} --help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage  rl {name}")
    assert all(f"--{option.name}" in out for option in COMMANDS[name].flags)
    assert COMMANDS[name].examples[0] in out


def test_help_is_reached_three_ways(capsys: Captured) -> None:
    pages = [outcome(capsys, line)[1] for line in ("help eval", "eval -h", "eval latest --help")]
    assert pages[0] == pages[1] == pages[2]
    assert outcome(capsys, "config --help")[1].count("config validate") == 2


def test_train_help_has_every_field_with_sentence_type_and_default(capsys: Captured) -> None:
    out = " ".join(outcome(capsys, "train --help")[1].split())
    assert "--env.num-envs Number of parallel environments. (int; default 4)" in out
    assert "--hparams.clip-coef The probability ratio is clipped to 1 +- this. (float or schedule" in out
    assert "hparams of ppo Clipped-surrogate policy optimisation." in out


@pytest.mark.parametrize("line", ["train --algo a2c --help", "train --algo=a2c --help", "train a2c/cartpole --help"])
def test_train_help_shows_the_hyperparameters_of_the_chosen_algorithm(line: str, capsys: Captured) -> None:
    out = outcome(capsys, line)[1]
    assert "hparams of a2c" in out
    assert "--hparams.gae-lambda" in out
    assert "--hparams.clip-coef" not in out.partition("hparams of a2c")[2]


def test_help_for_an_unknown_algorithm_is_refused(capsys: Captured) -> None:
    code, out, err = outcome(capsys, "train --algo pppo --help")
    assert (code, out) == (2, "")
    assert "did you mean 'ppo'?" in err


def test_train_help_is_in_sections_with_the_most_used_flags_first(capsys: Captured) -> None:
    lines = outcome(capsys, "train --help")[1].splitlines()
    titles = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    wanted = ["what to train", "seeds and machines", "where it is kept", "examples", "general", "environment"]
    wanted += ["hparams of ppo", "network", "training", "logging"]
    assert [title for title in titles if title in wanted] == wanted
    flags = [line.split()[0] for line in lines if line.startswith("  --")]
    assert flags[:4] == ["--config", "--algo", "--env-id", "--total-timesteps"]
    assert len(set(flags)) == len(flags)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_page_of_help_is_wider_than_100_columns(
    name: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert max(map(len, outcome(capsys, f"{name} --help")[1].splitlines())) <= 100


def test_lines_of_help_fit_the_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for line in ("--help", "train --help", "eval --help"):
        assert max(map(len, outcome(capsys, line)[1].splitlines())) <= 100


def test_version(capsys: Captured) -> None:
    assert outcome(capsys, "--version") == (0, f"rl {__version__}\n", "")


@pytest.mark.wall_clock
def test_help_takes_less_than_half_a_second_of_cpu_time() -> None:
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "rl_training", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


@pytest.mark.parametrize(("call", "spared"), [("main()", True), ("main(['--version'])", False)])
def test_the_last_search_for_cycles_is_spared_in_a_process_of_our_own_only(call: str, spared: bool) -> None:
    script = f"""
import atexit, gc
from rl_training.cli import main
usual = gc.get_threshold()
atexit.register(lambda: print(gc.isenabled() and gc.get_threshold() == usual, gc.get_freeze_count() > 0))
{call}
"""
    words = [sys.executable, "-c", script, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == f"True {spared}", "while it runs all is as usual: environments make cycles"


# -- lists ------------------------------------------------------------------------------------------------------------


def test_presets(capsys: Captured) -> None:
    rows = json.loads(outcome(capsys, "presets --json")[1])
    assert [row["name"] for row in rows] == preset_names()
    assert {row["algo"] for row in rows} == set(algorithms.names())
    code, out, _ = outcome(capsys, "presets ppo/cart")
    assert code == 0
    assert out.splitlines()[1].split() == ["ppo/cartpole", "ppo", "CartPole-v1", "100,000"]


def test_algorithms(capsys: Captured) -> None:
    rows = {row["name"]: row for row in json.loads(outcome(capsys, "algorithms --json")[1])}
    assert list(rows) == algorithms.names()
    row = {"name": "ppo", "kind": "on_policy", "backends": ["torch", "jax"], "summary": ""}
    assert rows["ppo"] | {"summary": ""} == row
    assert (rows["pqn"]["backends"], rows["crossq"]["backends"]) == (["jax"], ["torch"])
    assert all(row["summary"] in outcome(capsys, "algorithms")[1] for row in rows.values())


def test_envs(capsys: Captured) -> None:
    listed = json.loads(outcome(capsys, "envs --json")[1])
    suites = {entry["suite"]: entry["ids"] for entry in listed["environments"]}
    assert "CartPole-v1" in suites["classic control"]
    assert "time_limit" in listed["wrappers"]
    code, out, _ = outcome(capsys, "envs CARTPOLE")
    assert code == 0
    assert "CartPole-v1" in out
    assert "Acrobot" not in out


def test_nothing_found_is_said_and_not_a_failure(capsys: Captured) -> None:
    for kind in ("preset", "algorithm", "env"):
        code, out, err = outcome(capsys, f"{kind}s qqq")
        assert (code, out) == (0, "")
        assert "contains 'qqq'" in err


# -- configs ----------------------------------------------------------------------------------------------------------


def test_config_show_is_the_resolved_config_and_loads_back(capsys: Captured, tmp_path: Path) -> None:
    code, out, err = outcome(capsys, "config show ppo/cartpole --seed 7 --hparams.clip-coef 0.1 --tags a,b")
    assert (code, err) == (0, "")
    tree = read_yaml(out)
    assert (tree["seed"], tree["hparams"]["clip_coef"], tree["tags"]) == (7, 0.1, ["a", "b"])
    (tmp_path / "shown.yaml").write_text(out)
    assert config_to_mapping(load_config("shown.yaml")) == tree
    again = json.loads(outcome(capsys, "config show --config shown.yaml --json")[1])
    assert again == tree


def test_a_schedule_as_a_flag(capsys: Captured) -> None:
    code = main(["config", "show", "--json", "--hparams.learning-rate", "{type: linear, start: 3e-4, end: 0}"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0
    assert shown["hparams"]["learning_rate"] == {"type": "linear", "start": 3e-4, "end": 0.0}


def test_validate_says_ok_per_file_and_all_problems_at_once(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("algo: a2c\nenv_id: Acrobot-v1\n")
    (tmp_path / "mine.yaml").write_text("algo: 'my.module:Algo'\nhparams: {anything: 1}\n")
    (tmp_path / "sweep.yaml").write_text(
        "base_config: ppo/cartpole\nsweep: {algorithm.lr: [1e-3, 3e-4], seed: [1, 2, 3]}\nparallel_jobs: 2\n"
    )
    (tmp_path / "bad.yaml").write_text("algo: ppo\nhparams: {clip_coeff: 0.1, gamma: much}\n")
    code, out, err = outcome(capsys, "config validate good.yaml mine.yaml bad.yaml sweep.yaml")
    assert code == 2
    assert out.splitlines() == [
        "good.yaml: ok, a2c on Acrobot-v1",
        "mine.yaml: ok, my.module:Algo on CartPole-v1 (its hparams are checked when it is built)",
        "sweep.yaml: ok, a sweep of 6 configs on ppo/cartpole",
    ]
    assert "did you mean 'clip_coef'?" in err
    assert "gamma" in err


def test_validate_as_json(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("sed: 1\n")
    code, out, err = outcome(capsys, "config validate ppo/cartpole bad.yaml --json")
    good, bad = json.loads(out)
    assert (code, err) == (2, "")
    assert (good["file"], good["valid"], good["error"]) == ("ppo/cartpole", True, None)
    assert not bad["valid"]
    assert "did you mean 'seed'?" in bad["error"]


def test_every_config_of_the_repository_is_valid(capsys: Captured) -> None:
    files = sorted(str(path) for path in (ROOT / "configs").rglob("*.yaml"))
    assert len(files) >= 5
    assert main(["config", "validate", *files]) == 0


def test_migrate_prints_and_with_write_replaces(capsys: Captured, tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text("# kept\nversion: 0\nalgo: ppo\nnum_envs: 2\nhparams: {clip_range: 0.3}\n")
    before = old.read_text()
    code, out, _ = outcome(capsys, "config migrate old.yaml")
    assert code == 0
    assert old.read_text() == before
    old_defaults = {"eval_at_start": False, "eval_frequency": 10_000}
    today = {"version": 2, "algo": "ppo", "hparams": {"clip_coef": 0.3}, "env": {"num_envs": 2}}
    assert read_yaml(out) == {**today, "training": old_defaults}
    assert outcome(capsys, "config migrate old.yaml --write")[:2] == (0, "")
    assert old.read_text() == out
    assert "already in today's layout" in outcome(capsys, "config migrate old.yaml --write")[2]


def test_load_config_of_the_cli(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("algo: ppo\nenv_id: CartPole-v1\nseed: 1\n")
    assert load_config("c.yaml").seed == 1
    assert load_config(tmp_path / "c.yaml").env_id == "CartPole-v1"


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train nosuch.yaml", "config file 'nosuch.yaml' does not exist"),
        ("train ppo/cartpol", "did you mean 'ppo/cartpole'?"),
        ("train --algo pppo", "--algo: unknown algorithm 'pppo'; did you mean 'ppo'?"),
        ("train --total-timesteps many", "--total-timesteps"),
        ("train --hparams.clip-coeff 0.1", "did you mean 'clip_coef'?"),
        ("train --hparams.gamma 2", "gamma must be between 0 and 1"),
        ("train --backend tensorflow", "--backend"),
        ("train --base ppo/cartpole", "--base: a base belongs in a file"),
        ("train ppo/cartpole --config other.yaml", "two configs are named"),
        ("train ppo/cartpole --jobs 2", "--jobs is for several seeds"),
        ("train --seed 1,1", "names a seed twice"),
        ("train --resume latest --debug", "a resumed run keeps its config; drop --debug"),
        ("train --resume latest --hparams.gamma 0.9", "drop --hparams.gamma"),
        ("train --resume latest", "'runs' holds no runs"),
        ("eval nosuch", "no run 'nosuch'"),
        ("eval latest --checkpoint first", "--checkpoint is latest, best or a number"),
        ("eval .", "is not a run: it has no run.json"),
        ("resume latest --total-timesteps 0", "--total-timesteps must be at least 1"),
        ("completion tcsh", "no completion for 'tcsh'"),
    ],
)
def test_mistakes_are_one_message_with_the_cure_and_exit_code_2(line: str, message: str, capsys: Captured) -> None:
    code, out, err = outcome(capsys, line)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_with_json_a_mistake_leaves_stdout_empty(capsys: Captured) -> None:
    for line in ("train --algo pppo --json", "eval nosuch --json", "config show nosuch --json"):
        code, out, err = outcome(capsys, line)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")


def test_a_traceback_on_request(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in outcome(capsys, "--traceback train nosuch.yaml")[2]
    assert "Traceback" in outcome(capsys, "train nosuch.yaml --traceback")[2]
    monkeypatch.setenv("RL_TRAINING_TRACEBACK", "1")
    code, _, err = outcome(capsys, "train nosuch.yaml")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: ")


def raising(error: BaseException) -> Callable[[ListingOptions], int]:
    def command(options: ListingOptions) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "last_line", "has_traceback"),
    [
        (RunError("it is locked"), 1, "error: it is locked", False),
        (KeyboardInterrupt(), 130, "interrupted", False),
    ],
)
def test_outcomes_of_a_command(
    error: BaseException,
    code: int,
    last_line: str,
    has_traceback: bool,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presets, "COMMAND", replace(presets.COMMAND, run=raising(error)))
    got, out, err = outcome(capsys, "presets")
    assert (got, out) == (code, "")
    assert err.splitlines()[-1].startswith(last_line)
    assert ("Traceback" in err) is has_traceback


def test_a_reader_that_has_gone_is_no_error() -> None:
    program = "import sys; from rl_training.cli import main; sys.exit(main(['train', '--help']))"
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run([sys.executable, "-c", program], stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (141, b"")


def test_warnings_are_one_line(capsys: Captured) -> None:
    with rl_training.cli.short_warnings(True):
        assert warnings.formatwarning("no GPU here", UserWarning, "file.py", 3) == "warning: no GPU here\n"
        assert "file.py:3" in warnings.formatwarning("old", DeprecationWarning, "file.py", 3)
    assert "file.py:3" in warnings.formatwarning("no GPU here", UserWarning, "file.py", 3)


# -- output -----------------------------------------------------------------------------------------------------------


def test_json_has_no_nan(capsys: Captured) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": Path("x"), 3: (True, None)})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": "x", "3": [True, None]}


def test_stdout_is_kept_for_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_for_the_result(True):
        print("from Python")
        subprocess.run(["echo", "from a child"], check=True)
        os.write(1, b"from a library\n")
    print("the result")
    captured = capfd.readouterr()
    assert captured.out == "the result\n"
    assert sorted(captured.err.splitlines()) == ["from Python", "from a child", "from a library"]


def test_table() -> None:
    assert table(["seed", "run"], [["1", "a"], ["100000", "b c"]]) == "seed    run\n1       a\n100000  b c"


@pytest.mark.parametrize(
    ("script", "command"), [("train", "train"), ("evaluate", "eval"), ("sweep", "sweep"), ("analyze", "compare")]
)
def test_scripts_take_the_flags_of_the_command(
    script: str, command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "scripts" / f"{script}.py"), run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage  rl {command}")


@pytest.mark.parametrize("module", ["rl_training", "rl_training.cli"])
def test_modules_run_as_the_command(module: str) -> None:
    result = subprocess.run([sys.executable, "-m", module, "trian"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: unknown command 'trian'; did you mean 'train'? (see 'rl --help')\n"
