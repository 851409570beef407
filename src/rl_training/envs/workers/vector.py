"""`WorkerVectorEnv`: environments in worker processes, several in each, for steps that cost more than a message.

It returns what `ResumableSyncVectorEnv` returns for the same environments, whatever the number of workers. However a
worker fails (it raises, exits, crashes, is killed or hangs), the result is an `EnvWorkerError` that names the
environment or, if asked for, a new worker; no process or shared memory is left behind. The workers run `process.py`.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from rl_training.envs.episode_log import check_num_envs
from rl_training.envs.workers.memory import WorkerMemory, copy_rows, row_of
from rl_training.envs.workers.pool import EnvWorkerError, WorkerPool
from rl_training.envs.workers.protocol import CALL, RESET, STEP, CallCommand, EnvInfo, ResetCommand, dumps_by_value
from rl_training.system.error_text import describe
from rl_training.system.machine import usable_cores
from rl_training.types import RESTART_INFO, Array, ConfigError, EnvError, RLTrainingError, StateDict

__all__ = ["EnvWorkerError", "WorkerVectorEnv"]

CLOSE_GRACE = 5.0
"""Seconds that the workers get to close their environments."""
ABORT_GRACE = 1.0
"""The same after a failure, shorter because the error is raised only then."""
MAX_RESTARTS = 5
"""Consecutive restarts of one worker after which its failure is raised."""
QUIET_STEPS = 100
"""Vector steps without a failure after which the count of consecutive restarts starts again."""

AWAITED = b"?"
"""Sentinel for a command whose answers are being read: after an interruption there, only `close` is possible."""

_log = logging.getLogger("rl_training.envs")


class WorkerVectorEnv(VectorEnv[Any, Any, Any]):
    """Gymnasium vector environment over worker processes, SAME_STEP autoreset, resumable.

    With `restart`, a failed worker is replaced: the step of all its environments is dropped, their rows come back
    truncated with reward 0, `final_obs` = the observation that the action was chosen for, and `infos["worker_restart"]`
    True, so that a collector leaves them out; their next episodes have begun.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        *,
        num_workers: int | None = None,
        step_timeout: float = 60.0,
        restart: bool = False,
        max_restarts: int = MAX_RESTARTS,
    ) -> None:
        """`step_timeout`: seconds for a step or reset of one environment; `num_workers` None takes one per core."""
        self.num_envs = len(env_fns)
        self.restart = restart
        self.restarts = 0
        """Workers replaced so far."""
        self._timeout = step_timeout
        self._max_restarts = max_restarts
        self._began = False
        self._num_steps = 0
        self._recent: dict[int, tuple[int, int]] = {}
        """Worker to the number of its consecutive restarts and the vector step of the last one."""
        self._commanded: bytes | None = None
        """The command that not all workers have answered yet."""
        self._sent_actions: Any = None
        self._last_obs: Any = None
        self._loaded: list[StateDict] | None = None
        """States that the first reset will continue from."""
        pickled = [_pickle(index, env_fn) for index, env_fn in enumerate(env_fns)]
        self._pool = WorkerPool(pickled, split(self.num_envs, num_workers))
        weakref.finalize(self, self._pool.close, CLOSE_GRACE)
        try:
            self._set_up()
        except BaseException:
            self._abort()
            raise

    def _set_up(self) -> None:
        workers = self._pool.workers
        built = self._pool.build(workers, self._timeout)
        first = built[0]
        for worker, other in zip(workers, built, strict=True):
            if (other.observation_space, other.action_space) != (first.observation_space, first.action_space):
                raise EnvError(f"the spaces of environment {worker.envs.start} are not those of environment 0")
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.exact = all(other.exact for other in built)
        """Whether a resumed run continues every environment bit for bit."""
        self._pool.streams = [stream for other in built for stream in other.streams]
        self._pool.attach(workers, first, self.num_envs)

    @property
    def _memory(self) -> WorkerMemory:
        assert self._pool.memory is not None
        return self._pool.memory

    # -- the vector environment ---------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As in SyncVectorEnv, including `options["reset_mask"]`."""
        seeds = self._seeds(seed)
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = np.asarray(options.pop("reset_mask"))
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
                raise EnvError(f"reset_mask must be {self.num_envs} booleans, at least one of them True; not {mask!r}")
        commands = {
            worker.index: ResetCommand(seeds[_slice(worker.envs)], options, mask[_slice(worker.envs)].tolist())
            for worker in self._pool.workers
        }
        self._send(RESET, {index: dumps_by_value(command) for index, command in commands.items()})
        infos, failed = self._receive(tolerate=self.restart and bool(mask.all()))
        for index, error in failed.items():
            infos[index] = self._revive(index, error, commands[index])
        self._loaded = None
        self._began = True
        return self._observe(), self._merge(infos)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise EnvError(f"{len(seed)} seeds for {self.num_envs} environments")
        return [None if value is None else int(value) for value in seed]

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step in every worker; `step_wait` returns its result."""
        self._check_ready()
        if not self._began:
            raise EnvError("step() before the first reset()")
        memory = self._memory
        payloads: dict[int, bytes] = {}
        if memory.actions is not None:
            actions = np.asarray(actions)
            if actions.shape != memory.actions.shape:
                raise EnvError(f"actions have shape {actions.shape}, expected {memory.actions.shape}")
        self._sent_actions = actions
        if memory.actions is not None and actions.dtype == memory.actions.dtype:
            np.copyto(memory.actions, actions)
        else:
            items = list(iterate(self.action_space, actions))
            payloads = {worker.index: dumps_by_value(items[_slice(worker.envs)]) for worker in self._pool.workers}
        self._send(STEP, payloads)

    def step_wait(self) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """(obs, rewards, terminated, truncated, infos) of the step that `step_async` started; all arrays are new."""
        if self._commanded != STEP:
            raise EnvError("step_wait() without step_async()")
        infos, failed = self._receive(tolerate=self.restart)
        self._num_steps += 1
        memory = self._memory
        for index, error in failed.items():
            envs = self._pool.workers[index].envs
            lost = [
                EnvInfo(i, {"final_obs": row_of(self._last_obs, i), "final_info": {}, RESTART_INFO: True}) for i in envs
            ]
            command = ResetCommand([None] * len(envs), None, [True] * len(envs))
            infos[index] = lost + self._revive(index, error, command)
            rows = _slice(envs)
            memory.rewards[rows], memory.terminated[rows], memory.truncated[rows] = 0.0, False, True
        obs = self._observe()
        return obs, memory.rewards.copy(), memory.terminated.copy(), memory.truncated.copy(), self._merge(infos)

    def _observe(self) -> Any:
        if self.restart:
            # a separate copy: the caller may write into the one it gets
            self._last_obs = copy_rows(self._memory.observations)
        return copy_rows(self._memory.observations)

    def _merge(self, infos: dict[int, list[EnvInfo]]) -> dict[str, Any]:
        """Merge to Gymnasium's layout, in the order of the environments, not of the answers."""
        merged: dict[str, Any] = {}
        for index in sorted(infos):
            for env_index, info in infos[index]:
                merged = self._add_info(merged, info, env_index)
        return merged

    # -- attributes ---------------------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute, looked up through its wrappers."""
        return self._call_each(name, [(args, kwargs)] * self.num_envs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: one value for all, or a list or tuple with one for each."""
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise EnvError(f"{len(values)} values of '{name}' for {self.num_envs} environments")
        self._call_each("set_wrapper_attr", [((name, value), {}) for value in values])

    def render(self) -> tuple[Any, ...]:
        """One frame of every environment."""
        return self.call("render")

    def _call_each(self, name: str, arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> tuple[Any, ...]:
        self._send(
            CALL,
            {
                worker.index: dumps_by_value(CallCommand(name, arguments[_slice(worker.envs)]))
                for worker in self._pool.workers
            },
        )
        results, _ = self._receive()
        return tuple(value for index in sorted(results) for value in results[index])

    # -- resume -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """The state of every environment; see `EpisodeLog`."""
        states = self.call("state_dict")
        return {"num_envs": self.num_envs, "envs": {str(index): state for index, state in enumerate(states)}}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore a state; the next `reset()` continues the open episodes, replayed in the workers."""
        check_num_envs(state, self.num_envs)
        states = [state["envs"][str(index)] for index in range(self.num_envs)]
        self._call_each("load_state_dict", [((one,), {}) for one in states])
        self._loaded = states

    # -- workers ------------------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        if self.closed:
            raise EnvError("the vector environment is closed")
        if self._commanded is not None:
            raise EnvError("the vector environment was interrupted before its last command was answered; close it")

    def _send(self, kind: bytes, payloads: dict[int, bytes]) -> None:
        self._check_ready()
        self._commanded = kind
        for worker in self._pool.workers:
            worker.send(kind, payloads.get(worker.index, b""), timeout=self._timeout)

    def _receive(self, *, tolerate: bool = False) -> tuple[dict[int, Any], dict[int, EnvWorkerError]]:
        """(answers by worker, failures by worker). Without `tolerate`, the first failure is raised.

        A failed `call` leaves the workers running. Any other failure ends them all, because a step cannot be undone.
        """
        kind, self._commanded = self._commanded, AWAITED
        assert kind is not None
        values: dict[int, Any] = {}
        failed: dict[int, EnvWorkerError] = {}
        refused: RLTrainingError | None = None
        for answer in self._pool.answers(kind, self._pool.workers, self._timeout):
            error = answer.error
            if isinstance(error, EnvWorkerError) and error.step and kind == STEP:
                error.action = self._action_of(error.env_index)
            if isinstance(error, EnvWorkerError) and error.step == 0 and self._loaded is not None:
                error.seed = self._loaded[error.env_index].get("seed", error.seed)
            if error is None:
                if answer.value is not None:
                    values[answer.worker.index] = answer.value
            elif kind == CALL and not answer.lost:
                refused = error
            elif tolerate and isinstance(error, EnvWorkerError):
                failed[answer.worker.index] = error
            else:
                self._abort()
                raise error
        self._commanded = None
        if refused is not None:
            raise refused
        return values, failed

    def _action_of(self, env_index: int) -> Any:
        if self._memory.actions is not None:
            return np.array(self._sent_actions[env_index])
        return list(iterate(self.action_space, self._sent_actions))[env_index]

    def _revive(self, index: int, error: EnvWorkerError, command: ResetCommand) -> list[EnvInfo]:
        """Replace a failed worker and reset its environments; returns their infos."""
        self._commanded = AWAITED
        while True:
            self._count_restart(index, error)
            try:
                infos = self._restart_worker(index, command)
            except EnvWorkerError as again:
                error = again
            except RLTrainingError:
                self._abort()
                raise
            else:
                self._commanded = None
                return infos

    def _count_restart(self, index: int, error: EnvWorkerError) -> None:
        count, last = self._recent.get(index, (0, self._num_steps))
        count = count + 1 if self._num_steps - last <= QUIET_STEPS else 1
        if count > self._max_restarts:
            error.cause += f", after {self._max_restarts} restarts in a row,"
            self._abort()
            raise error
        self._recent[index] = count, self._num_steps
        self.restarts += 1
        _log.warning("restarting a worker, its open episodes are truncated: %s", error)

    def _restart_worker(self, index: int, command: ResetCommand) -> list[EnvInfo]:
        worker = self._pool.replace(index)
        counts = tuple(self._memory.resets[_slice(worker.envs)].tolist())
        (built,) = self._pool.build([worker], self._timeout, counts)
        if (built.observation_space, built.action_space) != (self.single_observation_space, self.single_action_space):
            raise EnvError(f"environment {worker.envs.start} changed its spaces when it was built again")
        self._pool.attach([worker], built, self.num_envs)
        if self._loaded is not None:
            states: list[Any] = [((self._loaded[i],), {}) for i in worker.envs]
            self._pool.ask(CALL, [worker], [CallCommand("load_state_dict", states)], self._timeout)
        return self._pool.ask(RESET, [worker], [command], self._timeout)[0] or []

    def _abort(self) -> None:
        self.closed = True
        self._pool.close(ABORT_GRACE)

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers, by force after a few seconds."""
        self._pool.close(CLOSE_GRACE)


def split(num_envs: int, num_workers: int | None) -> list[range]:
    """Contiguous ranges of environments, one per worker, whose sizes differ by at most one."""
    if num_envs < 1:
        raise ConfigError("a vector environment needs at least one environment")
    if num_workers is None:
        num_workers = usable_cores()
    if num_workers < 1:
        raise ConfigError(f"env.num_workers must be at least 1, not {num_workers}")
    num_workers = min(num_workers, num_envs)
    bounds = [num_envs * index // num_workers for index in range(num_workers + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def _slice(envs: range) -> slice:
    return slice(envs.start, envs.stop)


def _pickle(index: int, env_fn: Callable[[], Any]) -> bytes:
    try:
        return dumps_by_value(env_fn)
    except Exception as error:
        raise EnvError(
            f"environment {index} cannot be sent to a worker process ({describe(error)}); "
            "build what cannot be pickled inside the environment, or use env.vectorization: sync"
        ) from error
