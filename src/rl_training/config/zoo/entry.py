"""One environment of a Zoo file as a config: each key moved, converted, or dropped with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config.yaml_reader import dump_mapping, shorten, shown
from rl_training.config.zoo.tables import ACTIVATIONS, CLIP_END, NETWORKS, REASONS, WRAPPERS
from rl_training.config.zoo.values import Name, literal, number, positive, scheduled, switch, whole
from rl_training.types import ConfigError


@dataclass
class Imported:
    """One environment of a file: its config as a tree, the dropped keys with reasons, and notes on differences."""

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
        """The text of the config file: dropped keys and notes as comments, then the values."""
        lines = [f"{self.algo} on {self.env_id}, imported from the SB3 Zoo's {Path(self.source).name}."]
        lines += [f"Dropped {key}: {why}." for key, why in self.dropped.items()]
        lines += [f"Note: {text}." for text in self.notes]
        return "".join(f"# {shown(line)}\n" for line in lines) + dump_mapping(self.tree)


class EntryReader:
    """Reads the keys of one entry one by one into `result`; keys that are not in `seen` at the end are dropped."""

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
        """Copy the value of a key that only has another name here."""
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
        readers = {"ppo": self.ppo, "a2c": self.a2c, "dqn": self.dqn, "sac": self.sac, "td3": self.td3}
        readers |= {"ddpg": self.noise}
        readers[algo]()
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
        """The value of a key that may be a Python literal in a string; dropped if it is anything more complex."""
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
        """Remove the entries of `policy_kwargs` that are hyperparameters here, and copy them there."""
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
        """`net_arch` as layer widths of actor and critic; None, and a dropped key, if it cannot be converted."""
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):
            given = given[0]  # the format of old versions: [dict(pi=..., vf=...)]
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
        """`gradient_steps` per `train_freq` vector steps, converted to updates per env step."""
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
    """Whether a tree contains a name in place of a value."""
    if isinstance(value, dict):
        return any(map(_names_in, value.values()))
    return any(map(_names_in, value)) if isinstance(value, list) else isinstance(value, Name)
