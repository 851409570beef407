"""What the commands say about a dataset, and how they write one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rl_training.cli.flags import text
from rl_training.cli.output import bold, print_json, show
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.data.datasets.dataset import Dataset

BINS = 10
"""Bins of a histogram of actions."""


def number_in(typed: str) -> float:
    """A number as it was typed; NaN for anything else."""
    try:
        return float(typed)
    except ValueError:
        return float("nan")


def check_target(where: str) -> None:
    """DatasetError where no dataset can be written, before time is spent on making one."""
    from rl_training.data.datasets.info import DatasetError
    from rl_training.data.datasets.minari_file import MINARI, check_new
    from rl_training.data.datasets.native import check_folder
    from rl_training.data.datasets.npz_file import check_file
    from rl_training.data.datasets.opening import FLAT_FILES

    path = Path(where)
    if where.startswith(MINARI):
        check_new(where)
        return
    if path.suffix in FLAT_FILES:
        raise DatasetError(f"'{where}': HDF5 files are only read; name a folder, a file ending in .npz, or minari:ID")
    if path.suffix == ".npz":
        check_file(path)
    else:
        check_folder(path)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise DatasetError(f"'{where}' cannot be written: '{above}' is no folder you may write to; name another place")


class Signed(Protocol):
    """Options that say whose a dataset is."""

    @property
    def author(self) -> str | None: ...
    @property
    def licence(self) -> str | None: ...


def author_flag() -> str | None:
    return text("who made the dataset, as dataset.json says it", "NAME")


def licence_flag() -> str | None:
    return text("licence of the dataset, as dataset.json says it", "NAME")


def signed(data: Dataset, options: Signed) -> Dataset:
    """The dataset with the author and the licence that were given; others stay."""
    given = {name: value for name in ("author", "licence") if (value := getattr(options, name)) is not None}
    return replace(data, info=replace(data.info, **given))


def write_and_show(data: Dataset, where: str, *, as_json: bool) -> int:
    """Write a dataset as a folder, as an .npz file or for Minari, and describe it."""
    from rl_training.data.datasets.minari_file import MINARI, write_minari
    from rl_training.data.datasets.native import write_native
    from rl_training.data.datasets.npz_file import write_npz

    check_target(where)
    path = Path(where)
    if where.startswith(MINARI):
        from rl_training.envs.factory import spec_text

        written = write_minari(data, where, spec_text(data.info.env_id))
    else:
        written = write_npz(data, path) if path.suffix == ".npz" else write_native(data, path)
    return describe(data, str(written), as_json=as_json)


def describe(data: Dataset, where: str, *, as_json: bool) -> int:
    record = facts(data, where)
    if as_json:
        print_json(record)
        return 0
    show(bold(where))
    show(f"environment  {record['env_id']}, actions in {record['action_scale']} scale")
    whole = f"{record['whole_episodes']:,} of them whole"
    show(f"rows         {record['rows']:,} in {record['episodes']:,} episodes, {whole}")
    ends = f"{record['terminated']:,} terminated, {record['truncated']:,} truncated"
    show(f"ends         {ends}; lengths {record['length_min']:,} to {record['length_max']:,}")
    if record["return_mean"] is not None:
        names = ("return_mean", "return_std", "return_min", "return_max")
        mean, std, low, high = (number_text(record[name]) for name in names)
        show(f"returns      {mean} +- {std} ({low} to {high})")
    if record["score_mean"] is not None:
        low, high = number_text(record["ref_min"]), number_text(record["ref_max"])
        show(f"score        {record['score_mean']:.1f} (0 is a return of {low}, 100 of {high})")
    elif record["ref_min"] is not None and record["ref_max"] is not None and not data.has_scores:
        low, high = number_text(record["ref_min"]), number_text(record["ref_max"])
        show(f"score        none: the policy returns {high}, not more than random actions ({low})")
    for name, counts in record["action_histogram"].items():
        show(f"{name:<12} {' '.join(f'{count:,}' for count in counts)}")
    policy = ", ".join(f"{name} {value}" for name, value in record["policy"].items())
    show(f"policy       {policy or 'unknown'}")
    for name in ("author", "licence"):
        if record[name]:
            show(f"{name:<12} {record[name]}")
    show(f"sha256       {record['sha256']}")
    return 0


def facts(data: Dataset, where: str) -> dict[str, Any]:
    """The record that `--json` prints."""
    returns = data.returns[data.whole]
    some = bool(returns.size)
    return {
        "path": where,
        "env_id": data.info.env_id,
        "action_scale": data.info.action_scale,
        "rows": len(data),
        "episodes": len(data.starts),
        "whole_episodes": int(data.whole.sum()),
        "terminated": int(data.terminated.sum()),
        "truncated": int(data.truncated.sum()),
        "length_min": int(data.lengths.min()),
        "length_max": int(data.lengths.max()),
        "return_mean": float(returns.mean()) if some else None,
        "return_std": float(returns.std()) if some else None,
        "return_min": float(returns.min()) if some else None,
        "return_max": float(returns.max()) if some else None,
        "score_mean": float(data.score(returns).mean()) if some and data.has_scores else None,
        "ref_min": data.info.ref_min,
        "ref_max": data.info.ref_max,
        "reference": data.info.reference,
        "action_histogram": action_histogram(data),
        "policy": dict(data.info.policy),
        "seed": data.info.seed,
        "author": data.info.author,
        "licence": data.info.licence,
        "sha256": data.sha256,
    }


def action_histogram(data: Dataset) -> dict[str, list[int]]:
    """How often each action was taken; Box actions in ten equal bins between their bounds, dimension by dimension."""
    import numpy as np

    from rl_training.types import BoxSpec

    space = data.info.spaces[1]
    columns = np.asarray(data.actions).reshape(len(data), -1).T
    if not isinstance(space, BoxSpec):
        return {f"action[{i}]": np.bincount(column).tolist() for i, column in enumerate(columns)}
    if not space.is_bounded:
        return {}
    unit = data.unit_actions().reshape(len(data), -1).T
    return {f"action[{i}]": np.histogram(column, BINS, (-1.0, 1.0))[0].tolist() for i, column in enumerate(unit)}
