"""Groups of seeds on the command line: how `rl train`, `rl resume` and `rl eval` run one, and what they print.

What a group is and how it runs is in `experiments/launching`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.output import bold, note, print_json, show, stdout_for_the_result, table
from rl_training.cli.parser import UsageError
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.member import Member

Play = Callable[[Path, str | Path | None], dict[str, Any]]
"""(run directory, folder of the video) -> record of an evaluation."""


def resume_group(
    group: SeedGroup, *, jobs: int | None, total_timesteps: int | None, executor: str | None, as_json: bool
) -> int:
    """Continue every member that is not finished."""
    with group.lock():
        group.observe()
        if total_timesteps is not None:
            group.require_consent(group.members)
            group.extend(total_timesteps)
        if group.unfinished():
            group.require_consent(group.unfinished())
            return run_group(group, jobs or group.info.jobs, executor=executor, as_json=as_json)
        note(f"nothing to do: all {len(group.members)} seeds are finished")
        return finish(group, 0, as_json=as_json)


def run_group(group: SeedGroup, jobs: int | None, *, executor: str | None, as_json: bool) -> int:
    from rl_training.experiments.launching.executors import Launch, executor_config, launch
    from rl_training.experiments.launching.group_display import make_view

    cfg, members = group.config(), group.unfinished()
    count = len(members)
    group.executor_given = executor is not None
    how = Launch(executor_config(group, executor), jobs)
    words = f"{count} run{'s' if count > 1 else ''}"
    runner = launch(
        group,
        members,
        lambda: make_view(live=cfg.logging.terminal),
        how,
        announce=lambda at_a_time: note(f"{words}, {at_a_time}, in {group.path}"),
    )
    return finish(group, runner.exit_code or 0, as_json=as_json)


def finish(group: SeedGroup, exit_code: int, *, as_json: bool) -> int:
    """Write the group's results and print them; returns the exit code."""
    from rl_training.experiments.analysis.group_summary import plot_group, run_records, write_summary
    from rl_training.types import RLTrainingError

    summary = write_summary(group)
    plots: list[Any] = []
    with stdout_for_the_result(as_json):
        try:
            plots = plot_group(group, summary["metric"])
        except RLTrainingError as error:  # the training has not failed because a plot is missing
            note(f"no plot: {error}")
    if as_json:
        result = {"group": group.path.absolute(), "exit_code": exit_code, "summary": summary, "plots": plots}
        print_json({**result, "runs": run_records(group)})
        return exit_code
    show(runs_table(group))
    show(group_text(group, summary, plots))
    return exit_code


def eval_group(group: SeedGroup, play: Play, *, video: str | bool, as_json: bool) -> int:
    """Evaluate each member with `play`; the others go on where one cannot be evaluated."""
    from rl_training.experiments.analysis.group_summary import aggregate

    runs = [member for member in group.members if member.run is not None]
    if not runs:
        raise UsageError(f"no seed of group '{group.path}' has a run yet; start them with 'rl resume {group.path}'")
    for member in group.members:
        if member.run is None:
            note(f"seed {member.seed}: no run yet")
    with stdout_for_the_result(as_json):
        records = [_evaluate(group, member, play, video) for member in runs]
    scores = [record["return_mean"] for record in records if "return_mean" in record]
    result = aggregate(scores)
    if as_json:
        print_json({"group": group.path.absolute(), "runs": records, "num_scores": len(scores), "return": result})
    else:
        show(scores_text(group, records))
    return int(len(scores) < len(records))


def _evaluate(group: SeedGroup, member: Member, play: Play, video: str | bool) -> dict[str, Any]:
    from rl_training.types import RLTrainingError, TrustError

    run = group.output_dir / str(member.run)
    place = f"{video}/seed{member.seed}" if isinstance(video, str) else str(run / "videos") if video else None
    known = {"train_seed": member.seed, "status": member.status}
    try:
        record = play(run, place)
    except TrustError:
        raise
    except RLTrainingError as error:
        note(f"seed {member.seed}: {error}")
        return {**known, "run": str(run.absolute()), "error": str(error)}
    note(f"seed {member.seed}: return {number_text(record['return_mean'])}")
    return {**known, **record}


# -- what is printed --------------------------------------------------------------------------------------------------


def runs_table(group: SeedGroup) -> str:
    """One line per seed: how it ended and what it scored."""
    from rl_training.experiments.analysis.group_summary import run_records

    rows = []
    for record in run_records(group):
        metrics = record["metrics"]
        score = metrics.get("eval/return_mean", metrics.get("rollout/return_mean"))
        seconds = metrics.get("time/elapsed_seconds")
        rows.append(
            [
                str(record["seed"]),
                record["status"],
                number_text(score),
                f"{metrics['env_steps']:,}" if "env_steps" in metrics else "-",
                "-" if seconds is None else f"{seconds:.0f} s",
                "-" if record["run"] is None else str(group.output_dir / record["run"].name),
            ]
        )
    return table(["seed", "status", "return", "env steps", "time", "run"], rows)


def group_text(group: SeedGroup, summary: dict[str, Any], plots: Sequence[Any]) -> str:
    """The end of a group in a few lines: how many finished, the aggregate score, what to type next."""
    from rl_training.experiments.analysis.group_summary import FEW_SEEDS, aggregate_text

    left = group.unfinished()
    lines = ["", f"{len(group.members) - len(left)} of {len(group.members)} seeds finished"]
    lines += [f"  seed {member.seed:<5} {member.status}; {member.reason}" for member in left if member.reason]
    of = "last evaluation" if summary["metric"].startswith("eval/") else "training episodes"
    words = bold(aggregate_text(summary["return"], summary["num_scores"]))
    lines.append(f"  return     {words} ({of})" if summary["return"] else f"  return     {words}")
    if 1 < summary["num_scores"] < FEW_SEEDS:
        lines.append(f"             fewer than {FEW_SEEDS} seeds: such an interval is too narrow")
    lines.append(f"  group      {group.path}")
    lines += [f"  plot       {plot}" for plot in plots[:1]]
    return "\n".join([*lines, f"  next       rl {'resume' if left else 'eval'} {group.path}"])


def scores_text(group: SeedGroup, records: Sequence[dict[str, Any]]) -> str:
    """The result of an evaluation of all seeds."""
    from rl_training.experiments.analysis.group_summary import aggregate, aggregate_text

    scored = [record for record in records if "return_mean" in record]
    rows = [
        [
            str(record["train_seed"]),
            f"{number_text(record['return_mean'])} +- {number_text(record['return_std'])}"
            if "return_mean" in record
            else "-",
            number_text(record.get("return_iqm")),
            f"{record['length_mean']:.1f}" if "return_mean" in record else "-",
            f"{record['env_steps']:,}" if "return_mean" in record else "-",
            record.get("video", record["run"]),
        ]
        for record in records
    ]
    lines = [str(group.path), table(["seed", "return", "IQM", "length", "env steps", "run"], rows)]
    if scored:
        one = scored[0]
        how = "greedy" if one["deterministic"] else "stochastic"
        lines.append(f"checkpoint {one['checkpoint']}; {one['episodes']} {how} episodes each")
        result = aggregate([record["return_mean"] for record in scored])
        lines.append(bold(aggregate_text(result, len(scored))))
    return "\n".join(lines)
