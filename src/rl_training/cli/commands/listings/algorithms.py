"""`rl algorithms`: the algorithms of the package, and the backends of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.cli.commands.listings.names import ListingOptions, matching, nothing
from rl_training.cli.output import note, print_json, table
from rl_training.cli.parser import Command

if TYPE_CHECKING:
    from rl_training.hparams.base import AlgorithmSpec


def run(options: ListingOptions) -> int:
    from rl_training.config.schema import builtin_spec
    from rl_training.registry import algorithms

    specs = [spec for name in matching(algorithms.names(), options) if (spec := builtin_spec(name)) is not None]
    if options.json:
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
        nothing("algorithm", options)
    return 0


def backends(spec: AlgorithmSpec) -> list[str]:
    return [name for name, twin in (("torch", spec.build), ("jax", spec.functional)) if twin]


COMMAND = Command(
    name="algorithms",
    summary="list the algorithms",
    usage="[FILTER] [--json]",
    options=ListingOptions,
    run=run,
    examples=("rl algorithms", "rl train --algo ppo --help   # with all hyperparameters of ppo"),
)
