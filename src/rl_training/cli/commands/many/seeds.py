"""`--seed 3`, `--seed 1,2,3`, `--seed 0..9`: the seeds of a command line."""

from __future__ import annotations

from rl_training.cli.parser import FieldOptions, UsageError

MAX_RUNS = 10_000


def chosen_seeds(options: FieldOptions) -> list[int]:
    """The seeds of --seed; none where the flag was not given."""
    return parse_seeds(options.fields.texts["seed"]) if "seed" in options.fields.texts else []


def parse_seeds(text: str) -> list[int]:
    """The seeds of `3`, `1,2,3`, `0..9` (both ends) or a mix of them.

    >>> parse_seeds("0..2,7")
    [0, 1, 2, 7]
    """
    from rl_training.seeding import MAX_SEED

    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise UsageError(f"--seed takes 3, 1,2,3 or 0..9, not '{text}'") from None
        if not 0 <= low <= high <= MAX_SEED:
            raise UsageError(f"--seed {text}: seeds go up from 0 to {MAX_SEED}")
        if len(seeds) + high - low >= MAX_RUNS:
            raise UsageError(f"--seed {text} is more than {MAX_RUNS} runs")
        seeds.extend(range(low, high + 1))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seed {text} names a seed twice")
    return seeds
