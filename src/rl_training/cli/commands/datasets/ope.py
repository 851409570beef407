"""`rl ope`: off-policy evaluation, the return of a run's policy estimated from a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.runs.resume import TARGETS
from rl_training.cli.flags import (
    argument,
    checkpoint_flag,
    converted,
    json_flag,
    output_dir_flag,
    text,
    trust_flag,
    whole,
)
from rl_training.cli.output import bold
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.policy_of_run import answer
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.eval import SavedPolicy
    from rl_training.runs.directory import RunDir


ENOUGH = 0.9
"""How far the critics have to be fitted, or the estimate comes with a warning."""


def read_gamma(typed: str) -> float:
    """A discount factor below 1."""
    try:
        value = float(typed)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise UsageError(f"--gamma is from 0 to below 1, not '{typed}'")
    return value


@dataclass(frozen=True, kw_only=True)
class OpeOptions:
    run: str = argument(values="runs")
    dataset: str | None = text("dataset to estimate from: a folder, an .npz file or run:RUN[:STEP]", "PATH")
    checkpoint: int | str = checkpoint_flag()
    updates: int = whole("updates of the critics (default 10000)", low=1, default=10_000)
    critics: int = whole("number of critics, whose spread is reported (default 3)", low=1, default=3)
    gamma: float | None = converted(read_gamma, None, "discount factor (default: the run's own, else 0.99)", "G")
    seed: int = whole("root of initial weights and batches (default 0)", "S", default=0)
    trust_plugins: bool = trust_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: OpeOptions) -> int:
    if options.dataset is None:
        raise UsageError("say what to estimate from: --dataset PATH")

    def work(target: RunDir) -> dict[str, Any]:
        from rl_training.eval import load

        return estimated(load(target.path, options.checkpoint, trust_plugins=options.trust_plugins), options)

    return answer("ope", options, work, text_of)


def estimated(saved: SavedPolicy, options: OpeOptions) -> dict[str, Any]:
    """What fitted Q evaluation says of a policy."""
    from rl_training.algorithms.offline.fqe import off_policy_estimate
    from rl_training.assembly.devices import pinned_threads
    from rl_training.assembly.offline import unlike
    from rl_training.data.datasets.info import DatasetError
    from rl_training.data.datasets.opening import open_dataset
    from rl_training.hparams.fqe import FQEConfig

    cfg = saved.config
    data = open_dataset(str(options.dataset), output_dir=options.output_dir or "runs")
    if (found := unlike(data, (saved.observation_space, saved.action_space))) is not None:
        raise DatasetError(
            f"dataset '{options.dataset}' of '{data.info.env_id}' has the {found.what} space {found.theirs}, the run "
            f"of '{cfg.env_id}' has {found.own}: give --dataset one of '{cfg.env_id}'"
        )
    gamma = options.gamma
    if gamma is None:
        gamma = discount_of(cfg.hparams)
    hparams = FQEConfig(
        gamma=gamma, total_updates=options.updates, num_critics=options.critics, seed=options.seed, learning_rate=1e-3
    )
    with pinned_threads(cfg.training.num_threads, cfg.backend):
        result = off_policy_estimate(saved.policy, data, hparams)
    names = {"run": saved.checkpoint.parent.parent.name, "checkpoint": saved.checkpoint.name}
    return {**names, "dataset": options.dataset, "updates": options.updates, **result.to_json()}


def discount_of(hparams: Any) -> float:
    """The discount factor that a run learns with; 0.99 where it has none below 1."""
    found = hparams.get("gamma") if isinstance(hparams, dict) else vars(hparams).get("gamma")
    return float(found) if isinstance(found, int | float) and 0.0 < found < 1.0 else 0.99


def text_of(found: dict[str, Any]) -> str:
    """The result in a few lines."""

    def words(value: float | None) -> str:
        return "not finite" if value is None else number_text(value)

    low, high = found["bounds"]
    lines = [
        f"{found['run']}, checkpoint {found['checkpoint']}, on {found['dataset']}",
        bold(f"estimate {words(found['estimate'])} +- {words(found['spread'])}")
        + f"  (discounted by {found['gamma']:g}; {len(found['critics'])} critics)",
        f"the dataset's own episodes: {words(found['data_return'])}"
        if found["data_return"] is not None
        else "the dataset has no whole episode to compare with",
        f"distance of the policy from the dataset's actions: {found['distance']:.3f}",
    ]
    if found["fitted"] < ENOUGH:
        lines.append(
            f"UNFINISHED: after {found['updates']:,} updates the critics are {found['fitted']:.0%} of the way from 0 "
            "to their values, so the estimate is too near to 0; raise --updates or lower --gamma"
        )
    if found["diverged"]:
        lines.append(
            f"DIVERGED: rewards of the dataset allow returns from {number_text(low)} to {number_text(high)} only, so "
            "the estimate means nothing; the dataset does not cover what this policy does"
        )
    return "\n".join(lines)


COMMAND = Command(
    name="ope",
    summary="estimate from a dataset what the policy of a run returns, without an environment",
    usage="RUN --dataset PATH [flags]",
    options=OpeOptions,
    run=run,
    examples=(
        "rl ope latest --dataset data/medium-replay",
        "rl ope latest --dataset data/medium-replay --checkpoint best --json",
    ),
    notes=TARGETS,
)
