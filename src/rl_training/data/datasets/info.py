"""What is known about a dataset beside its columns: where it comes from, what its actions mean, reference scores."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from rl_training.runs.spaces import Spaces, plain_space, space_of
from rl_training.types import ConfigError

ActionScale = Literal["unit", "env"]


class DatasetError(ConfigError):
    """A dataset that is missing, damaged, or does not fit; the message names the file and the column."""


@dataclass(frozen=True)
class DatasetInfo:
    """The record that `dataset.json` holds, typed; the checksums of its columns stand beside it."""

    env_id: str
    """The environment that the transitions come from."""
    spaces: Spaces
    """Observation and action space."""
    action_scale: ActionScale = "env"
    """unit: Box actions are in -1..1, as actors give them; env: they are what the environment received."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """The `env` section of the config that built the environment."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Who acted: run, checkpoint, algorithm, and how it chose its actions."""
    seed: int | None = None
    """Root of the recording's random streams; None where nothing was recorded anew."""
    ref_min: float | None = None
    """Return that counts as a score of 0."""
    ref_max: float | None = None
    """Return that counts as a score of 100."""
    reference: str = ""
    """How the two were measured."""
    author: str = ""
    licence: str = ""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        plain = {name: value for name, value in asdict(self).items() if name != "spaces"}
        observation, action = self.spaces
        return {**plain, "spaces": {"observation": plain_space(observation), "action": plain_space(action)}}

    def facts_sha256(self) -> str:
        """SHA-256 of what the columns mean: environment, spaces, scale of the actions, reference scores. Who made the
        dataset and under which licence may be put right by hand."""
        record = self.to_json()
        facts = {name: record[name] for name in ("env_id", "spaces", "action_scale", "ref_min", "ref_max")}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, record: Any) -> DatasetInfo:
        """The inverse of `to_json`; ValueError, TypeError or KeyError for anything else."""
        spaces = space_of(record["spaces"]["observation"]), space_of(record["spaces"]["action"])
        if record["action_scale"] not in ("unit", "env"):
            raise ValueError(f"action_scale {record['action_scale']!r}")
        texts = {name: str(record.get(name, "")) for name in ("reference", "author", "licence")}
        return cls(
            env_id=str(record["env_id"]),
            spaces=spaces,
            action_scale=cast(ActionScale, record["action_scale"]),
            env=dict(record.get("env") or {}),
            policy=dict(record.get("policy") or {}),
            seed=None if record.get("seed") is None else int(record["seed"]),
            ref_min=_number(record.get("ref_min")),
            ref_max=_number(record.get("ref_max")),
            **texts,
        )


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"a reference score of {number}")
    return number


def check_facts(info: DatasetInfo, record: Mapping[str, Any], where: str) -> None:
    """DatasetError where the record of a dataset was changed; older ones have no checksum of their own."""
    if record.get("facts_sha256", info.facts_sha256()) != info.facts_sha256():
        raise DatasetError(
            f"{where} was changed: environment, spaces, action_scale and reference scores are not those it was written "
            "with (facts_sha256); copy the dataset again, or record it anew"
        )
