"""Environments in worker processes: `WorkerVectorEnv` and the processes behind it."""

from rl_training.envs.workers.vector import WorkerVectorEnv

__all__ = ["WorkerVectorEnv"]
