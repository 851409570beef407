"""Members of a group as threads of this process, for the compiled lane: all of them run one compiled program.

A program leaves Python alone while it computes, so threads share the cores as processes would, without starting,
tracing and loading the same program a hundred times. Each is an ordinary run; to the group runner a thread looks like a
process.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rl_training.experiments.groups import SeedGroup
from rl_training.experiments.members import Member
from rl_training.signals import StopSignals
from rl_training.types import RLTrainingError


class SeedThread:
    """One member in motion."""

    def __init__(self, group: SeedGroup, member: Member, words: Sequence[str], log: Path) -> None:
        self.pid = os.getpid()
        self.group, self.member, self.words, self.log = group, member, words, log
        self.signals = StopSignals()
        self.exit_code: int | None = None
        self.thread = threading.Thread(target=self._run, name=f"seed {member.seed}")
        self.thread.start()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return None if self.thread.is_alive() else self.exit_code

    def wait(self) -> int | None:
        self.thread.join()
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Ask it to save and stop."""
        self.signals.receive(signal.Signals(number))

    def _run(self) -> None:
        try:
            self.exit_code = self._train()
        except Exception as error:  # one failing seed does not end the others
            kind = "" if isinstance(error, RLTrainingError) else f"unexpected {type(error).__name__}: "
            text = "" if isinstance(error, RLTrainingError) else traceback.format_exc()
            with open(self.log, "a", encoding="utf-8") as output:
                output.write(f"{text}error: {kind}{error}\n")
            self.exit_code = 1

    def _train(self) -> int:
        from rl_training.trainer import resume, train

        if self.words[0] == "resume":
            total = self.group.info.total_timesteps if len(self.words) > 2 else None
            return resume(self.words[1], total_timesteps=total, signals=self.signals).exit_code
        cfg = replace(self.group.config(), seed=self.member.seed, output_dir=str(self.group.output_dir))
        source = (self.group.path / "configs" / "source.yaml").read_text(encoding="utf-8")
        words = ["rl", *self.words]
        info = self.group.info
        result = train(cfg, init_from=info.init_from, source=source, argv=words, group=info.id, signals=self.signals)
        return result.exit_code


def compiles(group: SeedGroup) -> bool:
    """Whether the members of a group are compiled runs."""
    cfg = group.config()
    if cfg.backend != "jax":
        return False
    from rl_training.assembly import check_supported, lane_of

    check_supported(cfg)
    return lane_of(cfg) == "compiled"
