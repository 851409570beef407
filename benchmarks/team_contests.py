"""The contest of several agents, beside AgileRL. Plain data."""

from __future__ import annotations

from typing import Any

from algorithm_lists import same
from contest_types import Contest, Contestant, Measure, Peer

IPPO_SETTINGS: dict[str, Any] = {
    "env_id": "mpe2/simple_spread_v3",
    "num_envs": 8,
    "num_steps": 100,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 5e-4,
    "gamma": 0.95,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "hidden_dims": [64, 64, 64],
    "warmup": 1600,
    "total_timesteps": 17_600,
}
AS_AGILERL = {"normalize_value": False, "clip_vf": 0.2, "adam_eps": 1e-8}
"""What AgileRL does beside the settings."""

IPPO = Contest(
    name="ippo_simple_spread",
    title="IPPO on simple_spread, 8 environments, one core",
    text="CPU time per joint step of three agents, 8 environments × 100 steps per rollout, 4 epochs of 4 minibatches, "
    "one network for all agents. What the environment costs by itself is measured in the same process, stepped alone "
    "with random actions, and taken off: mpe2's parallel form there, the same world stepped directly here. AgileRL has "
    "its environments in worker processes, whose CPU time counts; a population of one, nothing mutated. No evaluation "
    "and no checkpoint in either; this package writes its run directory and metrics meanwhile. Start-up and the first "
    "1,600 joint steps do not count.",
    measures=(
        Measure("own_us_per_step", "CPU µs per joint step without the environment's", "lower", 0, goal=2.0),
        Measure("cpu_us_per_step", "with it", "lower"),
        Measure("env_us_per_step", "environment alone"),
        Measure("env_steps_per_second", "joint steps/s", "higher"),
        Measure("peak_mb", "peak memory, MB", "lower"),
        Measure("parameters", "weights"),
    ),
    contestants=(
        Contestant("rl_training", ("benchmarks/teams.py", "{settings}"), cores=1, settings={"hparams": AS_AGILERL}),
        Peer("AgileRL", ("benchmarks/teams_agilerl.py", "{settings}"), venv=".venv-peers-teams", cores=1),
    ),
    algorithm=(
        *same(
            rollout="8 × 100 steps",
            epochs="4 of 4 minibatches of 600 rows",
            network="three of 64, ReLU, for all agents",
        ),
        *same(
            **{name: IPPO_SETTINGS[name] for name in ("learning_rate", "gamma", "gae_lambda", "clip_coef", "ent_coef")}
        ),
        *same(value_loss="0.5 × ½ squared error", value_clipping="0.2", Adam="eps 1e-8", advantages="per minibatch"),
        ("gradient norm", "0.5, of all gradients", "0.5, of each network"),
        ("first weights", "orthogonal", "orthogonal"),
        ("time limit", "bootstrapped", "counts as an end"),
    ),
    settings=IPPO_SETTINGS,
    quick={"warmup": 800, "total_timesteps": 4000},
)
TEAM_CONTESTS = (IPPO,)
