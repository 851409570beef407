"""The contests of offline updates beside d3rlpy: one per algorithm. Plain data."""

from __future__ import annotations

from collections.abc import Sequence

from contest_types import Contest, Contestant, Measure, Peer

OURS = ("benchmarks/offline_ours.py", "{settings}")
NOTES = {"cql": "; 10 actions from each of CQL's three sources", "rebrac": "; batches of 256 on both sides"}


def offline_contest(algo: str, title: str, goal: float, widths: Sequence[int] = (256, 256)) -> Contest:
    """Updates of one algorithm from the same file, by JAX, torch and the peer; `goal` is that of JAX."""
    width = "×".join(map(str, widths))
    return Contest(
        name=f"offline_{algo}" if widths[0] == 256 else f"offline_{algo}_{widths[0]}",
        title=f"Offline updates: {title}, {width}, one core",
        text="Updates per CPU second on the same 100,000 rows with the sizes of Hopper (11 numbers, 3 actions), "
        f"{width} networks, batches of 256, each side's defaults otherwise{NOTES.get(algo, '')}. Batches are drawn in "
        "the measured time, by each side's own training loop; compiling and the first updates do not count. The share "
        "is that of the core's own float32 matrix product, by NumPy in the same process, which the update's products "
        "would need; XLA's own can be faster than NumPy's (wider vector instructions), so it can pass 100.",
        measures=(
            Measure("updates_per_cpu_second", "updates per CPU second", "higher", 1, goal=goal),
            Measure("share", "share of the matrix product, %"),
            Measure("peak_mb", "peak memory, MB", "lower"),
        ),
        contestants=(
            Contestant("rl_training, JAX", OURS, cores=1, settings={"backend": "jax"}),
            Contestant("rl_training, torch", OURS, cores=1, settings={"backend": "torch"}),
            Peer("d3rlpy", ("benchmarks/offline_d3rlpy.py", "{settings}"), venv=".venv-peers-offline", cores=1),
        ),
        settings={"algo": algo, "widths": list(widths), "seconds": 8.0},
        quick={"seconds": 1.0},
        max_repeats=3,
    )


OFFLINE_CONTESTS = (
    offline_contest("bc", "BC", 4.0),
    offline_contest("td3_bc", "TD3+BC", 2.5),
    offline_contest("iql", "IQL", 2.5),
    offline_contest("rebrac", "ReBRAC", 2.5),
    offline_contest("awac", "AWAC", 2.5),
    offline_contest("cql", "CQL", 1.3),
    offline_contest("td3_bc", "TD3+BC", 8.0, (64, 64)),
)
