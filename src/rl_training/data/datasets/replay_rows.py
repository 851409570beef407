"""The replay rows of a run's checkpoint as a dataset: what the run learnt from, without stepping an environment.

The rows of several environments take turns in the ring; here each environment's are put together again and cut into
episodes. Actions are as the buffer holds them: in -1..1 for Box spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import Seal, SealCheck
from rl_training.config.resolution import config_to_mapping
from rl_training.config.schema import builtin_spec
from rl_training.data.datasets.dataset import Dataset, Steps, joined
from rl_training.data.datasets.info import DatasetError, DatasetInfo
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import read_spaces
from rl_training.types import Array, BoxSpec, CheckpointError, DictSpec, Obs, SpaceSpec, StateDict

WITHOUT_REPLAY = ("on_policy", "offline", "static")
"""Kinds of algorithms whose runs store no steps; an offline one that went on in an environment does."""


def replay_dataset(run: RunDir, checkpoint: str | int = "latest") -> Dataset:
    """The replay buffer of a checkpoint, whose rows are bit for bit those of the ring."""
    sealing = SealCheck(Seal.of(run), False)
    try:
        saved = CheckpointManager(run.path, sealing=sealing).load(checkpoint, parts={"buffer"})
    except CheckpointError as error:
        algo = run.config(secrets=False).algo
        spec = builtin_spec(algo)
        if spec is not None and spec.kind in WITHOUT_REPLAY:
            raise DatasetError(
                f"run '{run.path.name}' is of '{algo}', which has no replay buffer: record episodes with "
                f"rl record {run.path.name} --episodes N"
            ) from None
        raise DatasetError(f"run '{run.path.name}' has no replay buffer that can be read: {error}") from error
    cfg, spaces = run.config(secrets=False), read_spaces(run.path)
    if spaces is None:
        raise DatasetError(f"run '{run.path.name}' has not recorded its spaces")
    whole = saved.parts["buffer"]
    shards = [whole[f"shard_{number}"] for number in range(len(whole))] if "shard_0" in whole else [whole]
    found: list[Steps] = []
    for state in shards:  # one buffer, or that of each shard of a run with training.shards
        rows = transitions_of(state, run.path.name, spaces)
        found += episodes_of(rows, int(state["rows"].start), int(state["num_envs"]))
    policy = {"run": run.path.name, "algo": cfg.algo, "env_steps": saved.step, "how": "replay buffer"}
    info = DatasetInfo(cfg.env_id, spaces, "unit", env=config_to_mapping(cfg)["env"], policy=policy)
    return joined(info, found)


def transitions_of(state: StateDict, run: str, spaces: tuple[SpaceSpec, SpaceSpec]) -> dict[str, Array]:
    """The rows of one buffer by column, oldest first; DatasetError where they are no transitions in order of time.

    The ring of the compiled lane is always in step and skips no row, so its state says neither; its integers have 32
    bits and get the dtype of their space.
    """
    rows: dict[str, Array] = dict(state["rows"].arrays()) if "rows" in state else {}
    if "rewards" not in rows or not ("next_obs" in rows or any(name.startswith("next_obs/") for name in rows)):
        raise DatasetError(f"the buffer of run '{run}' holds no plain transitions; record episodes instead")
    if not state.get("in_step", True):
        raise DatasetError(f"the replay rows of run '{run}' are in no order of time")
    rows.setdefault("skipped", np.zeros(len(rows["rewards"]), np.bool_))
    observation, action = spaces
    dtypes: dict[str, np.dtype[Any]] = {}
    for name in ("obs", "next_obs"):
        if isinstance(observation, DictSpec):
            dtypes |= {f"{name}/{key}": leaf.dtype for key, leaf in observation.spaces.items()}
        else:
            dtypes[name] = observation.dtype
    if not isinstance(action, BoxSpec | DictSpec):  # those of Box spaces are stored in -1..1
        dtypes["actions"] = action.dtype
    return rows | {name: rows[name].astype(dtype, copy=False) for name, dtype in dtypes.items() if name in rows}


def episodes_of(rows: Mapping[str, Array], first: int, num_envs: int) -> Iterator[Steps]:
    """Runs of consecutive steps of one environment, cut where an episode ends or rows do not follow on each other.

    `first` is the number of the oldest row, counted from the first one that the buffer ever stored.
    """
    count = len(rows["rewards"])
    for env in range(num_envs):
        index = np.arange((env - first) % num_envs, count, num_envs)
        if not index.size:
            continue
        kept = ~rows["skipped"][index]
        ends = rows["terminated"][index] | rows["truncated"][index] | ~kept
        ends[:-1] |= ~same_rows(rows, index[:-1], index[1:])
        stops = np.append(np.flatnonzero(ends[:-1]) + 1, len(index))
        begins = np.append(0, stops[:-1])
        for begin, stop in zip(begins, stops, strict=True):
            part = index[begin:stop][kept[begin:stop]]
            if part.size:
                known = begin > 0 or first + int(index[0]) < num_envs
                yield steps_of(rows, part, begins_known=known)


def steps_of(rows: Mapping[str, Array], part: Array, *, begins_known: bool) -> Steps:
    """Consecutive rows as one episode; it is whole if its beginning is known and it ends by itself."""

    def observed(name: str) -> Array:
        return np.concatenate([rows[name][part], rows[f"next_{name}"][part[-1:]]])

    keys = [name for name in rows if name.startswith("obs/")]
    obs: Obs = {name.removeprefix("obs/"): observed(name) for name in keys} if keys else observed("obs")
    terminated, truncated = rows["terminated"][part], rows["truncated"][part]
    whole = begins_known and bool(terminated[-1] or truncated[-1])
    return Steps(obs, rows["actions"][part], rows["rewards"][part], terminated, truncated, whole=whole)


def same_rows(rows: Mapping[str, Array], before: Array, after: Array) -> Array:
    """Whether the next observation of each row is, bit for bit, the observation of the other."""
    same = np.ones(len(before), np.bool_)
    for name in rows:
        if name == "obs" or name.startswith("obs/"):
            one, other = rows[f"next_{name}"][before], rows[name][after]
            bits = [np.ascontiguousarray(a).reshape(len(before), -1).view(np.uint8) for a in (one, other)]
            same &= (bits[0] == bits[1]).all(1)
    return same
