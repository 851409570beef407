"""A worker that fails in any way gives a prompt error that names the environment, or a restart, and leaves nothing."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from worker_envs import FAULTS, FaultEnv, LoudEnv, Make

from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.envs.workers import pool as worker_pool
from rl_training.envs.workers.server import acquire_server, release_server
from rl_training.envs.workers.vector import EnvWorkerError, WorkerVectorEnv
from rl_training.seeding import reset_seed
from rl_training.types import EnvError

TIMEOUT = 0.4
CAUSES = {
    "raise": "raised ZeroDivisionError: the physics blew up",
    "sys.exit": "called sys.exit(3)",
    "os._exit": "exited with code 4",
    "segfault": "crashed with SIGSEGV",
    "sigkill": "was killed by SIGKILL (out of memory, or kill -9)",
    "sigstop": "is stopped (SIGSTOP): no answer for 0.4 s",
    "hang": "hangs: no answer for 0.4 s",
    "bad_obs": "raised ValueError: the observation has shape (3,), the observation space says (2,)",
    "bad_info": "raised TypeError: cannot pickle 'generator' object",
}
HUNG = {"sigstop", "hang"}


@pytest.fixture(scope="module", autouse=True)
def warm_server() -> Iterator[None]:
    """One server for all tests of this file."""
    server = acquire_server()
    yield
    release_server(server)


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def shared_memory() -> list[str]:
    """Shared worker memory that this process still has open or mapped."""
    gc.collect()
    names = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    names += Path("/proc/self/maps").read_text().splitlines()
    return [name for name in names if "rl-training-workers" in name]


def make(num_envs: int = 4, num_workers: int = 2, **kwargs: Any) -> WorkerVectorEnv:
    return WorkerVectorEnv([Make(FaultEnv, index) for index in range(num_envs)], num_workers=num_workers, **kwargs)


def harmless(num_envs: int = 4) -> Any:
    return np.zeros(num_envs, np.int64)


def with_fault(fault: str, env_index: int, num_envs: int = 4) -> Any:
    actions = harmless(num_envs)
    actions[env_index] = FAULTS.index(fault) + 1
    return actions


def fail(vector: WorkerVectorEnv, fault: str, env_index: int, steps_before: int) -> tuple[EnvWorkerError, float]:
    """Step, then make one environment fail; returns the error and the seconds it took."""
    vector.reset()
    for _ in range(steps_before):
        vector.step(harmless())
    start = time.monotonic()
    with pytest.raises(EnvWorkerError) as caught:
        vector.step(with_fault(fault, env_index))
    return caught.value, time.monotonic() - start


@pytest.mark.wall_clock
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named_in_time_and_leaves_nothing(fault: str) -> None:
    before = children()
    vector = make(step_timeout=TIMEOUT if fault in HUNG else 30.0)
    assert shared_memory()
    error, seconds = fail(vector, fault, env_index=3, steps_before=14)  # episodes of 10
    seed = reset_seed(7, 3, 1)
    assert isinstance(error, EnvError)
    assert (error.env_index, error.cause, error.seed, error.step) == (3, CAUSES[fault], seed, 5)
    assert error.action == FAULTS.index(fault) + 1
    assert f"environment 3 {CAUSES[fault]} at step 5 of its episode (seed {seed}, action {error.action})" in str(error)
    assert seconds < (TIMEOUT + 1.5 if fault in HUNG else 2.0)
    assert children() == before
    with pytest.raises(EnvError, match="closed"):
        vector.step(harmless())
    vector.close()
    assert shared_memory() == []


def test_the_message_shows_where_the_worker_was() -> None:
    for fault in ("raise", "segfault", "hang"):
        error, _ = fail(make(step_timeout=TIMEOUT), fault, env_index=1, steps_before=0)
        assert "worker_envs.py" in error.worker_traceback
        assert "in commit" in error.worker_traceback
        assert error.worker_traceback in str(error)


WORDS = {
    "long": "raised ValueError: too much: mmm",
    "odd": "raised ValueError: bell \\x07, escape \\x1b[31m, half \\udc80, nothing \\x00",
    "none": "raised UnspeakableError: (its text cannot be shown: __str__ raised RuntimeError)",
    "exit": "called sys.exit(xxx",
    "stubborn": "raised StubbornError: no such level 7",
    "long of ours": "raised EnvError: too much: mmm",
}


@pytest.mark.parametrize(
    ("words", "when"), [*((words, "step") for words in WORDS), ("long", "built"), ("none", "reset")]
)
def test_whatever_an_error_says_is_told_in_short(words: str, when: str) -> None:
    """50 MB of text, control characters, no text at all, an error that cannot be unpickled."""

    def play() -> None:
        vector = WorkerVectorEnv([Make(LoudEnv, 0, words=words, when=when)], num_workers=1, step_timeout=5.0)
        vector.reset()
        vector.step(np.zeros(1, np.int64))

    with pytest.raises(EnvWorkerError) as caught:
        play()
    assert caught.value.cause.startswith(WORDS[words])
    assert len(str(caught.value)) < 50_000
    assert ("(50,000,0" in caught.value.cause) == ("long" in words or words == "exit")
    assert str(caught.value).encode()


def test_an_answer_that_cannot_be_read_here_is_named() -> None:
    with pytest.raises(EnvWorkerError, match="environment 0 sent something that cannot be read here"):
        make(1, 1).call("unreadable")


@pytest.mark.wall_clock
def test_a_constructor_that_hangs_is_named_in_time(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error names the environment that hangs, not the first of its worker; each has the full timeout."""
    monkeypatch.setattr(worker_pool, "START_TIMEOUT", 0.8)
    monkeypatch.setattr(worker_pool, "NOTICE_SECONDS", 0.3)
    builds = ["sleep", "sleep", "hang", ""]
    before = children()
    start = time.monotonic()
    with pytest.raises(EnvWorkerError, match=r"environment 2 hangs: no answer for 0.8 s while it was built") as caught:
        WorkerVectorEnv(
            [Make(FaultEnv, index, built=how) for index, how in enumerate(builds)], num_workers=1, step_timeout=0.1
        )
    assert caught.value.env_index == 2
    assert "commit" in caught.value.worker_traceback
    assert time.monotonic() - start < 5.0
    assert "environment 2 (of worker 0) has been in its constructor for" in capfd.readouterr().err
    assert children() == before


def test_the_error_survives_pickling() -> None:
    error = EnvWorkerError(2, "exited with code 4", seed=9, step=3, action=np.array([1.0, 2.0]))
    again = pickle.loads(pickle.dumps(error))
    assert (
        str(again) == str(error) == "environment 2 exited with code 4 at step 3 of its episode (seed 9, action [1. 2.])"
    )


@pytest.mark.parametrize("fault", ["raise", "segfault", "sigstop"])
def test_faults_in_a_reset_are_named_too(fault: str) -> None:
    vector = make(step_timeout=TIMEOUT if fault in HUNG else 30.0)
    vector.reset()
    mask = np.array([False, False, False, True])
    with pytest.raises(EnvWorkerError) as caught:
        vector.reset(options={"fault": fault, "reset_mask": mask})
    error = caught.value
    assert (error.env_index, error.step, error.action, error.seed) == (3, 0, None, reset_seed(7, 3, 1))
    assert f"environment 3 {CAUSES[fault]} at its reset (seed " in str(error)


def test_a_worker_killed_between_steps_is_noticed() -> None:
    vector = make()
    vector.reset()
    vector.step(harmless())
    os.kill(vector.call("process")[2][0], signal.SIGKILL)
    with pytest.raises(EnvWorkerError, match="environment 2 was killed by SIGKILL") as caught:
        vector.step(harmless())
    assert (caught.value.step, caught.value.action) == (2, 0)


def test_a_worker_lost_in_a_call_is_named() -> None:
    vector = make()
    vector.reset()
    os.kill(vector.call("process")[0][0], signal.SIGKILL)
    with pytest.raises(EnvWorkerError, match="environment 0 was killed by SIGKILL"):
        vector.state_dict()


def test_an_interrupted_step_is_not_mistaken_for_the_next() -> None:
    vector = make(step_timeout=30.0)
    vector.reset()
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            vector.step(with_fault("hang", 0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(EnvError, match="interrupted"):
        vector.step(harmless())
    with pytest.raises(EnvError, match="without step_async"):
        vector.step_wait()
    vector._pool.close(0.0)
    vector.close()


# -- restart ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["raise", "os._exit", "sigkill", "sigstop"])
def test_a_restart_truncates_and_drops_the_half_step(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    before = children()
    vector = make(step_timeout=TIMEOUT if fault in HUNG else 30.0, restart=True)
    vector.reset()
    for _ in range(4):
        last, *_ = vector.step(harmless())
    expected_final = last.copy()
    last[:] = -1  # the caller may write into its array
    with caplog.at_level(logging.WARNING):
        obs, rewards, terminated, truncated, infos = vector.step(with_fault(fault, 3))
    # environments 2 and 3 share the worker; 0 and 1 did not notice
    assert rewards.tolist() == [5, 5, 0, 0]
    assert terminated.tolist() == [False] * 4
    assert truncated.tolist() == [False, False, True, True]
    assert obs[:, 1].tolist() == [5, 5, 0, 0]
    assert infos["worker_restart"].tolist() == infos["_final_obs"].tolist() == [False, False, True, True]
    assert infos["final_obs"][0] is None
    assert infos["final_obs"][2].tolist() == expected_final[2].tolist()
    assert infos["final_obs"][3].tolist() == expected_final[3].tolist()
    # the new episodes go on with the next seeds
    starts = [np.random.default_rng(reset_seed(7, index, 1)).random() for index in (2, 3)]
    assert obs[2:, 0].tolist() == starts
    assert vector.restarts == 1
    assert f"environment 3 {CAUSES[fault]}" in caplog.text
    for _ in range(5):
        obs, rewards, _, truncated, infos = vector.step(harmless())
    assert truncated.tolist() == [True, True, False, False]
    assert rewards.tolist() == [10, 10, 5, 5]
    assert "worker_restart" not in infos
    assert vector.state_dict()["envs"]["2"]["reset_count"] == 2
    vector.close()
    assert children() == before


def test_restarts_in_a_row_are_limited() -> None:
    vector = make(restart=True, max_restarts=2)
    vector.reset()
    vector.step(with_fault("os._exit", 1))
    vector.step(with_fault("os._exit", 2))
    vector.step(with_fault("os._exit", 0))
    with pytest.raises(EnvWorkerError, match="exited with code 4, after 2 restarts in a row, at step 1 of"):
        vector.step(with_fault("os._exit", 0))
    assert vector.restarts == 3
    assert vector.closed


def test_restarts_far_apart_do_not_count_together() -> None:
    vector = make(restart=True, max_restarts=1)
    vector.reset()
    for _ in range(2):
        vector.step(with_fault("os._exit", 0))
        for _ in range(100):
            vector.step(harmless())
    assert vector.restarts == 2
    vector.close()


def test_a_reset_is_tried_again_after_a_restart() -> None:
    vector = make(restart=True)
    vector.reset()
    os.kill(vector.call("process")[0][0], signal.SIGKILL)
    obs, _ = vector.reset()
    starts = [np.random.default_rng(reset_seed(7, index, 1)).random() for index in range(4)]
    assert obs[:, 0].tolist() == starts
    assert vector.restarts == 1
    vector.close()


def test_a_restart_during_resume_still_continues_the_episodes() -> None:
    sync = ResumableSyncVectorEnv([Make(FaultEnv, index) for index in range(4)])
    sync.reset()
    for _ in range(13):
        obs, *_ = sync.step(harmless())
    vector = make(restart=True)
    vector.load_state_dict(sync.state_dict())
    os.kill(vector.call("process")[0][0], signal.SIGKILL)
    assert vector.reset()[0].tolist() == obs.tolist()
    vector.close()


def test_a_fault_of_every_reset_ends_in_an_error() -> None:
    vector = make(restart=True, max_restarts=2)
    with pytest.raises(EnvWorkerError, match="after 2 restarts in a row, at its reset"):
        vector.reset(options={"fault": "os._exit"})


# -- many -------------------------------------------------------------------------------------------------------------


@pytest.mark.wall_clock
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raise", "os._exit", "segfault", "sigkill", "sigstop"])
def test_twenty_faults_of_each_kind(fault: str) -> None:
    before = children()
    rng = np.random.default_rng(FAULTS.index(fault))
    for _ in range(20):
        num_workers, env_index, steps_before = (int(rng.integers(low, high)) for low, high in ((1, 5), (0, 4), (0, 30)))
        vector = make(num_workers=num_workers, step_timeout=TIMEOUT if fault in HUNG else 30.0)
        error, seconds = fail(vector, fault, env_index, steps_before)
        assert (error.env_index, error.step, error.cause) == (env_index, steps_before % 10 + 1, CAUSES[fault])
        assert error.seed == reset_seed(7, env_index, steps_before // 10)
        assert seconds < (TIMEOUT + 1.5 if fault in HUNG else 2.0)
        assert children() == before
        assert shared_memory() == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raise", "os._exit", "segfault", "sigkill", "sigstop"])
def test_twenty_restarts_of_each_kind(fault: str) -> None:
    before = children()
    vector = make(restart=True, max_restarts=20, step_timeout=TIMEOUT if fault in HUNG else 30.0)
    vector.reset()
    rng = np.random.default_rng(FAULTS.index(fault))
    for _ in range(20):
        env_index = int(rng.integers(4))
        *_, infos = vector.step(with_fault(fault, env_index))
        assert infos["worker_restart"][env_index]
        vector.step(harmless())
    assert vector.restarts == 20
    vector.close()
    assert children() == before
    assert shared_memory() == []
