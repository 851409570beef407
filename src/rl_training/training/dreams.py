"""What a world model foresees while it trains: errors of its open-loop predictions, and videos and plots of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rl_training.config.schema import TrainConfig
from rl_training.data.sequence import arrivals
from rl_training.seeding import stream
from rl_training.training.callbacks import Callback
from rl_training.training.loop import Report, Trainer
from rl_training.types import Batch, Dream, Metrics, crossed

CONTEXT = 5
"""Steps that the model sees before it predicts on its own."""
AHEAD = 15
"""Steps that it predicts then."""
SEQUENCES = 32
"""Replayed sequences that the error is averaged over."""

WriteDream = Callable[[Dream, int], Any]
"""Writes the pictures of a dream at a count of env steps."""


@runtime_checkable
class Dreaming(Protocol):
    """An algorithm with a world model that can be looked into."""

    def dream(self, batch: Batch, context: int, rng: np.random.Generator, samples: int = 16) -> Dream: ...
    def open_loop_errors(self, batch: Batch, context: int, rng: np.random.Generator) -> dict[int, float]: ...


class SequenceReplay(Protocol):
    """A replay buffer that gives sequences without moving its own generator."""

    def sample_sequences(self, batch_size: int, length: int, rng: np.random.Generator | None = None) -> Batch: ...


class DreamCallback(Callback):
    """Logs `model/open_loop_error_k` with every evaluation, and writes videos and plots every `video_frequency` steps.

    Sequences and noise come from a stream of their own, so that looking never changes the training.
    """

    def __init__(self, algorithm: Dreaming, buffer: SequenceReplay, cfg: TrainConfig, write: WriteDream) -> None:
        self.algorithm = algorithm
        self.buffer = buffer
        self.seed = cfg.seed
        self.every, self.pictures = cfg.training.eval_steps, cfg.logging.video_frequency
        self.write = write

    def on_step(self, trainer: Trainer, report: Report) -> None:
        before, after = report.before.env_steps, report.after.env_steps
        rng = stream(self.seed, "dreams", after)
        if report.final or crossed(before, after, self.every):
            with trainer.clock.measure("dreaming"):
                report.metrics.update(self.errors(rng))
        if self.pictures and (report.final or crossed(before, after, self.pictures)):
            with trainer.clock.measure("dreaming"):
                batch = self.sequences(SEQUENCES, rng)
                if batch is not None:
                    chosen, steps = longest_alone(batch, CONTEXT)
                    self.write(self.algorithm.dream(chosen, CONTEXT, rng).until(CONTEXT + steps), after)

    def errors(self, rng: np.random.Generator) -> Metrics:
        """Errors of open-loop predictions; none while the buffer holds no sequence that is long enough."""
        batch = self.sequences(SEQUENCES, rng)
        if batch is None:
            return {}
        errors = self.algorithm.open_loop_errors(batch, CONTEXT, rng)
        return {f"model/open_loop_error_{k}": error for k, error in errors.items()}

    def sequences(self, count: int, rng: np.random.Generator) -> Batch | None:
        try:
            return self.buffer.sample_sequences(count, CONTEXT + AHEAD, rng)
        except ValueError:  # nothing to look at yet
            return None


def longest_alone(batch: Batch, context: int) -> tuple[Batch, int]:
    """The sequence (1, T, ...) of a batch in which the model is on its own for the most steps after `context` before
    another episode starts, which nobody could foresee, and the number of these steps."""
    starts = arrivals(batch)["is_first"][:, context:]
    steps = np.where(starts.any(1), starts.argmax(1), starts.shape[1])
    best = slice(int(steps.argmax()), int(steps.argmax()) + 1)
    chosen = {
        name: {key: part[best] for key, part in column.items()} if isinstance(column, dict) else column[best]
        for name, column in batch.items()
    }
    return chosen, int(steps.max())
