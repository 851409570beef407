"""The runs that the old code makes: small, and between them every algorithm, lane and kind of state that is saved.

A run goes from step 0 over a checkpoint at `half` to its end at `total`. Runs of one group are trained by one process,
because importing torch or jax takes longer than most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One run: its name, its config by dotted key, and the env steps of its middle checkpoint and its end.

    Where an environment loses a step at every reset (`env.vectorization: native`), both come a little later.
    """

    name: str
    settings: Settings
    half: int
    total: int

    @property
    def has_replay(self) -> bool:
        return "hparams.learning_starts" in self.settings

    @property
    def config(self) -> dict[str, Any]:
        """The config as a file has it: sections inside each other."""
        tree: dict[str, Any] = {"name": self.name}
        rhythm = {
            "training.total_timesteps": self.total,
            "training.checkpoint_frequency": self.half,
            "training.eval_frequency": self.half // 2,
        }
        for key, value in {**BASE, **rhythm, **self.settings}.items():
            *sections, field = key.split(".")
            inner = tree
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[field] = value
        return tree


BASE: Settings = {
    "seed": 5,
    "env.num_envs": 4,
    "training.num_eval_episodes": 2,
    "checkpoint.keep_last": 9,
    "logging.terminal": False,
}
CARTPOLE = {"env_id": "CartPole-v1"}
PENDULUM = {"env_id": "Pendulum-v1", "env.max_episode_steps": 40}
DICT_OBS = {"env_id": "RLProbe/DictObs-v0"}
MASKED = {"env_id": "RLProbe/MaskedArms-v0"}
PICTURES = {"env_id": "compat_parts:Squares"}
NORMALIZED = {"env.normalize_obs": True, "env.normalize_reward": True}
SMALL = {"network.actor.hidden_dims": [16, 16], "network.critic.hidden_dims": [16, 16]}
REFERENCE = {"hparams.kernel": "reference"}
ROLLOUTS = {"hparams.num_steps": 16}
EPOCHS = {"hparams.num_epochs": 2, "hparams.num_minibatches": 4}
REPLAY = {
    "hparams.learning_starts": 64,
    "hparams.batch_size": 16,
    "hparams.updates_per_step": 0.25,
    "buffer.size": 600,
}
RAINBOW = {
    "hparams.dueling": True,
    "hparams.n_step": 3,
    "hparams.prioritized": True,
    "hparams.distribution": "c51",
    "hparams.noisy": True,
    "hparams.atoms": 11,
    "hparams.value_range": [0.0, 40.0],
}
GREEDY = {"hparams.target_every_updates": 20, "hparams.epsilon_steps": 600}
SDE = {"hparams.use_sde": True, "hparams.log_std_init": -1.0}
CONVOLUTIONS = {
    f"network.{part}.{key}": value
    for part in ("actor", "critic")
    for key, value in {"type": "compat_torch_parts:Convolutions", "kwargs": {"channels": 4}}.items()
}
CNN = {
    f"network.{part}.{key}": value
    for part in ("actor", "critic")
    for key, value in {
        "type": "cnn",
        "hidden_dims": [16],
        "activation": "relu",
        "kwargs": {"channels": [4, 4], "kernels": [3, 2], "strides": [1, 1]},
    }.items()
}
GRU = {"network.actor.type": "gru", "network.critic.type": "gru"}
HOST = {"backend": "jax", "lane": "host"}
COMPILED = {"backend": "jax", "lane": "compiled"}


def rollouts(name: str, algo: str, *settings: Settings) -> Case:
    """A run that learns from rollouts of 64 env steps; later settings win."""
    return Case(name, _merged({"algo": algo}, SMALL, ROLLOUTS, *settings), half=256, total=512)


def replay(name: str, algo: str, *settings: Settings) -> Case:
    """A run that learns from replay, in blocks of 256 env steps; later settings win."""
    return Case(name, _merged({"algo": algo}, SMALL, REPLAY, *settings), half=512, total=1024)


def static(name: str, algo: str, *settings: Settings) -> Case:
    """A run that learns nothing; later settings win."""
    return Case(name, _merged({"algo": algo}, ROLLOUTS, *settings), half=256, total=512)


def _merged(*settings: Settings) -> dict[str, Any]:
    return {key: value for setting in settings for key, value in setting.items()}


# -- torch ------------------------------------------------------------------------------------------------------------

PPO = (
    rollouts("ppo", "ppo", EPOCHS, CARTPOLE),
    rollouts("ppo-reference", "ppo", EPOCHS, CARTPOLE, REFERENCE),
    rollouts("ppo-continuous", "ppo", EPOCHS, PENDULUM),
    rollouts("ppo-continuous-reference", "ppo", EPOCHS, PENDULUM, REFERENCE),
    rollouts("ppo-normalized", "ppo", EPOCHS, CARTPOLE, NORMALIZED),
    rollouts("ppo-normalized-reference", "ppo", EPOCHS, PENDULUM, NORMALIZED, REFERENCE),
    rollouts("ppo-sde", "ppo", EPOCHS, PENDULUM, SDE),
    rollouts("ppo-sde-sampled", "ppo", EPOCHS, PENDULUM, SDE, REFERENCE, {"hparams.sde_sample_freq": 4}),
    rollouts("ppo-dict", "ppo", EPOCHS, DICT_OBS, NORMALIZED),
    rollouts("ppo-masks", "ppo", EPOCHS, MASKED),
    rollouts("ppo-masks-reference", "ppo", EPOCHS, MASKED, REFERENCE),
    rollouts("ppo-multi-discrete", "ppo", EPOCHS, {"env_id": "RLProbe/MultiDiscrete-v0"}),
    rollouts("ppo-multi-binary", "ppo", EPOCHS, {"env_id": "RLProbe/MultiBinary-v0"}),
    rollouts("ppo-shared", "ppo", EPOCHS, CARTPOLE, {"network.shared": True, "network.actor.layer_norm": True}),
    rollouts("ppo-workers", "ppo", EPOCHS, CARTPOLE, {"env.vectorization": "async", "env.num_workers": 2}),
    rollouts("ppo-native", "ppo", EPOCHS, CARTPOLE, {"env.vectorization": "native"}),
    rollouts("ppo-frames", "ppo", EPOCHS, CARTPOLE, {"env.frame_stack": 3, "logging.log_frequency": 96}),
    rollouts(
        "ppo-options",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {
            "hparams.clip_vf": 0.2,
            "hparams.target_kl": 0.05,
            "hparams.grad_accumulation": 2,
            "hparams.ent_coef": 0.01,
            "hparams.learning_rate": {"type": "linear", "start": 1e-3, "end": 0.0},
            "hparams.clip_coef": {"type": "linear", "start": 0.2, "end": 0.1},
        },
    ),
)
ON_POLICY = (
    *PPO,
    rollouts("a2c", "a2c", CARTPOLE),
    rollouts("a2c-continuous", "a2c", PENDULUM, NORMALIZED),
    rollouts("reinforce", "reinforce", CARTPOLE),
    rollouts("reinforce-without-baseline", "reinforce", CARTPOLE, {"hparams.baseline": False}),
    static("random", "random", CARTPOLE),
    static("constant", "constant", PENDULUM, {"hparams.action": [0.5]}),
)
OFF_POLICY = (
    replay("dqn", "dqn", GREEDY, CARTPOLE),
    replay("dqn-reference", "dqn", GREEDY, CARTPOLE, REFERENCE),
    replay("dqn-rainbow", "dqn", GREEDY, CARTPOLE, RAINBOW),
    replay("dqn-rainbow-reference", "dqn", GREEDY, CARTPOLE, RAINBOW, REFERENCE),
    replay("dqn-quantiles", "dqn", GREEDY, CARTPOLE, {"hparams.distribution": "quantile", "hparams.atoms": 8}),
    replay("dqn-masks", "dqn", GREEDY, MASKED),
    replay("dqn-dict", "dqn", GREEDY, DICT_OBS),
    replay("dqn-normalized", "dqn", GREEDY, CARTPOLE, NORMALIZED),
    replay(
        "dqn-hindsight",
        "dqn",
        GREEDY,
        {"env_id": "RLProbe/BitFlip-v0", "env.max_episode_steps": 8, "env.kwargs": {"num_bits": 4}},
        {"buffer.type": "her"},
    ),
    replay("dqn-frames", "dqn", GREEDY, CARTPOLE, {"env.frame_stack": 3, "buffer.type": "frames"}),
    replay("sac", "sac", PENDULUM),
    replay("sac-reference", "sac", PENDULUM, REFERENCE),
    replay("sac-discrete", "sac", CARTPOLE),
    replay("sac-discrete-reference", "sac", CARTPOLE, REFERENCE),
    replay("sac-masks", "sac", MASKED),
    replay("sac-fixed-temperature", "sac", PENDULUM, NORMALIZED, {"hparams.alpha": 0.1}),
    replay("sac-prioritized", "sac", PENDULUM, {"buffer.type": "prioritized", "hparams.n_step": 3}),
    replay("td3", "td3", PENDULUM),
    replay("td3-reference", "td3", PENDULUM, REFERENCE),
    replay("ddpg", "ddpg", PENDULUM),
    replay("ddpg-reference", "ddpg", PENDULUM, REFERENCE),
    replay("crossq", "crossq", PENDULUM, {"hparams.renorm_after_updates": 40}),
)
OWN_PARTS = (
    rollouts("own-convolutions", "ppo", EPOCHS, PICTURES, CONVOLUTIONS),
    rollouts("own-convolutions-shared", "a2c", PICTURES, CONVOLUTIONS, {"network.shared": True}),
    replay("own-convolutions-replay", "dqn", GREEDY, PICTURES, CONVOLUTIONS),
    rollouts("own-loss", "compat_torch_parts:PenaltyPPO", EPOCHS, CARTPOLE, {"hparams.kl_coef": 2.0}),
    rollouts(
        "own-parts",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {
            "env.wrappers": ["compat_parts:HalvedRewards", {"name": "time_aware"}],
            "buffer.type": "compat_parts:SignedRewards",
            "callbacks": [{"name": "compat_parts:Tally", "kwargs": {"weight": 2}}],
            "logging.sinks": ["compat_parts:Highest"],
            "monitor.rules": [{"name": "compat_parts:long_run", "kwargs": {"limit": 100}}],
        },
    ),
)

# -- jax --------------------------------------------------------------------------------------------------------------

PQN = {"hparams.num_minibatches": 4, "hparams.num_epochs": 2, "hparams.epsilon_steps": 300}


def twins(lane: str, settings: Settings) -> tuple[Case, ...]:
    """Every algorithm with a JAX twin in one lane."""
    return (
        rollouts(f"jax-{lane}-ppo", "ppo", EPOCHS, CARTPOLE, settings),
        rollouts(f"jax-{lane}-ppo-reference", "ppo", EPOCHS, CARTPOLE, REFERENCE, settings),
        rollouts(f"jax-{lane}-ppo-continuous", "ppo", EPOCHS, PENDULUM, NORMALIZED, settings),
        rollouts(f"jax-{lane}-ppo-gru", "ppo", EPOCHS, {"env_id": "RLProbe/CueMemory-v0"}, GRU, settings),
        rollouts(f"jax-{lane}-reinforce", "reinforce", CARTPOLE, settings),
        rollouts(f"jax-{lane}-pqn", "pqn", CARTPOLE, PQN, settings),
        replay(f"jax-{lane}-dqn", "dqn", GREEDY, CARTPOLE, settings),
        replay(f"jax-{lane}-sac", "sac", PENDULUM, settings),
        replay(f"jax-{lane}-td3", "td3", PENDULUM, settings),
    )


JAX_HOST = (
    *twins("host", HOST),
    rollouts("jax-host-ppo-cnn", "ppo", EPOCHS, PICTURES, CNN, HOST),
    rollouts("jax-host-ppo-masks", "ppo", EPOCHS, MASKED, HOST),
    rollouts("jax-host-ppo-dict", "ppo", EPOCHS, DICT_OBS, HOST),
)
JAX_COMPILED = (
    *twins("compiled", COMPILED),
    rollouts("jax-compiled-ppo-cnn", "ppo", EPOCHS, {"env_id": "compat_jax_parts:Squares"}, CNN, COMPILED),
    rollouts("jax-compiled-ppo-masks", "ppo", EPOCHS, MASKED, COMPILED),
    rollouts("jax-compiled-ppo-dict", "ppo", EPOCHS, DICT_OBS, COMPILED),
    rollouts("jax-compiled-ppo-sde", "ppo", EPOCHS, PENDULUM, SDE, {"hparams.sde_sample_freq": 4}, COMPILED),
    rollouts("jax-compiled-catch", "ppo", EPOCHS, {"env_id": "RLJax/Catch-v0"}, COMPILED),
    replay("jax-compiled-dqn-options", "dqn", GREEDY, MASKED, {"hparams.n_step": 3, "hparams.dueling": True}, COMPILED),
)

# -- configs that name paths of the package ---------------------------------------------------------------------------


def network_of(path: str) -> Settings:
    return {"network.actor.type": path, "network.critic.type": path}


BUILTIN_PATHS = (
    rollouts("path-algorithm", "rl_training.hparams.ppo:SPEC", EPOCHS, CARTPOLE),
    replay("path-algorithm-replay", "rl_training.hparams.dqn:SPEC", GREEDY, CARTPOLE),
    rollouts("path-network", "ppo", EPOCHS, CARTPOLE, network_of("rl_training.models.backbones:MLP")),
    rollouts(
        "path-frame-stack",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {"env.wrappers": [{"name": "rl_training.envs.wrappers:FrameStack", "kwargs": {"num_frames": 2}}]},
    ),
    rollouts("path-clip-reward", "ppo", EPOCHS, PENDULUM, {"env.wrappers": ["rl_training.envs.wrappers:clip_reward"]}),
    rollouts(
        "path-rescale-action",
        "ppo",
        EPOCHS,
        PENDULUM,
        {"env.wrappers": ["rl_training.envs.wrappers:rescale_action"]},
    ),
    rollouts(
        "path-rollout-buffer", "ppo", EPOCHS, CARTPOLE, {"buffer.type": "rl_training.data.rollout_buffer:RolloutBuffer"}
    ),
    replay(
        "path-replay-buffer", "dqn", GREEDY, CARTPOLE, {"buffer.type": "rl_training.data.replay_buffer:ReplayBuffer"}
    ),
    replay(
        "path-prioritized-buffer",
        "dqn",
        GREEDY,
        CARTPOLE,
        {"buffer.type": "rl_training.data.prioritized:PrioritizedReplayBuffer"},
    ),
    replay(
        "path-frame-buffer",
        "dqn",
        GREEDY,
        CARTPOLE,
        {"env.frame_stack": 3, "buffer.type": "rl_training.data.frame_buffer:FrameReplayBuffer"},
    ),
    rollouts("path-console", "ppo", EPOCHS, CARTPOLE, {"logging.sinks": ["rl_training.logging:ConsoleSink"]}),
)
"""The config spells out the path that a registered name of the old package stood for; that needs no consent."""
OTHER_PATHS = (
    rollouts("path-callback", "ppo", EPOCHS, CARTPOLE, {"callbacks": ["rl_training.callbacks:Callback"]}),
    rollouts("path-callback-at-the-top", "ppo", EPOCHS, CARTPOLE, {"callbacks": ["rl_training:Callback"]}),
    rollouts(
        "path-alert-rule",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {"monitor.rules": [{"name": "rl_training.monitoring:kl_blow_up", "kwargs": {"limit": 0.001}}]},
    ),
    rollouts(
        "path-tensorboard",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {"logging.sinks": [{"name": "rl_training.tensorboard:TensorBoardSink", "kwargs": {"directory": "events"}}]},
    ),
    rollouts(
        "path-jsonl",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {"logging.sinks": [{"name": "rl_training.logging:JsonlSink", "kwargs": {"path": "rows.jsonl"}}]},
    ),
    rollouts(
        "path-rescale-action-class",
        "ppo",
        EPOCHS,
        PENDULUM,
        {
            "env.wrappers": [
                {
                    "name": "rl_training.envs.wrappers:RescaleAction",
                    "kwargs": {"min_action": -1.0, "max_action": 1.0},
                }
            ]
        },
    ),
    rollouts(
        "path-wrapper-of-the-package",
        "ppo",
        EPOCHS,
        CARTPOLE,
        {"env.wrappers": [{"name": "rl_training.envs:FrameStack", "kwargs": {"num_frames": 2}}]},
    ),
    rollouts(
        "path-masked-environment",
        "ppo",
        EPOCHS,
        {"env_id": "rl_training.envs.probes:MaskedArms", "env.wrappers": ["rl_training.envs.masks:ActionMask"]},
    ),
    replay(
        "path-environment-of-goals",
        "dqn",
        GREEDY,
        {"env_id": "rl_training.envs.goal_probes:BitFlip", "env.max_episode_steps": 8, "env.kwargs": {"num_bits": 4}},
    ),
    rollouts("path-id-behind-a-module", "ppo", EPOCHS, {"env_id": "rl_training.envs.probes:RLProbe/Chain-v0"}),
    rollouts("path-plugin", "ppo", EPOCHS, CARTPOLE, {"plugins": ["rl_training.envs.probes"]}),
    replay("path-buffer-of-the-package", "dqn", GREEDY, CARTPOLE, {"buffer.type": "rl_training.data:ReplayBuffer"}),
)
"""Paths that no registered name stands for: code like any other to the old package, so the user's seal is needed."""
BUILTIN_JAX_PATHS = (
    rollouts("path-jax-environment", "ppo", EPOCHS, {"env_id": "rl_training.jax.envs.catch:Catch"}, COMPILED),
    rollouts(
        "path-jax-gru",
        "ppo",
        EPOCHS,
        {"env_id": "RLProbe/CueMemory-v0"},
        network_of("rl_training.jax.nets:gru"),
        COMPILED,
    ),
)
OTHER_JAX_PATHS = (
    rollouts("path-jax-network", "ppo", EPOCHS, CARTPOLE, network_of("rl_training.jax.nets:mlp"), HOST),
    rollouts("path-jax-twin", "ppo", EPOCHS, {"env_id": "rl_training.jax.envs.cartpole:CartPole"}, COMPILED),
    rollouts(
        "path-jax-probe",
        "reinforce",
        {"env_id": "rl_training.jax.envs.probes:Chain", "env.kwargs": {"length": 4}},
        COMPILED,
    ),
)

# -- modules that the old `rl new` wrote ------------------------------------------------------------------------------

# The other templates of 0.1.0 import modules that have moved since (see the changelog): such modules need an edit.
NEW_PARTS = (
    rollouts("new-network", "ppo", EPOCHS, CARTPOLE, network_of("compat_new_network:CompatNewNetwork")),
    rollouts("new-env", "ppo", EPOCHS, {"env_id": "compat_new_env:CompatNewEnv", "env.max_episode_steps": 100}),
)
NEW_JAX_PARTS = (rollouts("new-jax-env", "ppo", EPOCHS, {"env_id": "compat_new_jax_env:CompatNewJaxEnv"}, COMPILED),)
WRITTEN = {
    "new-parts": [["new", kind, f"compat_new_{kind}"] for kind in ("network", "env")],
    "new-jax-parts": [["new", kind, f"compat_new_jax_{kind}", "--backend", "jax"] for kind in ("env",)],
}
"""Commands by which the old code writes the modules of a group."""

# -- groups -----------------------------------------------------------------------------------------------------------

Groups = Mapping[str, tuple[Case, ...]]
RUNS: Groups = {
    "torch-on-policy": ON_POLICY,
    "torch-off-policy": OFF_POLICY,
    "torch-own-parts": OWN_PARTS,
    "jax-host": JAX_HOST,
    "jax-compiled": JAX_COMPILED,
}
"""All algorithms, lanes and kinds of state; `make test-slow` runs them."""
PATHS: Groups = {
    "paths": (*BUILTIN_PATHS, *OTHER_PATHS),
    "jax-paths": (*BUILTIN_JAX_PATHS, *OTHER_JAX_PATHS),
}
"""Configs that name modules of the package as they were called in 0.1.0."""
MODULES: Groups = {"new-parts": NEW_PARTS, "new-jax-parts": NEW_JAX_PARTS}
"""Modules of a user's own that import the package as it was in 0.1.0."""

_BY_NAME = {case.name: case for cases in RUNS.values() for case in cases}
SAMPLE: Groups = {
    "sample-torch": tuple(_BY_NAME[name] for name in ("ppo", "sac-reference", "dqn", "own-convolutions")),
    "sample-jax": tuple(_BY_NAME[name] for name in ("jax-compiled-ppo", "jax-host-ppo")),
}
"""A few of the runs once more, in processes of their own: what `make test` runs."""
GROUPS: Groups = {**SAMPLE, **RUNS, **PATHS, **MODULES}
WITHOUT_CONSENT = frozenset(case.name for case in (*BUILTIN_PATHS, *BUILTIN_JAX_PATHS))
"""Cases that another user, whose key did not seal the run, may use as they are."""
