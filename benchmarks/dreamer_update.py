"""Contestant: updates of Dreamer on one batch, in torch or in JAX.

    python benchmarks/dreamer_update.py '{"size": "size1m", "backend": "torch", "updates": 5}'

The batch is that of `dreamer.py`; making arrivals of replayed rows counts, compiling and two first updates do not.
"""

from __future__ import annotations

import json
import sys

import torch
from dreamer import B, batch, learner, update_seconds

from rl_training.hparams.dreamer import DreamerConfig


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    hparams = DreamerConfig(size=settings["size"], batch_size=B)
    backend = settings["backend"]
    rows = batch(learner("torch", hparams).model.dynamics.state_spec)
    took = update_seconds({backend: learner(backend, hparams)}, rows, settings["updates"])
    print(json.dumps({"ms_per_update": 1e3 * took[backend]}))


if __name__ == "__main__":
    main()
