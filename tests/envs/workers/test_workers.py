"""Worker vector environments return what sync ones return, resume, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worker_envs import FaultEnv, InfoEnv, Make, SameArrayEnv, SleepEnv, SpaceEnv

from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.envs.factory import EnvThunk, make_vector_env
from rl_training.envs.vector.sync import ResumableSyncVectorEnv
from rl_training.envs.workers import vector as workers
from rl_training.envs.workers.fork_server import IGNORED_SIGNALS
from rl_training.envs.workers.protocol import TRACE_SIGNAL
from rl_training.envs.workers.server import acquire_server, release_server
from rl_training.envs.workers.vector import EnvWorkerError, WorkerVectorEnv
from rl_training.types import ConfigError, EnvError


@pytest.fixture(scope="module", autouse=True)
def warm_server() -> Iterator[None]:
    """One server for all tests of this file."""
    server = acquire_server()
    yield
    release_server(server)


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def shared_memory(pid: int) -> set[str]:
    """The files that a process maps as shared and writable."""
    lines = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {fields[5] for fields in lines if fields[1] == "rw-s" and len(fields) == 6}


def bits(value: Any) -> Any:
    """Values with their types and bytes, so that == means equal bit for bit, NaN included."""
    if isinstance(value, dict):
        return {key: bits(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [bits(child) for child in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [bits(child) for child in value]
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tobytes()
    return type(value).__name__, value


def thunks(env_id: str, count: int) -> list[EnvThunk]:
    return [EnvThunk(env_id, EnvConfig(), seed=3, index=index) for index in range(count)]


def run(vector: Any, num_steps: int, seed: int = 0) -> Iterator[Any]:
    """Everything a vector environment returns for seeded random actions."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        space = vector.single_action_space
        if isinstance(space, spaces.Box):
            actions: Any = rng.uniform(-1, 1, (vector.num_envs, *space.shape)).astype(space.dtype)
        else:
            actions = rng.integers(0, 2, vector.num_envs)
        yield bits(vector.step(actions))


def assert_equal_to_sync(env_fns: list[Any], worker_counts: tuple[int, ...], num_steps: int) -> None:
    sync = SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
    expected = [bits(sync.reset()), *run(sync, num_steps)]
    for num_workers in worker_counts:
        ours = WorkerVectorEnv(env_fns, num_workers=num_workers)
        assert ours.observation_space == sync.observation_space
        assert ours.action_space == sync.action_space
        assert ours.metadata == sync.metadata
        first = bits(ours.reset())
        for step, (left, right) in enumerate(zip([first, *run(ours, num_steps)], expected, strict=True)):
            assert left == right, f"{num_workers} workers, step {step}"
        ours.close()


# -- equality ---------------------------------------------------------------------------------------------------------


def test_equals_sync_on_cartpole() -> None:
    assert_equal_to_sync(thunks("CartPole-v1", 5), (1, 2, 4), 400)


def test_equals_sync_with_dict_observations_and_infos() -> None:
    assert_equal_to_sync([Make(InfoEnv, index) for index in range(4)], (1, 2, 4), 200)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 255, (2, 2), np.uint8))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_equals_sync_for_other_observation_spaces(space: spaces.Space[Any]) -> None:
    env_fns = [Make(SpaceEnv, i, observation_space=space, action_space=spaces.Discrete(2)) for i in range(3)]
    assert_equal_to_sync(env_fns, (2,), 5)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Discrete(3), np.array([0, 1, 2])),
        (spaces.Discrete(3), np.array([0, 1, 2], np.int32)),
        (spaces.Box(-1, 1, (2,), np.float32), np.linspace(0, 1, 6).reshape(3, 2)),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))}),
            {"a": np.array([0, 1, 1]), "b": np.zeros((3, 1), np.float32)},
        ),
    ],
    ids=["shared", "other integer", "other float", "dict"],
)
def test_environments_receive_the_actions_that_sync_would_give_them(space: spaces.Space[Any], actions: Any) -> None:
    env_fns = [Make(SpaceEnv, i, log=False, observation_space=spaces.Discrete(2), action_space=space) for i in range(3)]
    sync = SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = WorkerVectorEnv(env_fns, num_workers=2)
    assert bits(ours.reset(seed=1)) == bits(sync.reset(seed=1))
    assert bits(ours.step(actions)) == bits(sync.step(actions))
    ours.close()


def test_reset_takes_seeds_options_and_a_mask() -> None:
    env_fns = thunks("CartPole-v1", 4)
    sync = SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = WorkerVectorEnv(env_fns, num_workers=2)
    for arguments in (
        {"seed": 5},
        {"seed": [1, None, 3, None]},
        {"options": {"low": -0.01, "high": 0.01}},
        {"seed": 9, "options": {"reset_mask": np.array([True, False, False, True])}},
    ):
        copy = {key: dict(value) if isinstance(value, dict) else value for key, value in arguments.items()}
        assert bits(ours.reset(**arguments)) == bits(sync.reset(**copy))
    with pytest.raises(EnvError, match="3 seeds for 4"):
        ours.reset(seed=[1, 2, 3])
    with pytest.raises(EnvError, match="reset_mask"):
        ours.reset(options={"reset_mask": np.zeros(4, np.bool_)})
    ours.close()


def test_what_is_returned_never_changes_later() -> None:
    ours = WorkerVectorEnv([Make(SameArrayEnv, 0), Make(SameArrayEnv, 1)], num_workers=1)
    first, _ = ours.reset()
    results = [ours.step(np.zeros(2, np.int64)) for _ in range(4)]
    ours.close()
    assert first.tolist() == [[0], [0]]
    assert [result[0][0, 0] for result in results] == [1, 2, 0, 1]
    assert [result[1][1] for result in results] == [1, 2, 3, 1]
    assert [bool(result[2][0]) for result in results] == [False, False, True, False]
    assert [row.tolist() for row in results[2][4]["final_obs"]] == [[3], [3]]


def test_workers_step_at_the_same_time() -> None:
    ours = WorkerVectorEnv([Make(SleepEnv, index) for index in range(3)], num_workers=3)
    ours.reset()
    ours.step_async(np.zeros(3, np.int64))
    *_, infos = ours.step_wait()
    assert infos["began"].max() < infos["ended"].min()
    with pytest.raises(EnvError, match="without step_async"):
        ours.step_wait()
    ours.close()


def test_a_timeout_is_per_environment_not_per_worker() -> None:
    ours = WorkerVectorEnv([Make(SleepEnv, index) for index in range(4)], num_workers=1, step_timeout=0.6)
    ours.reset()
    ours.step(np.zeros(4, np.int64))  # 0.8 s
    ours.close()


# -- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_methods_and_frames() -> None:
    ours = WorkerVectorEnv([Make(FaultEnv, index, length=3 + index) for index in range(3)], num_workers=2)
    ours.reset()
    ours.step(np.zeros(3, np.int64))
    assert ours.render_mode == "rgb_array"
    assert [int(frame[0, 0, 0]) for frame in ours.render()] == [1, 1, 1]
    assert ours.get_attr("length") == (3, 4, 5)
    ours.set_attr("length", [6, 7, 8])
    ours.set_attr("start", 0.5)
    assert ours.call("length") == (6, 7, 8)
    assert ours.call("start") == (0.5, 0.5, 0.5)
    with pytest.raises(EnvWorkerError, match="no attribute 'nothing'"):
        ours.call("nothing")
    obs, *_ = ours.step(np.zeros(3, np.int64))  # a failed call leaves the workers running
    assert obs[:, 1].tolist() == [2, 2, 2]
    with pytest.raises(EnvError, match=r"actions have shape \(2,\)"):
        ours.step(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match="2 values"):
        ours.set_attr("length", [1, 2])
    ours.close()
    with pytest.raises(EnvError, match="closed"):
        ours.reset()


def test_a_process_may_have_many_environments_and_has_no_torch() -> None:
    ours = WorkerVectorEnv([Make(FaultEnv, index) for index in range(5)], num_workers=2)
    pids, torch = zip(*ours.call("process"), strict=True)
    ours.close()
    assert len(set(pids)) == 2
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 3]
    assert os.getpid() not in pids
    assert not any(torch)


def test_step_needs_a_reset() -> None:
    ours = WorkerVectorEnv([Make(FaultEnv, 0)])
    with pytest.raises(EnvError, match="before the first reset"):
        ours.step(np.zeros(1, np.int64))
    ours.close()


# -- resume -----------------------------------------------------------------------------------------------------------


def test_resumes_open_episodes_with_any_number_of_workers() -> None:
    env_fns = [Make(InfoEnv, index) for index in range(3)]
    first = WorkerVectorEnv(env_fns, num_workers=3)
    sync = ResumableSyncVectorEnv(env_fns)
    assert first.exact
    first.reset()
    sync.reset()
    steps = list(run(sync, 37))
    assert list(run(first, 37)) == steps
    state = first.state_dict()
    assert bits(state) == bits(sync.state_dict())
    obs = steps[-1][0]
    rest = list(run(first, 60, seed=1))
    first.close()
    for num_workers in (1, 2):
        again = WorkerVectorEnv(env_fns, num_workers=num_workers)
        again.load_state_dict(state)
        assert bits(again.reset()[0]) == obs
        assert list(run(again, 60, seed=1)) == rest
        again.close()


def test_a_long_replay_is_not_a_hang() -> None:
    env_fns = [Make(SleepEnv, 0)]
    first = WorkerVectorEnv([Make(FaultEnv, 0)])
    first.reset()
    for _ in range(4):
        first.step(np.zeros(1, np.int64))
    state = first.state_dict()
    first.close()
    state["envs"]["0"]["env"] = "SleepEnv"
    again = WorkerVectorEnv(env_fns, step_timeout=0.5)
    again.load_state_dict(state)
    obs, _ = again.reset()  # 0.8 s
    assert obs[0, 1] == 4
    again.close()


def test_a_state_of_another_run_is_refused() -> None:
    ours = WorkerVectorEnv([Make(FaultEnv, 0), Make(FaultEnv, 1)], num_workers=2)
    state = ours.state_dict()
    with pytest.raises(ConfigError, match="3 environments"):
        ours.load_state_dict({**state, "num_envs": 3})
    state["envs"]["1"]["env"] = "Another"
    with pytest.raises(EnvError, match="environment 1: the saved state belongs to Another"):
        ours.load_state_dict(state)
    ours.close()


# -- construction -----------------------------------------------------------------------------------------------------


def test_errors_while_building_name_the_environment() -> None:
    before = children()
    with pytest.raises(EnvWorkerError, match="environment 2 raised ZeroDivisionError") as caught:
        WorkerVectorEnv([Make(FaultEnv, i, built="raise" if i == 2 else "") for i in range(4)], num_workers=2)
    assert (caught.value.env_index, caught.value.seed, caught.value.step) == (2, None, None)
    assert "while it was built" in str(caught.value)
    assert "in commit" in caught.value.worker_traceback
    with pytest.raises(EnvWorkerError, match="exited with code 4") as caught:
        WorkerVectorEnv([Make(FaultEnv, i, built="os._exit" if i == 3 else "") for i in range(4)], num_workers=4)
    assert caught.value.env_index == 3
    assert children() == before


def test_errors_for_users_come_as_they_are() -> None:
    with pytest.raises(ConfigError, match=r"^there is no such level$"):
        WorkerVectorEnv([Make(FaultEnv, 0, built="config")])
    with pytest.raises(EnvError, match="environment 1 cannot be sent to a worker"):
        WorkerVectorEnv([Make(FaultEnv, 0), Make(FaultEnv, 1, built=(x for x in ()))])
    with pytest.raises(ConfigError, match="num_workers"):
        WorkerVectorEnv([Make(FaultEnv, 0)], num_workers=0)
    with pytest.raises(ConfigError, match="at least one"):
        WorkerVectorEnv([])
    for num_workers in (1, 2):
        with pytest.raises(EnvError, match=r"environment 1.*spaces|spaces of environment 1"):
            WorkerVectorEnv([Make(FaultEnv, 0), Make(SameArrayEnv, 1)], num_workers=num_workers)
    text = spaces.Text(5)
    with pytest.raises(EnvError, match="no fixed size"):
        WorkerVectorEnv([Make(SpaceEnv, 0, observation_space=text, action_space=spaces.Discrete(2))])


# -- nothing is left behind -------------------------------------------------------------------------------------------


def test_close_leaves_no_process_file_or_memory() -> None:
    gc.collect()
    before = children(), set(os.listdir("/proc/self/fd")), shared_memory(os.getpid())
    for _ in range(3):
        ours = WorkerVectorEnv([Make(FaultEnv, index) for index in range(4)], num_workers=2)
        ours.reset()
        assert len(children()) == len(before[0]) + 2
        for pid in {os.getpid(), *children()} - before[0]:
            # anonymous, no file remains
            assert shared_memory(pid) - before[2] == {"/memfd:rl-training-workers (deleted)"}
        ours.close()
        ours.close()
        del ours
    forgotten = WorkerVectorEnv([Make(FaultEnv, 0)])
    forgotten.reset()
    del forgotten
    assert (children(), set(os.listdir("/proc/self/fd")), shared_memory(os.getpid())) == before


@pytest.mark.wall_clock
def test_close_does_not_wait_for_a_worker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CLOSE_GRACE", 0.3)
    before = children()
    ours = WorkerVectorEnv([Make(FaultEnv, index) for index in range(2)], num_workers=2)
    ours.reset()
    ours.step_async(np.array([7, 0]))
    start = time.monotonic()
    ours.close()
    assert time.monotonic() - start < 2
    assert children() == before


SCRIPT = """
    import os, signal, sys, time
    import gymnasium as gym, numpy as np, psutil
    from rl_training.envs.episode_log import EpisodeLog
    from rl_training.envs.workers.vector import WorkerVectorEnv

    print("main", flush=True)

    class Mine(gym.Env):
        observation_space = gym.spaces.Box(0, 1, (2,))
        action_space = gym.spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {{}}
        def step(self, action):
            while action == 1:
                pass
            return np.ones(2, np.float32), 1.0, False, False, {{"who": Who()}}

    class Who:
        pass

    vector = WorkerVectorEnv([lambda i=i: EpisodeLog(Mine(), index=i) for i in range(3)], num_workers=3)
    vector.reset()
    processes = psutil.Process().children(recursive=True)
    {body}
"""


def start_script(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    indented = textwrap.indent(textwrap.dedent(body), "    ").strip()
    path.write_text(textwrap.dedent(SCRIPT.format(body=indented)))
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_script_without_main_guard_runs_once_and_leaves_nothing(tmp_path: Path) -> None:
    body = """
    *_, infos = vector.step(np.zeros(3, np.int64))
    assert isinstance(infos["who"][2], Who)
    vector.close()
    assert psutil.Process().children(recursive=True) == []
    left = WorkerVectorEnv([lambda: Mine()])
    print("done", flush=True)
    """
    process = start_script(tmp_path, body)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "main\ndone\n", "")


def test_signals_to_the_group_leave_the_workers_alone(tmp_path: Path) -> None:
    body = """
    seen = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda n, _: seen.append(n))
        os.killpg(0, number)
    time.sleep(0.1)
    for _ in range(20):
        vector.step(np.zeros(3, np.int64))
    assert len(seen) == 5
    vector.close()
    print("done", flush=True)
    """
    process = start_script(tmp_path, body)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "main\ndone\n", "")


def test_schedulers_do_not_send_the_signal_that_asks_for_a_traceback() -> None:
    """Only a worker that hangs is to write its traceback."""
    assert TRACE_SIGNAL not in IGNORED_SIGNALS


def test_kill_9_of_the_trainer_leaves_nothing(tmp_path: Path) -> None:
    body = """
    os.kill(processes[-1].pid, signal.SIGSTOP)
    vector.step_async(np.array([1, 0, 0]))
    print(*(process.pid for process in processes), flush=True)
    time.sleep(60)
    """
    process = start_script(tmp_path, body)
    assert process.stdout is not None
    assert process.stdout.readline() == "main\n"
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 4  # the server and three workers: one computing, one stopped, one idle
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    deadline = time.monotonic() + 2
    while (alive := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive == []


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_death_of_the_server_is_noticed_and_survived() -> None:
    ours = WorkerVectorEnv([Make(FaultEnv, 0), Make(FaultEnv, 1)], num_workers=2, restart=True)
    ours.reset()
    worker, *_ = ours.call("process")[0]
    os.kill(psutil.Process(worker).ppid(), signal.SIGKILL)
    time.sleep(0.1)
    _, _, _, truncated, infos = ours.step(np.zeros(2, np.int64))
    assert truncated.all()
    assert infos["worker_restart"].all()
    assert ours.restarts == 2
    ours.step(np.zeros(2, np.int64))
    ours.close()


def test_the_factory_makes_it_where_the_config_says_async() -> None:
    config = EnvConfig(num_envs=3, vectorization="async", num_workers=2, step_timeout=30.0, worker_restart=True)
    first = make_vector_env(TrainConfig(env=config))
    assert isinstance(first, WorkerVectorEnv)
    assert first.restart
    first.reset()
    steps = list(run(first, 30))
    again = make_vector_env(TrainConfig(env=config), state=first.state_dict())
    assert bits(again.reset()[0]) == steps[-1][0]
    again.close()
    first.close()


def test_gymnasium_accepts_it_as_a_vector_environment() -> None:
    ours = WorkerVectorEnv(thunks("CartPole-v1", 2), num_workers=1)
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(ours)
    wrapped.reset()
    for _ in range(60):
        *_, infos = wrapped.step(np.ones(2, np.int64))
        if "episode" in infos:
            break
    assert infos["episode"]["l"].max() in range(8, 12)
    wrapped.close()
    assert ours.closed
