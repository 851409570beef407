"""`rl config show, validate, migrate`: configs without running them. No code of a user is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.cli import EXIT_USAGE
from rl_training.cli.arguments import Arguments
from rl_training.cli.output import note, print_json, show
from rl_training.types import ConfigError


def show_command(arguments: Arguments) -> int:
    from rl_training.cli.run import config_of
    from rl_training.config.loading import config_to_mapping, dump_yaml

    cfg = config_of(arguments)
    if arguments.switch("json"):
        print_json(config_to_mapping(cfg))
    else:
        print(dump_yaml(cfg), end="")
    return 0


def validate_command(arguments: Arguments) -> int:
    results = [validated(name) for name in arguments.positional]
    if arguments.switch("json"):
        print_json(results)
    else:
        for result in results:
            if result["valid"]:
                show(f"{result['file']}: ok, {result['summary']}")
            else:
                note(f"error: {result['error']}")
    return 0 if all(result["valid"] for result in results) else EXIT_USAGE


def validated(name: str) -> dict[str, Any]:
    """One file as a record: what it holds, or everything that is wrong with it."""
    try:
        return {"file": name, "valid": True, "summary": summary_of(name), "error": None}
    except ConfigError as error:
        return {"file": name, "valid": False, "summary": None, "error": str(error)}


def summary_of(name: str) -> str:
    from rl_training.config.loading import load_config
    from rl_training.config.schema import builtin_spec
    from rl_training.config.sweeps import is_sweep_file, load_sweep, trials_of
    from rl_training.config.tuning import is_tune_file, load_tune

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


def migrate_command(arguments: Arguments) -> int:
    from rl_training.config.loading import migrate_file

    path = Path(arguments.positional[0])
    text = migrate_file(path)
    if not arguments.switch("write"):
        print(text, end="")
    elif text == path.read_text(encoding="utf-8-sig"):
        note(f"{path}: already in today's layout")
    else:
        write(path, text)
        note(f"{path}: rewritten in today's layout")
    return 0


def write(path: Path, text: str) -> None:
    from rl_training.system.atomic_io import atomic_write

    try:
        atomic_write(path.resolve(), text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; print it without --write instead") from error
