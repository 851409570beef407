"""`executor:` of configs, sweep and tuning files: where several runs are started, and what each of them may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rl_training.hparams.base import STRICT, Json, check_range
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

BUILT_IN = ("local", "threads", "slurm", "ray")
ADDRESSES = ("ray",)
"""Executors that are found at an address."""


@dataclass(frozen=True)
class ExecutorConfig:
    """Where the runs of a group, a sweep or a search are started; a name alone, such as ray or ray:HOST:PORT, takes the
    defaults. It changes no result: it is neither hashed nor sealed, and a resume may name another one."""

    __pydantic_config__ = STRICT

    type: str = "local"
    """Executor: local (processes of this host; compiled runs as threads), threads, slurm, ray, or `package.module:attr`
    of your own."""
    address: str | None = None
    """Address of the Ray cluster, host:port; null finds the cluster of `rl cluster up` or of RAY_ADDRESS."""
    cpus: float = 1.0
    """CPUs of one run."""
    gpus: float = 0.0
    """GPUs of one run; a fraction lets several runs share one."""
    memory_mb: int | None = None
    """Memory of one run in MB; null asks for none in particular."""
    wall_time: float | None = None
    """Seconds that one run may take; it is then saved and stopped. Null without a limit."""
    max_slots: int | None = None
    """Runs at a time on this executor, besides `parallel_jobs`; null as many as fit."""
    max_losses: int = 10
    """How often a run whose node was lost goes on elsewhere; this does not use up `retries`."""
    allow_version_mismatch: bool = False
    """Use nodes of a cluster whose package versions differ from this host's; results may then differ."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the runs. Not for secrets: those belong into the environment of each node."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Further options: flags of sbatch for slurm ({partition: gpu}), keyword arguments for one of your own."""

    def __post_init__(self) -> None:
        check_range(self, "cpus", low=0.01, high=4096)
        check_range(self, "gpus", low=0, high=64)
        check_range(self, "memory_mb", low=1, high=2**26)
        check_range(self, "wall_time", low=1, high=10**8)
        check_range(self, "max_slots", low=1, high=100_000)
        check_range(self, "max_losses", low=0, high=1_000_000)
        if self.type not in BUILT_IN and ":" not in self.type:
            raise ConfigError(
                f"type must be {', '.join(BUILT_IN)}, or 'package.module:Name' of your own, not '{self.type[:80]}'"
                f"{did_you_mean(self.type[:80], BUILT_IN)}"
            )
        if self.address is not None and self.type in BUILT_IN and self.type not in ADDRESSES:
            raise ConfigError(f"address is for the executor ray, not for {self.type}")
        if self.options and self.type in ("local", "threads", "ray"):
            raise ConfigError(f"options are for slurm and executors of your own, not for {self.type}")


def named_executor(text: str, config: ExecutorConfig | None = None) -> ExecutorConfig:
    """The executor of a flag, `ray`, `ray:host:6379` or `package.module:Name`, with what a file says about the rest.

    >>> named_executor("ray:10.0.0.1:6379").address
    '10.0.0.1:6379'
    """
    section = executor_section(text)
    before = config if config is not None else ExecutorConfig()
    if before.type != section["type"]:  # address and options of one executor mean nothing to another
        before = replace(before, type="local", address=None, options={})
    return replace(before, **section)


def executor_section(text: str) -> dict[str, Any]:
    """The name of an executor as the fields it sets."""
    kind, _, address = text.partition(":")
    if kind not in ADDRESSES:
        return {"type": text}
    return {"type": kind, "address": address} if address else {"type": kind}
