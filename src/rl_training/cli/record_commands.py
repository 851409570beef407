"""The commands that find, follow, check and keep runs, as records. Plain data, like `commands`."""

from __future__ import annotations

from rl_training.cli.arguments import HELP, JSON, OUTPUT_DIR, TRUST, Command, Option

RUN_NAMES = "RUN is a run directory, the start of its name or id, its --name (if only one fits), or 'latest'."
GROUPS = (
    "Groups of seeds and sweeps are named in the same way and stand for all their runs; the newest are "
    "'latest-group' and 'latest-sweep'."
)

LIST = Command(
    name="list",
    summary="list runs: filter, sort, choose columns",
    run="rl_training.cli.records:list_command",
    usage="[FILTER...] [flags]",
    arguments=(0, 100),
    options=(
        Option("filter", "runs to list, such as 'algorithm=ppo and reward>400'", "FILTER"),
        Option("sort", "column or metric: best, newest or A first; with a minus sign the other way round", "KEY"),
        Option("columns", "what to show of each run", "A,B"),
        Option("limit", "runs to list, 0 for all (default 50 in a table, all with --json)", "N"),
        Option("output-dir", "folder of the runs (default runs)", "DIR"),
        JSON,
        HELP,
    ),
    examples=(
        "rl list",
        "rl list --filter algorithm=ppo --sort reward",
        "rl list 'status=failed or status=killed'",
        "rl list 'reward>400 and env=CartPole-v1' --columns id,seed,hparams.learning_rate,eval/return_iqm",
    ),
    notes="A filter compares with = != > >= < <= ~ (contains) and joins with and, or, not and parentheses. A key is a "
    "column (status, algorithm, environment, seed, tag, group, sweep, reward, loss, env_steps, started, ...), a metric "
    "or a field of the config. Quote filters: the shell has its own idea of >.",
)

SHOW = Command(
    name="show",
    summary="what is known of a run, a group of seeds or a sweep",
    run="rl_training.cli.records:show_command",
    usage="RUN|GROUP|SWEEP [flags]",
    arguments=(1, 1),
    options=(OUTPUT_DIR, JSON, HELP),
    examples=("rl show latest", "rl show latest --json"),
    notes=f"{RUN_NAMES} {GROUPS}",
)

WATCH = Command(
    name="watch",
    summary="follow running experiments: progress, returns, alerts",
    run="rl_training.cli.watch:watch_command",
    usage="[RUN|GROUP|SWEEP...] [flags]",
    arguments=(0, 100),
    options=(
        Option("interval", "seconds between looks (default 1)", "X"),
        Option("once", "show how they are now, and end"),
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=("rl watch", "rl watch latest", "rl watch --once --json"),
    notes=f"{RUN_NAMES} Without one, every run that is training is followed, also those that begin later. It ends with "
    "the last of them, or with Ctrl-C, which the runs do not notice.",
)

TAG = Command(
    name="tag",
    summary="add tags to a run or all runs of a group, or take them away",
    run="rl_training.cli.records:tag_command",
    usage="RUN|GROUP|SWEEP [TAG...] [flags]",
    arguments=(1, 100),
    options=(Option("remove", "tags to take away", "A,B"), OUTPUT_DIR, JSON, HELP),
    examples=("rl tag latest keep paper", "rl tag latest --remove paper"),
    notes=f"{RUN_NAMES} {GROUPS} Tagged runs are never cleaned up.",
)

DIFF = Command(
    name="diff",
    summary="how two runs or groups differ: config, versions, code, results",
    run="rl_training.cli.records:diff_command",
    usage="RUN|GROUP RUN|GROUP [flags]",
    arguments=(2, 2),
    options=(OUTPUT_DIR, JSON, HELP),
    examples=("rl diff baseline latest", "rl diff ppo__CartPole-v1__seed0 ppo__CartPole-v1__seed1 --json"),
    notes=f"{RUN_NAMES} {GROUPS} Results of a group are means over its runs.",
)

VERIFY = Command(
    name="verify",
    summary="train a run again from its config and say where the two first differ",
    run="rl_training.cli.verify:verify_command",
    usage="RUN|GROUP|SWEEP [flags]",
    arguments=(1, 1),
    options=(
        Option("steps", "env steps to compare (default: as far as the run came)", "N"),
        Option("resume-check", "instead: stop half-way, resume, and compare with a run straight through"),
        TRUST,
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=("rl verify latest", "rl verify latest --steps 10000", "rl verify latest --resume-check"),
    notes=f"{RUN_NAMES} {GROUPS} Exit code 0 if everything is the same to the last bit, 3 if not.",
)

DEBUG_REPLAY = Command(
    name="debug replay",
    summary="run an update again that debug mode has captured",
    run="rl_training.cli.debug:replay_command",
    usage="FILE [flags]",
    arguments=(1, 1),
    options=(
        Option("gradient-check", "also compare its gradients with finite differences"),
        TRUST,
        JSON,
        HELP,
    ),
    examples=("rl debug replay runs/<run>/debug/update_000012.capture",),
    notes="Debug mode (rl train --debug, monitor.debug) saves an update that gives NaN or Inf, and the one that "
    "monitor.debug.capture_update names. Exit code 0 if it ends as it did then, 3 if not.",
)

CLEANUP = Command(
    name="cleanup",
    summary="free the disk of old runs; configs and final metrics stay",
    run="rl_training.cli.storage:cleanup_command",
    usage="[flags]",
    options=(
        Option("keep-best", "runs of each environment to leave alone, the best ones (default 10)", "N"),
        Option("keep-recent", "days that a run is left alone after its end (default 30)", "DAYS"),
        Option("metric", "what best means; with a minus sign low is good (default reward)", "KEY"),
        Option("dry-run", "show what would be removed; remove nothing"),
        Option("output-dir", "folder of the runs (default runs)", "DIR"),
        JSON,
        HELP,
    ),
    examples=("rl cleanup --keep-best 10 --keep-recent 30 --dry-run", "rl cleanup --metric=-loss"),
    notes="Tagged and running runs are never touched. A cleaned run keeps its place in 'rl list'.",
)

ARCHIVE = Command(
    name="archive",
    summary="pack a run into one file, or each run of a group",
    run="rl_training.cli.storage:archive_command",
    usage="RUN|GROUP|SWEEP [flags]",
    arguments=(1, 1),
    options=(
        Option("output", "file to write (default <output-dir>/archives/<run>.tar.gz)", "FILE"),
        Option("remove", "then clean the run: its config and final metrics stay"),
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=("rl archive latest", "rl archive latest --output baseline.tar.gz --remove"),
    notes=f"{RUN_NAMES} {GROUPS}",
)

IMPORT = Command(
    name="import",
    summary="bring an archived run back",
    run="rl_training.cli.storage:import_command",
    usage="FILE [flags]",
    arguments=(1, 1),
    options=(
        Option("output-dir", "folder to put the run into (default runs)", "DIR"),
        TRUST,
        JSON,
        HELP,
    ),
    examples=("rl import baseline.tar.gz", "rl import theirs.tar.gz --trust-plugins"),
    notes="Nothing in the archive is executed. A run whose config asks for code, commands or addresses that are not "
    "part of the package can be looked at, but not run until you agree with --trust-plugins, here or at 'rl eval'.",
)

TRUST_LIST = Command(
    name="trust list",
    summary="runs of others whose code you have agreed to",
    run="rl_training.cli.trust:list_command",
    usage="[--json]",
    options=(JSON, HELP),
    examples=("rl trust list",),
    notes="Runs that were made here need no consent: they carry a seal, made with the key in your config directory "
    "(~/.config/rl_training/trust.key) or in RL_TRAINING_TRUST_KEY, which machines of yours may share.",
)

TRUST_FORGET = Command(
    name="trust forget",
    summary="take such a consent back",
    run="rl_training.cli.trust:forget_command",
    usage="RUN... [flags]",
    arguments=(1, 1000),
    options=(OUTPUT_DIR, JSON, HELP),
    examples=("rl trust forget ppo__CartPole-v1__seed0__20260101-120000",),
    notes="RUN is an id that 'rl trust list' shows or the start of one, or a run directory.",
)

INDEX_REBUILD = Command(
    name="index rebuild",
    summary="make the index of runs anew from the run directories",
    run="rl_training.cli.records:rebuild_command",
    usage="[flags]",
    options=(Option("output-dir", "folder of the runs (default runs)", "DIR"), JSON, HELP),
    examples=("rl index rebuild", "rl index rebuild --output-dir results"),
)

FINDING = (LIST, SHOW, WATCH)
KEEPING = (TAG, DIFF, VERIFY, DEBUG_REPLAY, CLEANUP, ARCHIVE, IMPORT, TRUST_LIST, TRUST_FORGET, INDEX_REBUILD)
