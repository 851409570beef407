"""`rl train`, `rl eval`, `rl resume`: from a parsed command line to one call of the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.group import eval_group, parse_seeds, resume_group, train_group
from rl_training.cli.output import amount, bold, note, print_json, show, stdout_for_the_result
from rl_training.cli.sweep import resume_sweep
from rl_training.cli.targets import find_target
from rl_training.system.formatting import number_text
from rl_training.system.imports import without_collections
from rl_training.trust.consent import OWN, scope

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir
    from rl_training.trainer import TrainResult

RESUME_OPTIONS = ("resume", "json", "jobs", "allow-changed-config", "trust-plugins")
"""What `rl train --resume` takes beside the budget."""
DEBUG_ROLLOUTS = 4
DEBUG_EPISODES = 2
DEFAULT_BLOCK = 256
"""Env steps that stand for a rollout where the algorithm has no `num_steps`."""


def train_command(arguments: Arguments) -> int:
    from rl_training.experiments.launching.membership import join_group

    member = join_group()
    if arguments.switch("resume"):
        return _train_resume(arguments)
    if arguments.switch("allow-changed-config"):
        raise UsageError("--allow-changed-config is for --resume; a new run has no checkpoint yet")
    seeds = parse_seeds(arguments.overrides["seed"]) if "seed" in arguments.overrides else []
    jobs = arguments.number("jobs", low=1)
    arguments.overrides.update({"seed": str(seeds[0])} if seeds else {})
    cfg = config_of(arguments)
    check_init_from(arguments.text("init-from"), cfg.output_dir)
    if arguments.switch("debug"):
        cfg = debug_config(arguments, cfg)
    if arguments.switch("dry-run"):
        return _dry_run(cfg, seeds, as_json=arguments.switch("json"))
    if len(seeds) > 1:
        return train_group(
            cfg,
            seeds,
            jobs=jobs,
            argv=arguments.words,
            source=source_text(arguments),
            init_from=arguments.text("init-from"),
            as_json=arguments.switch("json"),
        )
    if jobs is not None:
        raise UsageError("--jobs is for several seeds, such as --seed 1,2,3")
    with stdout_for_the_result(arguments.switch("json")):
        with without_collections():
            from rl_training.trainer import train
        with scope(OWN if member is None else member.consent):
            result = train(
                cfg,
                init_from=arguments.text("init-from"),
                source=source_text(arguments) if member is None else member.source,
                argv=arguments.words,
                group=None if member is None else member.group,
                sweep=None if member is None else member.sweep,
            )
    return _finish(result, arguments)


def eval_command(arguments: Arguments) -> int:
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

    checkpoint = arguments.text("checkpoint") or "latest"
    if checkpoint not in ("latest", "best") and not checkpoint.isdecimal():
        raise UsageError(f"--checkpoint is latest, best or a number of env steps, not '{checkpoint}'")
    episodes = arguments.number("episodes", low=1)
    seed = arguments.number("seed")
    num_envs = arguments.number("num-envs", low=1)
    options: dict[str, Any] = {
        "checkpoint": int(checkpoint) if checkpoint.isdecimal() else checkpoint,
        "episodes": 100 if episodes is None else episodes,
        "seed": seed,
        "stochastic": arguments.switch("stochastic"),
        "num_envs": num_envs,
        "trust_plugins": arguments.switch("trust-plugins"),
        "allow_changed_config": arguments.switch("allow-changed-config"),
    }
    video = arguments.text("video") or arguments.switch("video")
    target = named_target(arguments)
    if isinstance(target, Sweep):
        raise UsageError(
            f"a sweep is not evaluated as a whole; name one of its runs ('rl list sweep={target.info.id}')"
        )
    if not isinstance(target, RunDir):
        return eval_group(target, as_json=arguments.switch("json"), video=video, **options)
    with stdout_for_the_result(arguments.switch("json")):
        from rl_training.eval import evaluate

        result = evaluate(target.path, **options, video=target.videos if video is True else video or None)
    if arguments.switch("json"):
        print_json(result)
    else:
        show(score_text(result))
    return 0


def resume_command(arguments: Arguments) -> int:
    from rl_training.experiments.launching.membership import join_group
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

    join_group()
    total_timesteps = arguments.number("total-timesteps", low=1)
    jobs, trust_plugins = arguments.number("jobs", low=1), arguments.switch("trust-plugins")
    allow_changed = arguments.switch("allow-changed-config")
    target = named_target(arguments)
    if allow_changed and not isinstance(target, RunDir):
        raise UsageError("--allow-changed-config is for one run; resume the runs that were changed one by one")
    if isinstance(target, Sweep):
        if total_timesteps is not None:
            raise UsageError("a sweep keeps its configs; drop --total-timesteps")
        target.trusted = trust_plugins
        return resume_sweep(target, jobs=jobs, retries=None, as_json=arguments.switch("json"))
    if not isinstance(target, RunDir):
        target.trusted = trust_plugins
        return resume_group(target, jobs=jobs, total_timesteps=total_timesteps, as_json=arguments.switch("json"))
    if jobs is not None:
        raise UsageError("--jobs is for a group of seeds; this is one run")
    with stdout_for_the_result(arguments.switch("json")):
        with without_collections():
            from rl_training.trainer import resume
        result = resume(
            target.path,
            total_timesteps=total_timesteps,
            allow_changed_config=allow_changed,
            trust_plugins=trust_plugins,
        )
    return _finish(result, arguments)


def check_init_from(start: str | None, folder: str) -> None:
    """UsageError where the RUN of `--init-from RUN[:STEP]` is not one run."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.runs.directory import RunDir
    from rl_training.types import RunError

    if start is None:
        return
    named = start if Path(start).exists() else start.partition(":")[0]
    try:
        found = find_runs(named, folder)
    except RunError as error:
        raise UsageError(f"--init-from {start}: {error}") from error
    if not isinstance(found, RunDir):
        runs = [member.run for member in found.members if member.run is not None]
        such = f", such as '{runs[0]}'" if runs else ""
        raise UsageError(f"--init-from takes one run, and '{named}' is a {found.kind}; name one of its runs{such}")


# -- from the command line to a config and a run ----------------------------------------------------------------------


def source_of(arguments: Arguments) -> str | None:
    """The preset or file that was named, as an argument or with --config."""
    named = [*arguments.positional, *filter(None, [arguments.text("config")])]
    if len(set(named)) > 1:
        raise UsageError(f"two configs are named, '{named[0]}' and --config '{named[1]}'; drop one of them")
    return named[0] if named else None


def source_text(arguments: Arguments) -> str | None:
    """The text of that preset or file, to be kept beside the resolved config."""
    from rl_training.config.files import find_config

    source = source_of(arguments)
    return None if source is None else find_config(source).path.read_text(encoding="utf-8-sig")


def config_of(arguments: Arguments, changes: dict[str, Any] | None = None) -> TrainConfig:
    """The resolved config: preset or file, then flags, then `changes`."""
    from rl_training.cli.overrides import field_values
    from rl_training.config.loading import load_config, parse_config

    source = source_of(arguments)
    overrides = field_values(arguments)
    for path, value in (changes or {}).items():
        overrides[arguments.spelt.get(path, path)] = value
    return parse_config({}, overrides, source="the command line") if source is None else load_config(source, overrides)


def debug_config(arguments: Arguments, cfg: TrainConfig) -> TrainConfig:
    """The same run made short and watched closely. What is given as a flag stays."""
    hparams = cfg.hparams if isinstance(cfg.hparams, Mapping) else vars(cfg.hparams)
    num_steps = hparams.get("num_steps")
    rollout = (num_steps if isinstance(num_steps, int) else DEFAULT_BLOCK) * cfg.env.num_envs
    training = cfg.training
    wanted: dict[str, tuple[Any, Any]] = {
        "training.total_timesteps": (training.total_timesteps, min(training.total_timesteps, DEBUG_ROLLOUTS * rollout)),
        "training.eval_frequency": (training.eval_frequency, rollout),
        "training.num_eval_episodes": (training.num_eval_episodes, min(training.num_eval_episodes, DEBUG_EPISODES)),
        "training.checkpoint_frequency": (training.checkpoint_frequency, rollout),
        "monitor.checks": (cfg.monitor.checks, "full"),
        **{f"monitor.debug.{name}": (False, True) for name in ("enabled", "profile", "memory")},
        "tags": (list(cfg.tags), [*cfg.tags, "debug"]),
    }
    given = set(arguments.overrides) - {"tags"}
    changes = {path: new for path, (old, new) in wanted.items() if old != new and path not in given}
    for path, new in changes.items():
        note(f"debug: {path} {wanted[path][0]} -> {new}")
    return config_of(arguments, changes)


def named_target(arguments: Arguments) -> RunDir | SeedGroup | Sweep:
    """The run, the group of seeds or the sweep of `rl eval`, `rl resume` or `rl train --resume`."""
    return find_target(arguments, arguments.positional[0] if arguments.positional else str(arguments.text("resume")))


def _train_resume(arguments: Arguments) -> int:
    extra = [f"--{path}" for path in arguments.overrides if path not in ("training.total_timesteps", "output_dir")]
    extra += [f"--{name}" for name in arguments.options if name not in RESUME_OPTIONS]
    extra += arguments.positional
    if extra:
        raise UsageError(
            f"a resumed run keeps its config; drop {', '.join(extra)} (only --total-timesteps may change), "
            "or start a new run with --init-from"
        )
    if "training.total_timesteps" in arguments.overrides:
        arguments.options["total-timesteps"] = arguments.overrides["training.total_timesteps"]
    return resume_command(arguments)


# -- what is printed --------------------------------------------------------------------------------------------------


def _finish(result: TrainResult, arguments: Arguments) -> int:
    if arguments.switch("json"):
        print_json(
            {
                "run": result.run_dir,
                "checkpoint": result.checkpoint_path,
                "stop_reason": result.stop_reason,
                "exit_code": result.exit_code,
                "metrics": result.metrics,
            }
        )
    return result.exit_code


def _dry_run(cfg: TrainConfig, seeds: list[int], *, as_json: bool) -> int:
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.redaction import Redactor, with_secrets

    with stdout_for_the_result(as_json):
        from rl_training.assembly.cost import plan

        cost = plan(with_secrets(cfg))
    public = {**public_config(cfg, Redactor()), "base": cfg.base}
    if as_json:
        print_json({"config": public, "plan": cost, "seeds": seeds or [cfg.seed]})
        return 0
    show(bold("Plan" if len(seeds) < 2 else f"Plan of each of {len(seeds)} runs"))
    which = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {cfg.seed}"
    show(f"  {'run':<12}  {cfg.algo} on {cfg.env_id}, {which}, backend {cfg.backend}, into {cfg.output_dir}")
    for key, value in cost.items():
        show(f"  {key.removesuffix('_bytes').replace('_', ' '):<12}  {quantity(key, value)}")
    show(f"\n{bold('Config')}\n{dump_mapping(public).rstrip()}")
    note("dry run: nothing was written")
    return 0


def quantity(key: str, value: Any) -> str:
    """An entry of a plan as a person reads it: bytes in kB, MB or GB, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not key.endswith("_bytes"):
        return f"{value:,}"
    return amount(value)


def score_text(result: dict[str, Any]) -> str:
    """The result of an evaluation in a few lines."""
    how = "greedy" if result["deterministic"] else "stochastic"
    episodes = result["episodes"]
    return (
        f"{result['run']}\n"
        f"checkpoint {result['checkpoint']} at {result['env_steps']:,} env steps; "
        f"{episodes} {how} episodes, seed {result['seed']}\n"
        + bold(f"return {number_text(result['return_mean'])} +- {number_text(result['return_std'])}")
        + f"  (IQM {number_text(result['return_iqm'])}, length {result['length_mean']:.1f})"
        + (f"\nvideo {result['video']}" if "video" in result else "")
    )
