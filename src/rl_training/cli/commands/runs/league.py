"""`rl league`: the Elo table of a run on a game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import argument, checkpoint_flag, json_flag, output_dir_flag
from rl_training.cli.output import bold, print_json, show, table
from rl_training.cli.parser import Command
from rl_training.cli.targets import find_one_run


@dataclass(frozen=True, kw_only=True)
class LeagueOptions:
    run: str = argument(values="runs")
    checkpoint: int | str = checkpoint_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: LeagueOptions) -> int:
    from rl_training.assembly.multi_agent.matches import league_table

    target = find_one_run(options.run, options.output_dir, "league")
    found = league_table(target, options.checkpoint)
    if options.json:
        print_json(found)
    else:
        show(league_text(found))
    return 0


def league_text(found: dict[str, Any]) -> str:
    """The table, strongest first. Counts are the learner's."""
    header = ("name", "rating", "games", "wins", "draws", "losses", "score", "recent")
    rows = [row_of(member) for member in found["members"]]
    title = f"{found['run']} at {found['env_steps']:,} env steps"
    return f"{bold(title)}\n{table(header, rows)}\nWins, draws, losses and scores are the learner's."


def row_of(member: dict[str, Any]) -> tuple[str, ...]:
    rating = f"{member['rating']:.0f}"
    if "games" not in member:
        return (member["name"], rating, "", "", "", "", "", "")
    score = "" if member["score"] is None else f"{member['score']:.3f}"
    counts = (str(member[name]) for name in ("games", "wins", "draws", "losses"))
    name = member["name"] + (" (has left)" if member["left"] else "")
    return (name, rating, *counts, score, f"{member['recent']:.3f}")


COMMAND = Command(
    name="league",
    summary="rank the opponents that the agent of a game has met: Elo, wins, draws, losses",
    usage="RUN [flags]",
    options=LeagueOptions,
    run=run,
    examples=("rl league latest",),
    notes=TARGETS,
)
