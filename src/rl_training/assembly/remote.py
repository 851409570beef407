"""Remote collection: what a runner is made of, and the collector of a run whose environments are in runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn
from rl_training.assembly.lanes import check_supported
from rl_training.config.schema import TrainConfig, check_collection
from rl_training.data.storage import array_bytes, arrays
from rl_training.envs import suites
from rl_training.envs.factory import EnvThunk
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec
from rl_training.runs.spaces import Spaces
from rl_training.seeding import Streams
from rl_training.training.contract import ExploresTogether, replay_terms
from rl_training.training.loop import Trainer
from rl_training.training.remote.collector import AsyncCollector, RemoteCollector
from rl_training.training.remote.delivery import Delivery, sent_once
from rl_training.training.remote.fleet import Fleet
from rl_training.training.remote.pool import InlinePool, RunnerPool, shares_of
from rl_training.training.remote.runner import Acting, Cell, Order, Runner
from rl_training.types import Algorithm, Progress, StateDict

_lifetime = ExitStack()
"""What holds as long as the process of a runner lives: its number of threads."""
STEPS = 32
"""Steps that are timed."""
SECONDS = 1.0
"""Time after which no further step is timed."""
FRAME_BYTES = 14
"""What stands around each value of a state on its way: its type and the reference to its name."""
DIGITS = 3
"""Significant digits of what was timed."""


@dataclass(frozen=True)
class RunnerSetup:
    """Builds a runner wherever it is called: sent to the nodes of a cluster, where nothing of the run exists."""

    cfg: TrainConfig
    env_fn: EnvFn | None
    spaces: Spaces

    def __call__(self, indices: Sequence[int]) -> Runner:
        """The runner of these environments, in a process of its own."""
        _lifetime.enter_context(pinned_threads(self.cfg.training.num_threads, self.cfg.backend))
        check_supported(self.cfg)
        return self.build(indices)

    def build(self, indices: Sequence[int]) -> Runner:
        """The runner of these environments, as this process is."""
        cfg, acting = self.cfg, self.acting()
        source = suites.find(self.env_fn if self.env_fn is not None else cfg.env_id)
        streams = Streams(cfg.seed)
        cells = []
        for index in indices:
            env = ResumableSyncVectorEnv([EnvThunk(source, cfg.env, cfg.seed, index, plugins=cfg.plugins)])
            cells.append(Cell(index, env, acting, streams("actions", index)))
        return Runner(cells, acting)

    def acting(self) -> Acting:
        """A second algorithm, of which only what acts is used: it takes the weights that it is sent."""
        cfg = self.cfg
        spec, hparams = resolve_algorithm(cfg)
        guard = Guard(cfg.monitor.checks, Progress())
        algorithm = build_algorithm(cfg, spec, hparams, *self.spaces, guard)
        keys = cfg.logging.info_keys
        if spec.kind != "off_policy":
            return Acting(algorithm.policy, algorithm.policy, guard, info_keys=keys)
        terms = replay_terms(algorithm, hparams)
        if cfg.env.collection == "sync" or not isinstance(algorithm, ExploresTogether):
            return Acting(algorithm.policy, terms.warmup, guard, info_keys=keys)
        is_prioritized = terms.options.prioritized or cfg.buffer.type == "prioritized"
        prioritize = algorithm.first_priorities if is_prioritized else None
        return Acting(algorithm.policy, terms.warmup, guard, algorithm.explorer, prioritize, keys)


MakePool = Callable[[TrainConfig, RunnerSetup], RunnerPool]


def ray_pool(cfg: TrainConfig, setup: RunnerSetup) -> RunnerPool:
    """Runners on the cluster that belongs to the output directory, or the one that RAY_ADDRESS names."""
    from rl_training.distributed.ray_runners import RayRunners

    return RayRunners(setup, Path(cfg.output_dir), cfg.env.runners)


def inline_pool(cfg: TrainConfig, setup: RunnerSetup) -> RunnerPool:
    """The same runners one after the other in this process: to repeat a run without its cluster."""
    return InlinePool(setup.build)


def build_remote(
    cfg: TrainConfig,
    pool: RunnerPool,
    spec: AlgorithmSpec,
    algorithm: Algorithm,
    progress: Progress,
    *,
    exact: bool,
    connect: bool,
) -> RemoteCollector:
    """The collector that a config asks for; `exact` says whether its environments can go on where they were left."""
    check_collection(cfg, spec)
    fleet = Fleet(pool, cfg.env.num_envs, cfg.env.runners, exact=exact)
    if connect:
        fleet.connect()
    if cfg.env.collection == "sync":
        return RemoteCollector(fleet, algorithm.policy, progress)
    mixing = spec.kind != "off_policy"
    return AsyncCollector(fleet, algorithm.policy, progress, mixing=mixing, max_policy_lag=cfg.env.max_policy_lag)


# -- what it costs ----------------------------------------------------------------------------------------------------


def remote_cost(cfg: TrainConfig, trainer: Trainer) -> dict[str, Any]:
    """Bytes and calls of one rollout or block of a run with `env.collector: ray`.

    Without `env.runners` their number follows from the cluster, so what depends on it is left out. Rates hold where
    every runner has a core to itself.
    """
    weights = trainer.parts()["policy"].state_dict()
    row, once, seconds = sample(cfg, trainer, weights)
    num_envs, num_steps = cfg.env.num_envs, trainer.num_steps
    found: dict[str, Any] = {
        "broadcast_bytes": sum({id(array): array.nbytes for array in arrays(sent_once(weights))}.values()),
        "gather_bytes": num_envs * (num_steps * row + once),
    }
    if cfg.env.runners is None:
        return found
    largest = len(shares_of(num_envs, cfg.env.runners)[0])
    rollout_seconds = largest * num_steps * seconds
    return {
        **found,
        "gather_runner_bytes": largest * (num_steps * row + once),
        "runner_calls": cfg.env.runners,
        "rollout_seconds": rounded(rollout_seconds),
        "calls_per_second": rounded(cfg.env.runners / rollout_seconds),
    }


def sample(cfg: TrainConfig, trainer: Trainer, weights: StateDict) -> tuple[int, int, float]:
    """What one environment sends: bytes of a step, bytes of a rollout besides; and the seconds of a step."""
    runner = RunnerSetup(cfg, None, trainer.spaces).build([0, 1])
    try:
        runner.collect(Order(1, 0), weights)  # resets both and imports what the first step imports
        times: list[float] = []
        while len(times) < STEPS and sum(times) < SECONDS:
            began = perf_counter()
            delivery = runner.collect(Order(1, 0), weights)
            times.append(perf_counter() - began)
    finally:
        runner.close()
    return row_bytes(delivery), once_bytes(delivery), sorted(times)[len(times) // 2] / 2


def row_bytes(delivery: Delivery) -> int:
    """Bytes of one step of one environment: the columns and what the policy stored with it."""
    whole = array_bytes({**delivery.columns, "extras": delivery.extras})
    return whole // (delivery.num_steps * len(delivery.indices))


def once_bytes(delivery: Delivery) -> int:
    """Bytes that an environment adds to a rollout: its last observation, its carry, and where it was left. Names in the
    states are sent once for all environments of a runner, and not counted."""
    whole = array_bytes({"last": delivery.last_obs, "carry": delivery.initial_carry})
    return (whole + state_bytes(delivery.states)) // len(delivery.indices)


def state_bytes(tree: Any) -> int:
    """Bytes of a tree on its way: arrays and texts, and some bytes around each value."""
    if isinstance(tree, Mapping):
        return sum(state_bytes(value) for value in tree.values())
    return FRAME_BYTES + (tree.nbytes if isinstance(tree, np.ndarray) else len(str(tree)))


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
