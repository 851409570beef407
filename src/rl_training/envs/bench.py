"""What stepping an environment costs, and which `env.vectorization` is fastest for it on this machine.

Random actions, no learning. `advise` is pure: it only reads the rates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.config.schema import TrainConfig
from rl_training.envs.factory import EnvThunk, make_vector_env
from rl_training.envs.replay_check import sample_action
from rl_training.system.machine import usable_cores
from rl_training.types import ACTION_MASK, Array, RLTrainingError

Vectorization = Literal["sync", "async", "native"]

MARGIN = 1.2
"""Speed-up over sync that another vectorization needs to be recommended: sync is simpler, and less is noise."""
POOL = 64
"""Number of random actions that are drawn beforehand and cycled through."""
WARMUP_FRACTION = 0.1
"""Share of the measuring time spent on warm-up steps that are not counted."""


@dataclass(frozen=True)
class StepCost:
    """Cost of a single environment with its wrappers."""

    step_us: float
    """Microseconds per step."""
    reset_us: float
    """Microseconds per reset."""
    episode_length: float | None
    """Mean steps per episode under random actions; None if no episode ended."""


@dataclass(frozen=True)
class Rate:
    """Env steps per second of one vector environment."""

    num_envs: int
    vectorization: Vectorization
    num_workers: int
    """Worker processes; 0 if the environments run in this one."""
    steps_per_second: float

    @property
    def name(self) -> str:
        return self.vectorization if not self.num_workers else f"async, {plural(self.num_workers, 'worker')}"


@dataclass(frozen=True)
class Advice:
    """The recommended vectorization for one number of environments."""

    num_envs: int
    vectorization: Vectorization
    num_workers: int
    times_sync: float
    """Speed relative to sync."""
    reason: str


@dataclass
class EnvSpeed:
    """Result of `rl bench`."""

    env_id: str
    cores: int
    cost: StepCost
    rates: list[Rate] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Vectorizations that could not be measured, with the reason."""
    advice: list[Advice] = field(default_factory=list)


def measure_env(
    cfg: TrainConfig, num_envs: Sequence[int], seconds: float, report: Callable[[str], None] = lambda line: None
) -> EnvSpeed:
    """Measure every vectorization of the environment of `cfg`, `seconds` each; `report` gets a line before each."""
    cores = usable_cores()
    report("one environment")
    speed = EnvSpeed(cfg.env_id, cores, measure_single(cfg, seconds))
    for count, (vectorization, workers) in candidates(num_envs, cores):
        if vectorization in speed.skipped:
            continue
        env = replace(cfg.env, vectorization=vectorization, num_workers=workers or None)
        report(f"{plural(count, 'environment')}, {Rate(count, vectorization, workers, 0.0).name}")
        try:
            rate = measure_vector(replace(cfg, env=env), count, seconds)
        except RLTrainingError as error:
            if vectorization == "sync":
                raise
            speed.skipped[vectorization] = str(error)
            continue
        speed.rates.append(Rate(count, vectorization, workers, rate))
    speed.advice = [advise([rate for rate in speed.rates if rate.num_envs == count], speed.cost) for count in num_envs]
    return speed


def candidates(num_envs: Sequence[int], cores: int) -> Iterator[tuple[int, tuple[Vectorization, int]]]:
    """(number of environments, (vectorization, workers)) to measure; a single environment gets no workers."""
    for count in num_envs:
        yield count, ("sync", 0)
        for workers in worker_counts(count, cores):
            yield count, ("async", workers)
        yield count, ("native", 0)


def worker_counts(num_envs: int, cores: int) -> list[int]:
    """1, 2, 4, ... and the number of cores, no more than there are environments; none for one environment.

    >>> worker_counts(16, 6)
    [1, 2, 4, 6]
    """
    powers = itertools.takewhile(lambda workers: workers < cores, (2**k for k in itertools.count()))
    return [workers for workers in (*powers, cores) if workers <= num_envs] if num_envs > 1 else []


# -- measuring --------------------------------------------------------------------------------------------------------


def measure_single(cfg: TrainConfig, seconds: float) -> StepCost:
    """Time the steps and the resets of one environment separately."""
    plain = replace(cfg.env, vectorization="sync")
    with closing(EnvThunk(cfg.env_id, plain, cfg.seed, plugins=cfg.plugins)()) as env:
        rng = np.random.default_rng(cfg.seed)
        obs, _ = env.reset()
        choose = in_turn(lambda obs: sample_action(env.action_space, rng, obs), obs)
        steps, stepping = 0, 0.0
        resets: list[float] = []
        deadline = perf_counter() + seconds
        while steps == 0 or perf_counter() < deadline:
            action = choose(obs)
            began = perf_counter()
            obs, _, terminated, truncated, _ = env.step(action)
            stepping += perf_counter() - began
            steps += 1
            if terminated or truncated:
                began = perf_counter()
                obs, _ = env.reset()
                resets.append(perf_counter() - began)
        length = steps / len(resets) if resets else None
        if not resets:
            began = perf_counter()
            env.reset()
            resets.append(perf_counter() - began)
    return StepCost(1e6 * stepping / steps, 1e6 * float(np.mean(resets)), length)


def in_turn(draw: Callable[[Any], Any], obs: Any) -> Callable[[Any], Any]:
    """Function from observation to action: `draw` itself if `obs` has an action mask, else a pool drawn beforehand."""
    if isinstance(obs, dict) and ACTION_MASK in obs:
        return draw
    pool = itertools.cycle([draw(obs) for _ in range(POOL)])
    return lambda obs: next(pool)


def measure_vector(cfg: TrainConfig, num_envs: int, seconds: float) -> float:
    """Env steps per second of a vector environment, resets included, drawing the actions excluded."""
    with closing(make_vector_env(cfg, num_envs)) as env:
        player = Player(env, np.random.default_rng(cfg.seed))
        player.play(WARMUP_FRACTION * seconds)
        env_steps, busy = player.play(seconds)
    return env_steps / busy


class Player:
    """Steps a vector environment with random actions, in any autoreset mode."""

    def __init__(self, env: VectorEnv[Any, Any, Any], rng: np.random.Generator) -> None:
        self.env = env
        self.rng = rng
        self.autoreset = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.obs, _ = env.reset()
        self.ended: Array = np.zeros(env.num_envs, np.bool_)
        self.choose = in_turn(self.draw, self.obs)

    def draw(self, obs: Any) -> Array:
        """Random actions (N, ...), allowed by the masks if there are any."""
        masked = isinstance(obs, dict) and ACTION_MASK in obs
        rows = [{ACTION_MASK: mask} for mask in obs[ACTION_MASK]] if masked else [None] * self.env.num_envs
        return np.stack([sample_action(self.env.single_action_space, self.rng, row) for row in rows])

    def play(self, seconds: float) -> tuple[int, float]:
        """Step for `seconds`, at least once; returns (env steps, seconds spent in the environment)."""
        env_steps, busy = 0, 0.0
        deadline = perf_counter() + seconds
        while env_steps == 0 or perf_counter() < deadline:
            actions = self.choose(self.obs)
            if self.autoreset is AutoresetMode.NEXT_STEP:
                env_steps += int((~self.ended).sum())  # this step only resets rows that ended
            else:
                env_steps += self.env.num_envs
            began = perf_counter()
            self.obs, _, terminated, truncated, _ = self.env.step(actions)
            self.ended = terminated | truncated
            if self.autoreset is AutoresetMode.DISABLED and self.ended.any():
                self.obs, _ = self.env.reset(options={"reset_mask": self.ended})
            busy += perf_counter() - began
        return env_steps, busy


# -- advice -----------------------------------------------------------------------------------------------------------


def advise(rates: Sequence[Rate], cost: StepCost) -> Advice:
    """The fastest vectorization for one number of environments; sync unless another beats it by MARGIN."""
    sync = next(rate for rate in rates if rate.vectorization == "sync")
    best = max(rates, key=lambda rate: rate.steps_per_second)
    if best.steps_per_second < MARGIN * sync.steps_per_second:
        best = sync
    times_sync = best.steps_per_second / sync.steps_per_second
    return Advice(best.num_envs, best.vectorization, best.num_workers, times_sync, reason_for(best, sync, rates, cost))


def reason_for(best: Rate, sync: Rate, rates: Sequence[Rate], cost: StepCost) -> str:
    times = best.steps_per_second / sync.steps_per_second
    if best.vectorization == "native":
        return (
            f"{times:.1f} times as fast as sync: one call steps all of them "
            "(it takes no per-environment wrappers and has its own random generator)"
        )
    if best.vectorization == "async":
        return (
            f"{times:.1f} times as fast as sync: a step of {duration(cost.step_us)} outweighs "
            f"a message to {'a worker' if best.num_workers == 1 else 'the workers'}"
        )
    fastest = {rate.vectorization: rate for rate in sorted(rates, key=lambda rate: rate.steps_per_second)}
    names: dict[Vectorization, str] = {"async": "workers", "native": "native"}
    compared = [
        f"{name} {fastest[key].steps_per_second / sync.steps_per_second:.1f} times its speed"
        for key, name in names.items()
        if key in fastest
    ]
    return f"a step costs {duration(cost.step_us)}" + (f"; {', '.join(compared)}" if compared else "")


def duration(microseconds: float) -> str:
    """A duration in a readable unit.

    >>> duration(9.14), duration(2500.0)
    ('9.1 µs', '2.5 ms')
    """
    if microseconds < 1000:
        return f"{microseconds:.1f} µs"
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.1f} s"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
