"""`rl config show`: a config with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.config_options import SHORT_FORMS, ConfigOptions, resolved_config
from rl_training.cli.flags import json_flag
from rl_training.cli.output import print_json
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class ConfigShowOptions(ConfigOptions):
    json: bool = json_flag()


def run(options: ConfigShowOptions) -> int:
    from rl_training.config.yaml_reader import dump_mapping

    resolved = resolved_config(options)
    if options.json:
        print_json(resolved.mapping)
    else:
        print(dump_mapping(resolved.mapping), end="")
    return 0


COMMAND = Command(
    name="config show",
    summary="print a config with every default filled in",
    usage="[PRESET|FILE] [flags]",
    options=ConfigShowOptions,
    short_forms=SHORT_FORMS,
    run=run,
    examples=("rl config show ppo/cartpole", "rl config show --algo a2c > my.yaml"),
)
