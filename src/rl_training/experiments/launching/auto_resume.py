"""`rl train --auto-resume`: the same command starts a run, goes on with it, or finds it finished.

For schedulers that repeat a command until it succeeds. What is the same run is decided by its config hash, so a changed
config is a new run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from rl_training.assembly.data_parallel.joining import join_ranks
from rl_training.config.loading import ResolvedConfig
from rl_training.experiments.launching.groups import SeedGroup, group_directories, pinned
from rl_training.runs.directory import RunDir, public_config, public_sha256, run_directories
from rl_training.runs.names import env_fn_of, name_part
from rl_training.runs.redaction import Redactor, restore
from rl_training.types import RunError

FoundT = TypeVar("FoundT", RunDir, SeedGroup)
State = Literal["finished", "unfinished"]


class Earlier(NamedTuple):
    """What an earlier start of the same command has left."""

    path: Path
    """The directory of the run or group."""
    is_finished: bool


def earlier_start(resolved: ResolvedConfig, seeds: Sequence[int], init_from: str | None = None) -> Earlier | None:
    """What an earlier start of this command has left. Under torchrun the first process looks, and all of them know."""

    def look() -> Earlier | None:
        if len(seeds) > 1:
            return earlier_group(resolved, seeds, init_from)
        return earlier_run(resolved, init_from)

    ranks = join_ranks(resolved.config)
    return look() if ranks is None else ranks.led(look)


def earlier_run(resolved: ResolvedConfig, init_from: str | None = None) -> Earlier | None:
    """The newest run with this config, which is finished or can be resumed; None if there is none.

    RunError if a process holds it, or if several are unfinished.
    """
    cfg = resolved.config
    folder = Path(restore(cfg.output_dir)).expanduser()
    wanted = public_sha256(public_config(resolved, Redactor()))
    start = f"{name_part(cfg.algo)}__{name_part(env_fn_of(cfg.env_id) or cfg.env_id)}__seed{cfg.seed}__"
    states: list[tuple[RunDir, State]] = []
    for path in run_directories(folder) if folder.is_dir() else []:
        info = _info(path) if path.name.startswith(start) else {}
        is_alone = info.get("group") is None and info.get("parent") == init_from
        if info.get("config_sha256") == wanted and is_alone:
            states.append((RunDir(path), "finished" if info.get("status") == "finished" else "unfinished"))
    return _chosen(states, "run")


def earlier_group(resolved: ResolvedConfig, seeds: Sequence[int], init_from: str | None = None) -> Earlier | None:
    """The same for a group of seeds: one with this config and exactly these seeds."""
    folder = Path(restore(resolved.config.output_dir)).expanduser()
    public = public_config(resolved, Redactor())
    wanted = {(seed, public_sha256({**public, "seed": seed})) for seed in seeds}
    start = None if init_from is None else pinned(init_from, str(folder))
    states: list[tuple[SeedGroup, State]] = []
    for path in group_directories(folder) if folder.is_dir() else []:
        try:
            group = SeedGroup.open(path)
        except RunError:  # a damaged record is none of ours
            continue
        if {
            (member.seed, member.config_sha256) for member in group.members
        } == wanted and group.info.init_from == start:
            states.append((group, "unfinished" if group.unfinished() else "finished"))
    return _chosen(states, "group")


def _chosen(states: Sequence[tuple[FoundT, State]], kind: str) -> Earlier | None:
    """The newest of several, oldest first."""
    if not states:
        return None
    found, state = states[-1]
    if state == "finished":
        return Earlier(found.path, True)
    unfinished = [one.path.name for one, state in states if state == "unfinished"]
    if len(unfinished) > 1:
        raise RunError(
            f"--auto-resume: {len(unfinished)} {kind}s with this config are unfinished ({', '.join(unfinished)}); "
            "go on with one of them by `rl resume NAME`, or remove the others"
        )
    with found.lock():  # refused with the name of the process that holds it
        return Earlier(found.path, False)


def _info(path: Path) -> dict[str, Any]:
    try:
        return RunDir(path).info()
    except RunError:
        return {}
