"""A resolved config of this package in the words of Stable-Baselines3: pure functions on JSON values, no imports of
either library, so that both environments read it and a test can check it.

A setting that the other library cannot express is refused by name. What is translated is therefore everything that
the two sides share, and what cannot be equal is listed in `algorithm_lists.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Config = Mapping[str, Any]

ON_POLICY_NEUTRAL = {
    "optimizer": {"type": "adam", "kwargs": {}},
    "use_sde": False,
    "sde_sample_freq": -1,
    "grad_accumulation": 1,
    "kernel": "auto",
}
OFF_POLICY_NEUTRAL = {
    "optimizer": {"type": "adam", "kwargs": {}},
    "n_step": 1,
    "max_grad_norm": None,
    "burn_in": 0,
    "sequence_length": 16,
    "kernel": "auto",
}
"""Values that change nothing; every other setting must be translated."""
MEMORY_NEUTRAL = {"sequence_length": None}
ENVIRONMENT_NEUTRAL = {"frame_stack": 1, "kwargs": {}, "max_episode_steps": None}
ATARI = {"frame_skip": 4, "noop_max": 30, "size": 84, "stack": 4, "clip_reward": True, "life_loss": "signal"}
"""Defaults of the `atari` wrapper, which are those of Stable-Baselines3's AtariWrapper and frame stack."""


class Untranslatable(SystemExit):
    """A config that Stable-Baselines3 cannot run as it is."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(f"{name} = {value!r} has no counterpart in Stable-Baselines3")


def translated(cfg: Config) -> dict[str, Any]:
    """What the peer's script is given: algorithm, arguments, network, environment, budget, all as JSON."""
    hparams = dict(cfg["hparams"])
    arguments = {"ppo": ppo, "sac": sac, "td3": td3}[cfg["algo"]](hparams, cfg)
    left = {name: value for name, value in hparams.items() if not neutral(cfg["algo"], name, value)}
    if left:
        raise Untranslatable(f"hparams.{min(left)}", left[min(left)])
    return {
        "algorithm": cfg["algo"],
        "arguments": arguments,
        "network": network(cfg),
        "environment": environment(cfg["env_id"], cfg["env"], hparams_gamma=cfg["hparams"]["gamma"]),
        "total_timesteps": cfg["training"]["total_timesteps"],
    }


def neutral(algo: str, name: str, value: Any) -> bool:
    if name == "exploration":
        return bool(value["type"] == "none")
    known = {**ON_POLICY_NEUTRAL, **MEMORY_NEUTRAL} if algo == "ppo" else OFF_POLICY_NEUTRAL
    return name in known and known[name] == value


def ppo(hparams: dict[str, Any], cfg: Config) -> dict[str, Any]:
    """Arguments of `PPO`; what is taken leaves `hparams`."""
    take = hparams.pop
    num_steps, minibatches = take("num_steps"), take("num_minibatches")
    rows = num_steps * cfg["env"]["num_envs"]
    if rows % minibatches:
        raise Untranslatable("hparams.num_minibatches", minibatches)
    norm = take("max_grad_norm")
    return {
        "n_steps": num_steps,
        "batch_size": rows // minibatches,
        "n_epochs": take("num_epochs"),
        "learning_rate": take("learning_rate"),
        "clip_range": take("clip_coef"),
        "clip_range_vf": take("clip_vf"),
        "gamma": take("gamma"),
        "gae_lambda": take("gae_lambda"),
        "ent_coef": constant("ent_coef", take("ent_coef")),
        "vf_coef": take("vf_coef") / 2,  # weights the mean squared error there, half of it here
        "max_grad_norm": float("inf") if norm is None else norm,
        "normalize_advantage": take("normalize_advantage"),
        "target_kl": take("target_kl"),
        "policy_kwargs": {"log_std_init": take("log_std_init"), "optimizer_kwargs": {"eps": take("adam_eps")}},
    }


def off_policy(hparams: dict[str, Any], cfg: Config) -> dict[str, Any]:
    """Arguments that SAC and TD3 share."""
    take = hparams.pop
    if cfg["buffer"]["type"] not in (None, "replay", "uniform"):
        raise Untranslatable("buffer.type", cfg["buffer"]["type"])
    per_vector_step = Fraction(str(take("updates_per_step"))).limit_denominator(1000) * cfg["env"]["num_envs"]
    return {
        "learning_rate": take("learning_rate"),
        "buffer_size": cfg["buffer"]["size"],
        "learning_starts": take("learning_starts"),
        "batch_size": take("batch_size"),
        "tau": take("tau"),
        "gamma": take("gamma"),
        "train_freq": per_vector_step.denominator,  # in steps of all environments together
        "gradient_steps": per_vector_step.numerator,
        "policy_kwargs": {"n_critics": take("num_critics"), "optimizer_kwargs": {"eps": take("adam_eps")}},
    }


def sac(hparams: dict[str, Any], cfg: Config) -> dict[str, Any]:
    alpha, entropy = hparams.pop("alpha"), hparams.pop("target_entropy")
    return {
        **off_policy(hparams, cfg),
        "ent_coef": "auto" if alpha is None else alpha,
        "target_entropy": "auto" if entropy is None else entropy,
    }


def td3(hparams: dict[str, Any], cfg: Config) -> dict[str, Any]:
    return {
        **off_policy(hparams, cfg),
        "policy_delay": hparams.pop("actor_every_updates"),
        "target_policy_noise": hparams.pop("target_noise"),
        "target_noise_clip": hparams.pop("target_noise_clip"),
        "action_noise": hparams.pop("exploration_noise"),  # a standard deviation; the script makes the object
    }


def constant(name: str, value: Any) -> float:
    if isinstance(value, Mapping):
        raise Untranslatable(f"hparams.{name}", value)
    return float(value)


def network(cfg: Config) -> dict[str, Any]:
    """Hidden layers of actor and critic, or the image encoder that they share."""
    actor, critic, shared = (cfg["network"][name] for name in ("actor", "critic", "shared"))
    encoder = actor["encoder"]["type"]
    for name, side in (("actor", actor), ("critic", actor if shared else critic)):
        if side["type"] != "mlp" or side["layer_norm"] or side["memory"]["type"] != "none":
            raise Untranslatable(f"network.{name}", {key: side[key] for key in ("type", "layer_norm", "memory")})
    if encoder in ("nature", "small"):
        if not shared or actor["hidden_dims"]:
            raise Untranslatable("network.shared and hidden_dims with images", (shared, actor["hidden_dims"]))
        return {"encoder": encoder}
    if shared or encoder != "auto":
        raise Untranslatable("network.shared with vectors, or encoder", (shared, encoder))
    if actor["activation"] != critic["activation"]:
        raise Untranslatable("network.critic.activation", critic["activation"])
    return {
        "encoder": None,
        "actor": list(actor["hidden_dims"]),
        "critic": list(critic["hidden_dims"]),
        "activation": actor["activation"],
    }


def environment(env_id: str, env: Mapping[str, Any], hparams_gamma: float) -> dict[str, Any]:
    """Id, number, wrappers and normalisation."""
    for name, value in ENVIRONMENT_NEUTRAL.items():
        if env[name] != value:
            raise Untranslatable(f"env.{name}", env[name])
    made: dict[str, Any] = {"env_id": env_id, "num_envs": env["num_envs"], "atari": None, "flatten": False}
    for entry in env["wrappers"]:
        name, kwargs = (entry, {}) if isinstance(entry, str) else (entry["name"], entry.get("kwargs", {}))
        if name == "atari" and kwargs.keys() <= ATARI.keys():
            made["atari"] = {**ATARI, **kwargs}
        elif name in ("dm_control", "flatten_observation") and not kwargs:
            made["flatten"] = True
        else:
            raise Untranslatable("env.wrappers", entry)
    made["normalize"] = {"obs": env["normalize_obs"], "reward": env["normalize_reward"], "gamma": hparams_gamma}
    return made
