"""Runners and drivers of Ray without a cluster: what they do with answers, errors and signals."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_training.distributed import ray_runners
from rl_training.distributed.ray_executor import RayDriver
from rl_training.distributed.ray_runners import RayRunners
from rl_training.training.remote.pool import RunnerLostError
from rl_training.training.remote.runner import Order
from rl_training.types import EnvError, RunError


class RayError(Exception):
    """Any error of the cluster."""


class RayTaskError(RayError):
    """An error of the code that a call runs."""

    traceback_str = ""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorDiedError(RayError):
    """The process of an actor is gone, or could not be made."""

    def __init__(self, text: str, *, actor_init_failed: bool = False) -> None:
        super().__init__(text)
        self.actor_init_failed = actor_init_failed


class Call:
    """The answer to a call, as an object of the store: counted while somebody refers to it."""

    alive = 0

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        Call.alive += 1

    def __del__(self) -> None:
        Call.alive -= 1


class StandIn:
    """Ray with one method of actors after the other, each answered by `answers`."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, answers: Callable[[str], Any]) -> None:
        self.answers = answers
        self.killed = 0

    def remote(self, kind: Any) -> Any:
        return self

    def options(self, **_: Any) -> Any:
        return SimpleNamespace(remote=lambda *given: self.actor())

    def actor(self) -> Any:
        def method(name: str) -> Any:
            return SimpleNamespace(remote=lambda *given: Call(self.answers(name)))

        return SimpleNamespace(**{name: method(name) for name in ("pid", "restore", "collect", "close")})

    def wait(self, calls: list[Any], **_: Any) -> Any:
        return calls, []

    def get(self, call: Call) -> Any:
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    def kill(self, actor: Any) -> None:
        self.killed += 1


def pool(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], Any]) -> RayRunners:
    monkeypatch.setattr(ray_runners, "require_ray", lambda what: None)
    monkeypatch.setattr(ray_runners, "is_reachable", lambda address: True)
    made = RayRunners(lambda indices: None, Path("runs"))  # type: ignore[arg-type,return-value]
    made._ray, made._cpus, made.address = StandIn(answers), 2.0, "127.0.0.1:1"
    return made


def test_an_environment_that_cannot_go_back_to_its_state_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on from another state would be another run, without a word."""
    broken = {"restore": RayTaskError(RunError("the state does not fit"))}
    runners = pool(monkeypatch, lambda name: broken.get(name, 1))
    with pytest.raises(RunError, match="the state does not fit"):
        runners.start([[0], [1]], {0: {}, 1: {}})
    broken.clear()
    runners.start([[0], [1]], {0: {}, 1: {}})
    broken["restore"] = RayTaskError(ValueError("no such field"))
    for going_back in (lambda: runners.restore({0: {}}), lambda: runners.replace(1, {1: {}})):
        with pytest.raises(EnvError, match="a runner failed: ValueError: no such field"):
            going_back()


def test_a_runner_that_is_lost_while_it_goes_back_is_left_to_its_next_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ActorDiedError("The actor died")
    runners = pool(monkeypatch, lambda name: lost if name in ("restore", "collect") else 1)
    runners.start([[0]], {0: {}})
    with pytest.raises(RunnerLostError, match="The actor died"):
        runners.fetch(runners.send(0, Order(1, 0), None))
    with pytest.raises(RunnerLostError, match="The actor died"):
        runners.replace(0, {0: {}})


def test_a_runner_that_cannot_be_made_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ActorDiedError("raised in its creation task\nModuleNotFoundError: gym_own", actor_init_failed=True)
    runners = pool(monkeypatch, lambda name: error)
    with pytest.raises(EnvError, match=r"a runner cannot be made: .*\n.*gym_own"):
        runners.start([[0]], {})


def test_orders_that_are_dropped_leave_nothing_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a checkpoint is loaded while rollouts are on their way: nobody fetches those any more."""
    runners = pool(monkeypatch, lambda name: 1)
    runners.start([[0], [1]], {})
    before = Call.alive
    tickets = [runners.send(runner, Order(1, 0), None) for runner in (0, 1)]
    assert Call.alive == before + 2
    del tickets
    assert Call.alive == before


def test_a_signal_while_an_order_is_given_does_not_stop_the_parent() -> None:
    """The handler of a signal gives an order too, in the middle of another one."""
    driver = RayDriver.__new__(RayDriver)
    driver._orders = queue.SimpleQueue()
    lines: list[str] = []

    class Pipe:
        def write(self, line: str) -> None:
            if not lines:
                driver.order(op="signal", id=1, number=15)
            lines.append(line)

        def flush(self) -> None: ...

    driver._process = SimpleNamespace(stdin=Pipe())  # type: ignore[assignment]
    driver.order(op="start", id=1)
    driver._orders.put(None)
    writer = threading.Thread(target=driver._write, daemon=True)
    writer.start()
    writer.join(timeout=10)
    assert not writer.is_alive()
    assert lines == ['{"op": "start", "id": 1}\n']
    assert driver._orders.get(timeout=1) == '{"op": "signal", "id": 1, "number": 15}\n'
