"""Contests against the peers: speed, CPU time and memory, in turns, into docs/data/bench.json and docs/benchmarks.md.

    python benchmarks/run.py                                        # everything, over an hour
    python benchmarks/run.py --only ppo_cartpole --repeats 5
    python benchmarks/run.py --quick                                # a trial of the machinery: writes nothing
    python benchmarks/run.py --page                                 # measures nothing: the page again, from the data

The first run installs the peers from PyPI into environments of their own. A contest that is held again replaces its
own results only.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from contest_types import PACKAGE_VENV, Contest
from contests import CONTESTS
from harness import ROOT, Pythons, hold, versions
from page import no_result, render, table
from peers import peers_python

DATA = ROOT / "docs" / "data" / "bench.json"
PAGE = ROOT / "docs" / "benchmarks.md"


def chosen(names: str | None) -> list[Contest]:
    """The contests named, in the order of the docs; all of them by default."""
    wanted = list(CONTESTS) if names is None else names.split(",")
    unknown = [name for name in wanted if name not in CONTESTS]
    if unknown:
        raise SystemExit(f"no contest {', '.join(unknown)}; there are {', '.join(CONTESTS)}")
    return [contest for name, contest in CONTESTS.items() if name in wanted]


def write(results: dict[str, Any], data: Path = DATA, page: Path = PAGE) -> None:
    """Both files, the contests in the order of the docs."""
    ordered = {name: results[name] for name in CONTESTS if name in results}
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(json.dumps(ordered, indent=1) + "\n")
    page.write_text(render(ordered))


def interpreters(contest: Contest) -> Pythons:
    """The interpreters of the contestants; the package's is the one that runs this."""
    venvs = {contestant.venv for contestant in contest.contestants}
    return {PACKAGE_VENV: sys.executable} | {venv: str(peers_python(venv)) for venv in venvs - {PACKAGE_VENV}}


def installed(pythons: Pythons) -> dict[str, str]:
    """What the package runs on, and where the peers have something else or more."""
    package, *others = (versions(python) for python in pythons.values())
    different = {name: version for other in others for name, version in other.items() if package.get(name) != version}
    return package | {f"{name} (peers)" if name in package else name: version for name, version in different.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(CONTESTS)}")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contestant (default 5)")
    parser.add_argument("--quick", action="store_true", help="one short run of each, shown and not written")
    parser.add_argument("--page", action="store_true", help="only write the page again, from the results there are")
    arguments = parser.parse_args()
    contests = chosen(arguments.only)
    results: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    if arguments.page:
        write(results)
        return
    for contest in contests:
        pythons = interpreters(contest)
        if arguments.quick:
            contest = replace(contest, settings={**contest.settings, **contest.quick})
        repeats = 1 if arguments.quick else min(arguments.repeats, contest.max_repeats)
        result = hold(contest, repeats, pythons, report=lambda line: print(line, flush=True))
        results[contest.name] = {**result, "versions": installed(pythons)}
        shown = [contest.title, table(contest, results[contest.name]), *no_result(contest, results[contest.name])]
        print("\n" + "\n".join(shown) + "\n", flush=True)
        if not arguments.quick:
            write(results)


if __name__ == "__main__":
    main()
