"""Members of a group or sweep as threads of this process, for the compiled lane: they share compiled programs.

A compiled program releases the GIL while it computes, so threads use the cores as processes would, without starting,
tracing and loading the same program a hundred times. Seeds and numeric hyperparameters are inputs of one program; a
change of shapes needs another. Each member is an ordinary run; to the group runner a thread looks like a process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rl_training.config.schema import TrainConfig
from rl_training.distributed.executors import Task
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.members import CONFIG_CODE, RunSet
from rl_training.experiments.launching.membership import NAME_VARIABLE, PAUSE_VARIABLE
from rl_training.runs.holder import Holder
from rl_training.system.error_text import TEXT_LIMIT, message_of, traceback_text
from rl_training.system.signals import StopSignals
from rl_training.trust.consent import Consent, scope
from rl_training.types import ConfigError, RLTrainingError

MOST_TOGETHER = 128
"""Default number of runs that one program advances together on an accelerator."""


class MemberThread:
    """One running member, as a thread; `task.words` are the arguments with which a process would be started."""

    where = "thread"
    holder: Holder | None = None
    """A thread's run is protected by its own lock, and this process outlives it."""

    def __init__(self, runs: RunSet, member: Member, task: Task) -> None:
        self.runs, self.member, self.task = runs, member, task
        self.consent: Consent = runs.consent(member)
        self.signals = StopSignals()
        self.exit_code: int | None = None
        self.thread = threading.Thread(target=self._run, name=task.label)
        self.thread.start()

    @property
    def is_running(self) -> bool:
        return self.thread.is_alive()

    def poll(self) -> int | None:
        """The exit code; None while the thread runs."""
        return None if self.thread.is_alive() else self.exit_code

    def wait(self) -> int | None:
        self.thread.join()
        return self.exit_code

    def send_signal(self, number: int, /) -> None:
        """Ask it to save and stop."""
        self.signals.receive(signal.Signals(number))

    def _run(self) -> None:
        try:
            self.exit_code = self._train()
        except Exception as error:  # one failing member does not end the others
            kind = "" if isinstance(error, RLTrainingError) else f"unexpected {type(error).__name__}: "
            text = "" if isinstance(error, RLTrainingError) else traceback_text(error)
            with open(self.task.log, "a", encoding="utf-8") as output:
                output.write(f"{text}error: {kind}{message_of(error, TEXT_LIMIT)}\n")
            self.exit_code = CONFIG_CODE if isinstance(error, ConfigError) else 1

    def _train(self) -> int:
        from rl_training.trainer import resume, train

        words, env = self.task.words, self.task.env
        flags = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
        pause_at = None if PAUSE_VARIABLE not in env else int(env[PAUSE_VARIABLE])
        if words[0] == "resume":
            total = flags.get("--total-timesteps")
            steps = None if total is None else int(total)
            consent = self.consent if self.consent.level != "none" else None
            return resume(
                words[1], total_timesteps=steps, signals=self.signals, consent=consent, pause_at=pause_at
            ).exit_code
        with scope(self.consent):
            return train(
                replace(
                    self.runs.config(self.member.trial), seed=self.member.seed, output_dir=str(self.runs.output_dir)
                ),
                init_from=flags.get("--init-from"),
                source=Path(flags["--config"]).read_text(encoding="utf-8"),
                argv=["rl", *words],
                group=self.runs.group_of(self.member),
                sweep=self.runs.sweep,
                run_name=env.get(NAME_VARIABLE),
                pause_at=pause_at,
                signals=self.signals,
            ).exit_code


class ThreadExecutor:
    """Members as threads of this process."""

    name = "threads"
    is_remote = False

    def __init__(self, runs: RunSet, cfg: TrainConfig, slots: int) -> None:
        from rl_training.assembly.devices import pinned_threads

        self._runs, self._slots = runs, slots
        self._members = {member.key: member for member in runs.members}
        self._secrets = runs.redactor.needed_values
        os.environ.update(self._secrets)
        # set once around all threads: each thread would restore the old value while others still compute
        self._pinned = pinned_threads(cfg.training.num_threads, "jax")
        self._pinned.__enter__()
        self._started: list[MemberThread] = []

    def slots(self) -> int:
        return self._slots

    def start(self, task: Task, /) -> MemberThread:
        if task.key not in self._members:  # a search adds members while it runs
            self._members = {member.key: member for member in self._runs.members}
        thread = MemberThread(self._runs, self._members[task.key], task)
        self._started = [*(one for one in self._started if one.is_running), thread]
        return thread

    def lost(self, holder: Holder, /) -> bool | None:
        return None

    def close(self) -> None:
        for thread in self._started:
            if thread.is_running:
                thread.send_signal(signal.SIGTERM)
            thread.wait()
        self._pinned.__exit__(None, None, None)
        for name in self._secrets:
            del os.environ[name]


def threads_fit(runs: RunSet, members: Sequence[Member]) -> bool:
    """Whether these members can be threads of one process."""
    first = runs.config(members[0].trial)
    if first.backend != "jax":  # nearly always; the configs of all trials need not be read for it
        return False
    configs = [runs.config(trial) for trial in sorted({member.trial or 0 for member in members})]
    with scope(least([runs.consent(member) for member in members])):
        return share_a_process(configs)


def least(consents: Sequence[Consent]) -> Consent:
    """The most restrictive consent."""
    return next((consent for consent in consents if consent.level == "none"), consents[0])


def for_many(cfg: TrainConfig, count: int) -> TrainConfig:
    """A config for `count` seeds: on an accelerator, compiled runs share one program unless the user set a number."""
    if count == 1 or cfg.training.runs_per_program > 1 or not share_a_process([cfg]):
        return cfg
    from rl_training.jax.training.batched_runs import is_accelerated
    from rl_training.jax.training.device_spread import spread_devices

    together = min(-(-count // len(spread_devices())), MOST_TOGETHER) if is_accelerated() else 1
    return replace(cfg, training=replace(cfg.training, runs_per_program=together))


def share_a_process(configs: Sequence[TrainConfig]) -> bool:
    """Whether all are compiled runs with the same device and number of threads, which are per process."""
    first = configs[0]
    once = (first.backend, first.device, first.training.num_threads)
    if first.backend != "jax" or any((cfg.backend, cfg.device, cfg.training.num_threads) != once for cfg in configs):
        return False
    from rl_training.assembly.lanes import against_compiling, check_supported

    check_supported(first)
    return all(cfg.lane != "host" and against_compiling(cfg) is None for cfg in configs)
