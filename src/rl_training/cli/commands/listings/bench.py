"""`rl bench`: the cost of an environment's step and of a network, and the fastest way to step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.flags import argument, converted, json_flag
from rl_training.cli.output import bold, entry_name, entry_text, note, print_json, show, stdout_for_the_result, table
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig
    from rl_training.envs.bench import Advice, EnvSpeed


def read_counts(typed: str) -> tuple[int, ...]:
    """ "1,4,16" as numbers in rising order."""
    try:
        counts = tuple(sorted({int(part) for part in typed.split(",")}))
    except ValueError:
        raise UsageError(f"--num-envs takes whole numbers such as 1,4,16, not '{typed}'") from None
    if counts[0] < 1:
        raise UsageError(f"--num-envs must be at least 1, not {counts[0]}")
    return counts


def read_seconds(typed: str) -> float:
    try:
        seconds = float(typed)
    except ValueError:
        raise UsageError(f"--seconds takes a number, not '{typed}'") from None
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds must be above 0 and at most 3600, not {typed}")
    return seconds


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    env: str = argument()
    num_envs: tuple[int, ...] = converted(
        read_counts, (1, 4, 16), "environments side by side, one measurement each (default 1,4,16)", "N,N"
    )
    seconds: float = converted(read_seconds, 2.0, "length of a measurement (default 2)", "X")
    json: bool = json_flag()


def run(options: BenchOptions) -> int:
    cfg = config_of(options.env)
    with stdout_for_the_result(options.json):
        from rl_training.envs.bench import measure_env

        speed = measure_env(cfg, options.num_envs, options.seconds, report=lambda line: note(f"measuring {line}"))
        network = cost_of_network(cfg) if is_config(options.env) else {}
    if options.json:
        print_json(asdict(speed) | ({"network": network} if network else {}))
    else:
        show(text_of(speed))
        if network:
            show("\n" + network_line(network))
    return 0


def is_config(source: str) -> bool:
    from rl_training.config.loading import preset_names

    return source in preset_names() or source.endswith((".yaml", ".yml", ".json"))


def config_of(source: str) -> TrainConfig:
    """An environment by name without wrappers, or a preset or file with its `env:` section."""
    from rl_training.config.loading import load_config
    from rl_training.config.schema import TrainConfig

    return load_config(source) if is_config(source) else TrainConfig(env_id=source)


NETWORK = ("parameters", "forward_mflop", "update_mflop", "carry_bytes", "image_bytes", "buffer_bytes")
"""Entries of a plan that the networks decide."""


def cost_of_network(cfg: TrainConfig) -> dict[str, Any]:
    """What the network of a preset or file costs, as `rl train --dry-run` shows it; empty if it cannot be built."""
    from rl_training.assembly.cost import plan
    from rl_training.types import RLTrainingError

    try:
        cost = plan(cfg)
    except RLTrainingError as error:
        note(f"the cost of the network is not known: {error}")
        return {}
    return {name: cost[name] for name in NETWORK if name in cost}


def network_line(network: dict[str, Any]) -> str:
    return "network: " + ", ".join(f"{entry_name(name)} {entry_text(name, value)}" for name, value in network.items())


def text_of(speed: EnvSpeed) -> str:
    """The cost of a step, the table of rates, and the advice."""
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


COMMAND = Command(
    name="bench",
    summary="measure the cost of an environment's step and the fastest way to step it",
    usage="ENV|PRESET|FILE [flags]",
    options=BenchOptions,
    run=run,
    examples=("rl bench CartPole-v1", "rl bench my_project.envs:GridWorld --num-envs 8", "rl bench my.yaml --json"),
    notes="Random actions, no learning. A preset or a file also shows what its network costs. The advice is for "
    "env.vectorization: sync (this process), async (worker "
    "processes) or native (a suite's own vector environment).",
)
