"""What a sweep or search will leave on disk, before it starts: records, index, logs, checkpoints of all its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rl_training.config.loading import ResolvedConfig
from rl_training.config.searches.tuning import TuneConfig
from rl_training.experiments.launching.member import Member, compact, record_text
from rl_training.experiments.launching.trial_configs import flag_text
from rl_training.runs.directory import run_name
from rl_training.runs.holder import Holder
from rl_training.runs.redaction import restore
from rl_training.system.file_systems import host_name

LINE_BYTES = 120
"""What the journal of members has beside the fields of a member: its key in each of its lines."""
ROW_BYTES = 1600
"""A row of the index without its config: names, hashes and final metrics."""
STUDY_BYTES, KEY_BYTES, SCORE_BYTES = 650, 260, 140
"""Optuna's journal: of a trial, of each of its keys, and of each score that is reported."""


def many_runs(
    base: ResolvedConfig, cost: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> dict[str, int]:
    """Totals over all runs: `cost` is what one run costs (`assembly.cost.plan`), `trials` are the values of each."""
    count = len(trials) * len(seeds)
    members = [member_at_end(base, number, values, seed) for number, values in enumerate(trials) for seed in seeds]
    entries = [compact(member) for member in members]
    totals = [base.config.training.budget] * len(trials)
    record = {"trials": [dict(values) for values in trials], "totals": totals, "members": entries}
    record_bytes = len(record_text(record).encode())
    index_bytes = count * (ROW_BYTES + len(json.dumps(base.mapping)))
    return {
        "runs": count,
        "env_steps": count * cost["env_steps"],
        "record_bytes": record_bytes,
        "journal_bytes": sum(len(json.dumps(entry)) for entry in entries) + count * LINE_BYTES,
        "index_rows": count,
        "index_bytes": index_bytes,
        "log_bytes": count * cost["log_bytes"],
        "disk_bytes": count * cost["disk_bytes"] + record_bytes + index_bytes,
    }


def search_runs(base: ResolvedConfig, cost: Mapping[str, Any], config: TuneConfig) -> dict[str, int]:
    """The same for a search whose trials all run to their end."""
    values = {key: bounds.low for key, bounds in config.ranges.items()}
    values |= {key: choices[0] for key, choices in config.sweep.items()}
    scheduler = config.scheduler
    scores = len(config.seeds)
    if scheduler is not None:
        scores = scheduler.num_rungs if scheduler.type == "asha" else scheduler.num_intervals
    found = many_runs(base, cost, [values] * config.num_trials, config.seeds)
    study_bytes = config.num_trials * (STUDY_BYTES + KEY_BYTES * len(values) + SCORE_BYTES * scores)
    return {**found, "study_bytes": study_bytes, "disk_bytes": found["disk_bytes"] + study_bytes}


def member_at_end(base: ResolvedConfig, trial: int, values: Mapping[str, Any], seed: int) -> Member:
    """A member as the record has it when it is finished: names as long as they will be."""
    cfg, now = base.config, datetime.now()
    run = run_name(cfg.algo, cfg.env_id, seed, now)
    folder = Path(restore(cfg.output_dir)).expanduser().absolute() / "sweeps" / run
    flags = [f"--{key}={flag_text(key, value)}" for key, value in values.items()]
    return Member(
        seed,
        "0" * 64,
        run=f"{run}-{trial + 1}",
        status="finished",
        exit_code=0,
        words=["rl", "train", f"--config={folder / 'configs' / 'base.yaml'}", f"--seed={seed}", *flags],
        process=Holder(os.getpid(), host_name(), now.timestamp()),
        trial=trial,
    )
