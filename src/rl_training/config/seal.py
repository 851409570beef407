"""Which fields of a config determine the results of a run, and in which of them two configs differ.

A checkpoint records these fields (see `checkpointing/seal.py`), so that a config edited afterwards is noticed. Every
field is in one of the two tables, by its own path or that of a section around it; a test enforces that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_training.config.loading import config_to_mapping, parse_config
from rl_training.config.migrations import complete_stored
from rl_training.config.schema import CONFIG_VERSION
from rl_training.config.yaml_reader import shorten
from rl_training.types import ConfigError

SEALED: Mapping[str, str] = {
    "algo": "another algorithm learns differently",
    "env_id": "another environment gives other rewards",
    "seed": "the root of every random stream",
    "backend": "torch and JAX agree up to rounding, not bit for bit",
    "lane": "the lanes draw from different streams and save different parts",
    "plugins": "what registered names refer to",
    "env.num_envs": "the shape of every batch",
    "env.vectorization": "a native vector environment has its own random streams; sync and async count as equal",
    "env.wrappers": "observations and rewards",
    "env.kwargs": "observations and rewards",
    "env.max_episode_steps": "where episodes end",
    "env.normalize_obs": "the inputs of the network",
    "env.normalize_reward": "the inputs of the losses",
    "env.frame_stack": "the inputs of the network",
    "env.overlap": "which policy collects a rollout, and what a checkpoint holds",
    "env.agents": "who plays whom, and what they learn from",
    "policies": "the learning rules of single policies",
    "league": "the opponents that a game is learnt against",
    "env.collector": "whose random streams actions are drawn from, and what a checkpoint holds",
    "env.collection": "which policy collects a rollout",
    "env.max_policy_lag": "which rollouts are learnt from",
    "hparams": "the learning rule",
    "network": "the function approximator",
    "buffer": "the training data",
    "dataset": "the training data",
    "training.eval_frequency": "which rows of the log have evaluations",
    "training.num_eval_episodes": "the scores of evaluations",
    "training.eval_lane": "the scores of evaluations",
    "training.shards": "which environments, replay rows and random streams belong together, and the order of sums",
    "training.runs_per_program": "runs in one program agree with single runs up to rounding, not bit for bit",
    "training.num_threads": "the order of sums, and with it the last bits",
    "callbacks": "they are called between updates and may change anything",
}
"""Fields that determine the results, each with the reason."""

FREE: Mapping[str, str] = {
    "output_dir": "the place of the run directory",
    "name": "a label",
    "tags": "labels",
    "device": "where it computes; a config that names a missing device runs on the CPU in any case",
    "strict_device": "whether to start without the device",
    "base": "already part of the resolved config",
    "version": "configs are migrated to the same version before they are compared",
    "env.num_workers": "a run is the same with any number of workers",
    "env.step_timeout": "when a worker counts as hung",
    "env.worker_restart": "what happens after a worker failed",
    "env.runners": "a run is the same with any number of runners",
    "executor": "a run is the same wherever it is started",
    "training.total_timesteps": "the budget, which a resume may change; run.json records when it did",
    "training.total_updates": "the budget",
    "training.total_episodes": "the budget",
    "training.stop_at_return": "the budget: when the run may end early",
    "training.stop_episodes": "the budget: when the run may end early",
    "training.eval_at_start": "a run that has started has its row of env step 0, or never will",
    "training.checkpoint_frequency": "saving does not change the results",
    "checkpoint": "which checkpoints are kept",
    "logging": "what is written and shown",
    "monitor": "alerts and checks report, and do not change the results",
}
"""Fields that may be edited before a resume, each with the reason."""


@dataclass(frozen=True)
class Change:
    """A field whose value differs between two configs."""

    path: str
    stored: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.path} was {shorten(self.stored)} and is {shorten(self.now)}"


def sealed_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a complete config that determines the results, with its version."""
    tree = _without(config, FREE.keys() - {"version"}, "")
    if tree.get("env", {}).get("vectorization") == "async":
        tree["env"]["vectorization"] = "sync"
    return tree


def sealed_changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The differences between two trees of sealed fields, after migration to the current version and its defaults."""
    if stored == now:
        return []
    return list(_changes(_canonical(stored), _canonical(now), ""))


def _canonical(tree: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return sealed_fields(
            config_to_mapping(parse_config(complete_stored(dict(tree)), source="the checkpoint's config"))
        )
    except ConfigError:  # it names something unknown to this process: compare it as written
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
