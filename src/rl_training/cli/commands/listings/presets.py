"""`rl presets`: the configs that ship with the package."""

from __future__ import annotations

from rl_training.cli.commands.listings.names import ListingOptions, matching, nothing
from rl_training.cli.output import note, print_json, table
from rl_training.cli.parser import Command


def run(options: ListingOptions) -> int:
    from rl_training.config.loading import load_config, preset_names

    configs = {name: load_config(name) for name in matching(preset_names(), options)}
    if options.json:
        print_json(
            [
                {"name": name, "algo": cfg.algo, "env_id": cfg.env_id, "total_timesteps": cfg.training.budget}
                for name, cfg in configs.items()
            ]
        )
    elif configs:
        cells = [[name, cfg.algo, cfg.env_id, f"{cfg.training.budget:,}"] for name, cfg in configs.items()]
        print(table(["preset", "algorithm", "environment", "env steps"], cells))
        note(f"\nrl train {next(iter(configs))}")
    else:
        nothing("preset", options)
    return 0


COMMAND = Command(
    name="presets",
    summary="list the configs that ship with the package",
    usage="[FILTER] [--json]",
    options=ListingOptions,
    run=run,
    examples=("rl presets", "rl presets ppo"),
)
