"""`rl record`: a dataset from a run's policy, from its replay rows, or from random actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.cli.commands.datasets.texts import (
    author_flag,
    check_target,
    licence_flag,
    number_in,
    signed,
    write_and_show,
)
from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    checkpoint_flag,
    converted,
    json_flag,
    optional_argument,
    output_dir_flag,
    switch,
    text,
    trust_flag,
    whole,
)
from rl_training.cli.output import stdout_for_the_result
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import find_one_run

if TYPE_CHECKING:
    from rl_training.data.datasets.dataset import Dataset


REFERENCES = 100
"""Episodes of a reference score."""


def read_share(typed: str) -> float:
    """A number from 0 on."""
    value = number_in(typed)
    if not 0.0 <= value < float("inf"):
        raise UsageError(f"--noise and --epsilon take a number from 0 on, not '{typed}'")
    return value


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    run: str | None = optional_argument(values="runs")
    env_id: str | None = text("record uniformly random actions in this environment, without a run", "ID")
    output: str | None = text("folder to write, or a file that ends in .npz", "PATH")
    checkpoint: int | str = checkpoint_flag()
    episodes: int | None = whole("episodes to record", low=1)
    steps: int | None = whole("steps to record; the last episode is cut off there", low=1)
    replay: bool = switch("take the replay rows of the checkpoint; nothing is played")
    stochastic: bool = switch("sample actions instead of taking the most likely one")
    noise: float = converted(read_share, 0.0, "Gaussian noise on Box actions, in half widths of their bounds", "S")
    epsilon: float = converted(read_share, 0.0, "probability of a random action", "E")
    seed: int | None = whole("seed of the episodes (default: the run's own)", "S")
    reference_episodes: int | None = whole(
        "episodes of the random and of the run's greedy policy that scores refer to; 0 for none (default 100)"
    )
    author: str | None = author_flag()
    licence: str | None = licence_flag()
    trust_plugins: bool = trust_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: RecordOptions) -> int:
    check(options)
    assert options.output is not None
    check_target(options.output)
    with stdout_for_the_result(options.json):
        data = recorded(options)
    return write_and_show(signed(data, options), options.output, as_json=options.json)


def check(options: RecordOptions) -> None:
    """UsageError for flags that contradict each other."""
    if (options.run is None) == (options.env_id is None):
        raise UsageError("name a run to record, or give --env-id for random actions")
    if options.output is None:
        raise UsageError("say where to write the dataset: --output PATH")
    if (options.episodes is not None) + (options.steps is not None) + options.replay != 1:
        raise UsageError("give one of --episodes, --steps and --replay")
    chosen = options.stochastic or options.noise or options.epsilon
    if chosen and (options.replay or options.run is None):
        raise UsageError("--stochastic, --noise and --epsilon are for episodes of a run's policy")
    if options.replay and (options.run is None or options.seed is not None):
        raise UsageError("--replay takes the rows of a RUN as they are: without --env-id and --seed")
    if options.run is None and options.reference_episodes is not None:
        raise UsageError("--reference-episodes is for a RUN, whose policy is the reference")
    if options.epsilon > 1.0:
        raise UsageError(f"--epsilon is a probability, not {options.epsilon:g}")


def recorded(options: RecordOptions) -> Dataset:
    """The dataset that the flags ask for."""
    from rl_training.eval import record, record_replay
    from rl_training.training.offline.recording import Amount, Behaviour

    path = None
    if options.run is not None:
        target = find_one_run(options.run, options.output_dir, "record")
        if options.replay:
            return record_replay(
                target.path,
                checkpoint=options.checkpoint,
                reference_episodes=REFERENCES if options.reference_episodes is None else options.reference_episodes,
                trust_plugins=options.trust_plugins,
            )
        path = target.path
    return record(
        path,
        Amount(options.episodes, options.steps),
        checkpoint=options.checkpoint,
        how=Behaviour(options.stochastic, options.noise, options.epsilon),
        random_env=options.env_id,
        seed=options.seed,
        reference_episodes=REFERENCES if options.reference_episodes is None else options.reference_episodes,
        trust_plugins=options.trust_plugins,
    )


COMMAND = Command(
    name="record",
    summary="record a dataset: episodes of a run, its replay rows, or random actions",
    usage="[RUN] --output PATH (--episodes N | --steps N | --replay) [flags]",
    options=RecordOptions,
    run=run,
    examples=(
        "rl record latest --episodes 100 --output data/expert",
        "rl record latest --replay --output data/medium-replay",
        "rl record --env-id Pendulum-v1 --steps 5000 --output data/random",
    ),
    notes=TARGETS,
)
