"""The config schema: frozen dataclasses with one sentence per field.

This file only defines what a config is. Reading files, aliases, `base:` and error messages are elsewhere: `loading.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Literal

from rl_training.config.executors import ExecutorConfig
from rl_training.config.monitor import MonitorConfig
from rl_training.config.multi_agent.agents import AgentsConfig, PolicyConfig
from rl_training.config.multi_agent.league import LeagueConfig
from rl_training.hparams.base import (
    MAX_COUNT,
    STRICT,
    AlgorithmSpec,
    Json,
    Lagging,
    Minibatched,
    OnPolicyHparams,
    check_range,
)
from rl_training.hparams.off_policy import OffPolicyHparams
from rl_training.registry import algorithms
from rl_training.seeding import MAX_SEED
from rl_training.types import ConfigError

CONFIG_VERSION = 2
AUTO_EVALUATIONS = 10
"""Number of evaluations of a run whose `training.eval_frequency` is auto."""
DATASET_ENV = "dataset"
"""`env_id` of an offline run whose config names no environment: that of its dataset."""
OFFLINE_UPDATES = 50_000
"""Updates of an offline run whose config does not say."""
MAX_PARTS = 10**6
"""Largest number of environments, stacked frames or units of a layer."""

SECTION = STRICT
"""pydantic settings of every section. pydantic does not parse the sentences under the fields, which would slow down the
first load; `fields.py` does."""


@dataclass(frozen=True)
class PartConfig:
    """A part by name, built in or your own, with its arguments: `{name: "my_pkg.my_mod:Thing", kwargs: {x: 1}}`."""

    __pydantic_config__ = SECTION

    name: str
    """Registered name or dotted path "package.module:Name"."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments it is built with."""


@dataclass(frozen=True)
class WrapperConfig:
    """One wrapper of the environment stack, innermost first."""

    __pydantic_config__ = SECTION

    name: str
    """Registered name (see `rl envs`) or dotted path "package.module:Name"."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments of the wrapper."""
    train_only: bool = False
    """Not used in evaluation (reward shaping, exploration bonuses)."""


@dataclass(frozen=True)
class EnvConfig:
    """How the environment is built, wrapped and vectorised."""

    __pydantic_config__ = SECTION

    num_envs: int = 4
    """Number of parallel environments."""
    vectorization: Literal["sync", "async", "native"] = "sync"
    """sync steps them in this process; async in worker processes; native uses the suite's own vector environment."""
    num_workers: int | None = None
    """Worker processes for async, each with several environments, or threads of ALE's native vector; null takes one per
    core, at most num_envs."""
    step_timeout: float = 60.0
    """Seconds that a worker may take for one step before it counts as hung (async)."""
    worker_restart: bool = False
    """Restart a dead or hung worker and mark its episodes truncated, instead of ending the run (async)."""
    wrappers: tuple[WrapperConfig, ...] = ()
    """Wrapper stack, innermost first; a plain name is short for `{name: ...}`."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Keyword arguments of the environment itself (`gymnasium.make(env_id, **kwargs)`)."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps of the environment itself (frames of an Atari game); null keeps its own
    limit."""
    normalize_obs: bool = False
    """Scale observations by running mean and standard deviation; the statistics live in the policy."""
    normalize_reward: bool = False
    """Scale rewards by the running standard deviation of the discounted return; logs keep raw rewards."""
    frame_stack: int = 1
    """Stack the last n observations along a new first axis; 1 does not stack."""
    overlap: bool = False
    """Collect the next rollout (or block of 256 env steps, with replay) while the learner works on this one, with the
    policy from before this update; pays where environments are as slow as learning (torch)."""
    collector: Literal["local", "ray"] = "local"
    """local steps the environments here; ray in runners on a Ray cluster, where each environment acts by itself with a
    random stream of its own (torch)."""
    runners: int | None = None
    """Runners on the cluster, each with a part of the environments; a run is the same with any number of them. Null
    takes one per CPU of the cluster, at most num_envs (ray)."""
    collection: Literal["sync", "async"] = "sync"
    """sync waits for every runner; async keeps runners at work while the learner learns, with weights that are some
    updates old, and cannot be repeated bit for bit (ray; impala and dqn)."""
    max_policy_lag: int | None = None
    """Age in updates of the weights behind a rollout, from which on it is dropped; null keeps all (async; impala)."""
    agents: AgentsConfig = field(default_factory=AgentsConfig)
    """Environments with several agents: who plays whom, for which reward, and what critics see."""

    def __post_init__(self) -> None:
        check_range(self, "num_envs", low=1, high=MAX_PARTS)
        check_range(self, "runners", low=1, high=MAX_PARTS)
        check_range(self, "max_policy_lag", low=0, high=MAX_COUNT)
        self._check_collector()
        check_range(self, "num_workers", low=1, high=MAX_PARTS)
        check_range(self, "max_episode_steps", low=1, high=MAX_COUNT)
        check_range(self, "frame_stack", low=1, high=MAX_PARTS)
        check_range(self, "step_timeout", low=0.0, above=True)

    def _check_collector(self) -> None:
        """Refuse combinations that mean nothing."""
        if self.collector == "local":
            only_ray = {"runners": self.runners, "max_policy_lag": self.max_policy_lag}
            used = [name for name, value in only_ray.items() if value is not None]
            if self.collection == "async":
                used.append("collection")
            if used:
                raise ConfigError(f"{used[0]} is for runners: it needs env.collector: ray")
            return
        if self.overlap:
            raise ConfigError(
                "overlap cannot be combined with env.collector: ray; with env.collection: async runners collect while "
                "the learner learns"
            )
        if self.vectorization != "sync":
            raise ConfigError(
                f"vectorization {self.vectorization} cannot be combined with env.collector: ray, whose runners step "
                "their environments themselves; use env.vectorization: sync"
            )
        if self.runners is not None and self.runners > self.num_envs:
            raise ConfigError(f"runners {self.runners} is more than env.num_envs {self.num_envs}")


Activation = Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu", "identity"]


@dataclass(frozen=True)
class EncoderConfig:
    """Encoders of observations; a plain name stands for `{type: ...}`."""

    __pydantic_config__ = SECTION

    type: Literal["auto", "mlp", "nature", "small", "impala", "grid"] = "auto"
    """auto takes convolutions for images (nature from 36 pixels on, else grid) and flattens the rest; mlp flattens
    images too; nature (Mnih et al. 2015), small (Mnih et al. 2013), impala (residual), grid (3x3, for few cells)."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Encoders of single observation keys, where they differ: `{camera: impala, map: mlp}`."""
    features: int | None = None
    """Width of the linear layer behind the convolutions; null takes the encoder's own (nature 512, small 256)."""
    channels: Literal["auto", "first", "last"] = "auto"
    """Which axis of an image holds its channels; auto decides by its shape."""
    random_shift: int = 0
    """Pixels by which algorithms that learn from replay move images at random (DrQ); 0 does not."""

    def __post_init__(self) -> None:
        check_range(self, "features", low=1, high=MAX_PARTS)
        check_range(self, "random_shift", low=0, high=MAX_PARTS)


@dataclass(frozen=True)
class MemoryConfig:
    """Memory behind the layers; a plain name stands for `{type: ...}`."""

    __pydantic_config__ = SECTION

    type: Literal["none", "gru", "lstm", "transformer"] = "none"
    """none; gru and lstm are recurrent; transformer attends to the last `window` steps."""
    size: int = 64
    """Width of the features that the memory gives."""
    layers: int = 1
    """Layers of the transformer."""
    heads: int = 2
    """Attention heads of the transformer; they divide `size`."""
    window: int = 32
    """Steps of the episode that a layer of the transformer looks at, the present one among them."""
    gating: bool = False
    """Gate the layers of the transformer as GTrXL does (Parisotto et al. 2019)."""

    def __post_init__(self) -> None:
        for name in ("size", "layers", "heads", "window"):
            check_range(self, name, low=1, high=MAX_PARTS)
        if self.type == "transformer" and self.size % self.heads:
            raise ConfigError(f"memory.size {self.size} is not a multiple of memory.heads {self.heads}")


@dataclass(frozen=True)
class BackboneConfig:
    """A network body: from an observation to features."""

    __pydantic_config__ = SECTION

    type: str = "mlp"
    """mlp, cnn, a shorthand for an encoder or a memory (nature, gru, lstm, ...), or the dotted path of your own."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer; gru: the last one is recurrent; cnn: the layers after the convolutions."""
    activation: Activation = "tanh"
    """Non-linearity after each hidden layer."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """From observations to the input of the hidden layers: convolutions for images."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What the network remembers of the episode."""
    layer_norm: bool = False
    """Layer normalisation before each activation."""
    init: Literal["orthogonal", "xavier", "kaiming", "lecun"] = "orthogonal"
    """Initialisation of the weight matrices; biases start at 0."""
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    """Further arguments: for cnn, channels, kernels and strides (default: the Nature paper's); for your own, any."""

    def __post_init__(self) -> None:
        if any(not 1 <= width <= MAX_PARTS for width in self.hidden_dims):
            raise ConfigError(f"hidden_dims must be between 1 and {MAX_PARTS}, not {list(self.hidden_dims)}")


def backbone_of(values: Mapping[str, Any]) -> BackboneConfig:
    """The backbone that an algorithm has by default, from plain values."""
    memory = {"memory": MemoryConfig(**values["memory"])} if "memory" in values else {}
    return BackboneConfig(**{**values, **memory})


@dataclass(frozen=True)
class NetworkConfig:
    """Actor and critic networks."""

    __pydantic_config__ = SECTION

    actor: BackboneConfig = field(default_factory=BackboneConfig)
    """Backbone of the policy."""
    critic: BackboneConfig = field(default_factory=BackboneConfig)
    """Backbone of the value function."""
    shared: bool = False
    """One backbone (the actor's) for both heads."""
    critic_only: tuple[str, ...] = ()
    """Keys of a Dict observation that critics see and the actor does not; `critic_state` always is one of them."""


DEFAULT_NETWORK = NetworkConfig()
"""Sentinel, compared by identity: no `network:` section was given, so the algorithm's default applies."""


@dataclass(frozen=True)
class BufferConfig:
    """Storage of experience."""

    __pydantic_config__ = SECTION

    type: str | None = None
    """Registered name or dotted path; null takes the algorithm's default."""
    size: int | None = None
    """Capacity in transitions. On-policy: num_steps x num_envs, and num_steps follows from it."""
    on_memory: Literal["refuse", "shrink"] = "refuse"
    """What to do if it does not fit into memory."""

    def __post_init__(self) -> None:
        check_range(self, "size", low=1, high=MAX_COUNT)


@dataclass(frozen=True)
class DatasetConfig:
    """What an offline algorithm learns from."""

    __pydantic_config__ = SECTION

    path: str | None = None
    """A folder, an .npz file, or run:RUN[:STEP] for the replay rows of a run."""
    top_fraction: float = 1.0
    """Learn only from this fraction of the whole episodes, those of the highest return; 0.1 makes bc the 10% BC
    baseline."""
    reward: Literal["raw", "return_range"] | float = "raw"
    """raw; return_range divides by the range of the episodes' returns and multiplies by 1000; a number multiplies."""
    online_share: float | None = None
    """Go on in an environment, with this share of each batch from its steps; null steps none. --init-from sets 0.5."""

    def __post_init__(self) -> None:
        check_range(self, "top_fraction", low=0.0, high=1.0)
        check_range(self, "online_share", low=0.0, high=1.0)
        check_range(self, "top_fraction", low=0.0, above=True)
        if not isinstance(self.reward, str):
            check_range(self, "reward", low=0.0, above=True)


@dataclass(frozen=True)
class TrainingConfig:
    """Budget and frequencies; every frequency is in env steps over all environments, of an offline run in updates."""

    __pydantic_config__ = SECTION

    total_timesteps: int = 100_000
    """Env steps to train for; the last rollout is finished."""
    total_updates: int | None = None
    """Updates to train for, for offline algorithms, which step no environment (default there: 50,000)."""
    total_episodes: int | None = None
    """Also stop after this many finished episodes; null sets no such limit."""
    eval_frequency: int | Literal["auto"] = "auto"
    """Env steps between evaluations; auto is a tenth of the budget, at least one rollout; 0 only at the end."""
    eval_at_start: bool = True
    """Also evaluate before the first step: env step 0 in evals.jsonl. It is never the best and stops no run."""
    num_eval_episodes: int = 10
    """Episodes per evaluation; 0 turns evaluation off."""
    eval_lane: Literal["host", "compiled"] = "host"
    """host evaluates on the Gymnasium environment; compiled runs all episodes of a compiled run at once in JAX."""
    checkpoint_frequency: int = 25_000
    """Env steps between checkpoints; 0 saves only at the start and the end."""
    stop_at_return: float | None = None
    """Stop when the mean return over `stop_episodes` reaches this; null trains to the end."""
    stop_episodes: int = 100
    """Episodes that decide on `stop_at_return`; they are run once an evaluation of fewer episodes has reached it."""
    shards: int = 1
    """Parts of every batch, each with environments, replay and random streams of its own, whose gradients are summed in
    order; torchrun spreads them over processes, and any number of these that divides it gives the same bits (torch)."""
    runs_per_program: int = 1
    """Compiled runs of a group or sweep that one device advances in one vmapped program; on accelerators a group is
    spread over all devices."""
    num_threads: int = 1
    """Threads of torch and of NumPy's linear algebra; small networks are fastest with one. To reproduce a run bit for
    bit, use the same number."""

    def __post_init__(self) -> None:
        check_range(self, "total_timesteps", low=1, high=MAX_COUNT)
        check_range(self, "total_updates", low=1, high=MAX_COUNT)
        check_range(self, "total_episodes", low=1, high=MAX_COUNT)
        if self.eval_frequency != "auto":
            check_range(self, "eval_frequency", low=0, high=MAX_COUNT)
        check_range(self, "num_eval_episodes", low=0, high=MAX_COUNT)
        check_range(self, "checkpoint_frequency", low=0, high=MAX_COUNT)
        check_range(self, "stop_episodes", low=1, high=MAX_COUNT)
        check_range(self, "shards", low=1, high=1024)
        check_range(self, "runs_per_program", low=1, high=1024)
        check_range(self, "num_threads", low=1, high=1024)

    @property
    def eval_steps(self) -> int:
        """Env steps between evaluations as a number: `eval_frequency`, or a tenth of the budget rounded up."""
        return -(-self.budget // AUTO_EVALUATIONS) if self.eval_frequency == "auto" else self.eval_frequency

    @property
    def budget(self) -> int:
        """Env steps to train for, or updates where the run is offline."""
        return self.total_timesteps if self.total_updates is None else self.total_updates


@dataclass(frozen=True)
class CheckpointConfig:
    """Which checkpoints are kept. `latest` and at least one before it always are."""

    __pydantic_config__ = SECTION

    keep_last: int = 3
    """The newest n checkpoints are kept (at least 2)."""
    keep_best: bool = True
    """Keep the checkpoint with the best evaluation."""
    keep_every: int = 0
    """Also keep one checkpoint per this many env steps permanently; 0 keeps none."""

    def __post_init__(self) -> None:
        check_range(self, "keep_last", low=2, high=MAX_COUNT)
        check_range(self, "keep_every", low=0, high=MAX_COUNT)


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases; off by default, offline without a key."""

    __pydantic_config__ = SECTION

    enabled: bool = False
    """Send metrics to Weights & Biases."""
    project: str = "rl-training"
    """Project of the run."""
    entity: str | None = None
    """Team or user; null takes your default."""
    tags: tuple[str, ...] = ()
    """Tags of the run."""


@dataclass(frozen=True)
class LoggingConfig:
    """Logs and displays. JSONL is always written."""

    __pydantic_config__ = SECTION

    terminal: bool = True
    """Progress bar on a terminal, plain lines elsewhere."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """Weights & Biases."""
    log_frequency: int = 0
    """Env steps between metric rows; 0 writes one per update of the policy."""
    info_keys: tuple[str, ...] = ()
    """Keys of numbers in the `info` of an episode's last step to log as `rollout/info/<key>`."""
    trace: bool = False
    """Write every transition to logs/trace.jsonl (large; for debugging)."""
    record: bool = False
    """Keep every transition as a dataset in the run's folder `dataset/`, for offline algorithms; host lane only."""
    video_frequency: int = 0
    """Env steps between videos of an evaluation episode; 0 records none."""
    sinks: tuple[PartConfig, ...] = ()
    """Further loggers: `jsonl`, `console`, or your own by registered name or dotted path."""

    def __post_init__(self) -> None:
        check_range(self, "log_frequency", low=0, high=MAX_COUNT)
        check_range(self, "video_frequency", low=0, high=MAX_COUNT)


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
        self._check_offline()
        spec = builtin_spec(self.algo)
        if spec is not None:
            check_collection(self, spec)
        self._match_buffer_to_rollout()
        if self.training.shards > 1 and (refusal := against_shards(self)) is not None:
            raise ConfigError(f"training.shards {self.training.shards}: {refusal}")
        if isinstance(self.hparams, Minibatched):
            count, num_steps = self.hparams.num_minibatches, self.hparams.num_steps
            if count > 1 and count > num_steps * self.env.num_envs:
                raise ConfigError(
                    f"hparams.num_minibatches {count} is more than the rollout has rows: hparams.num_steps "
                    f"{num_steps} x env.num_envs {self.env.num_envs}"
                )

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

    def _check_offline(self) -> None:
        """Offline algorithms count updates and learn from a dataset; no other does either."""
        spec, training = builtin_spec(self.algo), self.training
        if spec is None or spec.kind != "offline":
            if spec is not None and (training.total_updates is not None or self.dataset != DatasetConfig()):
                raise ConfigError(f"dataset and training.total_updates are for offline algorithms, not '{self.algo}'")
            return
        if self.dataset.online_share is not None:
            self._check_online()
            return
        if training.total_timesteps != TrainingConfig.total_timesteps or training.total_episodes is not None:
            raise ConfigError(
                f"'{self.algo}' is offline and steps no environment: give training.total_updates instead of "
                "total_timesteps or total_episodes"
            )
        unused = {
            "env.overlap": self.env.overlap,
            "env.collector": self.env.collector != "local",
            "env.normalize_reward": self.env.normalize_reward,
            "buffer": self.buffer != BufferConfig(),
            "logging.trace": self.logging.trace,
            "logging.record": self.logging.record,
            "logging.info_keys": bool(self.logging.info_keys),
            "monitor.debug": self.monitor.debug.enabled,
        }
        if used := [name for name, is_used in unused.items() if is_used]:
            raise ConfigError(f"'{self.algo}' is offline and steps no environment: {', '.join(used)} cannot be used")
        if training.total_updates is None:
            object.__setattr__(self, "training", replace(training, total_updates=OFFLINE_UPDATES))

    def _check_online(self) -> None:
        """An offline algorithm that goes on in an environment: it counts env steps and has a plain replay buffer."""
        if not self.hparams.goes_online:
            raise ConfigError(f"'{self.algo}' only imitates a dataset: it learns nothing from an environment")
        if self.training.total_updates is not None:
            raise ConfigError("a run with dataset.online_share counts env steps: give training.total_timesteps")
        unused = {
            "env.overlap": self.env.overlap,
            "env.collector": self.env.collector != "local",
            "env.normalize_reward": self.env.normalize_reward,
            "buffer.type": self.buffer.type not in (None, "replay", "uniform"),
        }
        if used := [name for name, is_used in unused.items() if is_used]:
            raise ConfigError(f"{', '.join(used)} cannot be used where batches come from a dataset too")

    def _match_buffer_to_rollout(self) -> None:
        """On-policy: `buffer.size` sets `num_steps` if that has its default value, else the two must agree."""
        spec = builtin_spec(self.algo)
        if self.buffer.size is None or spec is None or spec.kind != "on_policy":
            return
        num_steps = self.hparams.num_steps
        may_change = num_steps == spec.hparams().num_steps
        steps = steps_for_buffer(self.buffer.size, num_steps, self.env.num_envs, may_change=may_change)
        if steps != num_steps:
            object.__setattr__(self, "hparams", replace(self.hparams, num_steps=steps))


def check_collection(cfg: TrainConfig, spec: AlgorithmSpec) -> None:
    """Refuse a way of collecting that does not fit the algorithm."""
    env = cfg.env
    if env.max_policy_lag is not None and (env.collection == "sync" or spec.kind != "on_policy"):
        raise ConfigError("env.max_policy_lag is for rollouts that are collected with env.collection: async (impala)")
    if env.collection == "async" and not spec.takes_late_data:
        raise ConfigError(
            f"env.collection is async, and '{cfg.algo}' does not correct for what earlier policies collected; take "
            "algo: impala, or dqn with buffer.type: prioritized (Ape-X), or env.collection: sync"
        )
    if env.collection == "async" and spec.kind == "on_policy" and env.normalize_reward:
        raise ConfigError(
            "env.normalize_reward follows each environment from rollout to rollout, which come in any order with "
            "env.collection: async; scale rewards in a wrapper"
        )
    is_lagging = isinstance(cfg.hparams, Lagging) and cfg.hparams.policy_lag > 0
    if is_lagging and (env.collector != "local" or env.overlap):
        raise ConfigError("hparams.policy_lag is for env.collector: local without env.overlap")


def steps_for_buffer(size: int, num_steps: int, num_envs: int, *, may_change: bool) -> int:
    """The `num_steps` that `buffer.size` implies; ConfigError if it fits no rollout or contradicts a given one."""
    if size == num_steps * num_envs:
        return num_steps
    if not may_change:
        raise ConfigError(
            f"buffer.size {size} is not hparams.num_steps {num_steps} x env.num_envs {num_envs} = "
            f"{num_steps * num_envs}; drop one of them or make them agree"
        )
    if size % num_envs:
        raise ConfigError(f"buffer.size {size} is not a multiple of env.num_envs {num_envs}, so no rollout fills it")
    return size // num_envs


def against_shards(cfg: TrainConfig) -> str | None:
    """Why the batches of a run cannot be split into its `training.shards`, with the cure; None where they can."""
    spec, shards, num_envs = builtin_spec(cfg.algo), cfg.training.shards, cfg.env.num_envs
    if cfg.backend == "jax":
        return "shards are for backend: torch; with jax take training.runs_per_program, which uses every device"
    if spec is not None and not spec.shards:
        return f"algorithm '{cfg.algo}' cannot learn in shards; take one of {', '.join(sharded_algorithms())}"
    unfit = {
        "env.overlap: true": cfg.env.overlap,
        "env.collector: ray": cfg.env.collector != "local",
        "env.vectorization: native, which has one random stream for all environments": cfg.env.vectorization
        == "native",
        "logging.trace: true": cfg.logging.trace,
        "logging.record: true": cfg.logging.record,
        "monitor.debug (--debug)": cfg.monitor.debug.enabled,
        "hparams.exploration": isinstance(cfg.hparams, OnPolicyHparams) and cfg.hparams.has_intrinsic_value,
    }
    if used := [name for name, is_used in unfit.items() if is_used]:
        return f"this does not go with {', '.join(used)}"
    if num_envs % shards:
        return f"it does not divide env.num_envs {num_envs}; every shard has environments of its own"
    if isinstance(cfg.hparams, OffPolicyHparams) and cfg.hparams.batch_size % shards:
        return f"it does not divide hparams.batch_size {cfg.hparams.batch_size}"
    if isinstance(cfg.hparams, Minibatched):
        rows, count = cfg.hparams.num_steps * num_envs // shards, cfg.hparams.num_minibatches
        if rows < count:
            return f"a shard has {rows} rows of a rollout, fewer than hparams.num_minibatches {count}"
    return None


def sharded_algorithms() -> list[str]:
    """The package's algorithms that learn in shards."""
    return [name for name in algorithms.names() if (spec := builtin_spec(name)) is not None and spec.shards]


def builtin_spec(algo: str) -> AlgorithmSpec | None:
    """The spec of one of the package's algorithms; None for any other, so that no user code is imported."""
    if not algorithms.is_builtin(algo):
        return None
    spec: AlgorithmSpec = algorithms.get(algo)
    return spec
