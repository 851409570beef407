"""`rl bench`: what an environment's step costs, and how to step it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, note, print_json, show, stdout_for_the_result, table

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig
    from rl_training.envs.bench import Advice, EnvSpeed

DEFAULT_NUM_ENVS = "1,4,16"
DEFAULT_SECONDS = "2"


def bench_command(arguments: Arguments) -> int:
    num_envs = parse_counts(arguments.text("num-envs") or DEFAULT_NUM_ENVS)
    seconds = parse_seconds(arguments.text("seconds") or DEFAULT_SECONDS)
    cfg = config_of(arguments.positional[0])
    with stdout_for_the_result(arguments.switch("json")):
        from rl_training.envs.bench import measure_env

        speed = measure_env(cfg, num_envs, seconds, report=lambda line: note(f"measuring {line}"))
    if arguments.switch("json"):
        print_json(asdict(speed))
    else:
        show(text_of(speed))
    return 0


def config_of(source: str) -> TrainConfig:
    """An environment's name with the plain stack, or a preset or file with its `env:` section."""
    from rl_training.config.loading import load_config, preset_names
    from rl_training.config.schema import TrainConfig

    is_config = source in preset_names() or source.endswith((".yaml", ".yml", ".json"))
    return load_config(source) if is_config else TrainConfig(env_id=source)


def parse_counts(text: str) -> list[int]:
    """ "1,4,16" as numbers in rising order."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--num-envs takes whole numbers such as {DEFAULT_NUM_ENVS}, not '{text}'") from None
    if counts[0] < 1:
        raise UsageError(f"--num-envs must be at least 1, not {counts[0]}")
    return counts


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise UsageError(f"--seconds takes a number, not '{text}'") from None
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds must be above 0 and at most 3600, not {text}")
    return seconds


def text_of(speed: EnvSpeed) -> str:
    """The whole answer: cost of a step, table of rates, advice."""
    from rl_training.envs.bench import duration, plural

    cost = speed.cost
    ends = "" if cost.episode_length is None else f" (every {cost.episode_length:.0f} steps)"
    head = (
        f"{speed.env_id}: a step takes {duration(cost.step_us)}, a reset {duration(cost.reset_us)}{ends}; "
        f"{plural(speed.cores, 'core')}"
    )
    chosen = {(advice.num_envs, advice.vectorization, advice.num_workers) for advice in speed.advice}
    rows = [
        [
            str(rate.num_envs),
            rate.name,
            f"{rate.steps_per_second:,.0f}",
            "<" if (rate.num_envs, rate.vectorization, rate.num_workers) in chosen else "",
        ]
        for rate in speed.rates
    ]
    skipped = [f"not measured: {name} ({why})" for name, why in speed.skipped.items()]
    advice = [advice_line(one) for one in speed.advice]
    return "\n".join([head, "", table(["envs", "how", "steps/s", ""], rows), *skipped, "", *advice])


def advice_line(advice: Advice) -> str:
    from rl_training.envs.bench import plural

    workers = f", env.num_workers: {advice.num_workers}" if advice.num_workers else ""
    choice = bold(f"env.vectorization: {advice.vectorization}{workers}")
    return f"{plural(advice.num_envs, 'environment')}: {choice}, {advice.reason}"
