"""`rl train`: one run, or one run per seed, from a preset, a file, or flags alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import ResumeOptions, finish
from rl_training.cli.commands.runs.resume import run as resume_command
from rl_training.cli.config_options import HOW, LOOK, SHORT_FORMS, ConfigOptions, resolved_config
from rl_training.cli.flags import allow_changed_config_flag, json_flag, read_whole, switch, text, whole
from rl_training.cli.output import amount, bold, note, print_json, show, stdout_for_the_result
from rl_training.cli.parser import Command, UsageError
from rl_training.system.imports import without_collections

if TYPE_CHECKING:
    from rl_training.config.loading import ResolvedConfig

RESUME_FLAGS = ("resume", "json", "jobs", "allow-changed-config", "trust-plugins")
"""Flags that go with `--resume`, besides the budget and the folder."""
DEBUG_ROLLOUTS = 4
DEBUG_EPISODES = 2
DEFAULT_BLOCK = 256
"""Env steps that stand for a rollout where the algorithm has no `num_steps`."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ConfigOptions):
    jobs: int | None = whole("runs at a time when --seed names several (default: one per core)", low=1, section=HOW)
    dry_run: bool = switch("show the plan, its cost and the resolved config; write nothing", section=LOOK)
    debug: bool = switch(
        "a quick run of a few rollouts with every check on and a close look at each update", section=LOOK
    )
    init_from: str | None = text(
        "start from the weights of another run, at a step if given; --algo dynamics learns from its replay rows",
        "RUN[:STEP]",
        section=LOOK,
        values="runs",
    )
    resume: str | None = text(
        "continue RUN exactly where it stopped; only --total-timesteps may change", "RUN", section=LOOK, values="runs"
    )
    trust_plugins: bool = switch("with --resume: agree to the code of a run that was not made here", section=LOOK)
    allow_changed_config: bool = allow_changed_config_flag(section=LOOK)
    json: bool = json_flag()


def run(options: TrainOptions) -> int:
    from rl_training.cli.commands.many.seeds import chosen_seeds
    from rl_training.experiments.launching.membership import join_group
    from rl_training.runs.names import check_name

    member = join_group()
    if options.resume is not None:
        return resume_command(resume_options(options))
    if options.allow_changed_config:
        raise UsageError("--allow-changed-config is for --resume; a new run has no checkpoint yet")
    seeds = chosen_seeds(options)
    if seeds:
        options = replace(options, fields=options.fields.with_text("seed", str(seeds[0])))
    resolved = resolved_config(options)
    check_name(resolved.config.name)
    check_init_from(options.init_from, resolved.config.output_dir)
    if options.debug:
        resolved = debug_config(resolved, options)
    if options.dry_run:
        return dry_run(resolved, seeds, as_json=options.json)
    if len(seeds) > 1:
        return train_seeds(resolved, seeds, options)
    if options.jobs is not None:
        raise UsageError("--jobs is for several seeds, such as --seed 1,2,3")
    with stdout_for_the_result(options.json):
        with without_collections():
            from rl_training.trainer import train
            from rl_training.trust.consent import OWN, scope
        with scope(OWN if member is None else member.consent):
            result = train(
                resolved,
                init_from=options.init_from,
                source=resolved.text if member is None else member.source,
                argv=options.words,
                group=None if member is None else member.group,
                sweep=None if member is None else member.sweep,
            )
    return finish(result, as_json=options.json)


def train_seeds(resolved: ResolvedConfig, seeds: list[int], options: TrainOptions) -> int:
    """Train a group: one run per seed."""
    from rl_training.cli.commands.many.seed_groups import run_group
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.member_threads import for_many

    together = for_many(resolved.config, len(seeds)).training.runs_per_program
    if together != resolved.config.training.runs_per_program:
        resolved = resolved.with_values({"training.runs_per_program": together})
    group = SeedGroup.create(
        resolved,
        seeds,
        argv=options.words,
        source=resolved.text,
        jobs=options.jobs,
        init_from=options.init_from,
    )
    with group.lock():
        return run_group(group, options.jobs, as_json=options.json)


def resume_options(options: TrainOptions) -> ResumeOptions:
    """`rl train --resume RUN` as `rl resume RUN`; UsageError for flags that would change the run."""
    texts = options.fields.texts
    extra = [f"--{path}" for path in texts if path not in ("training.total_timesteps", "output_dir")]
    extra += [f"--{name}" for name in options.given if name not in RESUME_FLAGS]
    extra += [options.source] if options.source is not None else []
    if extra:
        raise UsageError(
            f"a resumed run keeps its config; drop {', '.join(extra)} (only --total-timesteps may change), "
            "or start a new run with --init-from"
        )
    budget = texts.get("training.total_timesteps")
    return ResumeOptions(
        run=str(options.resume),
        total_timesteps=None if budget is None else read_whole(budget, "total-timesteps", 1),
        jobs=options.jobs,
        trust_plugins=options.trust_plugins,
        allow_changed_config=options.allow_changed_config,
        output_dir=texts.get("output_dir"),
        json=options.json,
    )


def check_init_from(start: str | None, folder: str) -> None:
    """UsageError where the RUN of `--init-from RUN[:STEP]` is not one run."""
    from rl_training.experiments.launching.sweeps import find_runs
    from rl_training.runs.directory import RunDir
    from rl_training.runs.names import parse_run_step
    from rl_training.types import RunError

    if start is None:
        return
    named = parse_run_step(start).run
    try:
        found = find_runs(named, folder)
    except RunError as error:
        raise UsageError(f"--init-from {start}: {error}") from error
    if not isinstance(found, RunDir):
        runs = [member.run for member in found.members if member.run is not None]
        such = f", such as '{runs[0]}'" if runs else ""
        raise UsageError(f"--init-from takes one run, and '{named}' is a {found.kind}; name one of its runs{such}")


def debug_config(resolved: ResolvedConfig, options: TrainOptions) -> ResolvedConfig:
    """The same run, short and with every check on. What is given as a flag stays."""
    cfg = resolved.config
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
    given = set(options.fields.texts) - {"tags"}
    changes = {path: new for path, (old, new) in wanted.items() if old != new and path not in given}
    for path, new in changes.items():
        note(f"debug: {path} {wanted[path][0]} -> {new}")
    return resolved.with_values(changes)


def dry_run(resolved: ResolvedConfig, seeds: list[int], *, as_json: bool) -> int:
    """The plan, its cost and the whole config, without starting anything."""
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.redaction import Redactor, with_secrets

    cfg = resolved.config
    with stdout_for_the_result(as_json):
        from rl_training.assembly.cost import plan

        cost = plan(with_secrets(cfg))
    public = public_config(resolved, Redactor())
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
    """An entry of a plan as text: bytes in kB, MB or GB, commas between thousands."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return amount(value) if key.endswith("_bytes") else f"{value:,}"


COMMAND = Command(
    name="train",
    summary="train an agent from a preset, a file, or flags alone",
    usage="[PRESET|FILE] [flags]",
    options=TrainOptions,
    short_forms=SHORT_FORMS,
    run=run,
    examples=(
        "rl train ppo/cartpole",
        "rl train ppo/cartpole --seed 1,2,3 --jobs 3",
        "rl train --algo a2c --env-id Acrobot-v1 --total-timesteps 200000",
        "rl train my.yaml --hparams.clip-coef 0.1 --env.normalize-obs",
        'rl train my.yaml --hparams.learning-rate "{type: linear, start: 3e-4, end: 0}"',
    ),
)
