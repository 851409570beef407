"""Several datasets of one environment as one, and the best episodes of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetError
from rl_training.runs.spaces import describe, fits
from rl_training.types import Array


def merged(parts: Sequence[Dataset], names: Sequence[str]) -> Dataset:
    """All episodes, in order. Reference scores are kept where all parts have the same."""
    first = parts[0].info
    for data, name in zip(parts[1:], names[1:], strict=True):
        if data.info.env_id != first.env_id:
            raise DatasetError(f"'{name}' is of environment '{data.info.env_id}', '{names[0]}' of '{first.env_id}'")
        for what, mine, other in zip(("observation", "action"), first.spaces, data.info.spaces, strict=True):
            if not fits(mine, other, bounds=what == "action"):
                raise DatasetError(f"'{name}' has the {what} space {describe(other)}, '{names[0]}' {describe(mine)}")
    scales = {data.info.action_scale for data in parts}
    references = {(data.info.ref_min, data.info.ref_max) for data in parts}
    info = replace(first, policy={"merged": [data.sha256 for data in parts]}, seed=None)
    author, licence = (joined_text(getattr(data.info, name) for data in parts) for name in ("author", "licence"))
    info = replace(info, author=author, licence=licence)
    if len(references) > 1:
        info = replace(info, ref_min=None, ref_max=None, reference="")
    if len(scales) > 1:
        info = replace(info, action_scale="unit")
    return joined(info, [steps for data in parts for steps in episodes_of(data, unit=len(scales) > 1)])


def joined_text(texts: Iterable[str]) -> str:
    """Different texts, the empty ones left out.

    >>> joined_text(["A", "", "B", "A"])
    'A; B'
    """
    return "; ".join(dict.fromkeys(each for each in texts if each))


def episodes_of(data: Dataset, *, unit: bool) -> list[Steps]:
    """The episodes of a dataset, with actions in -1..1 where `unit`, rewards as float64."""
    actions, rewards = data.unit_actions() if unit else data.actions, np.asarray(data.rewards, np.float64)
    found = []
    for number, (begin, end) in enumerate(data.episodes()):
        rows, seen = slice(begin, end), slice(begin + number, end + number + 1)
        obs = data.observations
        found.append(
            Steps(
                {key: leaf[seen] for key, leaf in obs.items()} if isinstance(obs, dict) else obs[seen],
                actions[rows],
                rewards[rows],
                data.terminated[rows],
                data.truncated[rows],
                seed=int(data.seeds[number]),
                whole=bool(data.whole[number]),
            )
        )
    return found


def best_episodes(returns: Array, fraction: float, whole: Array) -> Array:
    """Numbers of the best `fraction` of the whole episodes, in order; at least one, the earlier one where returns are
    equal. The return of an episode that begins or ends in the middle is not comparable (with negative rewards it looks
    better than it is): such episodes are ranked only where none is whole.

    >>> best_episodes(np.array([3.0, 9.0, 9.0, 1.0]), 0.5, np.ones(4, bool)).tolist()
    [1, 2]
    >>> best_episodes(np.array([-3.0, -9.0, -2.0, -0.1]), 0.5, np.array([True, True, True, False])).tolist()
    [0, 2]
    """
    ranked = np.flatnonzero(whole) if whole.any() else np.arange(len(returns))
    count = max(math.ceil(fraction * len(ranked) - 1e-9), 1)
    return np.sort(ranked[np.argsort(-returns[ranked], kind="stable")[:count]])
