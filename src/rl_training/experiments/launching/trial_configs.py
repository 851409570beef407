"""Configs of the trials of a sweep: checked one by one, and stored as one base plus the values of each trial.

Only where a trial differs from the base in more than its values (another algorithm, with other defaults) it is stored
whole. The full config of every run is in its run directory as soon as it starts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.config.loading import ConfigLayers, ResolvedConfig, parse_override_value, read_config
from rl_training.config.searches.sweeps import SweepConfig, seeds_of
from rl_training.experiments.launching.member import Member
from rl_training.runs.description import public_config, public_sha256
from rl_training.runs.redaction import Redactor, with_secrets
from rl_training.runs.stored_config import StoredConfig
from rl_training.types import ConfigError

MAX_RUNS = 100_000
REFERENCE = "${env:"
_ABSENT = object()


@dataclass(frozen=True)
class PlannedConfig(StoredConfig):
    """The config of a trial that has no file of its own: made here if the base and the values of the trials were."""

    sealed: bool = False

    @property
    def is_own(self) -> bool:
        return self.sealed


@dataclass
class TrialPlan:
    """What a new sweep stores."""

    base: dict[str, Any]
    values: list[dict[str, Any]] = field(default_factory=list)
    """The values of each trial, by dotted key."""
    totals: list[int] = field(default_factory=list)
    """Env steps of each trial."""
    whole: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The trials that are stored whole."""
    members: list[Member] = field(default_factory=list)


def plan_trials(
    sweep: SweepConfig,
    overrides: Mapping[str, Any],
    seeds: Sequence[int],
    trials: Sequence[Mapping[str, Any]],
    redactor: Redactor,
) -> TrialPlan:
    """Check every trial and freeze it. One at a time: ten thousand configs would fill the memory."""
    layers = read_config(sweep.base_config)
    resolved = _trial_configs(layers, overrides, trials)
    try:
        base = public_config(_checked(layers, overrides, {}), redactor)
    except ConfigError:  # the base alone may lack what every trial gives
        base = public_config(_checked(layers, overrides, trials[0] if trials else {}), redactor)
    plan = TrialPlan(base)
    for number, (trial, one) in enumerate(zip(trials, resolved, strict=True)):
        tree = public_config(one, redactor)
        if tree["output_dir"] != base["output_dir"]:
            raise ConfigError("the runs of a sweep lie in one output_dir; it cannot be swept")
        frozen = frozen_values(base, tree, trial)
        if frozen is None:
            plan.whole[number] = tree
        plan.values.append(redactor.mapping(trial) if frozen is None else frozen)
        plan.totals.append(one.config.training.budget)
        plan.members += [
            Member(seed, public_sha256({**tree, "seed": seed}), trial=number)
            for seed in (seeds or seeds_of(sweep) or [tree["seed"]])
        ]
        if len(plan.members) > MAX_RUNS:
            raise ConfigError(f"a sweep of more than {MAX_RUNS} runs is too large")
    return plan


def frozen_values(base: dict[str, Any], tree: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a trial as its checked config has them; None if they do not make that config out of the base."""
    values = {key: _value_at(tree, key) for key in trial}
    if _ABSENT in values.values() or with_values(base, values) != tree:
        return None
    is_typable = all(_reads_back(key, value) for key, value in values.items() if key != "seed")
    return values if is_typable else None


def with_values(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config mapping with values at dotted keys.

    >>> with_values({"hparams": {"gamma": 0.9}, "seed": 0}, {"hparams.gamma": 0.99})
    {'hparams': {'gamma': 0.99}, 'seed': 0}
    """
    tree = dict(base)
    for key, value in values.items():
        *folders, leaf = key.split(".")
        here = tree
        for name in folders:
            below = here.get(name)
            here[name] = dict(below) if isinstance(below, Mapping) else {}
            here = here[name]
        here[leaf] = copy.deepcopy(value)
    return tree


def flag_text(key: str, value: Any) -> str:
    """A value of a config as the text of its flag."""
    if isinstance(value, str):
        return value if parse_override_value(value, key) == value else json.dumps(value)
    return json.dumps(value)


def _reads_back(key: str, value: Any) -> bool:
    """Whether a value survives being a flag of a command line."""
    try:
        return bool(parse_override_value(flag_text(key, value), key) == value)
    except ConfigError:
        return False


def _value_at(tree: Mapping[str, Any], key: str) -> Any:
    here: Any = tree
    for name in key.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return _ABSENT
        here = here[name]
    return here


def _trial_configs(
    base: ConfigLayers, overrides: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]
) -> Iterator[ResolvedConfig]:
    for number, trial in enumerate(trials):
        try:
            yield _checked(base, overrides, trial)
        except ConfigError as error:
            raise ConfigError(f"trial {number} ({', '.join(trial)}): {error}") from None


def _checked(base: ConfigLayers, overrides: Mapping[str, Any], trial: Mapping[str, Any]) -> ResolvedConfig:
    """What a trial trains, references as they are; a value that fits the base alone may still not fit beside the
    others of its trial, or a variable not be set."""
    resolved = base.resolve({**overrides, **trial})
    if REFERENCE in json.dumps(resolved.mapping):
        with_secrets(resolved.config)
    return resolved
