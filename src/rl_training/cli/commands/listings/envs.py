"""`rl envs`: the environments that can be built here, and the wrappers."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from rl_training.cli.commands.listings.names import ListingOptions, matching, nothing
from rl_training.cli.output import bold, note, print_json, stdout_for_the_result
from rl_training.cli.parser import Command

MAX_IDS = 30
"""Number of ids of a suite that are shown without a filter."""


def run(options: ListingOptions) -> int:
    with stdout_for_the_result(options.json):
        from rl_training.envs import list_envs
        from rl_training.registry import wrappers as known_wrappers

        suites = list_envs()
    found = {suite.name: matching(suite.ids, options) for suite in suites}
    missing = {suite.name: suite.missing_extra for suite in suites if suite.missing_extra}
    wrappers = matching(known_wrappers.names(), options)
    if options.json:
        listed = [
            {"suite": name, "ids": ids, "needs_extra": missing.get(name)}
            for name, ids in found.items()
            if ids or options.filter is None
        ]
        print_json({"environments": listed, "wrappers": wrappers})
        return 0
    if not any(found.values()):
        nothing("environment", options)
        for name, extra in missing.items():
            note(f"not installed, so not searched: {name} (pip install 'rl-training[{extra}]')")
    for name, ids in found.items():
        needs = f"  (needs pip install 'rl-training[{missing[name]}]')" if name in missing else ""
        if ids or (needs and options.filter is None):
            print(bold(name) + needs)
            print_wrapped(ids if options.filter is not None else shortened(ids))
    if wrappers:
        print(bold("wrappers") + "  (for env.wrappers)")
        print_wrapped(wrappers)
    return 0


def shortened(ids: list[str]) -> list[str]:
    """The first ids of a large suite, and how many more there are."""
    return ids if len(ids) <= MAX_IDS + 1 else [*ids[:MAX_IDS], f"... and {len(ids) - MAX_IDS} more: rl envs FILTER"]


def print_wrapped(names: Iterable[str]) -> None:
    width = min(shutil.get_terminal_size().columns, 110)
    text = ", ".join(names)
    if text:
        indent = "  "
        print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


COMMAND = Command(
    name="envs",
    summary="list the environments that can be built here",
    usage="[FILTER] [--json]",
    options=ListingOptions,
    run=run,
    examples=("rl envs", "rl envs cart"),
)
