"""Runs in a worker process: builds, resets and steps environments at the trainer's command."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeGuard

import gymnasium as gym

from rl_training.envs.episode_log import Env, EpisodeLog
from rl_training.envs.workers.memory import WorkerMemory, copy_obs, tell_building, write_row
from rl_training.envs.workers.protocol import (
    ATTACH,
    BUILD,
    CALL,
    CHUNK,
    CLOSE,
    DONE,
    FAILED,
    RESET,
    STEP,
    TRACE_SIGNAL,
    Built,
    CallCommand,
    EnvInfo,
    Failure,
    ResetCommand,
    Setup,
    dumps,
    loads,
    pack,
    read_message,
)
from rl_training.system.error_text import TEXT_LIMIT, describe, message_of, traceback_text
from rl_training.system.offspring import adopt_orphans
from rl_training.trust.consent import scope
from rl_training.types import RLTrainingError

TRACEBACK_FRAMES = 30
PULSE_SECONDS = 0.05
"""Interval at which a replaying worker reports progress."""


def run_worker(server: int, channel_fd: int, memory_fd: int, trace_fd: int) -> int:
    """Execute commands until the trainer sends CLOSE or ends. A crash leaves its traceback in `trace_fd`."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL))
    if os.getppid() != server:
        return 1
    adopt_orphans(True)  # daemons of this worker's environments; the server adopts them when it dies
    os.set_blocking(trace_fd, False)
    faulthandler.enable(trace_fd, all_threads=False)
    faulthandler.register(TRACE_SIGNAL, trace_fd, all_threads=False)
    # a process forked by an environment must not keep the channel open after this one has died
    os.register_at_fork(after_in_child=lambda: os.close(channel_fd))
    try:
        Worker(channel_fd, memory_fd).run()
    except ConnectionError:
        return 0
    except BaseException as error:
        os.write(trace_fd, traceback_text(error).encode(errors="replace")[-CHUNK // 2 :])
        return 1
    return 0


class Worker:
    """Steps several environments one after the other; results go to shared memory, infos into the answer."""

    def __init__(self, channel_fd: int, memory_fd: int) -> None:
        self.channel_fd = channel_fd
        self.memory_fd = memory_fd
        self.index = 0
        self.first = 0
        self.current = 0
        """Index of the environment in use, counted over all workers."""
        self.lifetime = ExitStack()
        """Contexts that stay open as long as this process runs."""
        self.envs: list[Env] = []
        self.logs: list[EpisodeLog | None] = []
        self.replays = False
        """Whether the next reset replays open episodes, which may take many steps."""

    def run(self) -> None:
        commands: dict[bytes, Callable[[Any], Any]] = {
            BUILD: self.build,
            ATTACH: self.attach,
            RESET: self.reset,
            STEP: self.step,
            CALL: self.call,
        }
        while True:
            kind, payload = read_message(self._read)
            if kind == CLOSE:
                return self.close()
            try:
                result = commands[kind](loads(payload) if payload else None)
                answer = pack(DONE, self._dump(result) if result else b"")
            except BaseException as error:
                answer = pack(FAILED, dumps(self._failure(error)))
            if kind != BUILD:
                self.busy[self.index] = -1
            while answer:
                answer = answer[os.write(self.channel_fd, answer) :]

    # -- commands -----------------------------------------------------------------------------------------------------

    def build(self, setup: Setup) -> Built:
        self.index, self.first = setup.worker, setup.first_env
        sys.path[:] = setup.sys_path
        os.environ.clear()
        os.environ.update(setup.environ)
        os.chdir(setup.cwd)
        self.lifetime.enter_context(scope(setup.consent))
        for index, pickled in enumerate(setup.env_fns, self.first):
            self.current = index
            tell_building(self.memory_fd, self.index, index)
            env: Env = loads(pickled)()
            first = self.envs[0] if self.envs else env
            if (env.observation_space, env.action_space) != (first.observation_space, first.action_space):
                raise ValueError(f"its spaces are not those of environment {self.first}")
            self.envs.append(env)
            self.logs.append(find_log(env))
        for log, count in zip(self.logs, setup.reset_counts, strict=False):
            if log is not None:
                log.reset_count = count
        first = self.envs[0]
        return Built(
            observation_space=first.observation_space,
            action_space=first.action_space,
            metadata=dict(first.metadata),
            render_mode=first.render_mode,
            exact=all(log is not None and log.exact for log in self.logs),
            streams=tuple(None if log is None else (log.seed, log.index) for log in self.logs),
        )

    def attach(self, counts: tuple[int, int]) -> None:
        memory = WorkerMemory(self.memory_fd, self.envs[0].observation_space, self.envs[0].action_space, counts)
        os.close(self.memory_fd)
        self.observations = memory.observations
        self.rewards = memory.rewards
        self.terminated = memory.terminated
        self.truncated = memory.truncated
        rows = slice(self.first, self.first + len(self.envs))
        self.actions: Any = None if memory.actions is None else memory.actions[rows]
        # memoryviews: accessing a word costs half of what it does through NumPy
        self.beats = memory.beats.data
        self.busy = memory.busy.data
        self.steps = memory.steps.data
        self.seeds = memory.seeds.data
        self.resets = memory.resets.data

    def reset(self, command: ResetCommand) -> list[EnvInfo]:
        infos = []
        with self._pulse() if self.replays else nullcontext():
            for index, (seed, wanted) in enumerate(zip(command.seeds, command.mask, strict=True), self.first):
                if wanted:
                    obs, info = self._reset_env(index, seed, command.options)
                    write_row(self.observations, index, obs)
                    if info:
                        infos.append(EnvInfo(index, info))
        self.replays = False
        return infos

    def step(self, actions: list[Any] | None) -> list[EnvInfo]:
        infos = []
        # copied: an environment may keep its action, and the shared rows are overwritten
        rows: Any = self.actions.copy() if actions is None else actions
        index = self.first
        for env, action in zip(self.envs, rows, strict=True):
            self._begin(index)
            self.steps[index] += 1
            obs, self.rewards[index], terminated, truncated, info = env.step(action)
            self.terminated[index] = terminated
            self.truncated[index] = truncated
            if terminated or truncated:
                # copied before the reset, which may write into the same array
                final_obs = copy_obs(self.observations, obs)
                infos.append(EnvInfo(index, {"final_obs": final_obs, "final_info": info}))
                obs, info = self._reset_env(index)
            write_row(self.observations, index, obs)
            if info:
                infos.append(EnvInfo(index, info))
            index += 1
        return infos

    def call(self, command: CallCommand) -> list[Any]:
        results = []
        for index, (env, (args, kwargs)) in enumerate(zip(self.envs, command.arguments, strict=True), self.first):
            self._begin(index)
            attribute = env.get_wrapper_attr(command.name)
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        if command.name == "load_state_dict":
            self.replays = True
        return results

    def close(self) -> None:
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                from rl_training.runs.redaction import console_redactor

                sys.stderr.write(console_redactor().traceback(traceback_text(error)))

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _begin(self, index: int) -> None:
        self.current = index
        self.busy[self.index] = index
        self.beats[self.index] += 1

    def _reset_env(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._begin(index)
        self.steps[index] = 0
        self.seeds[index] = -1 if seed is None else seed
        log = self.logs[index - self.first]
        if log is not None and seed is None:
            self.resets[index] = log.reset_count + 1
        obs, info = self.envs[index - self.first].reset(seed=seed, options=options)
        if log is not None:
            self.resets[index] = log.reset_count
            self.steps[index] = log.episode_steps
            self.seeds[index] = -1 if log.episode_seed is None else log.episode_seed
        return obs, info

    @contextmanager
    def _pulse(self) -> Iterator[None]:
        """Count the steps of a replay as progress, so that the timeout applies to a step, not to the whole replay."""
        stop = threading.Event()

        def watch() -> None:
            seen = (-1, -1)
            while not stop.wait(PULSE_SECONDS):
                log = self.logs[self.current - self.first]
                now = (self.current, log.episode_steps if log else 0)
                if now != seen:
                    seen = now
                    self.beats[self.index] += 1

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()

    def _read(self) -> bytes:
        data = os.read(self.channel_fd, CHUNK)
        if not data:
            raise ConnectionResetError("the trainer is gone")
        return data

    def _dump(self, result: Any) -> bytes:
        try:
            return dumps(result)
        except Exception:
            if isinstance(result, list):
                for index, item in enumerate(result, self.first):
                    self.current = item.env_index if isinstance(item, EnvInfo) else index
                    dumps(item)  # raises again, with `current` naming the environment
            raise

    def _failure(self, error: BaseException) -> Failure:
        is_exit = isinstance(error, SystemExit)
        cause = f"called sys.exit({message_of(error)})" if is_exit else f"raised {describe(error)}"
        trace = traceback_text(error, frames=TRACEBACK_FRAMES)
        return Failure(self.current, cause, trace, error if _travels(error) else None)


def _travels(error: BaseException) -> TypeGuard[RLTrainingError]:
    """Whether an error is an RLTrainingError that is short and survives pickling unchanged."""
    if not isinstance(error, RLTrainingError):
        return False
    try:
        copy = loads(dumps(error))
        return type(copy) is type(error) and str(copy) == str(error) and len(str(error)) <= TEXT_LIMIT
    except Exception:
        return False


def find_log(env: Env) -> EpisodeLog | None:
    """The EpisodeLog in a stack of wrappers; None if it has none."""
    while not isinstance(env, EpisodeLog):
        if not isinstance(env, gym.Wrapper):
            return None
        env = env.env
    return env
