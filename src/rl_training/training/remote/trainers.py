"""Off-policy loop over runners: a block is collected with the weights from its start, then come the updates it owes.

The same for any number of runners, and another run than with `env.collector: local`, where every step is taken with the
newest weights. A call per step would be that run, but a call through a cluster takes longer than hundreds of steps.
"""

from __future__ import annotations

from collections.abc import Callable

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.contract import ReplayTerms, reward_scale
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import OffPolicyTrainer, Replay
from rl_training.training.remote.collector import RemoteCollector
from rl_training.training.remote.runner import Order
from rl_training.types import Algorithm, Metrics


class RemoteOffPolicyTrainer(OffPolicyTrainer):
    """Blocks of all environments go into replay as a whole.

    Updates and env steps keep the ratio `updates_per_step` exactly, also where runners do not wait for the learner: it
    waits for data where they are slower, and they wait for their next order where it is.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        collector: RemoteCollector,
        buffer: Replay,
        terms: ReplayTerms,
        settings: RunSettings,
        *,
        block: RolloutBuffer | None = None,
        anneal: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(algorithm, collector, buffer, terms, settings, block=block, anneal=anneal)
        self.remote = collector

    def train_step(self, num_steps: int | None = None) -> Metrics:
        with self.clock.measure("waiting"):
            whole = self.remote.gather(self.order(num_steps or self.num_steps), self.algorithm.policy)
        if self.sink.block is not None:
            self.sink.block.begin({}, {})
        stats = self.remote.store(whole, self.sink)
        learnt: list[Metrics] = []
        with self.clock.measure("learning"):
            for t in range(whole.num_steps):
                before = self.progress.env_steps
                ended = sum(episode.time == t for episode in whole.episodes)
                self.progress.advance(env_steps=self.collector.num_envs, episodes=ended)
                learnt += [self.learn() for _ in range(self.schedule.owed(before, self.progress.env_steps))]
            if self.sink.block is not None:
                self.algorithm.observe(self.sink.block.as_batch())
        return {**self.finish_step(stats, mean_metrics(learnt)), "buffer/size": len(self.buffer)}

    def order(self, num_steps: int) -> Order:
        """The next block, cut where the budget of the run ends."""
        num_envs, position = self.collector.num_envs, self.progress.env_steps
        left = -(-(self.total_timesteps - position) // num_envs) if self.total_timesteps else num_steps
        warmup = max(-(-(self.learning_starts - position) // num_envs), 0)
        steps = min(num_steps, max(left, 1)) if self.remote.in_order else num_steps
        return Order(steps, position, num_envs, warmup, reward_scale(self.algorithm))
