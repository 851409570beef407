"""`rl config validate`: every problem of config, sweep and tuning files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_training.cli.exit_codes import EXIT_USAGE
from rl_training.cli.flags import arguments, json_flag
from rl_training.cli.output import note, print_json, show
from rl_training.cli.parser import Command


@dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    files: tuple[str, ...] = arguments(1, 10_000)
    json: bool = json_flag()


def run(options: ValidateOptions) -> int:
    results = [validated(name) for name in options.files]
    if options.json:
        print_json(results)
    else:
        for result in results:
            if result["valid"]:
                show(f"{result['file']}: ok, {result['summary']}")
            else:
                note(f"error: {result['error']}")
    return 0 if all(result["valid"] for result in results) else EXIT_USAGE


def validated(name: str) -> dict[str, Any]:
    """One file as a record: a summary of what it holds, or all its problems."""
    from rl_training.types import ConfigError

    try:
        return {"file": name, "valid": True, "summary": summary_of(name), "error": None}
    except ConfigError as error:
        return {"file": name, "valid": False, "summary": None, "error": str(error)}


def summary_of(name: str) -> str:
    from rl_training.config.loading import load_config
    from rl_training.config.schema import builtin_spec
    from rl_training.config.searches.sweeps import is_sweep_file, load_sweep, trials_of
    from rl_training.config.searches.tuning import is_tune_file, load_tune

    if is_tune_file(name):
        tune = load_tune(name)
        return f"a search of {tune.num_trials} trials x {len(tune.seeds)} seeds on {tune.base_config}"
    if is_sweep_file(name):
        sweep = load_sweep(name)
        trials, seeds = len(trials_of(sweep)), len(sweep.seeds or sweep.sweep.get("seed", (0,)))
        return f"a sweep of {trials * seeds} configs on {sweep.base_config}"
    cfg = load_config(name)
    unchecked = "" if builtin_spec(cfg.algo) else " (its hparams are checked when it is built)"
    return f"{cfg.algo} on {cfg.env_id}{unchecked}"


COMMAND = Command(
    name="config validate",
    summary="check config and sweep files; all problems at once",
    usage="FILE... [--json]",
    options=ValidateOptions,
    run=run,
    examples=("rl config validate my.yaml", "rl config validate configs/*/*.yaml"),
)
