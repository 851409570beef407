"""The contest of Dreamer's update beside SheepRL and TorchRL. Plain data."""

from __future__ import annotations

from contest_types import Contest, Contestant, Measure

OURS = ("benchmarks/dreamer_update.py", "{settings}")
DREAMER_UPDATE = Contest(
    name="dreamer_update",
    title="An update of DreamerV3, one core",
    text="CPU milliseconds of one update of size1m: 16 sequences of 64 steps, 15 imagined steps from each of the 1,024 "
    "states, vectors of 24 numbers, 6 real actions, float32, 640,867 parameters in each. SheepRL's "
    "`dreamer_v3_5_1M` and TorchRL's recipe for walker-walk, with their own networks, losses and optimisers; both "
    "follow the newest reference code, as this package does. Eager torch, which is their default on a CPU. Each "
    "repeats one batch; sampling from replay and the first two updates do not count. The peers are installed from "
    "PyPI. The reference code itself is not: dreamerv3 1.5.0, the newest there, is of 2023 and needs gym 0.19.0, "
    "which present setuptools do not build.",
    measures=(Measure("ms_per_update", "CPU ms per update", "lower", goal=1.0), Measure("peak_mb", "peak memory, MB")),
    contestants=(
        Contestant("rl_training, torch", OURS, cores=1, settings={"size": "size1m", "backend": "torch"}),
        Contestant("rl_training, JAX", OURS, cores=1, settings={"size": "size1m", "backend": "jax"}),
        Contestant(
            "SheepRL", ("benchmarks/dreamer_sheeprl.py", "{settings}"), True, ".venv-peers-sheeprl", 1,
            {"preset": "dreamer_v3_5_1M"},
        ),
        Contestant("TorchRL", ("benchmarks/dreamer_torchrl.py", "{settings}"), True, ".venv-peers-torchrl", 1),
    ),
    settings={"updates": 5},
    quick={"updates": 1},
)  # fmt: skip
