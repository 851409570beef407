"""`Asha`: asynchronous successive halving of the trials of a sweep or search (Li et al. 2020, arXiv:1810.05934).

A trial trains to the first rung, saves and pauses. Of the trials with a score at a rung the best share goes on to the
next one; a free slot takes such a promotion first, from the highest rung down, and a new trial only if there is none.
Nothing waits for a rung to be complete. A paused run is resumed exactly: a trial that reaches the end has the rows of a
run that was never paused.

Scores are appended to `scheduler.jsonl` in the sweep's folder; a search that was killed goes on from there.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.experiments.launching.group_runner import GroupRunner
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.scheduling.scores import score_of
from rl_training.experiments.launching.scheduling.trials import ListedTrials, TrialSource
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.system.json_lines import AppendFile, read_rows

FILE = "scheduler.jsonl"
FAILED = -math.inf
"""Score of a trial that failed: it is never promoted."""


@dataclass
class Rungs:
    """The scores of all trials so far, higher is better, and which of them went on. Pure bookkeeping."""

    num_rungs: int
    reduction: int
    scores: list[dict[int, float]] = field(default_factory=list)
    """For each rung: trial to score."""
    promoted: list[set[int]] = field(default_factory=list)
    """For each rung: the trials that went on from it."""

    def __post_init__(self) -> None:
        self.scores = self.scores or [{} for _ in range(self.num_rungs)]
        self.promoted = self.promoted or [set() for _ in range(self.num_rungs)]

    def add(self, trial: int, rung: int, score: float) -> None:
        """A trial has reached a rung; so it was promoted from all below."""
        self.scores[rung][trial] = score
        self.promote(trial, rung)

    def promote(self, trial: int, rung: int) -> None:
        """A trial goes on to a rung."""
        for below in range(rung):
            self.promoted[below].add(trial)

    def promotable(self) -> tuple[int, int] | None:
        """The trial that goes on next and the rung it goes to: the best that is not promoted yet, of the best share of
        the highest rung that has one."""
        for rung in range(self.num_rungs - 2, -1, -1):
            scores = self.scores[rung]
            best = sorted(scores, key=lambda trial: (-scores[trial], trial))[: len(scores) // self.reduction]
            for trial in best:
                if trial not in self.promoted[rung] and scores[trial] > FAILED:
                    return trial, rung + 1
        return None


class Asha:
    """Gives a `GroupRunner` the members to run next: of the trials of the sweep, then of those that `source` adds."""

    def __init__(self, sweep: Sweep, config: SchedulerConfig, source: TrialSource | None = None) -> None:
        self.sweep = sweep
        self.config = config
        self.source = source or ListedTrials()
        self.rungs = Rungs(config.num_rungs, config.reduction)
        self._members: dict[int, list[Member]] = {}
        for member in sweep.members:
            self._members.setdefault(member.trial or 0, []).append(member)
        for row in read_rows(sweep.path / FILE):
            self._note(int(row["trial"]), int(row["rung"]), None if row["score"] is None else float(row["score"]))
        self._file = AppendFile(sweep.path / FILE)
        self._file.end_line()
        self.running: dict[int, int] = {}
        """Trials that run, and the rung they run to."""

    def steps(self, trial: int, rung: int) -> int:
        """Env steps of a trial at a rung.

        With a reduction of 3 and 3 rungs: a ninth, a third and all of its budget.
        """
        divisor: int = self.config.reduction ** (self.config.num_rungs - 1 - rung)
        return math.ceil(self.sweep.info.totals[trial] / divisor)

    def feed(self, runner: GroupRunner) -> list[Member]:
        """The members to start now."""
        waiting = {member.key for member in runner.waiting} | {job.member.key for job in runner.running}
        for trial, rung in list(self.running.items()):
            self._collect(trial, rung, waiting)
        new: list[Member] = []
        while len(waiting) + len(new) < max(runner.parallel(), 1) and (job := self._next_job()) is not None:
            trial, rung = job
            self.running[trial] = rung
            self.rungs.promote(trial, rung)
            if all(self._has_reached(member, self.steps(trial, rung)) for member in self._members[trial]):
                self._collect(trial, rung, waiting)  # killed between the pause and the record of its score
                continue
            for member in self._members[trial]:
                if rung < self.config.num_rungs - 1:
                    runner.pauses[member.key] = self.steps(trial, rung)
                else:
                    runner.pauses.pop(member.key, None)
                new.append(member)
        return new

    def is_over(self) -> bool:
        """Whether nothing is left to run."""
        return not self.running and self._known_job() is None and not self.source.has_further()

    def steps_used(self) -> int:
        """Env steps of all trials together."""
        metrics = [self.sweep.final_metrics(member) for member in self.sweep.members]
        return sum(int(row.get("env_steps") or 0) for row in metrics)

    def _next_job(self) -> tuple[int, int] | None:
        """The trial to run next, and the rung to which; a trial that was not there before if none of them is left."""
        if (known := self._known_job()) is not None:
            return known
        members = self.source.further()
        if not members:
            return None
        trial = members[0].trial or 0
        self._members[trial] = members
        return trial, 0

    def _known_job(self) -> tuple[int, int] | None:
        """The next of the trials that the sweep has; changes nothing."""
        if (found := self.rungs.promotable()) is not None:
            return found
        begun = set(self.rungs.scores[0]) | set(self.running)
        fresh = next((trial for trial in self._members if trial not in begun), None)
        return None if fresh is None else (fresh, 0)

    def _collect(self, trial: int, rung: int, waiting: set[Any]) -> None:
        """Note the score of a trial whose members have all come to the rung, or ended otherwise."""
        members = self._members[trial]
        if any(member.key in waiting for member in members):
            return
        reached = [self._has_reached(member, self.steps(trial, rung)) for member in members]
        scores = [score_of(self.sweep, member, self.config) for member in members]
        known = [score for score in scores if score is not None]
        is_whole = all(reached) and len(known) == len(members)
        if not is_whole and any(member.status == "stopped" for member in members):
            return  # stopped by the user: it goes on to this rung when the sweep is resumed
        score = self.source.combined(known) if is_whole else None
        del self.running[trial]
        self._file.append(json.dumps({"trial": trial, "rung": rung, "score": score}).encode() + b"\n")
        self._file.sync()
        self._note(trial, rung, score)

    def _note(self, trial: int, rung: int, score: float | None) -> None:
        self.rungs.add(trial, rung, FAILED if score is None else score)
        self.source.told(trial, rung, score, is_last=rung == self.config.num_rungs - 1)

    def _has_reached(self, member: Member, steps: int) -> bool:
        """A run that has solved its task before the rung counts as well."""
        done = int(self.sweep.final_metrics(member).get("env_steps") or 0)
        return member.status == "finished" or (member.status == "stopped" and done >= steps)

    def close(self) -> None:
        self._file.close()
