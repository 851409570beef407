"""`Population`: population-based training of trials (Jaderberg et al. 2017, arXiv:1711.09846).

Every trial of a sweep or search trains for an interval, saves and pauses. When all have, the worst are replaced: a new
trial is a branch of one of the best runs, with everything that it has learnt, and with the numbers of its values
changed by a factor. All trials are decided about at one step, so the outcome is a function of the sweep alone: the same
with any number of slots, and after a kill. The population of a search is drawn as a whole before it starts. Decisions
are appended to `scheduler.jsonl` in the sweep's folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.experiments.launching.group_runner import GroupRunner
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.scheduling.branching import branch_run
from rl_training.experiments.launching.scheduling.scores import score_of
from rl_training.experiments.launching.scheduling.trials import ListedTrials, TrialSource
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.seeding import stream
from rl_training.system.json_lines import AppendFile, read_rows
from rl_training.types import ConfigError

FILE = "scheduler.jsonl"


class Population:
    """Gives a `GroupRunner` the members to run next."""

    def __init__(self, sweep: Sweep, config: SchedulerConfig, source: TrialSource | None = None) -> None:
        self.source = source or ListedTrials()
        while self.source.further():
            pass  # the whole population comes before the first interval
        seeds = {member.seed for member in sweep.members}
        if len(seeds) > 1:
            raise ConfigError("scheduler pbt: a population has one seed per trial; give one seed")
        self.sweep, self.config = sweep, config
        self.slots = [member.trial or 0 for member in sweep.members]
        """The trial that each place of the population has now."""
        self.interval = 0
        """Intervals that are over."""
        rows = list(read_rows(sweep.path / FILE))
        self._file = AppendFile(sweep.path / FILE)
        self._file.end_line()
        for row in rows:
            self._tell(row["scores"])
            self._take([int(trial) for trial in row["slots"]])
            self.interval = int(row["interval"])
        if not rows:  # a branch that a killed parent has left behind is none of the population
            self._record(0, self.slots, [])
        self._given = False
        """The members of this interval were given to the runner."""
        if self.is_over():
            self._tell_last()

    def steps(self, trial: int) -> int:
        """Env steps of a trial at the end of this interval."""
        return math.ceil(self.sweep.info.totals[trial] * (self.interval + 1) / self.config.num_intervals)

    def members(self) -> list[Member]:
        """The population of this interval."""
        by_trial = {member.trial or 0: member for member in self.sweep.members}
        return [by_trial[trial] for trial in self.slots]

    def feed(self, runner: GroupRunner) -> list[Member]:
        """The members to start now: all of an interval, when the last one is over."""
        if runner.waiting or runner.running:
            return []
        if self.is_over():
            self._tell_last()
            return []
        if self._given:
            if not self._all_paused():
                return []  # stopped by the user, or nothing is left that could go on
            self._replace()
        self._given = True
        is_last = self.interval == self.config.num_intervals - 1
        new = []
        for member in self.members():
            if member.status == "finished" or self._has_paused(member):
                continue
            runner.pauses.pop(member.key, None)
            if not is_last:
                runner.pauses[member.key] = self.steps(member.trial or 0)
            new.append(member)
        return new or self.feed(runner)

    def is_over(self) -> bool:
        """Whether every trial of the population is at the end of its budget, or none can go on."""
        return all(member.status in ("finished", "failed", "killed") for member in self.members())

    def _has_paused(self, member: Member) -> bool:
        done = int(self.sweep.final_metrics(member).get("env_steps") or 0)
        return member.status == "stopped" and done >= self.steps(member.trial or 0)

    def _all_paused(self) -> bool:
        over = ("finished", "failed", "killed")
        return all(member.status in over or self._has_paused(member) for member in self.members())

    def _replace(self) -> None:
        """End an interval: the worst trials become branches of the best."""
        rng = stream(0, "pbt", self.interval)
        members = self.members()
        found = [score_of(self.sweep, member, self.config) for member in members]
        scores = [-math.inf if score is None else score for score in found]
        alive = [place for place, member in enumerate(members) if self._has_paused(member)]
        order = sorted(alive, key=lambda place: (-scores[place], place))
        count = max(int(len(order) * self.config.replaced), 1) if len(order) > 1 else 0
        slots = list(self.slots)
        for place in order[len(order) - count :]:
            model = order[int(rng.integers(count))]
            if scores[place] == scores[model]:
                continue
            values = self.source.changed(self.sweep.info.trials[self.slots[model]], self.config.factors, rng)
            slots[place] = self._branch(members[model], values)
        self._record(self.interval + 1, slots, found)
        self._tell(found)
        self._take(slots)
        self.interval += 1

    def _record(self, interval: int, slots: Sequence[int], scores: Sequence[float | None]) -> None:
        """Append the population with which an interval begins, and the scores at the end of the last one."""
        row = {"interval": interval, "slots": list(slots), "scores": list(scores)}
        self._file.append(json.dumps(row).encode() + b"\n")
        self._file.sync()

    def _tell(self, scores: Sequence[float | None]) -> None:
        """Pass on the scores at the end of an interval; a trial without one that may go on has not failed."""
        for trial, score in zip(self.slots, scores, strict=False):
            if score is not None:
                self.source.told(trial, self.interval, score, is_last=False)

    def _tell_last(self) -> None:
        """Pass on how every trial of the last population ended."""
        for member in self.members():
            score = score_of(self.sweep, member, self.config) if member.status == "finished" else None
            self.source.told(member.trial or 0, self.config.num_intervals - 1, score, is_last=True)

    def _take(self, slots: list[int]) -> None:
        """The population of the next interval."""
        for old, new in zip(self.slots, slots, strict=False):
            if new != old:
                self.source.replaced(old)
                self.source.branched(new, self.sweep.info.trials[new])
        self.slots = slots

    def _branch(self, model: Member, values: Mapping[str, Any]) -> int:
        """A new trial whose run goes on from that of `model`; returns its number. Values that no config may have give
        way to those of the model."""
        source = self.sweep.find_run(model)
        assert source is not None
        try:
            trial = self.sweep.add_trial(values)
        except ConfigError:
            trial = self.sweep.add_trial(self.sweep.info.trials[model.trial or 0])
        member = self.sweep.add_member(trial, model.seed)
        stored = self.sweep.stored_config(trial)
        group = self.sweep.group_of(member)
        member.run = branch_run(source, self.sweep.planned_run(member), stored.mapping, member.seed, group).path.name
        self.sweep.observe_member(member)
        self.sweep.note(member)
        return trial

    def steps_used(self) -> int:
        """Env steps that were trained: those of the population, its replaced trials up to where they ended."""
        return sum(self.sweep.info.totals[trial] for trial in self.slots)

    def close(self) -> None:
        self._file.close()
