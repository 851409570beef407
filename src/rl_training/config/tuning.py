"""Tuning files: a config to start from, the space to search around it, and how. Read and checked whole.

The space is written as in sweep files, `ranges` and lists, on top of the one that ships for the algorithm.
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
from rl_training.config.schema import CONFIG_VERSION, MAX_SEED, SECTION
from rl_training.config.sweeps import MAX_TRIALS, RangeConfig, find_sweep_base, resolve_sweep
from rl_training.config.validation import check, located, raise_problems
from rl_training.config.yaml_reader import Document, plain_copy, read_yaml
from rl_training.hparams.base import Json, check_range
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

SAMPLERS = ("tpe", "random", "qmc", "gp", "cmaes")
PRUNERS = ("wilcoxon", "median", "none")
NO_SPACE = "none"


@dataclass(frozen=True)
class TuneConfig:
    """A search for good hyperparameters; each trial is one set of values, scored over several seeds."""

    __pydantic_config__ = SECTION

    base_config: str
    """Config file or preset that the search starts from."""
    space: str | None = None
    """Search space that ships with the package, by algorithm; null takes that of the base, none takes only the keys
    below."""
    ranges: Mapping[str, RangeConfig] = field(default_factory=dict)
    """Dotted key to the range that it is searched in."""
    sweep: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """Dotted key to the values that are tried."""
    num_trials: int = 50
    """Trials, pruned ones included."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds of every trial, in this order; a trial that is clearly worse is ended before the last."""
    draw_seed: int = 0
    """Seed of the sampler."""
    sampler: Literal["tpe", "random", "qmc", "gp", "cmaes"] = "tpe"
    """How the next values are chosen, by Optuna's name."""
    pruner: Literal["wilcoxon", "median", "none"] = "wilcoxon"
    """When a trial is ended early: wilcoxon compares it with the best one seed by seed."""
    metric: str = "reward"
    """What is tuned: reward, loss, or any metric of the end of a run."""
    aggregate: Literal["iqm", "mean", "median", "min", "max"] = "iqm"
    """What the scores of a trial's seeds become."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether high or low is good."""
    parallel_jobs: int = 1
    """Trials side by side."""
    retries: int = 0
    """How often a run that failed is tried again."""
    version: int = CONFIG_VERSION
    """Version of this layout."""

    def __post_init__(self) -> None:
        check_range(self, "parallel_jobs", low=1, high=1024)
        check_range(self, "num_trials", low=1, high=MAX_TRIALS)
        check_range(self, "draw_seed", low=0, high=MAX_SEED)
        check_range(self, "retries", low=0, high=1000)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError("seeds needs one or more seeds, each once")


def is_tune_file(path: str | Path) -> bool:
    """True for a file with `base_config` and something that only tuning knows."""
    keys = find_config(path).read().tree.keys()
    return "base_config" in keys and not keys.isdisjoint(TUNE_KEYS)


def load_tune(path: str | Path) -> TuneConfig:
    """A tuning file: its whole space under canonical keys, every end of a range and every value checked."""
    found = find_config(path)
    return resolve_tune(found.read(), found.path.parent)


def parse_tune(mapping: Mapping[str, Any], *, source: str = "tuning") -> TuneConfig:
    """The same from a mapping, whose paths start at the working directory."""
    return resolve_tune(Document(plain_copy(mapping, source), source), Path.cwd())


def space_names() -> list[str]:
    """Algorithms that have a search space."""
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


def resolve_tune(document: Document, folder: Path) -> TuneConfig:
    """A tuning file as read, checked; `folder` is where its paths start."""
    check_kind(document, "tune")
    tune: TuneConfig | None
    tune, problems = check(TuneConfig, document.tree, lambda value: value)
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
        tune, base_config=sweep.base_config, space=NO_SPACE, ranges=sweep.ranges, sweep=sweep.sweep
    )
