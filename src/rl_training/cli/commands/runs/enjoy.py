"""`rl enjoy`: watch the policy of a run play, in a window or, without a screen, as a video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    allow_changed_config_flag,
    argument,
    checkpoint_flag,
    json_flag,
    output_dir_flag,
    switch,
    text_or_switch,
    trust_flag,
    whole,
)
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.policy_of_run import answer, loading
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir


@dataclass(frozen=True, kw_only=True)
class EnjoyOptions:
    run: str = argument(values="runs")
    checkpoint: int | str = checkpoint_flag()
    episodes: int = whole("episodes to play; a video has the first of them (default 1)", low=1, default=1)
    seed: int | None = whole("seed of the episodes (default: the run's own)", "S")
    stochastic: bool = switch("sample actions instead of taking the most likely one")
    window: bool = switch("open a window (the default where there is a screen)")
    video: str | bool = text_or_switch("write a video, to PATH (.mp4, or a folder) or the run's videos/", "[PATH]")
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: EnjoyOptions) -> int:
    from rl_training.envs.preprocessing.rendering import has_screen

    if options.window and options.video:
        raise UsageError("--window and --video exclude each other: an environment draws into one of them")
    window = options.window or (not options.video and has_screen())
    return answer("enjoy", options, lambda target: played(target, options, window=window), report_text)


def played(target: RunDir, options: EnjoyOptions, *, window: bool) -> dict[str, Any]:
    """Play the episodes; returns the record that `--json` prints."""
    from rl_training.eval import evaluate

    folder = options.video if isinstance(options.video, str) and options.video else target.videos
    return evaluate(
        target.path,
        episodes=options.episodes,
        seed=options.seed,
        stochastic=options.stochastic,
        video=None if window else folder,
        window=window,
        **loading(options),
    )


def report_text(record: dict[str, Any]) -> str:
    """The returns of what was seen, and where the video is."""
    returns = ", ".join(number_text(value) for value in record["returns"])
    return f"{record['run']}\nreturn {returns}" + (f"\nvideo {record['video']}" if "video" in record else "")


COMMAND = Command(
    name="enjoy",
    summary="watch a trained agent play, in a window or as a video",
    usage="RUN [flags]",
    options=EnjoyOptions,
    run=run,
    examples=("rl enjoy latest", "rl enjoy latest --checkpoint best --video best.mp4"),
    notes=TARGETS,
)
