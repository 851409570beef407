"""Hyperparameters of the SB3 Zoo as configs of this package: `rl config import-zoo ppo.yml --env CartPole-v1`.

What a file leaves out is Stable-Baselines3's default, so that a config means what the file meant there. What has no
counterpart is named with the reason. Nothing in a file is evaluated or imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config.loading import parse_config
from rl_training.config.schema import CONFIG_VERSION
from rl_training.config.yaml_reader import Document, dump_mapping, shorten, shown
from rl_training.config.zoo.values import Name, literal, number, positive, read_zoo, scheduled, switch, whole
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")
FAMILIES = ("atari", "default")
"""Entries that are no environment: they hold for every Atari game, or for what the file does not name."""
ATARI = re.compile(r"ALE/.*|\w+NoFrameskip-v\d+")
ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "ELU": "elu", "GELU": "gelu", "SiLU": "silu", "LeakyReLU": "leaky_relu"}
WRAPPERS = {
    "ClipAction": "clip_action",
    "FlattenObservation": "flatten_observation",
    "StickyAction": "sticky_action",
    "TimeAwareObservation": "time_aware",
    "TimeLimit": "time_limit",
}
"""Gymnasium's wrappers that have a name here."""
ON_POLICY = {
    "n_envs": 1,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
OFF_POLICY = {
    "n_envs": 1,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {**ON_POLICY, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "clip_range": 0.2},
    "a2c": {**ON_POLICY, "learning_rate": 7e-4, "n_steps": 5, "gae_lambda": 1.0},
    "dqn": {
        **OFF_POLICY,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "tau": 1.0,
        "train_freq": 4,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "max_grad_norm": 10,
    },
    "sac": {**OFF_POLICY, "learning_rate": 3e-4, "ent_coef": "auto"},
    "td3": {**OFF_POLICY, "policy_delay": 2, "target_policy_noise": 0.2, "target_noise_clip": 0.5, "noise_std": 0.0},
    "ddpg": {**OFF_POLICY, "noise_std": 0.0},
}
"""Stable-Baselines3's own values, where a file says nothing."""
CLIP_END = 0.01
"""Share of a falling clip range that is left at the end; it must stay positive here."""
NETWORKS = {
    "ppo": ([64, 64], "tanh"),
    "a2c": ([64, 64], "tanh"),
    "dqn": ([64, 64], "relu"),
    "sac": ([256, 256], "relu"),
    "td3": ([400, 300], "relu"),
    "ddpg": ([400, 300], "relu"),
}
"""Hidden layers and activation of Stable-Baselines3's MlpPolicy."""
REASONS = {
    "callback": "name callbacks of your own under callbacks:",
    "features_extractor_class": "the network here is network.actor.type",
    "features_extractor_kwargs": "the network here is network.actor.type",
    "monitor_kwargs": "episodes are always counted; extra numbers of info are logging.info_keys",
    "optimize_memory_usage": "buffer.type: frames stores each frame of a stack once",
    "optimizer_class": "the optimiser is Adam",
    "ortho_init": "weights start orthogonal; network.actor.init has other choices",
    "replay_buffer_kwargs": "the replay buffer has no such options; truncation is always kept apart from termination",
    "rms_prop_eps": "the optimiser is Adam",
    "sde_net_arch": "gSDE takes its features from the policy's network",
    "use_rms_prop": "the optimiser is Adam",
    "use_sde_at_warmup": "the warm-up acts uniformly at random",
    "vec_env_class": "see env.vectorization",
    "vec_env_kwargs": "see env.vectorization",
    "vec_env_wrapper": "vector wrappers are not configured; name wrappers of single environments under env.wrappers",
}
"""Why a key of the Zoo has no counterpart, where there is more to say than that."""


@dataclass
class Imported:
    """One environment of a file: its config as a tree, what was dropped and why, and what else is to be known."""

    env_id: str
    algo: str
    source: str
    tree: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, path: str, value: Any) -> None:
        """Set a field by its dotted path."""
        here = self.tree
        *sections, name = path.split(".")
        for section in sections:
            here = here.setdefault(section, {})
        here[name] = value

    def text(self) -> str:
        """The config file: what was dropped and what differs as comments, then the values."""
        lines = [f"{self.algo} on {self.env_id}, imported from the SB3 Zoo's {Path(self.source).name}."]
        lines += [f"Dropped {key}: {why}." for key, why in self.dropped.items()]
        lines += [f"Note: {text}." for text in self.notes]
        return "".join(f"# {shown(line)}\n" for line in lines) + dump_mapping(self.tree)


def algorithm_of(path: str | Path, given: str | None = None) -> str:
    """The algorithm of a file: as given, or as its name says (ppo.yml)."""
    algo = (given or Path(path).stem).lower()
    if algo not in ALGORITHMS:
        cure = "" if given else "; the file's name does not say which, give it with --algo"
        raise ConfigError(
            f"{path}: cannot import '{shown(algo)}'{did_you_mean(algo[:64], ALGORITHMS)} "
            f"(known: {', '.join(ALGORITHMS)}){cure}"
        )
    return algo


def import_zoo(
    path: str | Path, *, algo: str | None = None, env_id: str | None = None
) -> tuple[list[Imported], list[str]]:
    """The configs of a file, of one environment or of every one that it names, and what is wrong with the others."""
    name = algorithm_of(path, algo)
    document = read_zoo(path)
    if not document.tree:
        raise ConfigError(f"{document.source}: empty; expected environment ids with their hyperparameters")
    if env_id is not None:
        return [imported(document, _entry_for(document, env_id), env_id, name)], []
    ids = [key for key in document.tree if key not in FAMILIES]
    if not ids:
        raise ConfigError(
            f"{document.source}: names no environment, only {', '.join(document.tree)}; say which (--env)"
        )
    found: list[Imported] = []
    problems: list[str] = []
    for key in ids:
        try:
            found.append(imported(document, key, key, name))
        except ConfigError as error:
            problems.append(str(error))
    return found, problems


def _entry_for(document: Document, env_id: str) -> str:
    """The entry that holds for an environment, found as the Zoo finds it."""
    tree = document.tree
    if env_id in tree and env_id not in FAMILIES:
        return env_id
    if "atari" in tree and ATARI.fullmatch(env_id):
        return "atari"
    if "default" in tree and env_id not in FAMILIES:
        return "default"
    names = [name for name in tree if name not in FAMILIES]
    raise ConfigError(
        f"{document.source}: no environment '{shown(env_id)}'{did_you_mean(env_id[:64], names)} (it has {_few(names)})"
    )


def _few(names: list[str]) -> str:
    return ", ".join(map(shown, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def imported(document: Document, entry: str, env_id: str, algo: str) -> Imported:
    """One entry as a config; ConfigError where a value cannot be what the Zoo means by it."""
    values = document.tree[entry]
    line = document.lines.get((entry,))
    place = f"{document.source}:{line}: {shown(entry)}" if line else f"{document.source}: {shown(entry)}"
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: expected hyperparameters, lines of 'key: value', got {shorten(values)}")
    result = Imported(env_id, algo, document.source)
    result.tree = {"version": CONFIG_VERSION, "algo": algo, "env_id": env_id}
    reader = _Reader(result, {**DEFAULTS[algo], **values}, place)
    reader.read()
    for key in values:
        if key not in reader.seen:
            result.dropped.setdefault(shown(key), REASONS.get(key, f"{algo} has no counterpart here"))
    parse_config(result.tree, source=place)
    return result


class _Reader:
    """Takes the keys of one entry, one after the other; what is left in the end is dropped."""

    def __init__(self, result: Imported, values: Mapping[str, Any], place: str) -> None:
        self.result = result
        self.values = values
        self.place = place
        self.seen: set[str] = set()

    def take(self, key: str, read: Callable[[Any, str], Any], default: Any = None) -> Any:
        """The value of a key; `default` where it is missing or null."""
        self.seen.add(key)
        value = self.values.get(key)
        return default if value is None else read(value, f"{self.place}: '{key}'")

    def move(self, key: str, path: str, read: Callable[[Any, str], Any]) -> None:
        """A key that only has another name here."""
        value = self.take(key, read)
        if value is not None:
            self.result.put(path, value)

    def drop(self, key: str, reason: str) -> None:
        self.seen.add(key)
        self.result.dropped[key] = reason

    def read(self) -> None:
        algo = self.result.algo
        self.move("n_timesteps", "training.total_timesteps", whole)
        self.move("n_envs", "env.num_envs", positive)
        self.move("frame_stack", "env.frame_stack", whole)
        self.environment()
        for key in ("learning_rate", "gamma", "max_grad_norm"):
            self.move(key, f"hparams.{key}", scheduled if key == "learning_rate" else number)
        if algo in ("ppo", "a2c"):
            self.on_policy()
        else:
            self.off_policy()
        getattr(self, algo)()
        self.policy()

    # -- environment and network --------------------------------------------------------------------------------------

    def environment(self) -> None:
        normalize = self.literal_of("normalize")
        if isinstance(normalize, bool):
            normalize = {"norm_obs": normalize, "norm_reward": normalize}
        if isinstance(normalize, dict):
            self.result.put("env.normalize_obs", switch(normalize.pop("norm_obs", True), f"{self.place}: 'normalize'"))
            self.result.put(
                "env.normalize_reward", switch(normalize.pop("norm_reward", True), f"{self.place}: 'normalize'")
            )
            for key in normalize:
                self.result.dropped[f"normalize.{key}"] = "normalisation has no such option"
        elif normalize is not None:
            raise ConfigError(f"{self.place}: 'normalize': expected true, false or a mapping, got {shorten(normalize)}")
        kwargs = self.literal_of("env_kwargs")
        if isinstance(kwargs, dict) and not _names_in(kwargs):
            self.result.put("env.kwargs", kwargs)
        elif kwargs is not None:
            self.drop("env_kwargs", "not a mapping of plain values")
        self.wrappers()

    def wrappers(self) -> None:
        given = self.take("env_wrapper", lambda value, what: value)
        known = []
        for item in given if isinstance(given, list) else [given] if given else []:
            name, kwargs = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, {})
            module, _, short = str(name).rpartition(".")
            if module in ("gymnasium.wrappers", "gym.wrappers") and short in WRAPPERS and isinstance(kwargs, dict):
                known.append({"name": WRAPPERS[short], "kwargs": kwargs})
            else:
                reason = "not a wrapper of this package; name one of your own under env.wrappers"
                self.result.dropped[f"env_wrapper {shown(str(name))}"] = reason
        if known:
            self.result.put("env.wrappers", known)

    def literal_of(self, key: str) -> Any:
        """The value of a key that may be Python in a text; dropped where it is more than a literal."""
        try:
            return self.take(key, lambda value, what: literal(value))
        except ValueError as error:
            self.drop(key, str(error))
            return None

    def policy(self) -> None:
        """The network: `policy` and `policy_kwargs`."""
        policy = self.take("policy", lambda value, what: str(value), "MlpPolicy")
        if policy not in ("MlpPolicy", "MultiInputPolicy"):
            self.drop(
                "policy",
                f"{shown(policy)} has no counterpart; for pictures take backend: jax and network.actor.type: cnn",
            )
        widths, activation = NETWORKS[self.result.algo]
        layers: dict[str, Any] = {"actor": widths, "critic": widths}
        kwargs = self.literal_of("policy_kwargs")
        if kwargs is not None and not isinstance(kwargs, dict):
            raise ConfigError(f"{self.place}: 'policy_kwargs': expected a mapping, got {shorten(kwargs)}")
        kwargs = dict(kwargs or {})
        if "net_arch" in kwargs:
            layers = self.layers(kwargs.pop("net_arch")) or layers
        if isinstance(named := kwargs.get("activation_fn"), Name) and named.last in ACTIVATIONS:
            activation = ACTIVATIONS[named.last]
            del kwargs["activation_fn"]
        self.policy_details(kwargs)
        for side, hidden in layers.items():
            self.result.put(f"network.{side}", {"type": "mlp", "hidden_dims": hidden, "activation": activation})
        for key in kwargs:
            reason = REASONS.get(key, "networks here have no such option")
            self.result.dropped[f"policy_kwargs.{shown(key)}"] = reason

    def policy_details(self, kwargs: dict[str, Any]) -> None:
        """What of `policy_kwargs` is a hyperparameter here; taken out of it."""
        algo = self.result.algo
        if algo in ("ppo", "a2c") and "log_std_init" in kwargs:
            self.result.put("hparams.log_std_init", number(kwargs.pop("log_std_init"), f"{self.place}: 'log_std_init'"))
        if algo in ("sac", "td3") and "n_critics" in kwargs:
            self.result.put("hparams.num_critics", whole(kwargs.pop("n_critics"), f"{self.place}: 'n_critics'"))
        optimizer = kwargs.get("optimizer_kwargs")
        if isinstance(optimizer, dict) and isinstance(optimizer.get("eps"), float):
            self.result.put("hparams.adam_eps", optimizer["eps"])
            kwargs["optimizer_kwargs"] = rest = {key: value for key, value in optimizer.items() if key != "eps"}
            if not rest:
                del kwargs["optimizer_kwargs"]

    def layers(self, given: Any) -> dict[str, Any] | None:
        """`net_arch` as the widths of actor and critic; None, and dropped, where it cannot be."""
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):
            given = given[0]  # the form of old versions: [dict(pi=..., vf=...)]
        if isinstance(given, list) and all(_is_width(width) for width in given):
            return {"actor": given, "critic": given}
        critic = "vf" if self.result.algo in ("ppo", "a2c") else "qf"
        if isinstance(given, dict) and set(given) == {"pi", critic}:
            both = {"actor": given["pi"], "critic": given[critic]}
            if all(isinstance(side, list) and all(map(_is_width, side)) for side in both.values()):
                return both
        self.result.dropped["policy_kwargs.net_arch"] = f"{shorten(given)} is not one list of widths per network"
        return None

    # -- algorithms ---------------------------------------------------------------------------------------------------

    def on_policy(self) -> None:
        for key, path in {"n_steps": "num_steps", "sde_sample_freq": "sde_sample_freq"}.items():
            self.move(key, f"hparams.{path}", whole)
        self.move("gae_lambda", "hparams.gae_lambda", number)
        self.move("ent_coef", "hparams.ent_coef", scheduled)
        for key in ("use_sde", "normalize_advantage"):
            self.move(key, f"hparams.{key}", switch)
        self.result.put("hparams.vf_coef", 2 * self.take("vf_coef", number))
        self.result.notes.append("vf_coef is twice the Zoo's, because the value loss here is half the squared error")

    def ppo(self) -> None:
        self.move("n_epochs", "hparams.num_epochs", whole)
        clip = self.take("clip_range", scheduled)
        if isinstance(clip, dict):
            clip = {**clip, "end": CLIP_END * clip["start"]}
            self.result.notes.append(f"clip_coef ends at {clip['end']:g}, not at 0, where no update would be left")
        self.result.put("hparams.clip_coef", clip)
        self.move("target_kl", "hparams.target_kl", number)
        clip_vf = self.take("clip_range_vf", scheduled)
        if isinstance(clip_vf, dict):
            self.drop("clip_range_vf", "clip_vf takes a number, not a schedule")
        elif clip_vf is not None:
            self.result.put("hparams.clip_vf", clip_vf)
        rollout = self.take("n_steps", whole) * self.take("n_envs", whole)
        batch = self.take("batch_size", positive)
        count = max(-(-rollout // batch), 1)
        self.result.put("hparams.num_minibatches", count)
        if rollout % batch:
            self.result.notes.append(
                f"n_steps x n_envs = {rollout} is no multiple of batch_size {batch}: {count} minibatches instead"
            )

    def a2c(self) -> None:
        if self.values.get("use_rms_prop", True):
            self.result.notes.append(
                "the Zoo's A2C learns with RMSprop, this one with Adam; the step size may need another value"
            )

    def off_policy(self) -> None:
        for key in ("learning_starts", "batch_size"):
            self.move(key, f"hparams.{key}", whole)
        self.move("buffer_size", "buffer.size", whole)
        self.move("tau", "hparams.tau", number)
        self.result.put("hparams.updates_per_step", self.updates_per_step())
        if self.take("replay_buffer_class", lambda value, what: str(value), "").rpartition(".")[2] == "HerReplayBuffer":
            self.result.put("buffer.type", "her")
        elif "replay_buffer_class" in self.values:
            self.drop("replay_buffer_class", "see buffer.type")
        if self.take("use_sde", switch, False):
            self.drop("use_sde", "gSDE is for ppo and a2c")

    def updates_per_step(self) -> float:
        """`gradient_steps` per `train_freq` steps of all environments, as updates per env step."""
        frequency = self.take("train_freq", lambda value, what: literal(value))
        count, unit = frequency if isinstance(frequency, list) and len(frequency) == 2 else (frequency, "step")
        count = whole(count, f"{self.place}: 'train_freq'")
        updates = self.take("gradient_steps", whole)
        if unit not in ("step", "episode") or count < 1:
            raise ConfigError(
                f"{self.place}: 'train_freq': expected steps, or [number, step|episode], got {shorten(frequency)}"
            )
        if updates < 0:
            if unit == "episode":
                self.result.notes.append("updates are spread over the episode's steps, not made at its end")
            return 1.0
        if unit == "episode":
            self.drop(
                "train_freq", f"{updates} updates per episode depend on its length; one update per env step instead"
            )
            return 1.0
        envs: int = self.take("n_envs", whole)
        return float(updates / (count * envs))

    def dqn(self) -> None:
        self.result.put("hparams.double", False)
        ratio = self.result.tree["hparams"]["updates_per_step"]
        interval = self.take("target_update_interval", whole)
        self.result.put("hparams.target_every_updates", max(round(interval * ratio), 1))
        self.result.notes.append(
            f"target_update_interval is {interval} env steps; here it counts updates, {ratio:g} per env step"
        )
        self.move("exploration_initial_eps", "hparams.epsilon_start", number)
        self.move("exploration_final_eps", "hparams.epsilon_end", number)
        total = self.take("n_timesteps", whole, 100_000)
        fraction = self.take("exploration_fraction", number)
        self.result.put("hparams.epsilon_steps", max(round(fraction * total), 1))

    def sac(self) -> None:
        given = self.take("ent_coef", lambda value, what: value)
        if isinstance(given, str) and given.startswith("auto"):
            if given != "auto":
                self.drop("ent_coef", f"{shown(given)}: a learnt temperature starts at 1 here")
        else:
            self.result.put("hparams.alpha", number(given, f"{self.place}: 'ent_coef'"))
        if self.values.get("target_entropy") != "auto":
            self.move("target_entropy", "hparams.target_entropy", number)
        self.seen.add("target_entropy")
        if self.take("target_update_interval", whole, 1) != 1:
            self.drop("target_update_interval", "the targets move at every update")

    def td3(self) -> None:
        self.move("policy_delay", "hparams.actor_every_updates", whole)
        self.move("target_policy_noise", "hparams.target_noise", number)
        self.move("target_noise_clip", "hparams.target_noise_clip", number)
        self.noise()

    def ddpg(self) -> None:
        self.noise()

    def noise(self) -> None:
        kind = self.take("noise_type", lambda value, what: str(value), "")
        std = self.take("noise_std", scheduled, 0.0)
        self.result.put("hparams.exploration_noise", std["start"] if isinstance(std, dict) else std if kind else 0.0)
        if isinstance(std, dict):
            self.drop("noise_std", "exploration_noise takes a number, not a schedule; its start is kept")
        if kind and kind != "normal":
            self.drop("noise_type", f"{shown(kind)} noise: normal noise of the same size instead")


def _is_width(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names_in(value: Any) -> bool:
    """Whether a tree mentions a name instead of a value."""
    if isinstance(value, dict):
        return any(map(_names_in, value.values()))
    return any(map(_names_in, value)) if isinstance(value, list) else isinstance(value, Name)
