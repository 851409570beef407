"""The commands that compare, draw and export runs, as records. Plain data, like `commands`."""

from __future__ import annotations

from rl_training.cli.arguments import HELP, JSON, OUTPUT_DIR, Command, Option

SELECTION = (
    Option("by", "put all runs together and split them by these keys, such as algorithm", "KEY,KEY"),
    Option("unfinished", "runs of groups, sweeps and filters count even if they are not finished"),
)
METRICS = Option(
    "metrics",
    "what to compare (default reward; hns is human-normalised); with a minus sign low is good",
    "A,B",
)
NOTES = (
    "RUN is a run, a group of seeds, a sweep (one entry per trial) or a filter as in 'rl list'; each is an entry of "
    "its own unless --by splits them. 'latest', 'latest-group' and 'latest-sweep' are the newest. A metric is reward, "
    "loss, a name in the log such as eval/return_iqm, or a column."
)

COMPARE = Command(
    name="compare",
    summary="put runs, groups, sweeps or filters side by side: scores, intervals, who is better, what it cost",
    run="rl_training.cli.analysis:compare_command",
    usage="RUN... [flags]",
    arguments=(1, 1000),
    options=(
        METRICS,
        *SELECTION,
        Option("threshold", "count the env steps until this score (default: the weakest entry's)", "X"),
        Option("html", "write a report, one page that needs nothing else", "FILE"),
        Option("plots", "write curves and comparison of each metric into DIR", "DIR"),
        Option("formats", "of the plots: png, svg, pdf (default png,svg)", "A,B"),
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=(
        "rl compare baseline latest --metrics reward,loss",
        "rl compare env=CartPole-v1 --by algorithm --html report.html",
        "rl compare tag=old tag=new --plots figures --formats pdf",
    ),
    notes=NOTES,
)

EXPORT = Command(
    name="export",
    summary="write results for papers and data frames",
    run="rl_training.cli.analysis:export_command",
    usage="RUN... --format NAME [flags]",
    arguments=(1, 1000),
    options=(
        Option(
            "format", "latex, markdown, csv, json, parquet or marl-eval", "NAME",
            choices=("latex", "markdown", "csv", "json", "parquet", "marl-eval"),
        ),
        Option(
            "content", "summary (default of latex, markdown), runs (default of the others) or curves", "WHAT",
            choices=("summary", "runs", "curves"),
        ),
        Option("output", "file to write (default: stdout)", "FILE"),
        METRICS,
        *SELECTION,
        OUTPUT_DIR,
        HELP,
    ),
    examples=(
        "rl export baseline --format latex > table.tex",
        "rl export env=CartPole-v1 --by algorithm --format parquet --content curves --output curves.parquet",
    ),
    notes=NOTES,
)  # fmt: skip


def plot(kind: str, summary: str, usage: str, *options: Option, examples: tuple[str, ...]) -> Command:
    """`rl plot KIND`."""
    return Command(
        name=f"plot {kind}",
        summary=summary,
        run=f"rl_training.cli.analysis:plot_{kind}_command",
        usage=usage,
        arguments=(1, 1000),
        options=(
            Option("metric", "what to draw; with a minus sign low is good (default reward)", "NAME"),
            *options,
            Option("output", f"file to write, ending in .png, .svg or .pdf (default {kind}.png)", "FILE"),
            OUTPUT_DIR,
            JSON,
            HELP,
        ),
        examples=examples,
        notes=NOTES,
    )


PLOT = (
    plot(
        "curves", "draw learning curves with their intervals", "RUN... [flags]", *SELECTION,
        examples=("rl plot curves latest", "rl plot curves baseline latest --output curves.pdf"),
    ),
    plot(
        "compare", "draw aggregate scores, performance profile and probability of improvement", "RUN... [flags]",
        *SELECTION, examples=("rl plot compare env=CartPole-v1 --by algorithm",),
    ),
    plot(
        "sensitivity", "draw what hyperparameters do to the final score", "SWEEP|RUN... [flags]",
        Option("parameters", "fields of the config (default: all that differ)", "KEY,KEY"), SELECTION[1],
        examples=("rl plot sensitivity latest-sweep", "rl plot sensitivity algorithm=ppo --parameters algorithm.lr"),
    ),
)  # fmt: skip
ANALYSIS = (COMPARE, *PLOT, EXPORT)
