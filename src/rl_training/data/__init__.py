"""Storage of experience between acting and learning: rollouts, replay, whole episodes."""

from rl_training.data.episode_buffer import EpisodeBuffer
from rl_training.data.frame_buffer import FrameReplayBuffer
from rl_training.data.her import HindsightReplayBuffer
from rl_training.data.priorities import Priorities
from rl_training.data.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_options import ReplayOptions
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import Layout, fit_capacity, layout, replay_memory_bytes

__all__ = [
    "RolloutBuffer",
    "ReplayBuffer",
    "PrioritizedReplayBuffer",
    "FrameReplayBuffer",
    "HindsightReplayBuffer",
    "Priorities",
    "EpisodeBuffer",
    "Layout",
    "ReplayOptions",
    "layout",
    "fit_capacity",
    "replay_memory_bytes",
]
