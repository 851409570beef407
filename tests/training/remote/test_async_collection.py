"""Collection without waiting: rollouts of earlier policies, bounded queues, what is dropped, and Ape-X's replay."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from overlap_cases import state_hash
from remote_cases import FaultyPool, remote_trainer

from rl_training.assembly.devices import pinned_threads
from rl_training.training.remote.collector import IN_FLIGHT
from rl_training.training.remote.pool import InlinePool
from rl_training.types import ConfigError

ASYNC = {"collection": "async", "num_envs": 4}
IMPALA = {"algo": "impala", "hparams": {"num_steps": 8}, "env": {**ASYNC, "normalize_reward": False}}
APE_X = {
    "algo": "dqn",
    "hparams": {"learning_starts": 256, "batch_size": 16, "updates_per_step": 0.05, "n_step": 3},
    "buffer": {"type": "prioritized", "size": 900},
    "env": {**ASYNC, "normalize_obs": False, "normalize_reward": False},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with pinned_threads(1):
        yield


def impala(runners: int = 2, pool: Any = None, **env: Any) -> Any:
    return remote_trainer("a2c", runners, pool, **{**IMPALA, "env": {**IMPALA["env"], **env}})


def ape_x(runners: int = 2, pool: Any = None, **sections: Any) -> Any:
    return remote_trainer("dqn", runners, pool, **{**APE_X, **sections})


class UnevenPool(InlinePool):
    """The second runner delivers once for three deliveries of the first; counts what is on its way."""

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        self.owners: dict[Any, int] = {}
        self.turn = 0
        self.most = 0

    def send(self, runner: int, order: Any, weights: Any) -> Any:
        ticket = super().send(runner, order, weights)
        self.owners[ticket] = runner
        self.most = max(self.most, sum(job[1] == runner for job in self.waiting))
        return ticket

    def ready(self, tickets: Sequence[Any]) -> list[Any]:
        self.turn += 1
        wanted = 1 if self.turn % 4 == 0 else 0
        mine = [ticket for ticket in tickets if self.owners[ticket] == wanted]
        return [min(mine or tickets)]


# -- impala -----------------------------------------------------------------------------------------------------------


def test_rollouts_are_of_earlier_policies_and_say_how_far_behind() -> None:
    built = impala()
    rows = [built.train_step() for _ in range(8)]
    lags = [row["rollout/policy_lag_mean"] for row in rows]
    assert lags[0] == 0
    assert max(row["rollout/policy_lag_max"] for row in rows) == IN_FLIGHT
    assert all(0 < lag <= IN_FLIGHT for lag in lags[2:])
    assert any(row["train/ratio_max"] > 1.0 for row in rows[2:])
    assert built.progress.env_steps == 8 * 4 * 8
    assert not built.exact
    built.close()


def test_the_fast_runner_is_not_slowed_down_and_no_queue_grows() -> None:
    """A batch has the oldest rollouts, of whichever environment."""
    pools: list[UnevenPool] = []

    def pool(make: Any) -> UnevenPool:
        pools.append(UnevenPool(make))
        return pools[-1]

    built = impala(pool=pool)
    taken: list[int] = []
    gather = built.collector.gather

    def counted(*given: Any) -> Any:
        whole = gather(*given)
        taken.extend(whole.indices)
        return whole

    built.collector.gather = counted
    for _ in range(12):
        built.train_step()
        assert len(built.collector.queue) < 4
    assert pools[0].most == IN_FLIGHT
    counts = np.bincount(taken, minlength=4)
    assert counts[0] == counts[1] >= 2 * counts[3]
    built.close()


def test_rollouts_that_are_too_old_are_dropped() -> None:
    built = impala(max_policy_lag=0)
    rows = [built.train_step() for _ in range(6)]
    assert all(row["rollout/policy_lag_max"] == 0 for row in rows)
    assert rows[-1]["system/dropped_rollouts"] > 0
    built.close()


class HoldingPool(UnevenPool):
    """The first runner delivers as long as it has an order; what a batch does not need stays in the queue."""

    def ready(self, tickets: Sequence[Any]) -> list[Any]:
        mine = [ticket for ticket in tickets if self.owners[ticket] == 0]
        return [ticket for ticket in tickets if ticket in (mine or tickets)]


def test_rollouts_that_become_too_old_in_the_queue_are_dropped_too() -> None:
    built = impala(pool=HoldingPool, max_policy_lag=1, num_envs=5)  # shares of 3 and 2: one is left over each time
    rows = [built.train_step() for _ in range(8)]
    assert all(row["rollout/policy_lag_max"] <= 1 for row in rows)
    built.close()


def test_an_order_is_done_with_the_weights_that_it_was_given() -> None:
    """Not with those to which the learner has moved meanwhile: the ratios say how far it has."""
    built = impala(runners=1)
    built.train_step()
    sent = [job[3] for job in built.collector.fleet.pool.waiting]
    before = copy.deepcopy(sent)
    built.train_step()
    assert sent
    assert state_hash(sent[-1]) == state_hash(before[-1])
    assert state_hash(built.algorithm.policy.state_dict()) != state_hash(sent[-1])
    built.close()


def test_a_lost_runner_is_replaced() -> None:
    built = impala(pool=lambda make: FaultyPool(make, lose=(3, 7)))
    with pytest.warns(UserWarning, match="another one goes on from the last boundary"):
        rows = [built.train_step() for _ in range(8)]
    assert rows[-1]["system/lost_runners"] == 2
    built.close()


def test_a_resume_drops_what_was_on_its_way_and_begins_new_episodes() -> None:
    before = impala()
    for _ in range(4):
        before.train_step()
    state = before.state_dict()
    after = impala(runners=3)
    after.load_state_dict(state)
    after.train_step()
    cells = state["collector"]["cells"]
    assert set(cells) == {"0", "1", "2", "3"}
    assert after.progress.updates == 5
    first = after.buffer.as_batch()
    assert first["is_first"][0].all()
    for built in (before, after):
        built.close()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.normalize_reward'? follows each environment"):
        impala(normalize_reward=True)
    with pytest.raises(ConfigError, match=r"hparams\.policy_lag'? is for env\.collector: local"):
        remote_trainer("a2c", 2, **{**IMPALA, "hparams": {"num_steps": 8, "policy_lag": 2}})


# -- Ape-X ------------------------------------------------------------------------------------------------------------


def test_updates_and_env_steps_keep_their_ratio() -> None:
    built = ape_x()
    for _ in range(6):
        row = built.train_step()
        assert built.progress.updates == built.schedule.done(built.progress.env_steps)
    assert built.progress.env_steps == 6 * 256
    assert row["rollout/policy_lag_max"] > 0
    built.close()


def test_transitions_enter_with_the_errors_of_the_network_that_acted() -> None:
    built = ape_x(hparams={**APE_X["hparams"], "learning_starts": 10_000})
    built.train_step()
    built.train_step()
    priorities = built.buffer._prioritized()
    weights = priorities.tree.weights[: 2 * 256 - 2 * 4]  # those of the last two steps wait for their window
    steps = {
        "obs": built.buffer.obs[:256].reshape(64, 4, 4),
        "next_obs": built.buffer.next_obs[:256].reshape(64, 4, 4),
        "actions": built.buffer.actions[:256].reshape(64, 4),
        "rewards": built.buffer.rewards[:256].reshape(64, 4),
        "terminated": built.buffer.terminated[:256].reshape(64, 4),
        "truncated": built.buffer.truncated[:256].reshape(64, 4),
    }
    expected = (built.algorithm.first_priorities(steps, 1.0) + 1e-6) ** priorities.alpha  # no update has come yet
    np.testing.assert_allclose(weights[:256], expected.reshape(-1), rtol=1e-5)
    assert len(np.unique(weights.round(6))) > 50
    built.close()


def test_every_environment_has_its_own_share_of_random_actions() -> None:
    built = ape_x(hparams={**APE_X["hparams"], "learning_starts": 0})
    built.train_step()
    shares = [cell.policy.epsilon for runner in built.collector.fleet.pool.runners for cell in runner.cells]
    np.testing.assert_allclose(shares, [0.4 ** (1 + 7 * i / 3) for i in range(4)])
    built.close()


def test_rows_of_an_environment_follow_each_other_in_replay() -> None:
    """Whichever runner was faster: n-step windows need that."""
    built = ape_x(pool=UnevenPool)
    for _ in range(3):
        built.train_step()
    buffer = built.buffer
    obs, following = buffer.obs[:768].reshape(-1, 4, 4), buffer.next_obs[:768].reshape(-1, 4, 4)
    goes_on = ~(buffer.terminated | buffer.truncated)[:768].reshape(-1, 4)[:-1]
    np.testing.assert_array_equal(following[:-1][goes_on], obs[1:][goes_on])
    built.close()


def test_no_queue_grows_where_a_runner_is_slower() -> None:
    """The faster one waits with what it has: a batch has a block of every environment."""
    pools: list[UnevenPool] = []

    def pool(make: Any) -> UnevenPool:
        pools.append(UnevenPool(make))
        return pools[-1]

    built = ape_x(pool=pool)
    for _ in range(8):
        built.train_step()
        counts = np.bincount([arrived.delivery.indices[0] for arrived in built.collector.queue], minlength=4)
        assert counts.max() <= IN_FLIGHT
    assert pools[0].sent <= 2 * (8 + IN_FLIGHT)
    built.close()


def test_a_priority_of_a_row_that_was_overwritten_does_not_reach_its_successor() -> None:
    """Row numbers are insertion ids: they never come again."""
    built = ape_x()
    for _ in range(2):
        built.train_step()
    batch = built.buffer.sample(8)
    for _ in range(4):
        built.train_step()
    buffer = built.buffer
    buffer._prioritized()
    weights = buffer.priorities.tree.weights.copy()
    gone = batch["indices"] < buffer._written - buffer.capacity
    assert gone.any()
    buffer.update_priorities(batch["indices"][gone], np.full(gone.sum(), 1e6))
    np.testing.assert_array_equal(buffer.priorities.tree.weights, weights)
    built.close()
