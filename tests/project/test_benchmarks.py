"""The benchmark runner: turns, medians, ratios, what a process used, and the page. No contest is held here."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
contest_types, contests, harness, page, peers, runner, timing = map(
    importlib.import_module, ("contest_types", "contests", "harness", "page", "peers", "run", "timing")
)
Contest, Contestant, Measure = contest_types.Contest, contest_types.Contestant, contest_types.Measure

SPEED = Measure("speed", "speed, /s", "higher", goal=3.0)
MEMORY = Measure("peak_mb", "memory", "lower", 1)
SCRIPT = """
import json, sys
settings = json.loads(sys.argv[1])
open(settings["log"], "a").write(f"{settings['who']}{settings['seed']} ")
print(json.dumps({"speed": settings["base"] + settings["seed"], "text": "left out", "stop_reason": "solved: yes"}))
"""


def contest(tmp_path: Path) -> Any:
    """Two contestants that write down when they run; ours is ten times as fast."""
    script = tmp_path / "contestant.py"
    script.write_text(SCRIPT)
    check = tmp_path / "check.py"
    check.write_text("import json, sys\nprint(json.dumps({'score': json.load(sys.stdin)['speed'] / 2}))")
    return Contest(
        name="trial",
        title="A trial",
        text="What is compared.",
        measures=(SPEED, MEMORY, Measure("score", "score", None, 1), Measure("unknown", "unknown")),
        contestants=(
            Contestant("ours", (str(script), "{settings}"), settings={"who": "A", "base": 100}, check=(str(check),)),
            contest_types.Peer("theirs", (str(script), "{settings}"), settings={"who": "B", "base": 10}),
        ),
        settings={"log": str(tmp_path / "log")},
    )


@pytest.fixture
def result(tmp_path: Path) -> Any:
    pythons = {".venv": sys.executable, ".venv-peers": sys.executable}
    held = harness.hold(contest(tmp_path), 3, pythons, report=lambda line: None)
    return {**held, "versions": {"python": "3.x"}}


def test_contestants_take_turns_and_medians_are_taken(tmp_path: Path, result: Any) -> None:
    assert (tmp_path / "log").read_text().split() == ["A0", "B0", "A1", "B1", "A2", "B2"]
    ours, theirs = result["contestants"]["ours"], result["contestants"]["theirs"]
    assert (ours["median"]["speed"], theirs["median"]["speed"]) == (101, 11)
    assert ours["median"]["score"] == 50.5
    assert "score" not in theirs["median"]
    assert [run["speed"] for run in ours["runs"]] == [100, 101, 102]
    assert "text" not in ours["runs"][0]
    assert ours["runs"][0]["process_cpu_seconds"] > 0
    assert json.loads(json.dumps(result)) == result


def test_ratios_are_against_the_best_peer() -> None:
    entries = {
        "ours": {"peer": False, "median": {"speed": 30.0, "peak_mb": 100.0}},
        "slow": {"peer": True, "median": {"speed": 5.0, "peak_mb": 90.0}},
        "fast": {"peer": True, "median": {"speed": 10.0, "peak_mb": 120.0}},
    }
    assert harness.times_better({"contestants": entries}, "ours", SPEED) == 3.0
    assert harness.times_better({"contestants": entries}, "ours", MEMORY) == 0.9
    assert harness.times_better({"contestants": entries}, "ours", Measure("speed", "speed")) is None
    assert harness.times_better({"contestants": entries}, "ours", Measure("unknown", "x", "lower")) is None


def test_who_does_not_reach_the_score_in_every_run_has_no_ratio(tmp_path: Path, result: Any) -> None:
    """Ours scores 50, 50.5 and 51: a floor of 50.2 is not reached by the first run. Theirs has no score."""
    fast = contest(tmp_path)
    strict = replace(fast, measures=(SPEED, Measure("score", "score", None, 1, floor=50.2)))
    assert harness.times_better(result, "ours", SPEED, fast.measures) == pytest.approx(101 / 11)
    assert harness.times_better(result, "ours", SPEED, strict.measures) is None
    text = page.section(strict, result)
    assert "- **No result** for ours: its runs must all end at 50.2, but seed 0 ended at 50.0." in text
    assert "×" not in text
    for run in result["contestants"]["theirs"]["runs"]:
        run["score"] = 10.0
    floor = replace(strict, measures=(SPEED, replace(strict.measures[1], floor=50.0)))
    assert harness.times_better(result, "ours", SPEED, floor.measures) is None, "nobody is left to compare with"


def test_the_algorithms_are_listed_side_by_side() -> None:
    rejax = contests.CONTESTS["jax_ppo_cartpole"]
    assert page.settings(rejax)[:2] == ["| algorithm | rl_training | rejax |", "|---|---|---|"]
    listed = {what: (ours, theirs) for what, ours, theirs in rejax.algorithm}
    assert listed["value clipping"] == ("0.2", "0.2")
    assert rejax.contestants[0].settings["hparams"] == {"clip_vf": rejax.settings["clip_coef"], "adam_eps": 1e-8}
    assert all(held.algorithm for held in contests.CONTESTS.values() if "PPO on" in held.title or "DQN" in held.title)
    scored = [m for held in contests.CONTESTS.values() for m in held.measures if m.key == "score" and m.better is None]
    assert {m.floor for m in scored} == {475.0}


def test_a_process_is_measured_with_its_children() -> None:
    program = (
        "import json, subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-c', 'x = bytearray(200_000_000)'], check=True)\n"
        "time.sleep(0.2)\n"
        "print(json.dumps({'threads': __import__('os').environ['OMP_NUM_THREADS']}))"
    )
    outcome = harness.run_process([sys.executable, "-c", program])
    assert outcome.output == {"threads": "1"}
    assert outcome.seconds > 0.2
    assert outcome.cpu_seconds > 0
    assert 200 < outcome.peak_mb < 400


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('it broke')", "it broke"),
        ("print('hello')", "no JSON from"),
        ("1/0", "ZeroDivisionError"),
    ],
)
def test_a_contestant_that_fails_ends_the_contest_with_its_words(program: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        harness.run_process([sys.executable, "-c", program])


def test_the_stopwatch_counts_from_the_warm_up_to_the_last_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 2.0, 3.5, 4.0])
    cpu = iter([0.5, 1.0, 2.0, 2.5])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(timing.time, "process_time", lambda: next(cpu))
    watch = timing.Stopwatch(warmup=1000)
    for env_steps in (512, 1024, 1536, 2048):
        watch.mark(env_steps)
    assert watch.result() == {
        "timed_env_steps": 1024,
        "timed_seconds": 2.0,
        "env_steps_per_second": 512.0,
        "cpu_us_per_step": 1.5e6 / 1024,
    }
    assert timing.cpu_seconds_of([]) == 0.0
    assert 0.0 < timing.cpu_seconds_of([os.getpid()]) < 1e6
    with pytest.raises(SystemExit, match="too short"):
        timing.Stopwatch(warmup=1000).result()


def test_the_table_has_medians_ratios_ranges_and_who_solved(tmp_path: Path, result: Any) -> None:
    for entry, peak_mb in zip(result["contestants"].values(), (10.0, 12.5), strict=True):
        entry["median"]["peak_mb"] = peak_mb
    assert page.table(contest(tmp_path), result).splitlines() == [
        "| | speed, /s | range | memory | score | solved |",
        "|---|---|---|---|---|---|",
        "| ours | 101 (9.18 ×) | 100 to 102 | 10.0 (1.25 ×) | 50.5 | 3 of 3 |",
        "| theirs | 11 | 10 to 12 | 12.5 | – | 3 of 3 |",
    ]


def test_a_section_says_goal_circumstances_and_commands(tmp_path: Path, result: Any) -> None:
    result["machine"]["load_before"] = 2.4
    text = page.section(contest(tmp_path), result)
    assert "- Goal, speed, /s: at least 3 times the best peer. 9.18 ×: reached." in text
    assert "Median of 3, " in text
    assert "The machine was not idle: load 2.4 before the first run." in text
    assert ".venv-peers/bin/python " in text
    result["machine"]["load_before"] = 0.1
    assert "not idle" not in page.section(contest(tmp_path), result)


def test_a_goal_may_be_a_number_and_a_rival_may_have_a_name(tmp_path: Path, result: Any) -> None:
    speed, memory = replace(SPEED, limit=102), replace(MEMORY, limit=1000)
    text = page.section(replace(contest(tmp_path), measures=(speed, memory), rival="a run alone"), result)
    assert "- Goal, speed, /s: at least 3 times a run alone. 9.18 ×: reached." in text
    assert "- Goal, speed, /s: at least 102. 101: not reached." in text
    assert "- Goal, memory: at most 1,000.0. " in text


def test_a_pinned_contestant_stays_on_one_core() -> None:
    program = "import json, os; print(json.dumps({'cores': len(os.sched_getaffinity(0))}))"
    pinned = Contestant("pinned", ("-c", program), cores=1)
    trial = Contest("trial", "", "", (Measure("cores", "cores"),), (pinned,))
    assert harness.run_once(trial, pinned, 0, {".venv": sys.executable})["cores"] == 1
    assert harness.shown_command(trial, pinned).startswith("taskset -c ")
    with pytest.raises(SystemExit, match="pinned needs 10000 cores; there are "):
        harness.call(trial, replace(pinned, cores=10_000), 0, "python", "")


def test_any_setting_can_be_a_word_of_a_command() -> None:
    contestant = Contestant("ours", ("--seeds", "{seeds}", "--output-dir", "{scratch}", "{unknown}"))
    trial = Contest("trial", "", "", (SPEED,), (contestant,), settings={"seeds": 100})
    words = harness.fill(contestant.command, trial, contestant, 0, "/tmp/x")
    assert words == ["--seeds", "100", "--output-dir", "/tmp/x", "{unknown}"]


def test_files_keep_the_contests_that_were_not_held_again(tmp_path: Path, result: Any) -> None:
    old, new = json.loads(json.dumps(result)), json.loads(json.dumps(result))
    for held in (old, new):
        for entry in held["contestants"].values():
            entry["median"] |= {"env_steps_per_second": 7.0, "add_1": 8.0}
            entry["runs"] = [{**run, "env_steps_per_second": 7.0, "add_1": 8.0} for run in entry["runs"]]
    data, text = tmp_path / "data" / "bench.json", tmp_path / "benchmarks.md"
    runner.write({"replay": old, "ppo_cartpole": new, "no_longer_held": old}, data, text)
    assert list(json.loads(data.read_text())) == ["ppo_cartpole", "replay"]
    assert text.read_text().index("## PPO on CartPole-v1, 4 env") < text.read_text().index("## Replay buffer")


def test_contests_are_chosen_by_name() -> None:
    assert [one.name for one in runner.chosen("replay,ppo_cartpole")] == ["ppo_cartpole", "replay"]
    assert [one.name for one in runner.chosen(None)] == list(contests.CONTESTS)
    with pytest.raises(SystemExit, match="no contest nosuch; there are ppo_cartpole, "):
        runner.chosen("nosuch")


@pytest.mark.parametrize("name", contests.CONTESTS)
def test_every_contest_is_complete(name: str) -> None:
    held = contests.CONTESTS[name]
    has_peer = any(contestant.peer for contestant in held.contestants)
    assert has_peer or any(measure.limit is not None for measure in held.measures)
    assert not held.contestants[0].peer
    assert all(one.venv in (".venv", *peers.ENVIRONMENTS) for one in held.contestants)
    assert len({contestant.name for contestant in held.contestants}) == len(held.contestants)
    assert held.quick.keys() <= held.settings.keys()
    words = [word for one in held.contestants for word in (*one.command, *one.check) if word.endswith(".py")]
    assert [word for word in words if not (ROOT / word).is_file()] == []


def test_the_contestants_of_the_speed_contests_work_the_same_amount() -> None:
    for name in ("ppo_cartpole", "ppo_cartpole_16", "ppo_pendulum"):
        settings = contests.CONTESTS[name].settings
        assert settings["total_timesteps"] - settings["warmup"] >= 60_000
        assert all(set(one.settings) <= {"vectorization"} for one in contests.CONTESTS[name].contestants)


def test_the_sides_of_pong_have_the_same_network_and_cores() -> None:
    for name, cores, peers_ways in (("ppo_pong", 1, 1), ("ppo_pong_two_cores", 2, 4), ("ppo_pong_small", 2, 4)):
        held = contests.CONTESTS[name]
        ours, *others = held.contestants
        encoder = ours.settings["network"]["actor"]["encoder"]
        assert {one.cores for one in held.contestants} == {cores}
        theirs = [one.settings for one in others if one.peer]
        assert [settings["encoder"] for settings in theirs] == [encoder] * peers_ways
        assert len({(settings["threads"], settings["subproc"]) for settings in theirs}) == peers_ways
        assert ours.settings["env"].get("overlap", False) == (cores == 2)


def test_a_preset_in_the_words_of_the_peers() -> None:
    settings = contests.preset_settings("ppo/cartpole")
    assert settings.keys() == {*contests.PPO_SETTINGS, "num_envs"}
    assert settings["num_envs"] >= 1


def test_the_peers_never_enter_the_packages_environment() -> None:
    assert all(name.startswith(".venv-peers") for name in peers.ENVIRONMENTS)
    assert "/.venv-*/" in (ROOT / ".gitignore").read_text().split()
    first, *pins = peers.wanted(peers.Environment(("a==1",), ("numpy", "torch")))
    assert first == "a==1"
    assert [pin.split("==")[0] for pin in pins] == ["numpy", "torch"]


def test_the_page_is_what_the_results_give() -> None:
    assert runner.PAGE.read_text() == page.render(json.loads(runner.DATA.read_text()))
