"""`rl train`: one run, or one run per seed, from a preset, a file, or flags alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import ResumeOptions, finish
from rl_training.cli.commands.runs.resume import run as resume_command
from rl_training.cli.config_options import HOW, LOOK, SHORT_FORMS, ConfigOptions, resolved_config, source_of
from rl_training.cli.flags import (
    allow_changed_config_flag,
    executor_flag,
    json_flag,
    read_whole,
    switch,
    text,
    whole,
)
from rl_training.cli.output import bold, note, print_json, show, show_entries, stdout_for_the_result
from rl_training.cli.parser import Command, UsageError
from rl_training.system.imports import without_collections
from rl_training.system.launch import launched, leads

if TYPE_CHECKING:
    from pathlib import Path

    from rl_training.config.loading import ResolvedConfig
    from rl_training.config.sections.executor import ExecutorConfig

RESUME_FLAGS = ("resume", "json", "jobs", "executor", "allow-changed-config", "trust-plugins")
"""Flags that go with `--resume`, besides the budget and the folder."""
ONLINE_SHARE = 0.5
"""Share of a batch that is from the environment, where an offline run goes on there."""
DEBUG_ROLLOUTS = 4
DEBUG_EPISODES = 2
DEFAULT_BLOCK = 256
"""Env steps that stand for a rollout where the algorithm has no `num_steps`."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ConfigOptions):
    jobs: int | None = whole("runs at a time when --seed names several (default: one per core)", low=1, section=HOW)
    executor: str | None = executor_flag(section=HOW)
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
    init_policy_only: bool = switch(
        "with --init-from an offline run: take its policy alone, not its critics and optimisers", section=LOOK
    )
    auto_resume: bool = switch(
        "go on with the run of this config, if there is an unfinished one; nothing to do if it is finished",
        section=LOOK,
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
    if len(seeds) > 1 and launched().ranks > 1:
        raise UsageError("torchrun trains one run with several processes; start it for one seed at a time")
    resolved = settled(options)
    check_name(resolved.config.name)
    check_init_from(options.init_from, resolved.config.output_dir)
    if options.debug:
        resolved = debug_config(resolved, options)
    if options.dry_run:
        return dry_run(resolved, seeds, as_json=options.json)
    if options.auto_resume and (code := resumed(resolved, seeds, options)) is not None:
        return code
    if len(seeds) > 1:
        if options.init_policy_only:
            raise UsageError("--init-policy-only is for one run at a time")
        return train_seeds(resolved, seeds, options)
    for flag, value in (("jobs", options.jobs), ("executor", options.executor)):
        if value is not None:
            raise UsageError(f"--{flag} is for several seeds, such as --seed 1,2,3")
    with stdout_for_the_result(options.json):
        with without_collections():
            from rl_training.trainer import train
            from rl_training.trust.consent import OWN, scope
        with scope(OWN if member is None else member.consent):
            result = train(
                resolved,
                init_from=options.init_from,
                init_policy_only=options.init_policy_only,
                source=resolved.text if member is None else member.source,
                argv=options.words,
                group=None if member is None else member.group,
                sweep=None if member is None else member.sweep,
                run_name=None if member is None else member.run_name,
                pause_at=None if member is None else member.pause_at,
            )
    return finish(result, as_json=options.json)


def settled(options: TrainOptions) -> ResolvedConfig:
    """The config of the flags: an offline run that goes on in an environment keeps its config where none is named and
    takes half of its batches from there; a config that names no environment has that of its dataset."""
    if options.init_policy_only and options.init_from is None:
        raise UsageError("--init-policy-only goes with --init-from RUN")
    budget = "training.total_timesteps"
    if options.init_from is not None and budget in options.fields.texts:
        options = with_config_of(options.init_from, options)
        fields = options.fields
        if is_offline(resolved_config(replace(options, fields=fields.without(budget))).config.algo):
            usual = {"dataset.online_share": str(ONLINE_SHARE), "training.total_updates": "null"}
            for path, text in usual.items():
                fields = fields.with_text(path, fields.texts.get(path, text))
            options = replace(options, fields=fields)
    resolved = resolved_config(options)
    if is_offline(resolved.config.algo):
        from rl_training.data.datasets.environment import with_environment

        if not options.dry_run:
            check_recorded(resolved, options)
        resolved = with_environment(resolved)
    return resolved


def check_recorded(resolved: ResolvedConfig, options: TrainOptions) -> None:
    """ConfigError with the commands that record it, where a preset's own dataset is not there yet."""
    from pathlib import Path

    from rl_training.types import ConfigError

    # only a plain path: "run:..." and "minari:..." are found elsewhere
    path = resolved.config.dataset.path
    if path is None or "dataset.path" in options.fields.texts or ":" in path or Path(path).exists():
        return
    commands = [line[1:].strip() for line in (resolved.text or "").splitlines() if line.startswith("#   rl ")]
    if commands:
        raise ConfigError(
            f"there is no dataset '{path}' yet, which {source_of(options)} learns from: give --dataset PATH, or record "
            "it first:\n  " + "\n  ".join(commands)
        )


def with_config_of(start: str, options: TrainOptions) -> TrainOptions:
    """The config of the offline run to start from, with its networks, normaliser and dataset, where neither a config
    nor an algorithm is named. Only what names no code or files: a run may come from anybody."""
    from rl_training.runs.directory import RunDir
    from rl_training.runs.foreign_code import foreign_code
    from rl_training.runs.names import parse_run_step
    from rl_training.types import RunError

    texts = options.fields.texts
    if source_of(options) is not None or "algo" in texts:
        return options
    try:
        source = RunDir.open(parse_run_step(start).run, texts.get("output_dir", "runs"))
    except RunError:
        return options  # `check_init_from` says what is wrong with the name
    cfg, config = source.config(secrets=False), source.path / "configs" / "resolved.yaml"
    if not is_offline(cfg.algo):
        return options
    if code := foreign_code(cfg):
        raise UsageError(
            f"--init-from {start}: the config of that run names code or files ({', '.join(code)}); name it yourself: "
            f"rl train {config} --init-from {start}"
        )
    return replace(options, source=str(config), fields=options.fields.with_text("name", texts.get("name", "null")))


def is_offline(algo: str) -> bool:
    from rl_training.config.schema import builtin_spec

    spec = builtin_spec(algo)
    return spec is not None and spec.kind == "offline"


def resumed(resolved: ResolvedConfig, seeds: list[int], options: TrainOptions) -> int | None:
    """The exit code of an earlier start of this command that is finished, or was gone on with; None to start anew."""
    from rl_training.experiments.launching.auto_resume import earlier_start

    if options.debug:
        raise UsageError("--auto-resume goes on with a run; --debug makes a short one of its own")
    earlier = earlier_start(resolved, seeds, options.init_from)
    if earlier is None:
        return None
    if earlier.is_finished:
        if leads():
            note(f"nothing to do: '{earlier.path}' has this config and is finished")
        if options.json and leads():
            print_json({"run": earlier.path.absolute(), "stop_reason": "already finished", "exit_code": 0})
        return 0
    if leads():
        note(f"going on with '{earlier.path}'")
    if len(seeds) > 1:
        take_executor(earlier.path, resolved.config.executor)
    return resume_command(
        ResumeOptions(run=str(earlier.path), jobs=options.jobs, executor=options.executor, json=options.json)
    )


def take_executor(path: Path, executor: ExecutorConfig) -> None:
    """Let an earlier group go on where the config says now, if it says something."""
    from rl_training.config.sections.executor import ExecutorConfig
    from rl_training.experiments.launching.groups import SeedGroup

    if executor != ExecutorConfig():
        group = SeedGroup.open(path)
        with group.lock():
            group.record_executor(executor)
            group.save()


def train_seeds(resolved: ResolvedConfig, seeds: list[int], options: TrainOptions) -> int:
    """Train a group: one run per seed."""
    from rl_training.cli.commands.many.seed_groups import run_group
    from rl_training.config.sections.executor import named_executor
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
        executor=None if options.executor is None else named_executor(options.executor, resolved.config.executor),
    )
    with group.begin():
        return run_group(group, options.jobs, executor=options.executor, as_json=options.json)


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
        executor=options.executor,
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
    run = f"{cfg.algo} on {cfg.env_id}, {which}, backend {cfg.backend}, into {cfg.output_dir}"
    show_entries({"run": run, **cost})
    show(f"\n{bold('Config')}\n{dump_mapping(public).rstrip()}")
    note("dry run: nothing was written")
    return 0


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
        "rl train my.yaml --auto-resume",
        'rl train my.yaml --hparams.learning-rate "{type: linear, start: 3e-4, end: 0}"',
    ),
)
