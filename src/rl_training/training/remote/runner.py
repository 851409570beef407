"""A runner: some environments of a run with a copy of its policy. It does what it is ordered and knows nothing of Ray.

Each environment acts by itself, with its own random stream of (seed, "actions", index). So what it sees depends on the
weights and on nothing else: not on how many runners there are, nor on which environments share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from rl_training.data.replay_buffer import PRIORITY
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.guards import Guard
from rl_training.training.collector import Collector, CollectStats
from rl_training.training.off_policy import SMALLEST_PRIORITY
from rl_training.training.remote.delivery import Delivery, EndedEpisode, Recorder, merged, stacked
from rl_training.types import Array, Batch, Policy, StateDict


@dataclass(frozen=True)
class Order:
    """One rollout or block to collect."""

    num_steps: int
    """Steps of each environment."""
    env_steps: int
    """Env steps of the run when it begins; schedules of the policy follow them."""
    env_steps_per_step: int = 0
    """Env steps that the run counts for each step: all its environments, or none where a rollout counts as a whole."""
    warmup_steps: int = 0
    """Steps at the start that the policy from before learning takes; more than `num_steps` means all."""
    reward_scale: float = 1.0
    """Factor by which the learner multiplies rewards; only initial priorities depend on it."""


class Prioritize(Protocol):
    """Initial priorities (T, n) of steps (T, n, ...), or None for the usual ones."""

    def __call__(self, steps: Batch, reward_scale: float, /) -> Array | None: ...


@dataclass(frozen=True)
class Acting:
    """Who acts in a runner."""

    policy: Policy
    """Takes the state that the learner sends."""
    warmup: Policy
    """Acts before learning starts."""
    guard: Guard
    """Checks actions; its progress is that of the run as orders tell it."""
    explorer: Callable[[int], Policy] | None = None
    """The policy of environment i, where environments explore differently."""
    prioritize: Prioritize | None = None
    info_keys: Sequence[str] = field(default=())

    def go_to(self, env_steps: int) -> None:
        """Tell the policy how far the run is."""
        progress = self.guard.progress
        progress.advance(env_steps=env_steps - progress.env_steps)

    def policy_of(self, index: int) -> Policy:
        return self.policy if self.explorer is None else self.explorer(index)


class Cell:
    """One environment with its collector."""

    def __init__(self, index: int, env: ResumableSyncVectorEnv, acting: Acting, rng: np.random.Generator) -> None:
        self.index, self.env, self.acting = index, env, acting
        self.policy = acting.policy_of(index)
        self.collector = Collector(env, self.policy, rng, info_keys=acting.info_keys, guard=acting.guard)

    def collect(self, order: Order) -> Delivery:
        """The steps of an order."""
        recorder, stats = Recorder(), CollectStats()
        ended: list[EndedEpisode] = []
        for t in range(order.num_steps):
            self.acting.go_to(order.env_steps + t * order.env_steps_per_step)
            policy = self.acting.warmup if t < order.warmup_steps else self.policy
            one = self.collector.collect(1, recorder, policy)
            # the collector of one environment calls it 0; in the run it has its own index
            ended += [EndedEpisode(t, replace(episode, env_index=self.index)) for episode in one.episodes]
            stats.add(one)
        return recorder.delivery(self.index, ended, self.state_dict(), stats)

    def state_dict(self) -> StateDict:
        return {"env": self.env.envs[0].state_dict(), "collector": self.collector.state_dict()}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.env.envs[0].load_state_dict(state["env"])
        self.collector.load_state_dict(state["collector"])


class Runner:
    """Environments of a run, by their index in it."""

    def __init__(self, cells: Sequence[Cell], acting: Acting) -> None:
        self.cells = list(cells)
        self.acting = acting

    def restore(self, states: Mapping[int, StateDict]) -> None:
        """Go to these states; environments without one stay as they are, new or not."""
        for cell in self.cells:
            if cell.index in states:
                cell.load_state_dict(states[cell.index])

    def collect(self, order: Order, policy_state: StateDict) -> Delivery:
        """Act with the given weights in each environment."""
        self.acting.policy.load_state_dict(policy_state)
        whole = merged([cell.collect(order) for cell in self.cells])
        if self.acting.prioritize is None:
            return whole
        priorities = self.acting.prioritize(with_next(whole), order.reward_scale)
        return (
            whole
            if priorities is None
            else replace(whole, extras={**whole.extras, PRIORITY: priorities + SMALLEST_PRIORITY})
        )

    def close(self) -> None:
        for cell in self.cells:
            cell.env.close()


def with_next(delivery: Delivery) -> Batch:
    """The columns of a delivery with the true next observation of every row."""
    return {**delivery.columns, "next_obs": stacked([step.next_obs for step in delivery.steps()])}
