"""Where experience is kept between acting and learning: rollouts, replay, whole episodes."""

from rl_training.data.episode_buffer import EpisodeBuffer
from rl_training.data.replay_buffer import ReplayBuffer, replay_memory_bytes
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import fit_capacity, layout

__all__ = ["RolloutBuffer", "ReplayBuffer", "EpisodeBuffer", "layout", "fit_capacity", "replay_memory_bytes"]
