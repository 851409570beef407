"""Which fields of a config decide the numbers of a run, and where two configs differ in them.

A checkpoint keeps these fields (see `checkpoint_seal`), so that a config that was edited behind its back is noticed.
Every field is in one of the two tables, by its path or that of a section around it; a test holds them to the config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_training.config.loading import config_to_mapping, parse_config
from rl_training.config.schema import CONFIG_VERSION
from rl_training.config.yaml_reader import shorten
from rl_training.types import ConfigError

SEALED: Mapping[str, str] = {
    "algo": "another algorithm learns otherwise",
    "env_id": "another environment gives other rewards",
    "seed": "the root of every random stream",
    "backend": "torch and JAX agree to rounding, not to the bit",
    "lane": "the lanes draw from other streams and save other parts",
    "plugins": "what registered names stand for",
    "env.num_envs": "the shape of every batch",
    "env.vectorization": "a native vector environment has random streams of its own; sync and async count as the same",
    "env.wrappers": "what the agent sees and earns",
    "env.kwargs": "what the agent sees and earns",
    "env.max_episode_steps": "where episodes end",
    "env.normalize_obs": "what the network sees",
    "env.normalize_reward": "what the losses see",
    "env.frame_stack": "what the network sees",
    "hparams": "how it learns",
    "network": "what it learns with",
    "buffer": "what it learns from",
    "training.eval_frequency": "which rows of the log have evaluations",
    "training.num_eval_episodes": "the scores of evaluations",
    "training.eval_lane": "the scores of evaluations",
    "training.runs_per_program": "runs in one program equal runs alone to rounding, not to the bit",
    "training.num_threads": "the order of sums, and with it the last bits",
    "callbacks": "they are called between updates and may change anything",
}
"""Fields that decide the numbers, each with the reason."""

FREE: Mapping[str, str] = {
    "output_dir": "where the run lies",
    "name": "what it is called",
    "tags": "what it is called",
    "device": "where it computes; a config that names a missing device runs on the CPU in any case",
    "strict_device": "whether to start there",
    "base": "already part of the resolved config",
    "version": "configs are compared after they were brought to the same version",
    "env.num_workers": "a run is the same with any number of workers",
    "env.step_timeout": "when a worker counts as hung",
    "env.worker_restart": "what happens after a worker failed",
    "training.total_timesteps": "the budget, which a resume may change; run.json records when it did",
    "training.total_episodes": "the budget",
    "training.stop_at_return": "the budget: when the run may end early",
    "training.stop_episodes": "the budget: when the run may end early",
    "training.eval_at_start": "a run that has begun has its row of env step 0, or never will",
    "training.checkpoint_frequency": "saving changes no number",
    "checkpoint": "which checkpoints are kept",
    "logging": "what is written and shown",
    "monitor": "alerts and checks tell, and change no number",
}
"""Fields that a run may go on with after they were edited, each with the reason."""


@dataclass(frozen=True)
class Change:
    """A field that has another value than it had."""

    path: str
    stored: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.path} was {shorten(self.stored)} and is {shorten(self.now)}"


def sealed_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a whole config that decide the numbers, as a tree like it, with its version."""
    tree = _without(config, FREE.keys() - {"version"}, "")
    if tree.get("env", {}).get("vectorization") == "async":
        tree["env"]["vectorization"] = "sync"
    return tree


def sealed_changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Where two trees of sealed fields differ once both are of today's version, with today's defaults filled in."""
    if stored == now:
        return []
    return list(_changes(_canonical(stored), _canonical(now), ""))


def _canonical(tree: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return sealed_fields(config_to_mapping(parse_config(tree, source="the checkpoint's config")))
    except ConfigError:  # it names something that this process does not know: compared as it is written
        return {**tree, "version": CONFIG_VERSION}


def _without(tree: Mapping[str, Any], paths: Any, prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if path not in paths:
            kept[key] = _without(value, paths, f"{path}.") if isinstance(value, Mapping) else value
    return kept


def _changes(stored: Any, now: Any, path: str) -> Iterator[Change]:
    if isinstance(stored, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*stored, *now]):
            yield from _changes(stored.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif stored != now or isinstance(stored, bool) is not isinstance(now, bool):
        yield Change(path, stored, now)
