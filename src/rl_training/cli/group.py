"""Several seeds of one config on the command line: `rl train --seed 1,2,3`, `rl resume GROUP`, `rl eval GROUP`.

What a group is and how it runs is in `experiments`; here are the seeds that were typed and the text that is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import UsageError
from rl_training.cli.output import bold, note, print_json, show, stdout_for_the_result, table
from rl_training.seeding import MAX_SEED
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.members import Member

MAX_RUNS = 10_000


def parse_seeds(text: str) -> list[int]:
    """The seeds of `3`, `1,2,3`, `0..9` (both ends) or a mix of them.

    >>> parse_seeds("0..2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise UsageError(f"--seed takes 3, 1,2,3 or 0..9, not '{text}'") from None
        if not 0 <= low <= high <= MAX_SEED:
            raise UsageError(f"--seed {text}: seeds go up from 0 to {MAX_SEED}")
        if len(seeds) + high - low >= MAX_RUNS:
            raise UsageError(f"--seed {text} is more than {MAX_RUNS} runs")
        seeds.extend(range(low, high + 1))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seed {text} names a seed twice")
    return seeds


def train_group(
    cfg: TrainConfig,
    seeds: Sequence[int],
    *,
    jobs: int | None,
    argv: Sequence[str],
    source: str | None,
    init_from: str | None,
    as_json: bool,
) -> int:
    """Train every seed in a new group."""
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.member_threads import for_many

    group = SeedGroup.create(for_many(cfg, len(seeds)), seeds, argv=argv, source=source, jobs=jobs, init_from=init_from)
    with group.lock():
        return run_group(group, jobs, as_json=as_json)


def resume_group(group: SeedGroup, *, jobs: int | None, total_timesteps: int | None, as_json: bool) -> int:
    """Go on with every member that is not finished."""
    with group.lock():
        group.observe()
        if total_timesteps is not None:
            group.require_consent(group.members)
            group.extend(total_timesteps)
        if group.unfinished():
            group.require_consent(group.unfinished())
            return run_group(group, jobs or group.info.jobs, as_json=as_json)
        note(f"nothing to do: all {len(group.members)} seeds are finished")
        return finish(group, 0, as_json=as_json)


def run_group(group: SeedGroup, jobs: int | None, *, as_json: bool) -> int:
    from rl_training.experiments.launching.group_display import make_view
    from rl_training.experiments.launching.group_runner import GroupRunner, at_a_time
    from rl_training.experiments.launching.member_threads import member_threads

    cfg, count = group.config(), len(group.unfinished())
    parallel = at_a_time(cfg, jobs, count)
    note(f"{count} run{'s' if count > 1 else ''}, {parallel} at a time, in {group.path}")
    view = make_view(live=cfg.logging.terminal)
    with member_threads(group, group.unfinished()) as thread:
        exit_code = GroupRunner(group, parallel, view, thread=thread).run()
    return finish(group, exit_code, as_json=as_json)


def finish(group: SeedGroup, exit_code: int, *, as_json: bool) -> int:
    """The group's own results, on disk and for the reader."""
    from rl_training.experiments.analysis.group_summary import plot_group, run_records, write_summary
    from rl_training.types import RLTrainingError

    summary = write_summary(group)
    plots: list[Any] = []
    with stdout_for_the_result(as_json):
        try:
            plots = plot_group(group, summary["metric"])
        except RLTrainingError as error:  # a picture less is no failure of the training
            note(f"no plot: {error}")
    if as_json:
        result = {"group": group.path.absolute(), "exit_code": exit_code, "summary": summary, "plots": plots}
        print_json({**result, "runs": run_records(group)})
        return exit_code
    show(runs_table(group))
    show(group_text(group, summary, plots))
    return exit_code


def eval_group(group: SeedGroup, *, as_json: bool, video: str | bool, **options: Any) -> int:
    """Evaluate each member as `rl eval` does; one that cannot be evaluated does not end the others."""
    from rl_training.experiments.analysis.group_summary import aggregate

    runs = [member for member in group.members if member.run is not None]
    if not runs:
        raise UsageError(f"no seed of group '{group.path}' has a run yet; start them with 'rl resume {group.path}'")
    for member in group.members:
        if member.run is None:
            note(f"seed {member.seed}: no run yet")
    with stdout_for_the_result(as_json):
        records = [_evaluate(group, member, video=video, **options) for member in runs]
    scores = [record["return_mean"] for record in records if "return_mean" in record]
    result = aggregate(scores)
    if as_json:
        print_json({"group": group.path.absolute(), "runs": records, "num_scores": len(scores), "return": result})
    else:
        show(scores_text(group, records))
    return int(len(scores) < len(records))


def _evaluate(group: SeedGroup, member: Member, *, video: str | bool, **options: Any) -> dict[str, Any]:
    from rl_training.eval import evaluate
    from rl_training.types import RLTrainingError, TrustError

    run = group.output_dir / str(member.run)
    place = f"{video}/seed{member.seed}" if isinstance(video, str) else str(run / "videos") if video else None
    known = {"train_seed": member.seed, "status": member.status}
    try:
        record = evaluate(run, video=place, **options)
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
    """What a user reads when a group is over."""
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
