"""Where experience is kept between acting and learning: rollouts, replay, whole episodes."""

from rl_training.data.episode_buffer import EpisodeBuffer
from rl_training.data.frame_buffer import FrameReplayBuffer
from rl_training.data.her import HindsightReplayBuffer
from rl_training.data.priorities import Priorities
from rl_training.data.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer, replay_memory_bytes
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import fit_capacity, layout

__all__ = [
    "RolloutBuffer",
    "ReplayBuffer",
    "PrioritizedReplayBuffer",
    "FrameReplayBuffer",
    "HindsightReplayBuffer",
    "Priorities",
    "EpisodeBuffer",
    "layout",
    "fit_capacity",
    "replay_memory_bytes",
]
