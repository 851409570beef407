"""Flags of the commands that take a config: the file, the short forms of its fields, and what they resolve to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.cli.flags import optional_argument, text
from rl_training.cli.parser import FieldOptions, Option, UsageError

if TYPE_CHECKING:
    from rl_training.config.loading import ResolvedConfig

WHAT, HOW, WHERE, LOOK = "what to train", "seeds and machines", "where it is kept", "before it starts, and after"
"""Sections of a help page with many flags."""
SHORT_FORMS = (
    Option("algo", "algorithm, see 'rl algorithms'", "NAME", field="algo", section=WHAT),
    Option("env-id", "environment, see 'rl envs'", "ID", field="env_id", section=WHAT),
    Option(
        "total-timesteps", "env steps to train for, over all environments", "N", field="training.total_timesteps",
        section=WHAT,
    ),
    Option("dataset", "what an offline algorithm learns from", "PATH", field="dataset.path", section=WHAT),
    Option("total-updates", "updates of an offline algorithm", "N", field="training.total_updates", section=WHAT),
    Option("num-envs", "environments stepped side by side", "N", field="env.num_envs", section=WHAT),
    Option(
        "stop-at-return", "stop when 100 episodes reach this mean return", "X", field="training.stop_at_return",
        section=WHAT,
    ),
    Option("seed", "root of all randomness; 1,2,3 or 0..9 trains one run per seed", "SEEDS", field="seed", section=HOW),
    Option("device", "cpu, cuda, cuda:1, mps or auto", "DEVICE", field="device", section=HOW),
    Option("backend", "torch or jax", "NAME", field="backend", choices=("torch", "jax"), section=HOW),
    Option("lane", "auto, host or compiled", "NAME", field="lane", choices=("auto", "host", "compiled"), section=HOW),
    Option("name", "a name to find the run by", "TEXT", field="name", section=WHERE),
    Option("tags", "labels to find the run by", "A,B", field="tags", section=WHERE),
    Option("output-dir", "folder that run directories are made in", "DIR", field="output_dir", section=WHERE),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(FieldOptions):
    """The config of a command: a preset or file, with fields given as flags on top."""

    source: str | None = optional_argument(values="presets")
    config: str | None = text("the same as the argument FILE", "FILE", section=WHAT, values="presets")


def source_of(options: ConfigOptions) -> str | None:
    """The preset or file that was named, as an argument or with --config."""
    named = [name for name in (options.source, options.config or None) if name is not None]
    if len(set(named)) > 1:
        raise UsageError(f"two configs are named, '{named[0]}' and --config '{named[1]}'; drop one of them")
    return named[0] if named else None


def resolved_config(options: ConfigOptions) -> ResolvedConfig:
    """The preset or file, then flags; read and checked once, to be passed on."""
    from rl_training.cli.fields import field_values
    from rl_training.config.loading import resolve_config, resolve_mapping

    source, overrides = source_of(options), field_values(options.fields)
    if source is None:
        return resolve_mapping({}, overrides, source="the command line")
    return resolve_config(source, overrides)
