"""`rl play`: a person against the policy of a run, in the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    allow_changed_config_flag,
    argument,
    checkpoint_flag,
    output_dir_flag,
    switch,
    text,
    trust_flag,
    whole,
)
from rl_training.cli.output import show
from rl_training.cli.parser import Command
from rl_training.cli.policy_of_run import loading
from rl_training.cli.targets import find_one_run


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    run: str = argument(values="runs")
    checkpoint: int | str = checkpoint_flag()
    seat: str | None = text("your seat, by its name or its number from 0 (default: another one each game)", "SEAT")
    games: int = whole("games to play (default 1)", low=1, default=1)
    seed: int = whole("seed of the games (default 0)", "S", default=0)
    stochastic: bool = switch("the agent samples its moves instead of taking the most likely one")
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()


def run(options: PlayOptions) -> int:
    from rl_training.eval import play

    target = find_one_run(options.run, options.output_dir, "play")
    scores = play(
        target.path,
        ask,
        show,
        seat=options.seat,
        games=options.games,
        seed=options.seed,
        stochastic=options.stochastic,
        **loading(options),
    )
    if len(scores) > 1:
        wins, draws, losses = (scores.count(score) for score in (1.0, 0.5, 0.0))
        show(f"{wins} wins, {draws} draws, {losses} losses")
    return 0


def ask(prompt: str) -> str | None:
    """A line from the keyboard; None at its end."""
    try:
        return input(prompt)
    except EOFError:
        return None


COMMAND = Command(
    name="play",
    summary="play against a trained agent in the terminal",
    usage="RUN [flags]",
    options=PlayOptions,
    run=run,
    examples=("rl play latest", "rl play latest --seat 1 --games 3"),
    notes=TARGETS,
)
