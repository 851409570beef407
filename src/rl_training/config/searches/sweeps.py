"""Sweep files: a base config and what the trials change; parsed, fully checked, and expanded into trials.

Three kinds: a grid (`sweep` alone: all combinations), a random search (`num_trials` draws from the lists of `sweep` and
from `ranges`), a list (`trials`, written out). No user code is imported.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config.aliases import Origin, canonical_key, merged
from rl_training.config.files import ConfigFile, check_kind, find_base, find_config, is_sweep, with_bases
from rl_training.config.resolution import check_tree, is_builtin, merged_layer, resolve
from rl_training.config.schema import CONFIG_VERSION, SECTION
from rl_training.config.searches.schedulers import SchedulerConfig
from rl_training.config.sections.executor import ExecutorConfig, executor_section
from rl_training.config.validation import check, located, raise_problems
from rl_training.config.yaml_reader import Document, plain_copy
from rl_training.hparams.base import Json, check_range
from rl_training.seeding import MAX_SEED, stream
from rl_training.types import ConfigError

MAX_SWEEP_VALUES = 2000
MAX_TRIALS = 10_000
MAX_DRAWS = 100
"""Attempts to draw a trial that is not a duplicate; after that the values count as exhausted."""
DIGITS = 6
"""Significant digits of a drawn number, few enough to be typed again."""


@dataclass(frozen=True)
class RangeConfig:
    """A range of numbers for random search."""

    __pydantic_config__ = SECTION

    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    log: bool = False
    """Draw log-uniformly: every order of magnitude is equally likely."""
    integer: bool = False
    """Draw integers, both bounds included."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"high must be greater than low, not {self.high!r}")
        if self.log and self.low <= 0:
            raise ConfigError(f"low must be greater than 0 for a range with log, not {self.low!r}")


@dataclass(frozen=True)
class SweepConfig:
    """Many runs from one file: a base config and the values of the keys that vary."""

    __pydantic_config__ = SECTION

    base_config: str
    """Config file or preset every trial starts from."""
    sweep: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """Dotted key to its list of values; all combinations are run."""
    ranges: Mapping[str, RangeConfig] = field(default_factory=dict)
    """Dotted key to the range it is drawn from; needs `num_trials`."""
    trials: tuple[Mapping[str, Json], ...] = ()
    """Explicit list of trials, each a mapping of dotted keys to values, instead of `sweep`."""
    num_trials: int | None = None
    """Draw this many trials at random instead of running all combinations."""
    draw_seed: int = 0
    """Seed of the draws; the same file gives the same trials."""
    seeds: tuple[int, ...] = ()
    """Seeds to run every trial with; the same as the key `seed` in `sweep`."""
    parallel_jobs: int | None = None
    """Upper bound of the runs in parallel; null is one at a time on this host and as many as fit on a cluster."""
    retries: int = 0
    """How often a failed run is retried."""
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    """Where the runs are started, instead of where the base config says; a name alone, such as ray, takes its
    defaults."""
    scheduler: SchedulerConfig | None = None
    """Ends weak trials early; a name alone, such as asha, takes its defaults. Null runs every trial to its end."""
    version: int = CONFIG_VERSION
    """Version of this layout."""

    def __post_init__(self) -> None:
        check_launch_fields(self)


def check_launch_fields(section: Any) -> None:
    """Check the bounds of the fields that sweeps and tuning share."""
    check_range(section, "parallel_jobs", low=1, high=100_000)
    check_range(section, "num_trials", low=1, high=MAX_TRIALS)
    check_range(section, "draw_seed", low=0, high=MAX_SEED)
    check_range(section, "retries", low=0, high=1000)


def is_sweep_file(path: str | Path) -> bool:
    """True for a file with `base_config` and one of `sweep`, `ranges`, `trials`."""
    return is_sweep(find_config(path).read())


def load_sweep(path: str | Path) -> SweepConfig:
    """A sweep file: canonical keys, `base_config` as an absolute path or a preset, every value checked."""
    found = find_config(path)
    return resolve_sweep(found.read(), found.path.parent)


def parse_sweep(mapping: Mapping[str, Any], *, source: str = "sweep") -> SweepConfig:
    """A sweep from a mapping, whose paths are relative to the working directory; messages call it `source`."""
    return resolve_sweep(Document(plain_copy(mapping, source), source), Path.cwd())


def resolve_sweep(document: Document, folder: Path) -> SweepConfig:
    """A sweep document, checked and with canonical keys; its paths are relative to `folder`."""
    check_kind(document, "sweep")
    sweep: SweepConfig | None
    sweep, problems = check(SweepConfig, with_sections(document.tree), lambda value: value)
    raise_problems(located(problem, _lines(document), document.source) for problem in problems)
    assert sweep is not None
    try:
        base = find_sweep_base(sweep.base_config, folder)
    except ConfigError as error:
        raise ConfigError(f"{document.source}: base_config {error}") from None
    documents = with_bases(base.read(), base.path)
    cfg = resolve(documents)  # problems of the base are reported as such
    tree = merged_layer(documents, {}).tree
    own = not is_builtin(tree)
    raise_problems([*_structure_problems(sweep, document), *_value_problems(sweep, tree, document)])
    name = base.label.removeprefix("preset ") if base.label.startswith("preset ") else str(base.path)
    return dataclasses.replace(
        sweep,
        base_config=name,
        sweep=_canonical(sweep.sweep, own),
        ranges=_canonical(sweep.ranges, own),
        trials=tuple(_canonical(trial, own) for trial in sweep.trials),
        executor=sweep.executor if "executor" in document.tree else cfg.executor,
    )


def with_sections(tree: dict[str, Any]) -> dict[str, Any]:
    """`executor: ray:ADDRESS` and `scheduler: asha` of a file spelt out as sections."""
    name, scheduler = tree.get("executor"), tree.get("scheduler")
    tree = {**tree, "executor": executor_section(name)} if isinstance(name, str) else tree
    return {**tree, "scheduler": {"type": scheduler}} if isinstance(scheduler, str) else tree


def trials_of(sweep: SweepConfig) -> list[dict[str, Json]]:
    """The changes of each trial, by dotted key; without `seed` if all trials run with the same seeds."""
    lists = {key: values for key, values in sweep.sweep.items() if key != "seed"}
    if sweep.trials:
        return [dict(trial) for trial in sweep.trials]
    if sweep.num_trials is None:
        count = math.prod(map(len, lists.values()))
        if count > MAX_TRIALS:
            raise ConfigError(f"a sweep of {count} trials is too large (at most {MAX_TRIALS}); give num_trials")
        return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    trials: list[dict[str, Json]] = []
    known: set[str] = set()
    for number in range(sweep.num_trials):
        rng = stream(sweep.draw_seed, "sweep", number)
        for _ in range(MAX_DRAWS):
            chosen = {key: values[int(rng.integers(len(values)))] for key, values in lists.items()}
            drawn = chosen | {key: _drawn(bounds, rng.random()) for key, bounds in sweep.ranges.items()}
            if (text := json.dumps(drawn)) not in known:
                known.add(text)
                trials.append(drawn)
                break
    return trials


def seeds_of(sweep: SweepConfig) -> tuple[int, ...]:
    """The seeds of every trial; empty if only the seed of the base config is used."""
    return sweep.seeds or tuple(sweep.sweep.get("seed", ()))


def _drawn(bounds: RangeConfig, share: float) -> int | float:
    """The number at a fraction (0 to 1) of a range."""
    low, high = bounds.low, bounds.high + (1 if bounds.integer else 0)
    value = low * (high / low) ** share if bounds.log else low + (high - low) * share
    return min(math.floor(value), int(bounds.high)) if bounds.integer else float(f"{value:.{DIGITS}g}")


def _canonical(values: Mapping[str, Any], own_hparams: bool) -> dict[str, Any]:
    return {canonical_key(key, own_hparams=own_hparams): value for key, value in values.items()}


def _lines(document: Document) -> dict[tuple[str, ...], Origin]:
    return {path: Origin(f"{document.source}:{line}", ".".join(path)) for path, line in document.lines.items()}


def find_sweep_base(base: str, folder: Path) -> ConfigFile:
    """The base config of a sweep: found like the base of a config, and last as a path from the working directory."""
    try:
        return find_base(base, folder)
    except ConfigError:
        if os.path.isfile(base):
            return find_config(base)
        raise


def _structure_problems(sweep: SweepConfig, document: Document) -> list[str]:
    """Messages about keys of a sweep that exclude or require each other."""
    has_keys = bool(sweep.sweep or sweep.ranges)
    found = []
    if not has_keys and not sweep.trials:
        found.append("'sweep' has no keys")
    if has_keys and sweep.trials:
        found.append("'trials' stands for itself; drop 'sweep' and 'ranges'")
    if sweep.ranges and sweep.num_trials is None:
        found.append("'ranges' are drawn from; say how often with 'num_trials'")
    if sweep.trials and sweep.num_trials is not None:
        found.append("'num_trials' is for random draws; drop it, the trials are written out")
    if sweep.seeds and ("seed" in sweep.sweep or any("seed" in trial for trial in sweep.trials)):
        found.append("'seeds' and the key 'seed' are the same; keep one")
    seeds = seeds_of(sweep)
    if len(set(seeds)) < len(seeds):
        found.append("a seed is there twice")
    if sum(map(len, sweep.sweep.values())) > MAX_SWEEP_VALUES:
        found.append(f"'sweep' has more than {MAX_SWEEP_VALUES} values")
    return [f"{document.source}: {text}" for text in found]


def _candidates(sweep: SweepConfig) -> Iterator[tuple[tuple[str, ...], str, str, tuple[Json, ...]]]:
    """For each key that varies: its path in the file, its name in messages, the key, and the values to check."""
    for key, values in sweep.sweep.items():
        yield ("sweep", key), f"sweep.{key}", key, values
    for key, bounds in sweep.ranges.items():
        yield ("ranges", key), f"ranges.{key}", key, (_drawn(bounds, 0.0), _drawn(bounds, 1.0))
    for number, trial in enumerate(sweep.trials):
        for key, value in trial.items():
            yield ("trials",), f"trials[{number}].{key}", key, (value,)
    if sweep.seeds:
        yield ("seeds",), "seeds", "seed", sweep.seeds


def _value_problems(sweep: SweepConfig, tree: dict[str, Any], document: Document) -> list[str]:
    """Messages about the keys, and about each value when it alone is put into the base config."""
    lines: list[str] = []
    first: dict[tuple[str, str], str] = {}
    own = not is_builtin(tree)
    for written, spelt, key, values in _candidates(sweep):
        line = document.lines.get(written)
        place = f"{document.source}:{line}" if line else document.source
        meant = canonical_key(key, own_hparams=own)
        trial = spelt.partition(".")[0] if written == ("trials",) else "all"
        if (trial, meant) in first:
            lines.append(f"{place}: '{spelt}' and '{first[trial, meant]}' are both '{meant}'; keep one")
        first.setdefault((trial, meant), spelt)
        if not values:
            lines.append(f"{place}: '{spelt}' has no values")
        path = tuple(meant.split("."))
        for value in values[:MAX_SWEEP_VALUES]:
            at_key: Any = value
            for part in reversed(path):
                at_key = {part: at_key}
            _, problems = check_tree(merged(tree, at_key))
            origins = {path: Origin(place, spelt)}
            lines += [located(problem, origins, place) for problem in problems if _is_prefix(problem.path, path)]
    return lines


def _is_prefix(one: tuple[str | int, ...], other: tuple[str, ...]) -> bool:
    """True if either of two paths is a prefix of the other."""
    return all(a == b for a, b in zip(one, other, strict=False))
