"""The contests: what is measured, with which settings, by whom. Plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from algorithm_lists import AS_REJAX, REJAX_ROWS, SB3_PPO_ROWS, as_the_peer, off_policy_rows, ppo_rows
from contest_types import Contest, Contestant, JaxPeer, Measure, Peer
from network_contests import NETWORK_CONTESTS
from offline_contests import OFFLINE_CONTESTS
from team_contests import TEAM_CONTESTS
from world_model_contests import DREAMER_UPDATE

from rl_training.config.loading import config_to_mapping, load_config

PEERS = "Stable-Baselines3"

# -- speed of the training loop ---------------------------------------------------------------------------------------

PPO_SETTINGS: dict[str, Any] = {
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "hidden_dims": [64, 64],
    "warmup": 4096,
    "total_timesteps": 65_536,
}
PPO_QUICK = {"warmup": 2048, "total_timesteps": 8192}
PACKAGE = Contestant("rl_training", ("benchmarks/ppo.py", "{settings}"))
NATIVE = Contestant("rl_training, NumPy CartPole", PACKAGE.command, settings={"vectorization": "native"})
SB3 = Peer(PEERS, ("benchmarks/ppo_sb3.py", "{settings}"))


def ppo_contest(name: str, env_id: str, num_envs: int, contestants: tuple[Contestant, ...], goal: float) -> Contest:
    """PPO at work: env steps per second of collecting and learning, after a warm-up."""
    return Contest(
        name=name,
        title=f"PPO on {env_id}, {num_envs} environments",
        text=f"Env steps per second of the training loop, {num_envs} environments × 128 steps per rollout, 4 epochs "
        "of 4 minibatches, 64×64 tanh, learning rate 2.5e-4, one thread. No evaluation and no checkpoint in either; "
        "this package writes its run directory and metrics meanwhile. Start-up and the first 4,096 steps do not count.",
        measures=(
            Measure("env_steps_per_second", "env steps/s", "higher", goal=goal),
            Measure("cpu_us_per_step", "CPU µs per step", "lower", 1),
            Measure("peak_mb", "peak memory, MB", "lower"),
        ),
        contestants=contestants,
        algorithm=(*ppo_rows(PPO_SETTINGS, num_envs), *SB3_PPO_ROWS),
        settings={"env_id": env_id, "num_envs": num_envs, **PPO_SETTINGS},
        quick=PPO_QUICK,
    )


DQN_SETTINGS: dict[str, Any] = {
    "algo": "dqn",
    "env_id": "CartPole-v1",
    "learning_rate": 1e-3,
    "batch_size": 128,
    "updates_per_step": 0.1,
    "hidden_dims": [64, 64],
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "warmup": 2048,
    "total_timesteps": 22_528,
}
ACTOR_CRITIC_SETTINGS: dict[str, Any] = {
    "env_id": "Pendulum-v1",
    "learning_rate": 3e-4,
    "batch_size": 256,
    "updates_per_step": 1.0,
    "hidden_dims": [256, 256],
    "buffer_size": 100_000,
    "learning_starts": 256,
    "warmup": 512,
    "total_timesteps": 2560,
}


def off_policy_contest(name: str, settings: dict[str, Any], rhythm: str, goal: float) -> Contest:
    """DQN, SAC or TD3 at work in one environment: env steps per second of collecting and learning."""
    widths = "×".join(map(str, settings["hidden_dims"]))
    return Contest(
        name=name,
        title=f"{settings['algo'].upper()} on {settings['env_id']}",
        text=f"Env steps per second of the training loop, one environment, {rhythm}, batches of "
        f"{settings['batch_size']}, {widths} ReLU, one thread. No evaluation and no checkpoint in either; this package "
        f"writes its run directory and metrics meanwhile. The first {settings['warmup']:,} steps do not count.",
        measures=(
            Measure("env_steps_per_second", "env steps/s", "higher", goal=goal),
            Measure("cpu_us_per_step", "CPU µs per step", "lower", 1),
            Measure("peak_mb", "peak memory, MB", "lower"),
        ),
        contestants=(
            Contestant(
                "rl_training", ("benchmarks/off_policy.py", "{settings}"), settings={"hparams": as_the_peer(settings)}
            ),
            Peer(PEERS, ("benchmarks/off_policy_sb3.py", "{settings}")),
        ),
        algorithm=off_policy_rows(settings, jax=False),
        settings=settings,
        quick={"learning_starts": 128, "warmup": 256, "total_timesteps": 1024},
    )


# -- time to a solved CartPole ----------------------------------------------------------------------------------------

SOLVE_SETTINGS: dict[str, Any] = {
    "env_id": "CartPole-v1",
    "stop_at_return": 475,
    "eval_frequency": 10_000,
    "num_eval_episodes": 10,
    "total_timesteps": 200_000,
}
ZOO_SETTINGS: dict[str, Any] = {  # the tuned settings of RL Baselines3 Zoo for CartPole-v1
    **PPO_SETTINGS,
    "num_envs": 8,
    "num_steps": 32,
    "num_epochs": 20,
    "num_minibatches": 1,
    "learning_rate": {"start": 1e-3, "end": 0.0},
    "clip_coef": {"start": 0.2, "end": 0.0},
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "vf_coef": 1.0,
    "total_timesteps": 100_000,
}
CHECK, CHECK_SB3 = ("benchmarks/check.py",), ("benchmarks/check_sb3.py",)


SCORE = Measure("score", "score", None, 1, floor=475.0)
"""Of CartPole: what every run must be worth at its end."""


def preset_settings(preset: str) -> dict[str, Any]:
    """The settings of a preset of this package, as another library's contestant takes them."""
    cfg = config_to_mapping(load_config(preset))
    assert cfg["network"]["actor"] == cfg["network"]["critic"], "the peers' contestant builds two equal networks"
    assert cfg["network"]["actor"]["activation"] == "tanh", "the peers' contestant builds tanh networks"
    names = [name for name in PPO_SETTINGS if name in cfg["hparams"]]
    return {
        **PPO_SETTINGS,
        **{name: cfg["hparams"][name] for name in names},
        "num_envs": cfg["env"]["num_envs"],
        "hidden_dims": list(cfg["network"]["actor"]["hidden_dims"]),
        "total_timesteps": cfg["training"]["total_timesteps"],
    }


def rl_train(name: str, *flags: str) -> Contestant:
    """`rl train` as a user types it; --json only changes what is printed at the end."""
    goal = ("--stop-at-return", "475", "--training.stop-episodes", "10")  # as many as the peer's callback plays
    command = ("-m", "rl_training", "train", *flags, *goal, "--seed", "{seed}")
    return Contestant(name, (*command, "--output-dir", "{scratch}", "--json"), check=CHECK)


def sb3_solves(name: str, settings: dict[str, Any]) -> Contestant:
    return Peer(name, ("benchmarks/solve_sb3.py", "{settings}"), settings=settings, check=CHECK_SB3)


def speed_flags(num_envs: int) -> tuple[str, ...]:
    """The settings of the speed contests as flags; everything else about them is the default of PPO."""
    budget = str(SOLVE_SETTINGS["total_timesteps"])
    run = ("--algo", "ppo", "--env-id", "CartPole-v1", "--num-envs", str(num_envs), "--total-timesteps", budget)
    return (*run, "--hparams.num-steps", "128", "--hparams.learning-rate", "2.5e-4")


SOLVE = Contest(
    name="solve_cartpole",
    title="From process start to a solved CartPole",
    text="Seconds from starting the process to its end, which comes when an evaluation (10 greedy episodes every "
    "10,000 env steps) reaches a mean of 475. For this package that is the command a user types, with its run "
    "directory, TensorBoard events and checkpoints; for Stable-Baselines3 a script with EvalCallback and "
    "StopTrainingOnRewardThreshold. 4 × 128 and 16 × 128 are the settings of the speed contests, below; those of RL "
    "Zoo and of ppo/cartpole are in `benchmarks/contests.py` and the preset. The score is the mean of 100 fresh greedy "
    "episodes afterwards, and is not part of the time.",
    measures=(
        Measure("process_seconds", "seconds", "lower", 2, goal=1.0),
        Measure("process_cpu_seconds", "CPU seconds", "lower", 2),
        Measure("peak_mb", "peak memory, MB", "lower"),
        Measure("env_steps", "env steps"),
        SCORE,
    ),
    algorithm=(*ppo_rows(PPO_SETTINGS, 4)[1:], *SB3_PPO_ROWS),
    contestants=(
        rl_train("rl train ppo/cartpole", "ppo/cartpole"),
        sb3_solves(f"{PEERS}, settings of RL Zoo", ZOO_SETTINGS),
        sb3_solves(f"{PEERS}, settings of ppo/cartpole", preset_settings("ppo/cartpole")),
        rl_train("rl train, 4 × 128", *speed_flags(4)),
        sb3_solves(f"{PEERS}, 4 × 128", {**PPO_SETTINGS, "num_envs": 4, **SOLVE_SETTINGS}),
        rl_train("rl train, 16 × 128", *speed_flags(16)),
        sb3_solves(f"{PEERS}, 16 × 128", {**PPO_SETTINGS, "num_envs": 16, **SOLVE_SETTINGS}),
    ),
    settings=SOLVE_SETTINGS,
)

# -- replay -----------------------------------------------------------------------------------------------------------

REPLAY = Contest(
    name="replay",
    title="Replay buffer",
    text="A ring of 1M transitions with observations of 4 numbers: transitions per second added one at a time and 16 "
    "at a time, batches of 256 per second drawn as torch tensors and as NumPy arrays, copied out, where the buffer "
    "offers them, and the memory that a full ring occupies.",
    measures=(
        Measure("add_1", "add 1, /s", "higher", goal=1.0),
        Measure("add_16", "add 16, transitions/s", "higher", goal=1.0),
        Measure("sample_256", "sample 256 as tensors, /s", "higher", goal=1.0),
        Measure("sample_256_numpy", "as NumPy, /s", "higher", goal=1.0),
        Measure("memory_mb", "memory, MB", "lower", 1),
    ),
    contestants=(
        Contestant("rl_training", ("benchmarks/replay.py",)),
        Peer(PEERS, ("benchmarks/replay_sb3.py",)),
        Peer("cpprb", ("benchmarks/replay_cpprb.py",)),
        Peer("Tianshou", ("benchmarks/replay_tianshou.py",)),
    ),
)
REPLAY_PRIORITIZED = Contest(
    name="replay_prioritized",
    title="Prioritised replay buffer",
    text="The same ring, drawn by priority: batches of 256 per second, with their importance weights; updates of 256 "
    "priorities per second; and rounds of a training loop per second, each of which adds a step of 16 environments, "
    "draws a batch and updates its priorities. This package enters new rows into its tree when the next batch is "
    "drawn, so its adding alone is as quick as without priorities, and the loop is the fair comparison.",
    measures=(
        Measure("sample_256_numpy", "sample 256, /s", "higher", goal=1.0),
        Measure("train_256", "loop, rounds/s", "higher", goal=1.0),
        Measure("update_256", "update 256, /s", "higher"),
        Measure("add_1", "add 1, /s", "higher", goal=1.0),
        Measure("add_16", "add 16, transitions/s", "higher", goal=1.0),
        Measure("memory_mb", "memory, MB", "lower", 1),
    ),
    contestants=(
        Contestant("rl_training", ("benchmarks/replay.py", "prioritized")),
        Peer("cpprb", ("benchmarks/replay_cpprb.py", "prioritized")),
        Peer("Tianshou", ("benchmarks/replay_tianshou.py", "prioritized")),
    ),
)

# -- collecting beside learning ---------------------------------------------------------------------------------------

WAITING_PPO: dict[str, Any] = {
    "algo": "ppo",
    "env": "WaitingCartPole",
    "hparams": {"num_steps": 32, "num_epochs": 16, "num_minibatches": 4, "learning_rate": 2.5e-4},
    "hidden_dims": [1024, 1024],
    "warmup": 256,
    "total_timesteps": 2304,
}
WAITING_SAC: dict[str, Any] = {
    "algo": "sac",
    "env": "WaitingPendulum",
    "hparams": {"learning_starts": 256, "batch_size": 256, "updates_per_step": 0.7},
    "hidden_dims": [256, 256],
    "warmup": 768,
    "total_timesteps": 2816,
}


def overlap_contest(name: str, settings: dict[str, Any], learning: str) -> Contest:
    """A run with `env.overlap` beside the same run without it, where learning is about as dear as collecting."""
    run = ("benchmarks/overlap.py", "{settings}")
    return Contest(
        name=name,
        title=f"Overlapped collection, {settings['algo'].upper()}",
        text=f"Env steps per second of the training loop in 4 environments, each of which waits 5 ms in every step; "
        f"{learning}, so that learning takes about as long as collecting (the ratio is in the table), one thread each. "
        "No gain is possible beyond (collecting + learning) / the longer of the two.",
        measures=(
            Measure("env_steps_per_second", "env steps/s", "higher", 1, goal=1.5),
            Measure("learning_per_collecting", "learning / collecting, seconds", None, 2),
            Measure("cpu_us_per_step", "CPU µs per step", None),
            Measure("peak_mb", "peak memory, MB"),
        ),
        contestants=(
            Contestant("env.overlap: true", run, settings={"overlap": True}),
            Contestant("env.overlap: false", run, peer=True, settings={"overlap": False}),
        ),
        settings={"num_envs": 4, **settings},
        quick={"warmup": 256, "total_timesteps": 1024},
        rival="the same run without it",
    )


# -- the JAX lane -----------------------------------------------------------------------------------------------------

COMPILED = Contestant(
    "rl_training", PACKAGE.command, settings={"backend": "jax", "hparams": AS_REJAX}, cores=1, check=CHECK
)
REJAX = JaxPeer("rejax", ("benchmarks/jax_ppo_rejax.py", "{settings}"), cores=1)
JAX_PPO_SETTINGS = {**PPO_SETTINGS, "env_id": "CartPole-v1", "warmup": 32_768, "total_timesteps": 1_048_576}
JAX_PPO_QUICK = {"warmup": 2048, "total_timesteps": 65_536}


def jax_ppo_contest(name: str, num_envs: int) -> Contest:
    """Environment, agent and loop in one program, on one core."""
    return Contest(
        name=name,
        title=f"PPO on CartPole-v1 in JAX, {num_envs} environments, one core",
        text=f"Env steps per second of one run on one core, {num_envs} environments × 128 steps per rollout, 4 epochs "
        "of 4 minibatches, 64×64 tanh, learning rate 2.5e-4. This package writes its run directory and a row of "
        "metrics per rollout meanwhile, rejax nothing. Compiling does not count: here the first 32,768 steps, there a "
        "whole run before the one that is measured. The score is that of the policy after 1,048,576 steps: 100 greedy "
        "episodes, of Gymnasium's CartPole here and of gymnax's there.",
        measures=(
            Measure("env_steps_per_second", "env steps/s", "higher", goal=1.4),
            Measure("cpu_us_per_step", "CPU µs per step", "lower", 2),
            Measure("peak_mb", "peak memory, MB", "lower"),
            SCORE,
        ),
        contestants=(COMPILED, REJAX),
        algorithm=(*ppo_rows(JAX_PPO_SETTINGS, num_envs), *REJAX_ROWS),
        settings={**JAX_PPO_SETTINGS, "num_envs": num_envs},
        quick=JAX_PPO_QUICK,
    )


JAX_TWO_SEEDS = Contest(
    name="jax_two_seeds",
    title="Two seeds of PPO in one JAX process",
    text="Env steps per second of two seeds together, as threads over one compiled program on all cores, beside one "
    "run on one core: CartPole-v1, 16 environments, the settings above. Before that each seed is trained alone in the "
    "same process, and what the threads leave must be equal to it to the last bit, else there is no result.",
    measures=(
        Measure("env_steps_per_second", "env steps/s in all", "higher", goal=1.3, limit=450_000),
        Measure("peak_mb", "peak memory, MB"),
    ),
    contestants=(
        Contestant("two seeds, two threads", ("benchmarks/jax_two_seeds.py", "{settings}")),
        Contestant("one seed, one core", PACKAGE.command, peer=True, cores=1),
    ),
    settings={**JAX_PPO_SETTINGS, "num_envs": 16, "backend": "jax", "hparams": AS_REJAX},
    quick=JAX_PPO_QUICK,
    rival="one run on one core",
)


def jax_off_policy_contest(name: str, settings: dict[str, Any], rhythm: str, **own: Any) -> Contest:
    """DQN, SAC or TD3 in one program beside SBX, whose environment is Gymnasium's. `own` is for this package alone."""
    contest = off_policy_contest(name, settings, rhythm, goal=1.25)
    ours, _ = contest.contestants
    without_clipping = {"hparams": as_the_peer({**settings, **own}, max_grad_norm=None)}
    on_host = {"hparams": as_the_peer(settings, max_grad_norm=None)}
    widths = "×".join(map(str, settings["hidden_dims"]))
    return replace(
        contest,
        title=f"{contest.title} in JAX",
        text=f"Env steps per second, one environment, {rhythm}, batches of {settings['batch_size']}, {widths} ReLU. "
        "Here environment, replay and updates are one program; SBX steps Gymnasium's environment and compiles its "
        "update. Both have two cores: here a product has one thread, but XLA computes independent ones side by side; "
        "SBX has as many threads as it takes. The host lane of this package works as SBX does. No evaluation and no "
        f"checkpoint in any. Compiling and the first {settings['warmup']:,} steps do not count.",
        contestants=(
            replace(ours, settings={"backend": "jax", **own, **without_clipping}),
            JaxPeer("SBX", ("benchmarks/jax_off_policy_sbx.py", "{settings}")),
            replace(ours, name="rl_training, host lane", settings={"backend": "jax", "lane": "host", **on_host}),
        ),
        algorithm=off_policy_rows(settings, jax=True),
    )


JAX_ACTOR_CRITIC_SETTINGS = {**ACTOR_CRITIC_SETTINGS, "warmup": 2048, "total_timesteps": 6144}
JAX_SOLVE = Contest(
    name="jax_solve_cartpole",
    title="From process start to a solved CartPole in JAX",
    text="Seconds from starting `rl train ppo/cartpole --backend jax --stop-at-return 475` to its end, with run "
    "directory, TensorBoard events, checkpoints and evaluations in Gymnasium, the last of 100 episodes: with a compile "
    "cache that an earlier run has filled, and with an empty one. The score is the mean of 100 greedy episodes "
    "afterwards.",
    measures=(
        Measure("filled_seconds", "seconds, filled cache", "lower", 2, limit=3.0),
        Measure("empty_seconds", "seconds, empty cache", "lower", 2, limit=8.0),
        Measure("filled_cpu_seconds", "CPU seconds, filled", None, 2),
        Measure("empty_cpu_seconds", "CPU seconds, empty", None, 2),
        Measure("env_steps", "env steps"),
        SCORE,
    ),
    contestants=(Contestant("rl train ppo/cartpole", ("benchmarks/jax_solve.py", "{settings}"), check=CHECK),),
    settings={"stop_at_return": 475},
)
JAX_MANY_SEEDS = Contest(
    name="jax_many_seeds",
    title="A hundred seeds of five tasks in JAX",
    text="Minutes that 100 seeds of PPO take on each of CartPole-v1, Acrobot-v1, MountainCar-v0, "
    "MountainCarContinuous-v0 and Pendulum-v1, 100,000 env steps each: 500 ordinary runs with their directories, "
    "metrics, checkpoints at the start and the end, and a final evaluation of 10 episodes on the JAX environment.",
    measures=(
        Measure("minutes", "minutes", "lower", 1, limit=8.0),
        Measure("env_steps_per_second", "env steps/s"),
        Measure("runs", "runs"),
        Measure("peak_mb", "peak memory, MB"),
    ),
    contestants=(
        Contestant(
            "rl train --seed 0..99", ("benchmarks/jax_many_seeds.py", "--seeds", "{seeds}", "--output-dir", "{scratch}")
        ),
    ),
    settings={"seeds": 100},
    quick={"seeds": 2},
    max_repeats=1,
)

CONTESTS = {
    contest.name: contest
    for contest in (
        ppo_contest("ppo_cartpole", "CartPole-v1", 4, (PACKAGE, SB3, NATIVE), goal=3.0),
        ppo_contest("ppo_cartpole_16", "CartPole-v1", 16, (PACKAGE, SB3, NATIVE), goal=2.5),
        ppo_contest("ppo_pendulum", "Pendulum-v1", 4, (PACKAGE, SB3), goal=2.5),
        off_policy_contest("dqn", DQN_SETTINGS, "an update every 10 steps", goal=2.0),
        off_policy_contest("sac", {"algo": "sac", **ACTOR_CRITIC_SETTINGS}, "an update per step", goal=1.4),
        off_policy_contest("td3", {"algo": "td3", **ACTOR_CRITIC_SETTINGS}, "an update per step", goal=1.4),
        *NETWORK_CONTESTS,
        *TEAM_CONTESTS,
        *OFFLINE_CONTESTS,
        SOLVE,
        REPLAY,
        REPLAY_PRIORITIZED,
        overlap_contest("overlap_ppo", WAITING_PPO, "16 epochs on 128 rows with 1024×1024 networks"),
        overlap_contest("overlap_sac", WAITING_SAC, "0.7 updates per step, batches of 256, 256×256"),
        jax_ppo_contest("jax_ppo_cartpole", 4),
        jax_ppo_contest("jax_ppo_cartpole_16", 16),
        JAX_TWO_SEEDS,
        jax_off_policy_contest("jax_dqn", DQN_SETTINGS, "an update every 10 steps", total_timesteps=206_848),
        jax_off_policy_contest("jax_sac", {"algo": "sac", **JAX_ACTOR_CRITIC_SETTINGS}, "an update per step"),
        jax_off_policy_contest("jax_td3", {"algo": "td3", **JAX_ACTOR_CRITIC_SETTINGS}, "an update per step"),
        JAX_SOLVE,
        JAX_MANY_SEEDS,
        DREAMER_UPDATE,
    )
}
