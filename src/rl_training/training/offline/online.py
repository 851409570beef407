"""Offline to online: the off-policy loop with batches that are partly from a dataset."""

from __future__ import annotations

from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.mixed_replay import MixedReplay
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import CollectorLike
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.types import Algorithm, StateDict, Stateful


class OnlineTrainer(OffPolicyTrainer):
    """An `OffPolicyTrainer` that keeps learning from the dataset of its offline phase; normalisers stay as they are."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: CollectorLike,
        buffer: MixedReplay,
        terms: ReplayTerms,
        settings: RunSettings,
    ) -> None:
        super().__init__(algorithm, collector, buffer, terms, settings)
        self.replay: DatasetReplay = buffer.dataset
        if self.replay.has_scores:
            self.normalized_score = self.replay.score

    def take_from(self, policy: StateDict, algorithm: StateDict) -> None:
        """Go on with the networks, optimisers and normaliser of an offline run; the random stream is this run's own."""
        own = self.algorithm.state_dict()
        self.algorithm.policy.load_state_dict(policy)
        self.algorithm.load_state_dict({**algorithm, **({"rng": own["rng"]} if "rng" in own else {})})

    def parts(self) -> dict[str, Stateful]:
        parts = super().parts()
        progress = parts.pop("progress")
        return {**parts, "dataset": self.replay, "progress": progress}
