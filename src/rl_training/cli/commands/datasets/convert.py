"""`rl dataset convert`: another format, or only some of the episodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.commands.datasets.texts import (
    author_flag,
    check_target,
    licence_flag,
    number_in,
    signed,
    write_and_show,
)
from rl_training.cli.flags import argument, converted, json_flag, output_dir_flag, switch, text
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.data.datasets.dataset import Dataset


def read_top(typed: str) -> float:
    """A fraction above 0."""
    value = number_in(typed)
    if not 0.0 < value <= 1.0:
        raise UsageError(f"--top is a fraction above 0 and at most 1, not '{typed}'")
    return value


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    source: str = argument()
    target: str = argument()
    env_id: str | None = text("environment of a D4RL or OGBench file (.hdf5, .npz), whose spaces it must fit", "ID")
    whole: bool = switch("leave out episodes that begin or end in the middle")
    top: float = converted(read_top, 1.0, "keep this fraction of the whole episodes, those of the highest return", "F")
    author: str | None = author_flag()
    licence: str | None = licence_flag()
    output_dir: str | None = output_dir_flag("folder to look for the run of run:RUN in (default runs)")
    json: bool = json_flag()


def run(options: ConvertOptions) -> int:
    import numpy as np

    from rl_training.data.datasets.merging import best_episodes

    check_target(options.target)
    data = opened(options)
    if options.whole:
        data = data.select(np.flatnonzero(data.whole))
    if options.top < 1.0:
        data = data.select(best_episodes(data.returns, options.top, data.whole))
    return write_and_show(signed(data, options), options.target, as_json=options.json)


def opened(options: ConvertOptions) -> Dataset:
    """The source; a file of another library needs the environment."""
    from rl_training.data.datasets.opening import open_dataset

    if options.env_id is None:
        return open_dataset(options.source, output_dir=options.output_dir or "runs")
    from rl_training.config.resolution import config_to_mapping
    from rl_training.config.schema import TrainConfig
    from rl_training.data.datasets.flat_files import read_flat
    from rl_training.envs import make_env, space_spec

    cfg = TrainConfig(env_id=options.env_id)
    env = make_env(cfg.env_id, cfg.env)
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    env.close()
    return read_flat(Path(options.source), cfg.env_id, spaces, config_to_mapping(cfg)["env"])


COMMAND = Command(
    name="dataset convert",
    summary="write a dataset in another format, or only some of its episodes",
    usage="DATASET PATH [flags]",
    options=ConvertOptions,
    run=run,
    examples=(
        "rl dataset convert data/expert expert.npz",
        "rl dataset convert run:latest data/best --whole --top 0.1",
        "rl dataset convert hopper_medium.hdf5 data/hopper --env-id Hopper-v5",
        "rl dataset convert data/expert minari:pendulum/expert-v0",
    ),
    notes="PATH is a folder, a file that ends in .npz, or minari:ID. DATASET may also be run:RUN[:STEP].",
)
