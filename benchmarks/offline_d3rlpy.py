"""Contestant: d3rlpy's offline updates, in the peers' environment. The argument is that of offline_ours.py.

Its own training loop (`fit`) is measured, with drawing of batches, as users run it; logging is switched off.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout, suppress
from typing import Any

import d3rlpy
import torch
from offline_work import BATCHES, NUM_SAMPLED, summary, work


def config_of(algo: str, widths: list[int]) -> Any:
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=widths)
    batch = {"batch_size": BATCHES[algo]}
    both = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder, **batch}
    algorithms = d3rlpy.algos
    if algo == "bc":
        return algorithms.BCConfig(encoder_factory=encoder, **batch)
    if algo == "td3_bc":
        return algorithms.TD3PlusBCConfig(**both)
    if algo == "iql":
        return algorithms.IQLConfig(value_encoder_factory=encoder, **both)
    if algo == "rebrac":
        return algorithms.ReBRACConfig(**both)
    if algo == "awac":
        return algorithms.AWACConfig(**both)
    return algorithms.CQLConfig(n_action_samples=NUM_SAMPLED, alpha_learning_rate=0.0, **both)


def measured(algo: str, widths: list[int], seconds: float) -> dict[str, float]:
    torch.set_num_threads(1)
    d3rlpy.seed(0)
    columns = work()
    ends = (columns[name].astype(float) for name in ("terminals", "timeouts"))
    dataset = d3rlpy.dataset.MDPDataset(columns["observations"], columns["actions"], columns["rewards"], *ends)
    learner = config_of(algo, widths).create(device="cpu:0")
    updates, began, warmup = 0, 0.0, 16 if algo == "cql" else 200
    logger = d3rlpy.logging.NoopAdapterFactory()

    class EnoughError(Exception):
        """Ends the loop of the peer."""

    def count(algorithm: Any, epoch: int, total_step: int) -> None:
        nonlocal updates, began
        if total_step == warmup:
            began = time.process_time()
        if total_step > warmup:
            updates = total_step - warmup
            if time.process_time() - began >= seconds:
                raise EnoughError

    with suppress(EnoughError):
        learner.fit(
            dataset,
            n_steps=10**9,
            n_steps_per_epoch=10**9,
            logger_adapter=logger,
            show_progress=False,
            callback=count,
        )
    spent = time.process_time() - began
    return summary(algo, widths, updates, spent)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    with redirect_stdout(sys.stderr):  # the peer prints its settings
        found = measured(settings["algo"], settings["widths"], settings["seconds"])
    print(json.dumps(found))
