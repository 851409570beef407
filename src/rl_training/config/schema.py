"""The config schema: frozen dataclasses with one sentence per field, here the whole, in `sections/` its sections.

This file only defines what a config is. Whether its parts fit each other is in `fitting.py`; reading files, aliases,
`base:` and error messages are elsewhere: `loading.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Literal

from rl_training.config.fitting import (
    against_shards,
    builtin_spec,
    check_collection,
    check_minibatches,
    check_priorities,
    offline_training,
    rollout_steps,
)
from rl_training.config.monitor import MonitorConfig
from rl_training.config.multi_agent.agents import PolicyConfig
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.config.sections.base import SECTION, PartConfig
from rl_training.config.sections.environment import EnvConfig, WrapperConfig
from rl_training.config.sections.executor import ExecutorConfig
from rl_training.config.sections.learning import BufferConfig, CheckpointConfig, DatasetConfig, TrainingConfig
from rl_training.config.sections.logging import LoggingConfig, WandbConfig
from rl_training.config.sections.network import (
    DEFAULT_NETWORK,
    Activation,
    BackboneConfig,
    EncoderConfig,
    MemoryConfig,
    NetworkConfig,
    backbone_of,
)
from rl_training.seeding import MAX_SEED
from rl_training.types import ConfigError

__all__ = [
    "Activation",
    "BackboneConfig",
    "BufferConfig",
    "CONFIG_VERSION",
    "CheckpointConfig",
    "DATASET_ENV",
    "DatasetConfig",
    "EncoderConfig",
    "EnvConfig",
    "LoggingConfig",
    "MemoryConfig",
    "NetworkConfig",
    "PartConfig",
    "SECTION",
    "TrainConfig",
    "TrainingConfig",
    "WandbConfig",
    "WrapperConfig",
    "builtin_spec",
    "check_collection",
]

CONFIG_VERSION = 2
DATASET_ENV = "dataset"
"""`env_id` of an offline run whose config names no environment: that of its dataset."""


@dataclass(frozen=True)
class TrainConfig:
    """The complete config of one run: algorithm, environment, network, budget."""

    __pydantic_config__ = SECTION

    algo: str = "ppo"
    """Algorithm: a name from `rl algorithms` or your own as "package.module:Name"."""
    env_id: str = "CartPole-v1"
    """Environment: a Gymnasium id (see `rl envs`) or your own as "package.module:Name"."""
    seed: int = 0
    """Root of every random stream of the run, 0 to 2**32 - 1."""
    output_dir: str = "runs"
    """Folder in which run directories are created."""
    name: str | None = None
    """A name to find the run by."""
    tags: tuple[str, ...] = ()
    """Labels to find the run by."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, mps, or auto for the best available."""
    strict_device: bool = False
    """Refuse to start if the device is missing, instead of running on the CPU with a warning."""
    base: str | tuple[str, ...] | None = None
    """Config file or preset to build on, or a list of them, later ones on top; null once it is resolved."""
    backend: Literal["torch", "jax"] = "torch"
    """Library the algorithm runs on."""
    lane: Literal["auto", "host", "compiled"] = "auto"
    """host steps ordinary environments; compiled runs environment and agent as one program (jax)."""
    plugins: tuple[str, ...] = ()
    """Your own modules to import first, so that their decorators register parts."""
    version: int = CONFIG_VERSION
    """Version of this layout; older files are migrated."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """Environment section."""
    hparams: Any = None
    """Hyperparameters of the algorithm (`rl config show` lists them); a mapping for algorithms outside the package."""
    network: NetworkConfig = DEFAULT_NETWORK
    """Network section; fields that are not given have the algorithm's defaults."""
    policies: Mapping[str, PolicyConfig] = field(default_factory=dict)
    """With several agents: what single policies of `env.agents.policies` have for themselves, by name."""
    buffer: BufferConfig = field(default_factory=BufferConfig)
    """Buffer section."""
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    """What an offline algorithm learns from."""
    league: LeagueConfig = field(default_factory=LeagueConfig)
    """Games: whom the learner plays against."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Budget and frequencies."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Retention of checkpoints."""
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    """Logs and displays."""
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    """Checks on the running experiment."""
    callbacks: tuple[PartConfig, ...] = ()
    """Your own callbacks, by registered name or dotted path."""
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    """Where the runs of several seeds are started; one run is trained where its command is typed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dir", os.fspath(self.output_dir))
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"seed must be a whole number between 0 and {MAX_SEED}, not {self.seed!r}")
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", str(self.device)):
            raise ConfigError(f"device must be auto, cpu, mps, cuda or cuda:N, not {self.device!r}")
        if self.version != CONFIG_VERSION:
            raise ConfigError(f"version must be {CONFIG_VERSION}, not {self.version!r}")
        if self.env.overlap and self.backend == "jax":
            raise ConfigError(
                "env.overlap is for backend: torch; with jax, collecting and learning take turns in the host lane "
                "and are one program in the compiled lane: set env.overlap: false"
            )
        if self.env.collector == "ray" and self.backend == "jax":
            raise ConfigError("env.collector ray is for backend: torch; set env.collector: local")
        if self.logging.record and self.env.overlap:
            raise ConfigError(
                "logging.record keeps steps in the order in which they are learnt from: not with env.overlap"
            )
        self._fill_hparams()
        object.__setattr__(self, "training", offline_training(self))
        spec = builtin_spec(self.algo)
        if spec is not None:
            check_collection(self, spec)
            check_priorities(self, spec)
        if (num_steps := rollout_steps(self)) is not None:
            object.__setattr__(self, "hparams", replace(self.hparams, num_steps=num_steps))
        if self.training.shards > 1 and (refusal := against_shards(self)) is not None:
            raise ConfigError(f"training.shards {self.training.shards}: {refusal}")
        check_minibatches(self)

    def _fill_hparams(self) -> None:
        """Set `hparams` to the algorithm's class or, for one outside the package, to a plain mapping, which can be read
        without importing it."""
        spec = builtin_spec(self.algo)
        hparams = self.hparams
        if hparams is None:
            hparams = spec.hparams() if spec else {}
        elif spec is None and is_dataclass(hparams) and not isinstance(hparams, type):
            hparams = asdict(hparams)
        expected = spec.hparams if spec else Mapping
        if not isinstance(hparams, expected):
            raise ConfigError(
                f"hparams of algorithm '{self.algo}' must be a {expected.__name__}, not a {type(hparams).__name__}; "
                "to give them as a mapping use rl_training.config.loading.parse_config"
            )
        object.__setattr__(self, "hparams", hparams)
        if spec and spec.network and self.network is DEFAULT_NETWORK:
            backbones: dict[str, Any] = {name: backbone_of(value) for name, value in spec.network.items()}
            object.__setattr__(self, "network", NetworkConfig(**backbones))
