"""`rl presets`, `rl algorithms`, `rl envs`: what there is to choose from."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments
from rl_training.cli.output import bold, note, print_json, stdout_for_the_result, table

MAX_IDS = 30
"""Ids of a suite that are shown where no filter is given."""

if TYPE_CHECKING:
    from rl_training.hparams.base import AlgorithmSpec


def presets_command(arguments: Arguments) -> int:
    from rl_training.config.loading import load_config, preset_names

    configs = {name: load_config(name) for name in matching(preset_names(), arguments)}
    if arguments.switch("json"):
        print_json(
            [
                {"name": name, "algo": cfg.algo, "env_id": cfg.env_id, "total_timesteps": cfg.training.total_timesteps}
                for name, cfg in configs.items()
            ]
        )
    elif configs:
        cells = [[name, cfg.algo, cfg.env_id, f"{cfg.training.total_timesteps:,}"] for name, cfg in configs.items()]
        print(table(["preset", "algorithm", "environment", "env steps"], cells))
        note(f"\nrl train {next(iter(configs))}")
    else:
        nothing("preset", arguments)
    return 0


def algorithms_command(arguments: Arguments) -> int:
    from rl_training.config.schema import builtin_spec
    from rl_training.registry import algorithms

    specs = [spec for name in matching(algorithms.names(), arguments) if (spec := builtin_spec(name)) is not None]
    if arguments.switch("json"):
        print_json(
            [
                {"name": spec.name, "kind": spec.kind, "backends": backends(spec), "summary": spec.summary}
                for spec in specs
            ]
        )
    elif specs:
        cells = [[spec.name, spec.kind.replace("_", "-"), ", ".join(backends(spec)), spec.summary] for spec in specs]
        print(table(["algorithm", "kind", "backend", "what it does"], cells))
        note("\nrl train --algo NAME --help lists its hyperparameters; your own: --algo package.module:Name")
    else:
        nothing("algorithm", arguments)
    return 0


def backends(spec: AlgorithmSpec) -> list[str]:
    return [name for name, twin in (("torch", spec.build), ("jax", spec.functional)) if twin]


def envs_command(arguments: Arguments) -> int:
    with stdout_for_the_result(arguments.switch("json")):
        from rl_training.envs import list_envs
        from rl_training.registry import wrappers as known_wrappers

        suites = list_envs()
    found = {suite.name: matching(suite.ids, arguments) for suite in suites}
    missing = {suite.name: suite.missing_extra for suite in suites if suite.missing_extra}
    wrappers = matching(known_wrappers.names(), arguments)
    if arguments.switch("json"):
        listed = [
            {"suite": name, "ids": ids, "needs_extra": missing.get(name)}
            for name, ids in found.items()
            if ids or not arguments.positional
        ]
        print_json({"environments": listed, "wrappers": wrappers})
        return 0
    if not any(found.values()):
        nothing("environment", arguments)
        for name, extra in missing.items():
            note(f"not installed, so not searched: {name} (pip install 'rl-training[{extra}]')")
    for name, ids in found.items():
        needs = f"  (needs pip install 'rl-training[{missing[name]}]')" if name in missing else ""
        if ids or (needs and not arguments.positional):
            print(bold(name) + needs)
            print_wrapped(ids if arguments.positional else shortened(ids))
    if wrappers:
        print(bold("wrappers") + "  (for env.wrappers)")
        print_wrapped(wrappers)
    return 0


def shortened(ids: list[str]) -> list[str]:
    """The first ids of a large suite, and how many there are more."""
    return ids if len(ids) <= MAX_IDS + 1 else [*ids[:MAX_IDS], f"... and {len(ids) - MAX_IDS} more: rl envs FILTER"]


def matching(names: Iterable[str], arguments: Arguments) -> list[str]:
    """The names that contain the FILTER argument, whatever the case."""
    wanted = arguments.positional[0].lower() if arguments.positional else ""
    return [name for name in names if wanted in name.lower()]


def nothing(kind: str, arguments: Arguments) -> None:
    note(f"no {kind} contains '{arguments.positional[0]}'" if arguments.positional else f"no {kind} is installed")


def print_wrapped(names: Iterable[str]) -> None:
    width = min(shutil.get_terminal_size().columns, 110)
    text = ", ".join(names)
    if text:
        indent = "  "
        print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))
