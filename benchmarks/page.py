"""docs/benchmarks.md from the collected results."""

from __future__ import annotations

from typing import Any

from contest_types import Contest, Measure
from contests import CONTESTS
from harness import shortfalls, times_better

HEAD = """\
# Benchmarks

How fast this package is, beside its peers on the same machine. `make bench` writes this page anew, from
`docs/data/bench.json`, where every single run is kept.

- **Alternating.** The contestants take turns, each run in a fresh process, repetition k with seed k. The tables show
  medians. What counts is the ratio on one machine, in brackets: how many times better than the best peer. Gaps under a
  quarter are noise.
- **The same algorithm.** Both sides run the peer's, to the letter as far as settings go; the lists are beside each
  other. Where what was learnt is scored, every run must reach the score, else its contestant has no result.
- **The same below.** The peers live in environments of their own (`.venv-peers`, `.venv-peers-jax`,
  `.venv-peers-teams`, ...), with the versions of torch, jax, NumPy and Gymnasium that this package is tested with,
  where they take them. Every process has one thread, unless the text says otherwise.
- **Time and memory** are those of the whole process, from the system's own accounts, unless the table says "per step":
  then they are those of the training loop.

One contest alone, and a trial that writes nothing:

```bash
python benchmarks/run.py --only ppo_cartpole --repeats 5
python benchmarks/run.py --quick
```

Which way of stepping an environment is fastest, `sync`, `async` or `native`, depends on what its step costs:
`rl bench CartPole-v1` measures it and advises.
"""


def render(results: dict[str, Any]) -> str:
    """The whole page."""
    held = [name for name in CONTESTS if name in results]
    sections = [section(CONTESTS[name], results[name]) for name in held]
    return "\n".join([HEAD, *sections])


def section(contest: Contest, result: dict[str, Any]) -> str:
    """One contest: what it is, its table, how it was measured."""
    lines = [f"## {contest.title}", "", contest.text, "", *settings(contest), table(contest, result), ""]
    lines += no_result(contest, result)
    first = next(iter(result["contestants"]))
    for measure in contest.measures:
        ratio = times_better(result, first, measure, contest.measures)
        if measure.goal is not None and ratio is not None:
            rival = contest.rival
            goal = f"at least {measure.goal:g} times {rival}" if measure.goal > 1 else f"no worse than {rival}"
            lines += [f"- Goal, {measure.title}: {goal}. {ratio:.2f} ×: {verdict(ratio >= measure.goal)}."]
        value = result["contestants"][first]["median"].get(measure.key)
        if measure.limit is not None and value is not None:
            higher = measure.better == "higher"
            goal = f"{'at least' if higher else 'at most'} {number(measure.limit, measure)}"
            reached = value >= measure.limit if higher else value <= measure.limit
            lines += [f"- Goal, {measure.title}: {goal}. {number(value, measure)}: {verdict(reached)}."]
    commands = [entry["command"] for entry in result["contestants"].values()]
    return "\n".join([*lines, "", circumstances(result), "", "```bash", *commands, "```", ""])


def settings(contest: Contest) -> list[str]:
    """What each side runs, side by side."""
    if not contest.algorithm:
        return []
    peer = next(contestant.name for contestant in contest.contestants if contestant.peer).split(",")[0]
    rows = [f"| {what} | {ours} | {theirs} |" for what, ours, theirs in contest.algorithm]
    return [f"| algorithm | rl_training | {peer} |", "|---|---|---|", *rows, ""]


def no_result(contest: Contest, result: dict[str, Any]) -> list[str]:
    """Which contestants are not compared, and why."""
    lines = []
    for measure in contest.measures:
        for name, entry in result["contestants"].items():
            if short := shortfalls([measure], entry):
                floor = number(measure.floor or 0.0, measure)
                lines.append(f"- **No result** for {name}: its runs must all end at {floor}, but {', '.join(short)}.")
    return lines


def verdict(reached: bool) -> str:
    return "reached" if reached else "not reached"


def table(contest: Contest, result: dict[str, Any]) -> str:
    """Medians, with the ratio to the best peer where there is one, and the range of the first measure."""
    entries = result["contestants"]
    solved = any("solved" in run for entry in entries.values() for run in entry["runs"])
    shown = [m for m in contest.measures if any(m.key in entry["median"] for entry in entries.values())]
    titles = [shown[0].title, "range", *(measure.title for measure in shown[1:]), *(["solved"] if solved else [])]
    lines = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name, entry in entries.items():
        values = [run[shown[0].key] for run in entry["runs"]]
        cells = [cell(contest, result, name, measure) for measure in shown]
        cells.insert(1, f"{number(min(values), shown[0])} to {number(max(values), shown[0])}")
        if solved:
            cells.append(f"{sum(run['solved'] for run in entry['runs'])} of {len(entry['runs'])}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(contest: Contest, result: dict[str, Any], name: str, measure: Measure) -> str:
    entry = result["contestants"][name]
    if measure.key not in entry["median"]:
        return "–"
    text = number(entry["median"][measure.key], measure)
    ratio = None if entry["peer"] else times_better(result, name, measure, contest.measures)
    return text if ratio is None else f"{text} ({ratio:.2f} ×)"


def number(value: float, measure: Measure) -> str:
    return f"{value:,.{measure.digits}f}"


def circumstances(result: dict[str, Any]) -> str:
    """When, where, with what; and whether the machine had other work."""
    machine, versions = result["machine"], result["versions"]
    installed = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = (
        f"Median of {result['repeats']}, {result['measured']}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['platform']}; {installed}."
    )
    if machine["load_before"] > 0.5:
        text += f" The machine was not idle: load {machine['load_before']:.1f} before the first run."
    return text
