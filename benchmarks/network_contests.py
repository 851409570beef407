"""The contests of networks with images and with memory, beside Stable-Baselines3 and sb3-contrib. Plain data."""

from __future__ import annotations

from typing import Any

from algorithm_lists import atari_rows, recurrent_rows
from contest_types import Contest, Contestant, Measure, Peer

PEER = "Stable-Baselines3"
MEASURES = (
    Measure("cpu_us_per_step", "CPU µs per step", "lower", 1),
    Measure("peak_mb", "peak memory, MB", "lower"),
)

# -- Pong -------------------------------------------------------------------------------------------------------------

PONG_SETTINGS: dict[str, Any] = {
    "env_id": "PongNoFrameskip-v4",
    "num_envs": 8,
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 1.0,
    "max_grad_norm": 0.5,
    "hidden_dims": [],
    "warmup": 2048,
    "total_timesteps": 14_336,
}
PONG_QUICK = {"warmup": 1024, "total_timesteps": 3072}
NETWORK_NAMES = {
    "nature": "Nature: 32×8s4, 64×4s2, 64×3s1, 512",
    "small": "of Mnih et al. 2013: 16×8s4, 32×4s2, 256",
}


def ours_on_pong(encoder: str, cores: int, *, overlap: bool) -> Contestant:
    """ALE's own vector in as many threads as there are cores; with overlap the next rollout is collected meanwhile."""
    env: dict[str, Any] = {"vectorization": "native", "num_workers": cores, "wrappers": ["atari"]}
    settings = {
        "env": {**env, "overlap": True} if overlap else env,
        "network": {"shared": True, "actor": {"encoder": encoder, "hidden_dims": [], "activation": "relu"}},
        "threads": cores,
    }
    name = "rl_training, overlap" if overlap else "rl_training"
    return Contestant(name, ("benchmarks/ppo.py", "{settings}"), cores=cores, settings=settings)


def sb3_on_pong(encoder: str, cores: int, threads: int, *, subproc: bool) -> Contestant:
    vector = "SubprocVecEnv" if subproc else "DummyVecEnv"
    name = f"{PEER}, {vector}, {threads} {'thread' if threads == 1 else 'threads'}"
    settings = {"encoder": encoder, "threads": threads, "subproc": subproc}
    return Peer(name, ("benchmarks/atari_sb3.py", "{settings}"), cores=cores, settings=settings)


def pong_contest(name: str, encoder: str, cores: int, goal: float) -> Contest:
    """PPO on Pong: agent steps per second of collecting and learning."""
    one = cores == 1
    ways = [(1, False)] if one else [(threads, subproc) for threads in (1, 2) for subproc in (False, True)]
    where = "on one core, one thread each" if one else "on two cores"
    manner = "" if one else " This package collects the next rollout while it learns from the last; of the peer's four "
    manner += "" if one else "ways, one or two threads with environments in this process or in others, the best counts."
    return Contest(
        name=name,
        title=f"PPO on Pong, the {'Nature network' if encoder == 'nature' else 'small network'}, "
        f"{'one core' if one else 'two cores'}",
        text=f"Agent steps per second of the training loop {where}: PongNoFrameskip-v4, 8 environments × 128 steps, 4 "
        "epochs of 4 minibatches of 256 images, the same shared network on both sides. No evaluation and no checkpoint "
        f"in either; this package writes its run directory and metrics meanwhile.{manner} Start-up and the first 2,048 "
        "steps do not count. CPU time is that of the process and of its workers.",
        measures=(Measure("env_steps_per_second", "agent steps/s", "higher", goal=goal), *MEASURES),
        contestants=(
            ours_on_pong(encoder, cores, overlap=not one),
            *(sb3_on_pong(encoder, cores, threads, subproc=subproc) for threads, subproc in ways),
            *(() if one else (ours_on_pong(encoder, cores, overlap=False),)),
        ),
        algorithm=atari_rows(PONG_SETTINGS, NETWORK_NAMES[encoder], overlap=not one),
        settings=PONG_SETTINGS,
        quick=PONG_QUICK,
    )


# -- CartPole without velocities --------------------------------------------------------------------------------------

RECURRENT_SETTINGS: dict[str, Any] = {  # those of the preset ppo/cartpole_no_velocity
    "env_id": "CartPole-v1",
    "num_envs": 8,
    "num_steps": 128,
    "num_epochs": 10,
    "num_minibatches": 4,
    "learning_rate": {"type": "linear", "start": 2e-3, "end": 0.0},
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": {"type": "linear", "start": 0.2, "end": 0.002},
    "ent_coef": 0.0,
    "vf_coef": 1.0,
    "max_grad_norm": 0.5,
    "hidden_dims": [],
    "memory": 64,
    "warmup": 2048,
    "total_timesteps": 100_000,
}
SEQUENCE_LENGTH = 32
"""Steps through which gradients flow back here; the peer takes whole episodes within a minibatch."""


def ours_remembering(memory: str, layers: list[int]) -> Contestant:
    """Layers, then a memory: for the actor, and others for the critic."""
    side = {"hidden_dims": layers, "memory": {"type": memory, "size": RECURRENT_SETTINGS["memory"]}}
    positions = {"name": "select_observation", "kwargs": {"indices": [0, 2]}}
    settings = {
        "env": {"wrappers": [positions], "normalize_obs": True, "normalize_reward": True},
        "network": {"actor": side, "critic": side},
        "hparams": {"sequence_length": SEQUENCE_LENGTH},
    }
    name = f"rl_training, {memory.upper()}"
    check = ("benchmarks/check.py",)
    return Contestant(name, ("benchmarks/ppo.py", "{settings}"), cores=1, settings=settings, check=check)


def recurrent_contest(name: str, title: str, layers: list[int], memories: tuple[str, ...]) -> Contest:
    """PPO with memory beside RecurrentPPO."""
    where = f"a layer of {layers[0]} beside it" if layers else "straight behind the observation"
    return Contest(
        name=name,
        title=f"PPO with {title} on CartPole-v1 without velocities",
        text="Env steps per second of the training loop on one core: 8 environments × 128 steps, 10 epochs of 4 "
        "minibatches, 100,000 steps, normalised observations without velocities, a memory of 64 for the actor and one "
        f"for the critic, {where}. The peer is RecurrentPPO of sb3-contrib. The score is the mean of 100 greedy "
        "episodes afterwards, outside the measured time. Start-up and the first 2,048 steps do not count.",
        measures=(
            Measure("env_steps_per_second", "env steps/s", "higher", goal=3.0),
            *MEASURES,
            Measure("score", "score", "higher", 1, limit=450.0 if layers else None),
        ),
        contestants=(
            *(ours_remembering(memory, layers) for memory in memories),
            Peer("sb3-contrib, LSTM", ("benchmarks/recurrent_sb3.py", "{settings}"), cores=1),
        ),
        algorithm=recurrent_rows(RECURRENT_SETTINGS, layers, memories[0]),
        settings={**RECURRENT_SETTINGS, "hidden_dims": layers},
        quick={"total_timesteps": 6144},
    )


NETWORK_CONTESTS = (
    pong_contest("ppo_pong", "nature", cores=1, goal=1.2),
    pong_contest("ppo_pong_two_cores", "nature", cores=2, goal=1.4),
    pong_contest("ppo_pong_small", "small", cores=2, goal=2.0),
    recurrent_contest("ppo_recurrent", "a GRU", [64], ("gru", "lstm")),
    recurrent_contest("ppo_recurrent_lstm", "the same LSTM", [], ("lstm",)),
)
