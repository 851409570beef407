"""A dataset in memory or mapped from files: columns of transitions, episode after episode.

Observations have one row more than transitions per episode, its final observation, so that the next observation of row
r of episode e is observation r + e + 1: every observation is stored once. An episode here is a run of consecutive
steps; one that begins or ends in the middle (the oldest and newest rows of a replay buffer) is not `whole`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rl_training.data.datasets.info import DatasetError, DatasetInfo
from rl_training.numerics.encoding import from_bounds
from rl_training.types import Array, BoxSpec, DictSpec, LeafSpec, Obs

CHUNK = 1 << 16
"""Rows that are looked at together where a column need not be in memory as a whole."""
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Dataset:
    """R transitions in E episodes; any column may be mapped from a file."""

    info: DatasetInfo
    observations: Obs
    """(R + E, ...): T + 1 rows for each episode of T steps."""
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    starts: Array
    """(E,): the row that each episode begins with."""
    seeds: Array
    """(E,): the seed that each episode was reset with, -1 where it is unknown."""
    whole: Array
    """(E,): whether the episode is complete, from a reset to its end."""

    def __len__(self) -> int:
        return len(self.rewards)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def episodes(self) -> Array:
        """(E, 2): the row that each episode begins with, and the row behind its last."""
        return np.stack([self.starts, np.append(self.starts[1:], len(self))], axis=1)

    @cached_property
    def places(self) -> Array:
        """(R,): where each row's observation is; the next observation is one further on."""
        lengths = np.diff(np.append(self.starts, len(self)))
        places: Array = np.arange(len(self)) + np.repeat(np.arange(len(self.starts)), lengths)
        return places

    def obs_of(self, rows: Array) -> Obs:
        """Observations of rows, copied."""
        return self._observed(self.places[rows])

    def next_obs_of(self, rows: Array) -> Obs:
        """What followed the rows: the final observation where an episode ended."""
        return self._observed(self.places[rows] + 1)

    def _observed(self, index: Array) -> Obs:
        if isinstance(self.observations, dict):
            return {key: leaf.take(index, axis=0) for key, leaf in self.observations.items()}
        return self.observations.take(index, axis=0)

    def columns(self) -> dict[str, Any]:
        """Every transition as arrays of R rows: obs actions rewards next_obs terminated truncated. Observations are
        copied; use `obs_of` for a few rows."""
        rows = np.arange(len(self))
        return {
            "obs": self.obs_of(rows),
            "actions": self.actions,
            "rewards": self.rewards,
            "next_obs": self.next_obs_of(rows),
            "terminated": self.terminated,
            "truncated": self.truncated,
        }

    def unit_actions(self) -> Array:
        """Actions as actors give them: Box actions in -1..1 as float32, others as they are."""
        space = self.info.spaces[1]
        if not isinstance(space, BoxSpec):
            return np.asarray(self.actions)
        if self.info.action_scale == "unit":
            return np.asarray(self.actions, np.float32)
        if not space.is_bounded:
            raise DatasetError(f"the actions of '{self.info.env_id}' have no bounds, so they cannot be scaled to -1..1")
        scaled: Array = np.clip(from_bounds(space, self.actions), -1.0, 1.0)
        return scaled

    # -- episodes -----------------------------------------------------------------------------------------------------

    @cached_property
    def returns(self) -> Array:
        """(E,): sums of rewards, of whole episodes and others alike."""
        if not len(self):
            return np.zeros(0)
        sums: Array = np.add.reduceat(np.asarray(self.rewards, np.float64), self.starts)
        return sums

    @property
    def lengths(self) -> Array:
        """(E,): steps of each episode."""
        return np.diff(np.append(self.starts, len(self)))

    @cached_property
    def ends_known(self) -> Array:
        """(E,): whether an episode went on to its end, so that its returns from any row on are known. One that has a
        beginning (the seed of its reset) and is not whole was cut off by whoever recorded it."""
        last = self.episodes()[:, 1] - 1
        known: Array = (self.terminated[last] | self.truncated[last]) & (self.whole | (self.seeds < 0))
        return known

    def score(self, returns: Any) -> Array:
        """Normalised scores: 0 for the return of the random policy, 100 for that of the reference."""
        low, high = self.info.ref_min, self.info.ref_max
        if low is None or high is None:
            raise DatasetError(f"this dataset of '{self.info.env_id}' has no reference scores")
        if high <= low:
            raise DatasetError(
                f"this dataset of '{self.info.env_id}' has no scores: its reference policy returns {high:g}, not more "
                f"than random actions ({low:g})"
            )
        scores: Array = 100.0 * (np.asarray(returns, np.float64) - low) / (high - low)
        return scores

    @property
    def has_scores(self) -> bool:
        """Whether there are reference scores, the policy's above that of random actions: else better would be less."""
        low, high = self.info.ref_min, self.info.ref_max
        return low is not None and high is not None and low < high

    def select(self, episodes: Array) -> Dataset:
        """Only these episodes, in this order, in memory."""
        bounds = self.episodes()[episodes]
        rows = _ranges(bounds[:, 0], bounds[:, 1])
        observed = _ranges(bounds[:, 0] + episodes, bounds[:, 1] + episodes + 1)
        lengths = bounds[:, 1] - bounds[:, 0]
        return replace(
            self,
            observations=self._observed(observed),
            **{name: getattr(self, name)[rows] for name in ("actions", "rewards", "terminated", "truncated")},
            starts=np.cumsum(lengths) - lengths,
            seeds=self.seeds[episodes],
            whole=self.whole[episodes],
        )

    # -- identity -----------------------------------------------------------------------------------------------------

    def stored(self) -> dict[str, Array]:
        """The columns as they are stored, by name; an observation of a Dict is "obs.key"."""
        observed = self.observations
        parts = {f"obs.{key}": leaf for key, leaf in observed.items()} if isinstance(observed, dict) else None
        return {
            **(parts or {"obs": observed}),  # type: ignore[dict-item]
            "actions": self.actions,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "episode_starts": self.starts,
            "episode_seeds": self.seeds,
            "episode_whole": self.whole,
        }

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every column: of its dtype, its shape and its values."""
        return {name: digest(column) for name, column in self.stored().items()}

    @property
    def sha256(self) -> str:
        """One SHA-256 for all columns and the environment: equal for equal transitions."""
        return combined(self.digests, self.info.env_id)


def digest(column: Array) -> str:
    """SHA-256 of an array."""
    total = hashlib.sha256(f"{column.dtype.str}{column.shape}".encode())
    for start in range(0, len(column), CHUNK):
        total.update(np.ascontiguousarray(column[start : start + CHUNK]).tobytes())
    return total.hexdigest()


def combined(digests: Mapping[str, str], env_id: str) -> str:
    """One checksum from those of the columns."""
    text = "\n".join([env_id, *(f"{name} {value}" for name, value in sorted(digests.items()))])
    return hashlib.sha256(text.encode()).hexdigest()


def _ranges(begins: Array, ends: Array) -> Array:
    """The whole numbers of all ranges [begin, end), one after the other."""
    parts = [np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


# -- making one -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """One episode, or a part of one, as arrays: T + 1 observations, T of everything else."""

    observations: Obs
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    seed: int = -1
    whole: bool = True


def joined(info: DatasetInfo, episodes: Sequence[Steps]) -> Dataset:
    """Episodes as one dataset."""
    if not episodes:
        raise DatasetError(f"no transitions of '{info.env_id}' to make a dataset of")
    lengths = np.array([len(steps.rewards) for steps in episodes])
    first = episodes[0].observations
    observations: Obs
    if isinstance(first, dict):
        parts = [steps.observations for steps in episodes]
        observations = {key: np.concatenate([part[key] for part in parts]) for key in first}
    else:
        observations = np.concatenate([steps.observations for steps in episodes])
    columns = {
        name: np.concatenate([getattr(steps, name) for steps in episodes])
        for name in ("actions", "rewards", "terminated", "truncated")
    }
    return Dataset(
        info,
        observations,
        **columns,
        starts=np.cumsum(lengths) - lengths,
        seeds=np.array([steps.seed for steps in episodes], np.int64),
        whole=np.array([steps.whole for steps in episodes], np.bool_),
    )


# -- checking ---------------------------------------------------------------------------------------------------------


def check_forms(data: Dataset, where: str) -> None:
    """DatasetError where a column lacks the dtype or the shape that the spaces and the other columns ask for."""
    observation, action = data.info.spaces
    rows, episodes = len(data.rewards), len(data.starts)
    wanted: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    leaves: Mapping[str, LeafSpec] = observation.spaces if isinstance(observation, DictSpec) else {"": observation}
    for key, leaf in leaves.items():
        name = f"obs.{key}" if isinstance(observation, DictSpec) else "obs"
        wanted[name] = ((leaf.dtype.name,), (rows + episodes, *leaf.shape))
    if isinstance(action, DictSpec):
        raise DatasetError(f"'{where}': Dict actions are not supported")
    unit = isinstance(action, BoxSpec) and data.info.action_scale == "unit"
    wanted["actions"] = (("float32",) if unit else (action.dtype.name,), (rows, *action.shape))
    wanted["rewards"] = (FLOATS, (rows,))
    wanted |= dict.fromkeys(("terminated", "truncated"), (("bool",), (rows,)))
    wanted |= dict.fromkeys(("episode_starts", "episode_seeds"), (("int64",), (episodes,)))
    wanted["episode_whole"] = (("bool",), (episodes,))
    found = data.stored()
    if found.keys() != wanted.keys():
        raise DatasetError(f"'{where}' has the columns {sorted(found)}, its spaces need {sorted(wanted)}")
    for name, (dtypes, shape) in wanted.items():
        column = found[name]
        if column.dtype.name not in dtypes or column.shape != shape:
            raise DatasetError(
                f"'{where}': column '{name}' is {column.dtype}{list(column.shape)}, it must be "
                f"{' or '.join(dtypes)}{list(shape)}"
            )
    starts = data.starts
    rising = episodes and starts[0] == 0 and bool((np.diff(np.append(starts, rows)) > 0).all())
    if not rising:
        raise DatasetError(f"'{where}': column 'episode_starts' does not rise from 0 to below {rows}")


def check_values(data: Dataset, where: str) -> None:
    """DatasetError where a value is NaN or infinite, or an action lies outside its space."""
    for name, column in data.stored().items():
        if column.dtype.kind != "f":
            continue
        for start, part in chunks(column):
            bad = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(1))
            if bad.size:
                raise DatasetError(f"'{where}': column '{name}' is not finite in row {start + int(bad[0]):,}")
    _check_discrete(data, where)


def _check_discrete(data: Dataset, where: str) -> None:
    action = data.info.spaces[1]
    if isinstance(action, BoxSpec | DictSpec) or not len(data):
        return
    limit = np.asarray(getattr(action, "nvec", None) or (2 if action.dtype == np.int8 else action.n))  # type: ignore[union-attr]
    for start, part in chunks(data.actions):
        bad = np.flatnonzero(~((part >= 0) & (part < limit)).reshape(len(part), -1).all(1))
        if bad.size:
            raise DatasetError(f"'{where}': column 'actions' has row {start + int(bad[0]):,} outside the action space")


def chunks(column: Array) -> Iterator[tuple[int, Array]]:
    """A column piece by piece, with the number of each first row."""
    for start in range(0, len(column), CHUNK):
        yield start, np.asarray(column[start : start + CHUNK])
