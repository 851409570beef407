"""Tuning files: a base config, the search space around it, and the search method; parsed and fully checked.

The space is written as in sweep files, with `ranges` and lists, and extends the one shipped for the algorithm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from rl_training.config.aliases import canonical_key
from rl_training.config.files import TUNE_KEYS, check_kind, find_config
from rl_training.config.loading import load_config
from rl_training.config.schema import CONFIG_VERSION, SECTION
from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.config.searches.sweeps import (
    RangeConfig,
    check_launch_fields,
    find_sweep_base,
    resolve_sweep,
    with_sections,
)
from rl_training.config.sections.executor import ExecutorConfig
from rl_training.config.validation import check, located, raise_problems
from rl_training.config.yaml_reader import Document, plain_copy, read_yaml
from rl_training.hparams.base import Json
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

SAMPLERS = ("tpe", "random", "qmc", "gp", "cmaes")
PRUNERS = ("wilcoxon", "median", "none")
NO_SPACE = "none"


@dataclass(frozen=True)
class TuneConfig:
    """A hyperparameter search; each trial is one set of values, scored over several seeds."""

    __pydantic_config__ = SECTION

    base_config: str
    """Config file or preset that the search starts from."""
    space: str | None = None
    """Search space shipped with the package, by algorithm; null takes that of the base's algorithm, none uses only the
    keys below."""
    ranges: Mapping[str, RangeConfig] = field(default_factory=dict)
    """Dotted key to the range to search."""
    sweep: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """Dotted key to the values to try."""
    num_trials: int = 50
    """Number of trials, including pruned ones."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds of every trial, run in this order; a clearly worse trial is pruned before the last one."""
    draw_seed: int = 0
    """Seed of the sampler."""
    sampler: Literal["tpe", "random", "qmc", "gp", "cmaes"] = "tpe"
    """Optuna sampler that chooses the next values."""
    pruner: Literal["wilcoxon", "median", "none"] = "wilcoxon"
    """When to prune a trial: wilcoxon compares it with the best one seed by seed. With a scheduler, which ends weak
    trials itself, none."""
    metric: str = "reward"
    """Objective: reward, loss, or any final metric of a run."""
    aggregate: Literal["iqm", "mean", "median", "min", "max"] = "iqm"
    """How the scores of a trial's seeds are combined."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether higher or lower is better."""
    parallel_jobs: int | None = None
    """Upper bound of the trials in parallel; null is one at a time on this host and as many as fit on a cluster."""
    retries: int = 0
    """How often a failed run is retried."""
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    """Where the runs are started, instead of where the base config says; a name alone, such as ray, takes its
    defaults."""
    scheduler: SchedulerConfig | None = None
    """asha pauses weak trials early; pbt trains all trials as one population. A name alone takes its defaults; metric
    and direction are those of the search. Null runs trials seed by seed, with `pruner`."""
    version: int = CONFIG_VERSION
    """Version of this layout."""

    def __post_init__(self) -> None:
        check_launch_fields(self)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError("seeds needs one or more seeds, each once")
        if self.scheduler is not None:
            self._check_scheduler(self.scheduler)

    def _check_scheduler(self, scheduler: SchedulerConfig) -> None:
        """Refuse what contradicts a scheduler."""
        if self.pruner != "none":
            raise ConfigError(
                f"pruner {self.pruner} ends trials between their seeds, and scheduler {scheduler.type} ends them "
                "itself: drop one of the two"
            )
        for name in ("metric", "direction"):
            own, theirs = vars(self)[name], vars(scheduler)[name]
            if own != theirs:
                raise ConfigError(
                    f"scheduler.{name} is {theirs}, and the search goes by its own {name}, {own}: drop scheduler.{name}"
                )
        if scheduler.type == "pbt" and len(self.seeds) > 1:
            raise ConfigError(
                f"seeds has {len(self.seeds)} seeds, and in a population (scheduler pbt) every trial has one: write "
                f"seeds: [{self.seeds[0]}]"
            )


def is_tune_file(path: str | Path) -> bool:
    """True for a file with `base_config` and a key that only tuning files have."""
    keys = find_config(path).read().tree.keys()
    return "base_config" in keys and not keys.isdisjoint(TUNE_KEYS)


def load_tune(path: str | Path) -> TuneConfig:
    """A tuning file with its complete search space under canonical keys; all values and bounds are checked."""
    found = find_config(path)
    return resolve_tune(found.read(), found.path.parent)


def parse_tune(mapping: Mapping[str, Any], *, source: str = "tuning") -> TuneConfig:
    """A tuning config from a mapping, whose paths are relative to the working directory."""
    return resolve_tune(Document(plain_copy(mapping, source), source), Path.cwd())


def space_names() -> list[str]:
    """Algorithms with a shipped search space."""
    return sorted(path.stem for path in _spaces().glob("*.yaml"))


def shipped_space(name: str) -> dict[str, dict[str, Any]]:
    """`ranges` and `sweep` of a shipped search space."""
    if name not in space_names():
        raise ConfigError(
            f"no search space '{name[:80]}'{did_you_mean(name, space_names())} (there are {', '.join(space_names())}); "
            "write `space: none` and your own `ranges`"
        )
    return read_yaml(_spaces() / f"{name}.yaml")


def _spaces() -> Path:
    return Path(str(resources.files("rl_training") / "search_spaces"))


def _with_scheduler(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree whose scheduler has the metric and direction of the search, and no pruner beside it, unless it says so."""
    scheduler = tree.get("scheduler")
    if not isinstance(scheduler, dict):
        return tree
    own = {name: tree[name] for name in ("metric", "direction") if name in tree}
    return {"pruner": "none", **tree, "scheduler": {**own, **scheduler}}


def resolve_tune(document: Document, folder: Path) -> TuneConfig:
    """A tuning file as read, checked; `folder` is where its paths start."""
    check_kind(document, "tune")
    tune: TuneConfig | None
    tune, problems = check(TuneConfig, _with_scheduler(with_sections(document.tree)), lambda value: value)
    raise_problems(located(problem, {}, document.source) for problem in problems)
    assert tune is not None
    own: dict[str, dict[str, Any]] = {kind: document.tree.get(kind) or {} for kind in ("ranges", "sweep")}
    if tune.space != NO_SPACE:
        algo = tune.space or load_config(find_sweep_base(tune.base_config, folder).path).algo
        given = {canonical_key(key) for keys in own.values() for key in keys}
        own = {
            kind: {**{key: value for key, value in values.items() if key not in given}, **own[kind]}
            for kind, values in shipped_space(algo).items()
        }
    tree = {"base_config": tune.base_config, "num_trials": tune.num_trials, "seeds": list(tune.seeds), **own}
    sweep = resolve_sweep(dataclasses.replace(document, tree=tree), folder)
    if "seed" in sweep.sweep or "seed" in sweep.ranges:
        raise ConfigError(f"{document.source}: a seed is not tuned; name the seeds of every trial in 'seeds'")
    return dataclasses.replace(
        tune,
        base_config=sweep.base_config,
        space=NO_SPACE,
        ranges=sweep.ranges,
        sweep=sweep.sweep,
        executor=tune.executor if "executor" in document.tree else sweep.executor,
    )
