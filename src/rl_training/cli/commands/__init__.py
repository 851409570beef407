"""The table of commands. Each command is one file with its flags, its help text and its function.

The table holds names and summaries alone, so that `rl --help` and completion need not import every file; a test
compares it with the files. A command's file is imported when the command runs, is explained or is completed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_training.system.imports import without_collections

if TYPE_CHECKING:
    from rl_training.cli.parser import Command


class Entry(NamedTuple):
    """A command as `rl --help` lists it."""

    name: str
    module: str
    """The file inside this folder, whose `COMMAND` is the whole command."""
    summary: str


FIRST = (
    Entry("train", "runs.train", "train an agent from a preset, a file, or flags alone"),
    Entry("eval", "runs.eval", "score a trained agent, or every seed of a group, on fresh episodes"),
    Entry("resume", "runs.resume", "continue a stopped run, or the seeds of a group, exactly where they were"),
)
RUNS = (
    Entry("enjoy", "runs.enjoy", "watch a trained agent play, in a window or as a video"),
    Entry("play", "runs.play", "play against a trained agent in the terminal"),
    Entry("league", "runs.league", "rank the opponents that the agent of a game has met: Elo, wins, draws, losses"),
    Entry("sweep", "many.sweep", "train many configs from one sweep file, each with several seeds"),
    Entry("tune", "many.tune", "search for good hyperparameters, scored over several seeds"),
    Entry("cluster up", "cluster.up", "start a Ray cluster of several nodes on this machine"),
    Entry(
        "cluster check", "cluster.check", "check that every node shares the output directory and has the same versions"
    ),
    Entry("cluster status", "cluster.status", "list the nodes of a Ray cluster"),
    Entry("cluster down", "cluster.down", "end the Ray cluster that 'rl cluster up' has started"),
    Entry("list", "records.list", "list runs: filter, sort, choose columns"),
    Entry("show", "records.show", "show the facts of a run, a group of seeds or a sweep"),
    Entry("watch", "runs.watch", "follow running experiments: progress, returns, alerts"),
    Entry(
        "dashboard",
        "analysis.dashboard",
        "show every run in the browser: live curves with bands over seeds, comparison, sweeps, controls",
    ),
    Entry("compare", "analysis.compare", "compare runs, groups, sweeps or filters: scores, intervals, ranking, cost"),
    Entry("plot curves", "analysis.plot_curves", "draw learning curves with their intervals"),
    Entry(
        "plot compare",
        "analysis.plot_compare",
        "draw aggregate scores, performance profile and probability of improvement",
    ),
    Entry("plot sensitivity", "analysis.plot_sensitivity", "draw how hyperparameters change the final score"),
    Entry("export", "analysis.export", "write results for papers and data frames"),
    Entry(
        "export-policy",
        "runs.export_policy",
        "write the policy of a run as a file that others can run, checked by playing",
    ),
    Entry("tag", "records.tag", "add tags to a run or all runs of a group, or remove them"),
    Entry("note", "records.note", "write notes about a run or all runs of a group, or show them"),
    Entry("diff", "records.diff", "how two runs or groups differ: config, versions, code, results"),
    Entry("dream", "runs.dream", "show what the world model of a run foresees, beside what really happens"),
    Entry("record", "datasets.record", "record a dataset: episodes of a run, its replay rows, or random actions"),
    Entry("dataset info", "datasets.info", "describe a dataset: episodes, returns, actions, where it comes from"),
    Entry("dataset check", "datasets.check", "compare a dataset with its checksums and look for bad values"),
    Entry("dataset plot", "datasets.plot", "draw the returns, actions and coverage of a dataset"),
    Entry("dataset convert", "datasets.convert", "write a dataset in another format, or only some of its episodes"),
    Entry("dataset merge", "datasets.merge", "join datasets of one environment"),
    Entry("ope", "datasets.ope", "estimate from a dataset what the policy of a run returns, without an environment"),
    Entry("verify", "runs.verify", "train a run again from its config and report the first difference"),
    Entry("debug replay", "runs.debug_replay", "run an update again that debug mode has captured"),
    Entry("cleanup", "records.cleanup", "free the disk space of old runs; configs and final metrics stay"),
    Entry("archive", "records.archive", "pack a run into one file, or each run of a group"),
    Entry("import", "records.import_run", "bring an archived run back"),
    Entry("trust list", "records.trust_list", "list the runs of others whose code you have agreed to"),
    Entry("trust forget", "records.trust_forget", "withdraw your agreement to the code of a run"),
    Entry("index rebuild", "records.index_rebuild", "rebuild the index of runs from the run directories"),
)
OTHERS = (
    Entry("presets", "listings.presets", "list the configs that ship with the package"),
    Entry("algorithms", "listings.algorithms", "list the algorithms"),
    Entry("envs", "listings.envs", "list the environments that can be built here"),
    Entry("bench", "listings.bench", "measure the cost of an environment's step and the fastest way to step it"),
    Entry("new algorithm", "new.algorithm", "write a working start for an algorithm of your own"),
    Entry("new network", "new.network", "write a working start for a network of your own"),
    Entry("new env", "new.env", "write a working start for an environment of your own"),
    Entry("config show", "config.show", "print a config with every default filled in"),
    Entry("config validate", "config.validate", "check config and sweep files; all problems at once"),
    Entry("config migrate", "config.migrate", "rewrite a file of an older version in today's layout"),
    Entry("config import-zoo", "config.import_zoo", "turn hyperparameters of the SB3 Zoo into config files"),
    Entry("completion", "listings.completion", "print the completion script of a shell"),
)
COMMANDS = {entry.name: entry for entry in FIRST + RUNS + OTHERS}


def load_command(name: str) -> Command[Any]:
    """The command of this name, from its file."""
    with without_collections():
        module = importlib.import_module(f"{__name__}.{COMMANDS[name].module}")
    command: Command[Any] = module.COMMAND
    return command
