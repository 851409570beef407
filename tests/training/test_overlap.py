"""Overlapped collection: one update of delay exactly, and nothing depends on which of the two sides is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from overlap_cases import CASES, FEW, OFTEN, hashes, mapping, state_hash, trainer
from sampling import sampled

from rl_training.algorithms.ppo import PPO
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.models.networks import module_state
from rl_training.types import ACTING_POLICY, ConfigError

STEPS = 4
"""Train steps of a run; with replay, learning starts in the first block of 256."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with pinned_threads(1):
        yield


class AtOnce:
    """In place of the thread: collects before the learner starts."""

    busy = False

    def start(self, job: Callable[[], Any]) -> None:
        self.result, self.busy = job(), True

    def wait(self) -> Any:
        self.busy = False
        return self.result

    def check_cancelled(self) -> None:
        """Nobody cancels."""

    def cancel(self) -> None:
        """Nothing runs beside the learner."""

    def close(self, last: Callable[[], None]) -> None:
        last()


class AtTheEnd(AtOnce):
    """In place of the thread: collects when the learner waits for it."""

    def start(self, job: Callable[[], Any]) -> None:
        self.job, self.busy = job, True

    def wait(self) -> Any:
        self.busy = False
        return self.job()


def trained(case: str, thread: Any = None, steps: int = STEPS, **sections: Any) -> dict[str, str]:
    """The state of every part after a few train steps, and the metrics of all of them."""
    built = trainer(case, **sections)
    if thread is not None:
        built.ahead.thread = thread
    metrics = [built.train_step() for _ in range(steps)]
    numbers = {f"{i}/{name}": float(value) for i, row in enumerate(metrics) for name, value in row.items()}
    found = {**hashes(built), "metrics": state_hash(numbers)}
    built.close()
    return found


# -- the order in which things happen does not matter -----------------------------------------------------------------


@pytest.mark.parametrize("case", sampled(CASES, OFTEN))
def test_whichever_side_is_faster_the_numbers_are_the_same(case: str) -> None:
    """All of the collecting before the learning, all of it after, and as the threads happen to run."""
    threaded = trained(case)
    assert trained(case, AtOnce()) == threaded
    assert trained(case, AtTheEnd()) == threaded


class SleepyCartPole(CartPoleEnv):
    """Takes its time in some steps."""

    seconds = 0.0

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds * (self.np_random.bit_generator.state["state"]["state"] % 3))
        return super().step(action)


class SleepyPendulum(PendulumEnv):
    seconds = 0.0

    def step(self, u: Any) -> Any:
        time.sleep(self.seconds * (self.np_random.bit_generator.state["state"]["state"] % 3))
        return super().step(u)


@pytest.mark.parametrize("case", FEW)
def test_sleeping_environments_and_sleeping_learners_change_no_bit(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env_class = SleepyPendulum if case == "sac" else SleepyCartPole

    def run(env_seconds: float, learner_seconds: float) -> dict[str, str]:
        monkeypatch.setattr(env_class, "seconds", env_seconds)
        built = trainer(case, lambda: gym.wrappers.TimeLimit(env_class(), 50))

        def late(update: Any) -> Any:
            return lambda batch: (time.sleep(learner_seconds), update(batch))[1]

        built.wrap_update(late)
        for _ in range(3):
            built.train_step()
        found = hashes(built)
        built.close()
        return found

    expected = run(0.0, 0.0)
    assert run(5e-4, 0.0) == expected
    assert run(0.0, 2e-2 if case in ("ppo", "a2c") else 2e-3) == expected


def test_worker_processes_give_the_same_numbers() -> None:
    assert trained("ppo", env={"vectorization": "async", "num_workers": 2}) == trained("ppo")


# -- who acts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FEW)
def test_what_follows_an_update_was_collected_with_the_policy_from_before_it(case: str) -> None:
    built = trainer(case, hparams={"learning_starts": 0} if case in ("dqn", "sac") else {})
    acted: list[str] = []
    act, start = built.ahead.frozen.policy.act, built.ahead.thread.start
    collected: list[set[str]] = []

    def acting(*args: Any, **kwargs: Any) -> Any:
        acted.append(state_hash(weights_of(built.ahead.frozen.policy)))
        return act(*args, **kwargs)

    def starting(job: Any) -> None:
        def watched() -> Any:
            acted.clear()
            result = job()
            collected.append(set(acted))
            return result

        start(watched)

    built.ahead.frozen.policy.act, built.ahead.thread.start = acting, starting
    before = []
    for _ in range(STEPS):
        before.append(state_hash(weights_of(built.algorithm.policy)))
        built.train_step()
    built.close()
    assert len(set(before)) == STEPS
    assert collected == [{before[0]}, *({weights} for weights in before)]


def weights_of(policy: Any) -> dict[str, Any]:
    normalizer = {} if policy.normalizer is None else policy.normalizer.state_dict()
    return {"network": module_state(policy.network), "normalizer": normalizer}


@pytest.mark.parametrize("case", ["ppo", "ppo-box", "ppo-memory", "ppo-dict", "ppo-masks"])
def test_old_log_probabilities_are_those_of_the_policy_that_acted(case: str) -> None:
    """To 1e-5, although weights and statistics have moved since: PPO's ratio is against the policy that acted."""
    built = trainer(case, hparams={"sequence_length": None} if case == "ppo-memory" else {})
    found: list[tuple[Any, Any, Any]] = []

    def watched(update: Any) -> Any:
        def run(batch: Any) -> Any:
            other = trainer(case, hparams={"sequence_length": None} if case == "ppo-memory" else {})
            other.algorithm.policy.load_state_dict(batch[ACTING_POLICY])
            alone = {name: value for name, value in batch.items() if name != ACTING_POLICY}
            other.algorithm.reward_normalizer = None
            rewards, built.algorithm.reward_normalizer = built.algorithm.reward_normalizer, None
            found.append((built.algorithm.prepare(batch), other.algorithm.prepare(alone), built.algorithm))
            with torch.no_grad():
                now = built.algorithm.evaluated(found[-1][0])[0]
                then = other.algorithm.evaluated(found[-1][1])[0]
            moved.append(float((now - then).abs().max()))
            built.algorithm.reward_normalizer = rewards
            other.close()
            return update(batch)

        return run

    moved: list[float] = []
    built.wrap_update(watched)
    for _ in range(3):
        built.train_step()
    built.close()
    for learnt, as_it_acted, _ in found:
        for column in ("logprobs", "values", "advantages", "returns"):
            assert torch.equal(getattr(learnt, column), getattr(as_it_acted, column)), column
    assert moved[0] == 0.0  # nothing was learnt before the first update
    assert min(moved[1:]) > 1e-4  # the current policy is another one


def test_learning_sees_observations_with_the_newest_statistics() -> None:
    built = trainer("ppo")
    built.train_step()
    built.train_step()
    batch = {**built.ahead.pending.store.as_batch(), ACTING_POLICY: built.ahead.pending.acting}
    rows = batch["obs"].reshape(-1, 4)
    current, earlier = built.algorithm.policy.normalize(rows), built.algorithm.acting_policy(batch).normalize(rows)
    assert np.array_equal(built.algorithm.prepare(batch).obs.numpy(), current)
    assert not np.array_equal(current, earlier)
    built.close()


def test_a_policy_of_your_own_is_built_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass of PPO that builds another policy gets a second one of the same kind for what acted."""
    built = trainer("ppo")
    algorithm: PPO = built.algorithm
    made = algorithm.build_policy()
    monkeypatch.setattr(algorithm, "build_policy", lambda: made)
    built.train_step()
    assert algorithm.acting_policy({ACTING_POLICY: algorithm.policy.state_dict()}) is made
    built.close()


# -- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["dqn", "dqn-rainbow", "sac"])
def test_as_many_updates_as_without_overlap(case: str) -> None:
    """The same are owed, and nothing is learnt before learning starts."""
    plain, overlapped = trainer(case, env={"overlap": False}), trainer(case)
    for _ in range(3):
        plain.train_step()
        overlapped.train_step()
        assert overlapped.progress.updates == plain.progress.updates > 0
        assert overlapped.progress.env_steps == plain.progress.env_steps
        assert len(overlapped.buffer) == len(plain.buffer)
    plain.close()
    overlapped.close()


def test_random_actions_and_epsilon_follow_the_steps_that_were_collected() -> None:
    """A block is collected while the one before it is not counted yet, and epsilon falls as it does without overlap."""
    seen: dict[bool, list[float]] = {}
    for overlap in (False, True):
        built = trainer("dqn", env={"overlap": overlap}, hparams={"epsilon_steps": 1000, "n_step": 1})
        policy = built.collector.policy
        epsilon, values = policy.epsilon, seen.setdefault(overlap, [])
        act = policy.act

        def acting(*args: Any, act: Any = act, epsilon: Any = epsilon, values: Any = values, **kwargs: Any) -> Any:
            values.append(epsilon())
            return act(*args, **kwargs)

        policy.act = acting
        for _ in range(3):
            built.train_step()
        built.close()
    both = len(seen[False])
    assert both == (3 * 256 - 100) // 2
    assert seen[True][:both] == seen[False]


def test_the_first_block_is_random_as_without_overlap() -> None:
    """Until learning starts nothing depends on the learner: the same transitions are in the buffer."""
    plain, overlapped = (
        trainer("dqn", env={"overlap": overlap}, hparams={"learning_starts": 1000, "n_step": 1})
        for overlap in (False, True)
    )
    for _ in range(3):
        plain.train_step()
        overlapped.train_step()
    for column in ("obs", "actions", "rewards", "next_obs", "terminated"):
        assert np.array_equal(getattr(plain.buffer, column), getattr(overlapped.buffer, column)), column
    plain.close()
    overlapped.close()


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", ["auto", "host", "compiled"])
def test_jax_refuses_it_in_a_sentence(lane: str) -> None:
    with pytest.raises(ConfigError, match=r"'env\.overlap' is for backend: torch; .*: set env\.overlap: false$"):
        parse_config({**mapping("ppo"), "backend": "jax", "lane": lane})


def test_the_compiled_lane_is_refused_without_jax() -> None:
    with pytest.raises(ConfigError, match="needs backend: jax"):
        trainer("ppo", lane="compiled")
