"""`rl eval`: score a run, or every seed of a group, on fresh episodes."""

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
    text,
    text_or_switch,
    trust_flag,
    whole,
)
from rl_training.cli.output import bold, print_json, show, stdout_for_the_result
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.policy_of_run import loading
from rl_training.cli.targets import find_target
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from pathlib import Path


OPEN_LOOP = "open_loop_error_"
"""Errors of a model's predictions so many steps ahead, where the algorithm is `dynamics`."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    run: str = argument(values="runs")
    checkpoint: int | str = checkpoint_flag()
    episodes: int = whole("episodes to play (default 100)", low=1, default=100)
    seed: int | None = whole("seed of the episodes (default: the run's own)", "S")
    stochastic: bool = switch("sample actions instead of taking the most likely one")
    num_envs: int | None = whole("environments stepped side by side; changes the speed, not the result", low=1)
    video: str | bool = text_or_switch("record an episode, into DIR or the run's videos/", "[DIR]")
    opponent: str | None = text(
        "games: play against random, another rule, rule:module:function or a RUN, from every seat in turn", "WHO"
    )
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: EvalOptions) -> int:
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

    target = find_target(options.run, options.output_dir)
    if isinstance(target, Sweep):
        raise UsageError(
            f"a sweep is not evaluated as a whole; name one of its runs ('rl list sweep={target.info.id}')"
        )

    opponent = opponent_path(options.opponent, options.output_dir)

    def play(path: Path, video: str | Path | None) -> dict[str, Any]:
        from rl_training.eval import evaluate

        return evaluate(
            path,
            episodes=options.episodes,
            seed=options.seed,
            stochastic=options.stochastic,
            num_envs=options.num_envs,
            video=video,
            opponent=opponent,
            **loading(options),
        )

    video = options.video or False
    if not isinstance(target, RunDir):
        from rl_training.cli.commands.many.seed_groups import eval_group

        return eval_group(target, play, video=video, as_json=options.json)
    with stdout_for_the_result(options.json):
        result = play(target.path, target.videos if video is True else video or None)
    if options.json:
        print_json(result)
    else:
        show(score_text(result))
    return 0


def opponent_path(named: str | None, output_dir: str | None) -> str | None:
    """An opponent as `evaluate` takes it: the name of a rule as it is, the path of a run that was named."""
    from rl_training.registry import did_you_mean, rules
    from rl_training.runs.directory import RunDir

    if named is None or rules.is_rule(named):
        return named
    try:
        target = find_target(named, output_dir)
    except UsageError as error:
        known = f"{', '.join(rules.names())}, rule:package.module:function"
        near = did_you_mean(named, rules.names())
        raise UsageError(f"--opponent '{named}' is neither a rule ({known}) nor a run: {error}{near}") from error
    if not isinstance(target, RunDir):
        raise UsageError(f"--opponent takes one run, and '{named}' is a group or a sweep")
    return str(target.path)


def score_text(result: dict[str, Any]) -> str:
    """The result of an evaluation in a few lines."""
    how = "greedy" if result["deterministic"] else "stochastic"
    episodes = result["episodes"]
    where = f"{result['updates']:,} updates" if "updates" in result else f"{result['env_steps']:,} env steps"
    word = "score" if any(name.startswith(OPEN_LOOP) for name in result) else "return"
    return (
        f"{result['run']}\n"
        f"checkpoint {result['checkpoint']} at {where}; "
        f"{episodes} {how} episodes, seed {result['seed']}\n"
        + bold(f"{word} {number_text(result['return_mean'])} +- {number_text(result['return_std'])}")
        + f"  (IQM {number_text(result['return_iqm'])}, length {result['length_mean']:.1f})"
        + "".join(
            f"\n{name.replace('_', ' ')} {number_text(value)}"
            for name, value in result.items()
            if name.startswith(OPEN_LOOP)
        )
        + "".join(
            f"\n{name.removesuffix('/return_mean').replace('_', ' ')} {number_text(value)}"
            for name, value in result.items()
            if name == "team_return" or name.endswith("/return_mean")
        )
        + match_text(result)
        + (f"\nvideo {result['video']}" if "video" in result else "")
    )


def match_text(result: dict[str, Any]) -> str:
    """Wins, draws and losses against an opponent, in all and from each seat; nothing where there was none."""
    if "opponent" not in result:
        return ""
    lines = [tally_text(f"against {result['opponent']}", result)]
    lines += [tally_text(f"  as {name}", tally) for name, tally in result["seats"].items()]
    if "exploitability" in result:
        first, second = (result["best_response"][f"moving_{order}"] for order in ("first", "second"))
        lines.append(
            f"exploitability {result['exploitability']:.4f}  (the best response earns {first:.4f} moving first, "
            f"{second:.4f} moving second)"
        )
    return "".join(f"\n{line}" for line in lines)


def tally_text(who: str, tally: dict[str, Any]) -> str:
    low, high = tally["win_interval"]
    return (
        f"{who}: {tally['wins']} wins, {tally['draws']} draws, {tally['losses']} losses in {tally['games']} games  "
        f"(score {tally['score']:.3f}, wins {100 * low:.1f} to {100 * high:.1f} %)"
    )


COMMAND = Command(
    name="eval",
    summary="score a trained agent, or every seed of a group, on fresh episodes",
    usage="RUN|GROUP [flags]",
    options=EvalOptions,
    run=run,
    examples=(
        "rl eval latest",
        "rl eval latest --opponent random --episodes 1000",
        "rl eval runs/ppo__CartPole-v1__seed0__20260101-120000 --checkpoint best --video",
    ),
    notes=TARGETS,
)
