"""A search with runs that are only written down: what it asks for, when it prunes, and that a kill loses nothing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_training.config.loading import load_config
from rl_training.config.searches.sweeps import SweepConfig
from rl_training.config.searches.tuning import TuneConfig, parse_tune, shipped_space, space_names
from rl_training.experiments.analysis.tune_plots import write_plots
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.experiments.launching.tuning import Tuning
from rl_training.registry import algorithms
from rl_training.types import ConfigError, RunError

FILE: dict[str, Any] = {
    "base_config": "ppo/cartpole",
    "space": "none",
    "ranges": {"algorithm.lr": {"low": 1e-5, "high": 1e-1, "log": True}},
    "sweep": {"hparams.gamma": [0.9, 0.99]},
    "num_trials": 7,
    "seeds": [3, 4, 5, 6, 7],
}
Score = Callable[[dict[str, Any], int], float | None]


def good_at_1e3(values: dict[str, Any], seed: int) -> float:
    """Paired: seeds differ by much more than trials do."""
    return 100.0 * seed - abs(math.log10(values["hparams.learning_rate"]) + 3.0)


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuning]:
    monkeypatch.chdir(tmp_path)
    return lambda **changes: Tuning.create(parse_tune({**FILE, **changes}), source="")


class Runs:
    """Stands for a `GroupRunner`: every run ends at once with a made-up score, or fails."""

    def __init__(self, tuning: Tuning, score: Score, jobs: int = 1) -> None:
        self.tuning, self.score, self.jobs = tuning, score, jobs
        self.waiting: list[Member] = []
        self.started: list[tuple[int | None, int]] = []

    def parallel(self) -> int:
        return self.jobs

    def play(self, limit: int | None = None) -> list[tuple[int | None, int]]:
        """Until nothing is left, or `limit` runs have ended."""
        waiting = self.tuning.resume()
        while waiting or (waiting := self.tuning.feed(self)):  # type: ignore[arg-type]
            for member in waiting:
                if limit is not None and len(self.started) >= limit:
                    return self.started
                self.end(member)
            waiting = []
        return self.started

    def end(self, member: Member) -> None:
        sweep = self.tuning.sweep
        self.started.append(member.key)
        score = self.score(sweep.info.trials[member.trial or 0], member.seed)
        member.run = f"ppo__CartPole-v1__seed{member.seed}__{member.trial:03d}"
        folder = sweep.output_dir / member.run
        folder.mkdir()
        status = "failed" if score is None else "finished"
        info = {"id": member.run, "status": status, "exit_code": 0, "group": sweep.group_of(member)}
        (folder / "run.json").write_text(json.dumps(info))
        (folder / "metrics.json").write_text(json.dumps({"eval/return_mean": score, "rollout/return_mean": -1.0}))
        sweep.observe_member(member)
        sweep.save()


def test_trials_run_their_seeds_in_order_and_bad_ones_end_early(create: Callable[..., Tuning]) -> None:
    tuning = create()
    started = Runs(tuning, good_at_1e3).play()
    trials = {row["trial"]: row for row in tuning.trials()}
    assert sorted(trials) == list(range(7))
    for number, row in trials.items():
        seeds = [seed for trial, seed in started if trial == number]
        assert seeds == [3, 4, 5, 6, 7][: len(seeds)]
        # pairs that are all worse are significant from the fourth on; the best trial so far runs to its end
        assert len(seeds) == (5 if row["state"] == "complete" else 4)
        assert row["scores"] == pytest.approx([good_at_1e3(row["values"], seed) for seed in seeds])
    states = [trials[number]["state"] for number in range(7)]
    assert states[0] == "complete"
    assert 2 <= states.count("pruned") <= 6
    best = tuning.best()
    assert best is not None
    assert best["value"] == max(row["value"] for row in trials.values() if row["value"] is not None)
    # IQM of five seeds: the three in the middle
    assert best["value"] == pytest.approx(sum(best["scores"][1:4]) / 3)


def test_a_search_that_is_killed_again_and_again_ends_as_one_that_was_not(
    create: Callable[..., Tuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = create()
    Runs(straight, good_at_1e3).play()
    (tmp_path / "killed").mkdir()
    monkeypatch.chdir(tmp_path / "killed")
    killed = create()
    total = 0
    for limit in (1, 4, 6, 2, None):
        again = Tuning.open_existing(killed.sweep.path)
        total += len(Runs(again, good_at_1e3).play(limit))
    assert again.trials() == straight.trials()
    assert total == len(straight.sweep.members)
    assert [member.key for member in again.sweep.members] == [member.key for member in straight.sweep.members]


def test_several_trials_side_by_side(create: Callable[..., Tuning]) -> None:
    tuning = create(pruner="none", num_trials=5, seeds=[0, 1])
    first = tuning.feed(SimpleNamespace(parallel=lambda: 3, waiting=[]))  # type: ignore[arg-type]
    assert [member.key for member in first] == [(0, 0), (1, 0), (2, 0)]
    assert tuning.feed(SimpleNamespace(parallel=lambda: 3, waiting=[])) == []  # type: ignore[arg-type]


def test_failures_are_told_and_the_search_goes_on(create: Callable[..., Tuning]) -> None:
    tuning = create(num_trials=3, seeds=[0, 1], ranges={}, sweep={"hparams.gamma": [0.9, 0.99]})
    started = Runs(tuning, lambda values, seed: None if len(tuning.open) and seed == 1 else 1.0).play()
    assert started == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [row["state"] for row in tuning.trials()] == ["fail"] * 3
    assert tuning.best() is None
    with pytest.raises(RunError, match="no trial that ran all its seeds"):
        tuning.export_best("best.yaml")


def test_values_that_do_not_go_together_are_a_failed_trial(create: Callable[..., Tuning]) -> None:
    space = {"hparams.num_steps": [1, 64], "hparams.num_minibatches": [1, 64]}  # 64 minibatches of 1 x num_envs rows
    tuning = create(num_trials=8, seeds=[0], ranges={}, sweep=space, sampler="random")
    Runs(tuning, lambda values, seed: 1.0).play()
    failed = [row for row in tuning.trials() if row["state"] == "fail"]
    assert [row["values"] for row in failed] == [{"hparams.num_steps": 1, "hparams.num_minibatches": 64}] * len(failed)
    assert failed
    assert "is more than the rollout has rows" in failed[0]["reason"]


def test_metric_aggregate_and_direction(create: Callable[..., Tuning]) -> None:
    tuning = create(metric="rollout/return_mean", aggregate="min", direction="minimize", num_trials=2, seeds=[0, 1])
    Runs(tuning, good_at_1e3).play()
    assert [row["value"] for row in tuning.trials()] == [-1.0, -1.0]


def test_best_config_importance_and_plots(create: Callable[..., Tuning]) -> None:
    tuning = create(pruner="none", num_trials=12, seeds=[0])
    Runs(tuning, good_at_1e3).play()
    importance = tuning.importance()
    assert list(importance) == ["hparams.learning_rate", "hparams.gamma"]
    assert sum(importance.values()) == pytest.approx(1.0)
    best = tuning.best()
    assert best is not None
    cfg = load_config(tuning.export_best("deep/best.yaml"))
    assert cfg.hparams.learning_rate == best["values"]["hparams.learning_rate"]
    assert cfg.hparams.gamma == best["values"]["hparams.gamma"]
    written = {path.name for path in write_plots(tuning)}
    assert written == {f"{name}.{kind}" for name in ("slices", "importance", "contour") for kind in ("png", "svg")}
    svg = (tuning.sweep.path / "plots" / "slices.svg").read_text()
    assert "learning_rate" in svg
    assert "iqm of reward" in svg


def test_a_search_is_a_sweep_to_everybody_else(create: Callable[..., Tuning]) -> None:
    tuning = create(num_trials=2, seeds=[0, 1], pruner="none")
    Runs(tuning, good_at_1e3).play()
    sweep = Sweep.open("latest")
    assert [member.status for member in sweep.members] == ["finished"] * 4
    assert len(sweep.info.trials) == 2
    plain = Sweep.create(SweepConfig("ppo/cartpole"))
    with pytest.raises(RunError, match="is not a search that `rl tune` can continue"):
        Tuning.open_existing(plain.path)


# -- files ------------------------------------------------------------------------------------------------------------


def test_every_algorithm_that_learns_has_a_space_that_fits_it() -> None:
    assert sorted(space_names()) == sorted(set(algorithms.names()) - {"random", "constant"})
    for name in space_names():
        continuous = ("sac", "td3", "ddpg", "crossq", "pets", "mbpo", "planet", "dynamics", "td3_bc", "iql")
        continuous = (*continuous, "rebrac", "awac")
        teams = ("ippo", "mappo", "vdn", "qmix", "pqn_vdn")
        preset = "simple_spread" if name in teams else "pendulum" if name in continuous else "cartpole"
        tune = parse_tune({"base_config": f"{name}/{preset}"})
        keys = {key for kind in shipped_space(name).values() for key in kind}
        assert {*tune.ranges, *tune.sweep} == keys
        assert "hparams.learning_rate" in keys


def test_own_keys_replace_those_of_the_space() -> None:
    tune = parse_tune({"base_config": "ppo/cartpole", "sweep": {"algorithm.lr": [1e-3, 1e-4]}})
    assert tune.sweep["hparams.learning_rate"] == (1e-3, 1e-4)
    assert "hparams.learning_rate" not in tune.ranges
    assert "hparams.ent_coef" in tune.ranges
    assert parse_tune(FILE).sweep == {"hparams.gamma": (0.9, 0.99)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampler": "best"}, "sampler"),
        ({"seeds": [1, 1]}, "each once"),
        ({"sweep": {"experiment.seed": [1, 2]}}, "seed"),
        ({"ranges": {"hparams.clip_coeff": {"low": 0, "high": 1}}}, "did you mean 'clip_coef'"),
        ({"space": "pppo"}, "no search space 'pppo'; did you mean 'ppo'"),
        ({"num_trial": 3}, "did you mean 'num_trials'"),
        ({"ranges": {}, "sweep": {}}, "no keys"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_tune({**FILE, **changes})


def test_a_flag_on_a_searched_key_is_refused(create: Callable[..., Tuning]) -> None:
    config: TuneConfig = parse_tune(FILE)
    with pytest.raises(ConfigError, match="gamma: searched"):
        Tuning.create(config, overrides={"hparams.gamma": 0.5})
    assert not Path("runs").exists()


def test_what_a_further_trial_writes_does_not_grow_with_their_number(create: Callable[..., Tuning]) -> None:
    """A line of the journal each; the record stays as it is until the end."""
    sweep = create().sweep
    record, journal = sweep.path / "sweep.json", sweep.path / "members.jsonl"
    before, written, sizes = record.stat(), record.read_bytes(), [0]
    for number in range(60):
        trial = sweep.add_trial({"hparams.learning_rate": 0.001, "hparams.gamma": round(0.9 + number / 1000, 3)})
        sweep.add_member(trial, 3)
        sizes.append(journal.stat().st_size)
    assert (record.stat().st_ino, record.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert record.read_bytes() == written
    lines = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(lines[1:]) < 500
    assert max(lines[1:]) - min(lines[1:]) <= 8  # digits
    opened = Sweep.open(sweep.path)
    assert opened.info.trials == sweep.info.trials
    assert opened.info.totals == sweep.info.totals
    assert [member.key for member in opened.members] == [(number, 3) for number in range(60)]
    assert all(opened.stored_config(number).is_own for number in (0, 30, 59))


def test_trials_of_the_journal_survive_what_a_kill_leaves(create: Callable[..., Tuning]) -> None:
    """A line that was cut off, a journal of an older record, and the record that is written at the end."""
    sweep = create().sweep
    journal = sweep.path / "members.jsonl"
    values = {"hparams.learning_rate": 0.001, "hparams.gamma": 0.9}
    sweep.add_member(sweep.add_trial(values), 3)
    with open(journal, "ab") as file:
        file.write(b'{"seed":3,"trial":1,"added":[{"number":1,"val')  # killed in the middle of a line
    for expected in (2, 3):
        sweep = Tuning.open_existing(sweep.path).sweep
        sweep.add_member(sweep.add_trial(values), 3)
        assert [member.key for member in Sweep.open(sweep.path).members] == [(n, 3) for n in range(expected)]
    old = journal.read_bytes()
    sweep.save()
    assert not journal.exists()
    journal.write_bytes(old)  # killed before it was removed
    sweep = Tuning.open_existing(sweep.path).sweep
    sweep.add_member(sweep.add_trial(values), 3)
    opened = Sweep.open(sweep.path)
    assert [member.key for member in opened.members] == [(n, 3) for n in range(4)]
    assert all(opened.stored_config(number).is_own for number in range(4))


def test_changed_values_of_a_trial_are_no_longer_own(create: Callable[..., Tuning]) -> None:
    sweep = create().sweep
    for _ in range(2):
        sweep.add_member(sweep.add_trial({"hparams.learning_rate": 0.001, "hparams.gamma": 0.9}), 3)
    journal = sweep.path / "members.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:-1], lines[-1].replace("0.001", "0.002")]))
    opened = Tuning.open_existing(sweep.path).sweep
    assert [opened.stored_config(number).is_own for number in range(2)] == [True, False]
    opened.save()  # does not make them own
    assert not any(Sweep.open(sweep.path).stored_config(number).is_own for number in range(2))
