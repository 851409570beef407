"""Environments in runners: the same run for any number of them, also where some are lost, and resumed with others."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from overlap_cases import state_hash
from remote_cases import FaultyPool, remote_mapping, remote_trainer, trained

from rl_training.assembly.build import build_host, build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.training.remote.fleet import MAX_LOSSES
from rl_training.training.remote.pool import InlinePool, RunnerLostError, shares_of
from rl_training.types import ConfigError, NonFiniteError, RunError

STEPS = 3
FEW = ("ppo", "a2c", "dqn", "sac")
MORE = ("ppo-memory", "ppo-dict", "ppo-gsde", "td3", "dqn-rainbow", "dqn-memory")
CASES = [*FEW, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with pinned_threads(1):
        yield


def result(case: str, runners: int, steps: int = STEPS, **given: Any) -> dict[str, str]:
    built = remote_trainer(case, runners, **given)
    found = trained(built, steps)
    built.close()
    return found


# -- one run, whatever the number of runners --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:env.collector")
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_runners_is_the_same_run(case: str) -> None:
    """Weights, optimiser, buffer, random streams, environments, metrics."""
    one = result(case, 1)
    for runners in (2, 3, 4):
        assert result(case, runners) == one


@pytest.mark.filterwarnings("ignore:env.collector")
@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_a_lost_runner_costs_nothing(case: str) -> None:
    """It had acted, and its environments were elsewhere: another one begins where the last rollout ended."""
    undisturbed = result(case, 2)
    pools: list[FaultyPool] = []

    def pool(make: Any) -> FaultyPool:
        pools.append(FaultyPool(make, lose=(1, 4, 5)))
        return pools[-1]

    with pytest.warns(UserWarning, match=r"runner \d with the environments \d to \d was lost \(.*the node is gone"):
        assert result(case, 2, pool=pool) == undisturbed
    assert len(pools[0].replaced) == 3
    assert pools[0].replaced[0] == {}  # before the first boundary: new environments


class SlowToRecover(FaultyPool):
    """The first replacement is lost before it has begun, with the node that was about to take it."""

    def replace(self, runner: int, states: Any) -> None:
        super().replace(runner, states)
        if len(self.replaced) == 1:
            raise RunnerLostError("the node is gone")


@pytest.mark.filterwarnings("ignore:env.collector")
def test_a_replacement_that_is_lost_at_once_is_replaced_too() -> None:
    undisturbed = result("ppo", 2)
    with pytest.warns(UserWarning, match="another one goes on"):
        assert result("ppo", 2, pool=lambda make: SlowToRecover(make, lose=(3,))) == undisturbed


def test_a_runner_that_is_lost_again_and_again_ends_the_run() -> None:
    built = remote_trainer("ppo", 2, pool=lambda make: FaultyPool(make, lose=tuple(range(100))))
    with (
        pytest.warns(UserWarning, match="another one goes on"),
        pytest.raises(RunError, match=f"was lost {MAX_LOSSES} times in a row"),
    ):
        built.train_step()
    built.close()


class Restarting(CartPoleEnv):
    """Cannot go on where it was left."""

    resume_strategy = "restart"


def test_a_lost_runner_whose_environments_cannot_go_on_ends_the_run_and_says_so() -> None:
    built = remote_trainer("ppo", 2, pool=lambda make: FaultyPool(make, lose=(2,)), env_fn=limited(Restarting))
    assert not built.exact
    built.train_step()
    with pytest.raises(RunError, match=r"cannot go on where they were left .*`rl resume` goes on"):
        built.train_step()
    built.close()


def limited(cls: Any, **kwargs: Any) -> Any:
    return lambda: gym.wrappers.TimeLimit(cls(**kwargs), 500)


@pytest.mark.filterwarnings("ignore:env.collector")
@pytest.mark.parametrize("case", ["ppo", "dqn", pytest.param("ppo-memory", marks=pytest.mark.slow)])
def test_a_run_goes_on_with_another_number_of_runners(case: str) -> None:
    through = remote_trainer(case, 4)
    trained(through, 2)
    state = copy.deepcopy(through.state_dict())
    expected = trained(through, 2)
    through.close()
    for runners in (1, 2, 4):
        resumed = remote_trainer(case, runners)
        resumed.load_state_dict(state)
        assert trained(resumed, 2) == expected
        resumed.load_state_dict(state)  # running runners go back too
        assert trained(resumed, 2) == expected
        resumed.close()


def test_a_run_saved_before_its_first_step_begins() -> None:
    fresh = remote_trainer("ppo", 2)
    state = copy.deepcopy(fresh.state_dict())
    expected = trained(fresh, 1)
    fresh.close()
    again = remote_trainer("ppo", 1)
    again.load_state_dict(state)
    assert trained(again, 1) == expected
    again.close()


# -- what it is equal to, and what not --------------------------------------------------------------------------------


def test_one_environment_is_the_run_in_this_process() -> None:
    """Its random stream is the one that local collection uses."""
    remote = remote_trainer("ppo", 1, env={"num_envs": 1}, hparams={"num_steps": 32})
    mapping = remote_mapping("ppo", 1, env={"num_envs": 1}, hparams={"num_steps": 32})
    mapping["env"] = {**mapping["env"], "collector": "local", "runners": None}
    local = build_host(parse_config(mapping))
    ours, theirs = trained(remote, 3), trained(local, 3)
    for part in ("policy", "algorithm", "progress", "metrics"):
        assert ours[part] == theirs[part]
    for built in (remote, local):
        built.close()


def test_a_block_is_collected_with_the_weights_from_its_start() -> None:
    """So replay is filled before the block's updates, and the run is another one than the local one."""
    built = remote_trainer("dqn", 2, env={"normalize_obs": False, "normalize_reward": False})
    built.train_step()
    seen: list[int] = []
    learn = built.learn
    built.learn = lambda: (seen.append(len(built.buffer)), learn())[1]
    built.train_step()
    assert len(set(seen)) == 1
    built.close()


def test_the_warmup_ends_at_its_step_and_the_budget_in_mid_block() -> None:
    built = remote_trainer("dqn", 2, training={"total_timesteps": 300, "num_eval_episodes": 0})
    built.run(300)
    assert built.progress.env_steps == 300
    assert built.progress.updates == 10  # (300 - 100) * 0.05
    built.close()


def test_episodes_are_logged_in_the_order_in_which_they_ended() -> None:
    whole = remote_trainer("ppo", 3, hparams={"num_steps": 64})
    whole.train_step()
    ends = [(episode.env_index, episode.length) for episode in whole.episodes]
    first = {}
    for index, length in ends:
        first.setdefault(index, length)
    assert set(first) == {0, 1, 2, 3}
    assert list(first.values()) == sorted(first.values())  # an environment's first episode ends at its length
    whole.close()


def test_every_step_is_shown_to_watchers() -> None:
    built = remote_trainer("ppo", 2)
    seen: list[Any] = []
    built.watch_steps(seen.append)
    built.train_step()
    assert len(seen) == built.num_steps
    assert all(step.obs.shape == step.next_obs.shape == (4, 4) for step in seen)
    for step, later in pairwise(seen):
        goes_on = ~(step.terminated | step.truncated)
        np.testing.assert_array_equal(step.next_obs[goes_on], later.obs[goes_on])
        assert np.array_equal(later.is_first, ~goes_on)
    built.close()


class Spoiling(CartPoleEnv):
    """Gives a NaN in its 5th step, or raises."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.count = fault, 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.count += 1
        if self.count == 5 and self.fault == "raise":
            raise RuntimeError("the simulator broke")
        return (obs * np.nan if self.count == 5 else obs), reward, terminated, truncated, info


@pytest.mark.parametrize(("fault", "error"), [("raise", RuntimeError), ("nan", NonFiniteError)])
def test_errors_of_environments_end_the_run(fault: str, error: type[Exception]) -> None:
    built = remote_trainer("ppo", 2, env_fn=limited(Spoiling, fault=fault))
    with pytest.raises(error):
        built.train_step()
    built.close()


def test_it_says_when_it_does_not_pay() -> None:
    """Runners in this process need as long as one process, and more."""
    built = remote_trainer("ppo", 2)
    with pytest.warns(UserWarning, match=r"env\.collector: ray does not pay here: a rollout takes \d+ ms"):
        trained(built, 5)
    built.close()


def test_environments_are_shared_out_in_order() -> None:
    assert shares_of(4, 4) == [[0], [1], [2], [3]]
    assert shares_of(7, 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert shares_of(2, 8) == [[0], [1]]


def test_without_a_number_there_is_a_runner_for_each_cpu() -> None:
    built = remote_trainer("ppo", 1, pool=lambda make: InlinePool(make, size=3), env={"runners": None})
    built.train_step()
    assert [len(share) for share in built.collector.fleet.shares] == [2, 1, 1]
    built.close()


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("ppo", {"env": {"overlap": True}}, r"'env\.overlap' cannot be combined with env\.collector: ray"),
        ("ppo", {"env": {"vectorization": "async"}}, r"'env\.vectorization' async cannot be combined"),
        ("ppo", {"env": {"runners": 5}}, r"'env\.runners' 5 is more than env\.num_envs 4"),
        ("ppo", {"env": {"collector": "local"}}, r"'env\.runners' is for runners: it needs env\.collector: ray"),
        (
            "ppo",
            {"env": {"collection": "async"}},
            r"'env\.collection' is async, and 'ppo' .*: impala, or dqn",
        ),
        ("ppo", {"backend": "jax"}, r"'env\.collector' ray is for backend: torch"),
        ("dqn", {"env": {"collection": "async", "max_policy_lag": 3}}, r"'env\.max_policy_lag' is for rollouts"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(case: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(remote_mapping(case, 2, **changes))


def test_a_run_without_a_cluster_is_refused_before_anything_starts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    mapping = {**remote_mapping("ppo", 2), "output_dir": str(tmp_path / "runs")}
    with pytest.raises(RunError, match=r"no Ray cluster of '.*' is running; .*RAY_ADDRESS=HOST:PORT"):
        build_trainer(parse_config(mapping))
    assert not (tmp_path / "runs").exists()


def test_the_number_of_runners_is_no_part_of_a_run(tmp_path: Any) -> None:
    from rl_training.config.loading import config_sha256
    from rl_training.config.seal import sealed_fields
    from rl_training.runs.recipe import recipe_sha256

    one, two = (parse_config(remote_mapping("ppo", runners)) for runners in (1, 2))
    assert config_sha256(one) == config_sha256(two)
    mappings = [remote_mapping("ppo", runners) for runners in (1, 2)]
    assert sealed_fields(mappings[0]) == sealed_fields(mappings[1])
    assert recipe_sha256(mappings[0]) == recipe_sha256(mappings[1])
    local = parse_config({**mappings[0], "env": {"num_envs": 4}})
    assert config_sha256(local) != config_sha256(one)
    assert state_hash({"a": 1}) != state_hash({"a": 2})
