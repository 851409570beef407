"""Small runs with `env.collector: ray` whose runners are in this process, and what they are compared by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overlap_cases import CASES, mapping, state_hash

from rl_training.assembly.build import build_host
from rl_training.config.loading import parse_config
from rl_training.training.remote.pool import InlinePool, RunnerLostError
from rl_training.types import StateDict

assert CASES


class FaultyPool(InlinePool):
    """Loses a runner where it is told to, before it delivers."""

    def __init__(self, make: Any, lose: tuple[int, ...] = ()) -> None:
        super().__init__(make)
        self.lose = list(lose)
        """Numbers of the fetches that fail, from 0."""
        self.fetches = 0
        self.replaced: list[Mapping[int, StateDict]] = []

    def fetch(self, ticket: Any) -> Any:
        self.fetches += 1
        if self.fetches - 1 in self.lose:
            super().fetch(ticket)  # it had acted already
            raise RunnerLostError("the node is gone")
        return super().fetch(ticket)

    def replace(self, runner: int, states: Mapping[int, StateDict]) -> None:
        self.replaced.append(states)
        super().replace(runner, states)


def remote_mapping(case: str, runners: int, **sections: Any) -> dict[str, Any]:
    env = {"overlap": False, "num_envs": 4, "collector": "ray", "runners": runners, **sections.pop("env", {})}
    return mapping(case, env={**CASES[case].get("env", {}), **env}, **sections)


def remote_trainer(case: str, runners: int, pool: Any = None, env_fn: Any = None, **sections: Any) -> Any:
    """A trainer whose runners are in this process; `pool` makes another kind of pool from what builds a runner."""
    cfg = parse_config(remote_mapping(case, runners, **sections))
    return build_host(cfg, env_fn, make_pool=lambda cfg, setup: (pool or InlinePool)(setup.build))


def trained(built: Any, steps: int) -> dict[str, str]:
    """The state of every part after a few train steps, and the metrics of all of them but those of the clock."""
    rows = [built.train_step() for _ in range(steps)]
    numbers = {
        f"{i}/{name}": float(value)
        for i, row in enumerate(rows)
        for name, value in row.items()
        if not name.startswith(("time/", "system/"))
    }
    state = {name: state_hash(part) for name, part in built.state_dict().items()}
    return {**state, "metrics": state_hash(numbers)}
