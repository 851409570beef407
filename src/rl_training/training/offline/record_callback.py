"""`logging.record`: every transition of a training run as a dataset beside its logs."""

from __future__ import annotations

from typing import cast

from rl_training.data.datasets.recorder import StepRecorder
from rl_training.training.callbacks import Callback
from rl_training.training.host import HostTrainer
from rl_training.training.loop import Trainer
from rl_training.types import StateDict


class RecordCallback(Callback):
    """Shows every step of the environments to a recorder, whose position is a part of the checkpoint."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder

    def on_start(self, trainer: Trainer) -> None:
        if not trainer.progress.env_steps:
            self.recorder.cut(0)
        cast(HostTrainer, trainer).watch_steps(self.recorder.store)  # the compiled lane refuses `logging.record`

    def on_end(self, trainer: Trainer) -> None:
        self.recorder.close()

    def state_dict(self) -> StateDict:
        return self.recorder.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        self.recorder.load_state_dict(state)
