"""`ExperimentRunner`: one run, several seeds or a whole sweep from Python, with the results in one place.

A thin front over `train`, `SeedGroup` and `Sweep`: single runs train in this process, groups and sweeps as on the
command line (in processes of their own; compiled runs in threads).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.config.loading import config_to_mapping, load_config, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.config.searches.sweeps import SweepConfig, load_sweep, parse_sweep
from rl_training.config.sections.executor import named_executor
from rl_training.experiments.analysis.group_summary import write_summary
from rl_training.experiments.launching.executors import Launch, launch
from rl_training.experiments.launching.group_display import make_view
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.member_threads import for_many
from rl_training.experiments.launching.sweeps import Sweep, write_sweep_summary
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write

quiet = partial(make_view, live=False)
"""A view that prints events alone."""
ConfigLike = TrainConfig | str | Path | Mapping[str, Any]


class ExperimentRunner:
    """Runs experiments in one output directory (default: that of their configs) and collects their results."""

    def __init__(self, output_dir: str | Path | None = None) -> None:
        self.overrides = {} if output_dir is None else {"output_dir": str(output_dir)}
        self.results: list[dict[str, Any]] = []

    def run_single_experiment(self, config: ConfigLike, **overrides: Any) -> dict[str, Any]:
        """Train once in this process; `overrides` are top-level fields such as `seed`.

        Returns directory, metrics and exit code.
        """
        from rl_training.trainer import train

        result = train(self._config(config, overrides))
        record = {"run": result.run_dir, "stop_reason": result.stop_reason, "exit_code": result.exit_code}
        return self._kept({**record, "metrics": result.metrics})

    def run_multiple_runs(
        self, config: ConfigLike, seeds: Sequence[int], *, jobs: int | None = None, executor: str | None = None
    ) -> dict[str, Any]:
        """Train once per seed, in parallel; returns the contents of the group's `summary.json`, and its folder. Without
        an `executor` that of the config is used."""
        cfg = for_many(self._config(config, {}), len(seeds))
        how = cfg.executor if executor is None else named_executor(executor, cfg.executor)
        group = SeedGroup.create(cfg, seeds, jobs=jobs, executor=how)
        with group.begin():
            launch(group, group.members, quiet, Launch(how, jobs))
        return self._kept({"path": group.path, **write_summary(group)})

    def run_hyperparameter_sweep(
        self,
        sweep: SweepConfig | str | Path | Mapping[str, Any],
        *,
        jobs: int | None = None,
        executor: str | None = None,
    ) -> dict[str, Any]:
        """Run a sweep, given as a file or a mapping; returns the contents of its `summary.json`, best trial first."""
        if isinstance(sweep, Mapping):
            sweep = parse_sweep(sweep)
        config = sweep if isinstance(sweep, SweepConfig) else load_sweep(sweep)
        planned = Sweep.create(replace(config, parallel_jobs=jobs or config.parallel_jobs), overrides=self.overrides)
        how = config.executor if executor is None else named_executor(executor, config.executor)
        is_here = how.type in ("local", "threads")
        with planned.begin():
            jobs = planned.info.jobs or (1 if is_here else None)
            launch(planned, planned.members, quiet, Launch(how, jobs, planned.info.retries))
        return self._kept({"path": planned.path, **write_sweep_summary(planned)})

    def save_results(self, path: str | Path) -> Path:
        """Write all results so far as one JSON file."""
        target = Path(path).expanduser()
        with readable_errors(f"cannot write '{target}'"):
            target.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(target, json.dumps(self.results, indent=2, default=str).encode() + b"\n")
        return target

    def _kept(self, record: dict[str, Any]) -> dict[str, Any]:
        self.results.append(record)
        return record

    def _config(self, config: ConfigLike, overrides: Mapping[str, Any]) -> TrainConfig:
        changes = {**self.overrides, **overrides}
        if isinstance(config, TrainConfig):
            return parse_config(config_to_mapping(config), changes)
        return parse_config(config, changes) if isinstance(config, Mapping) else load_config(config, changes)
