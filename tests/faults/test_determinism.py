"""Same config, same seed, same bits: whatever watches a run, whatever steps its environments, whatever surrounds it."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from determinism_runs import final_hash, mapping

from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.envs import make_env, make_vector_env
from rl_training.seeding import episode_seed, reset_seed, stream
from rl_training.system.threads import blas_threads, set_blas_threads
from rl_training.trainer import train
from rl_training.training.callbacks import Callback
from rl_training.training.evaluation import evaluate_policy

PROGRAM = Path(__file__).with_name("determinism_runs.py")


def hash_of(folder: Path, name: str = "cartpole", **sections: Any) -> str:
    return final_hash(train(mapping(name, folder, **sections)).run_dir)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The run that nobody watches: no evaluation, no checkpoint but the last, no display."""
    return hash_of(tmp_path_factory.mktemp("unwatched"))


class StochasticEvaluation(Callback):
    """Plays sampled episodes with the policy in training, after every step."""

    def on_step(self, trainer: Any, report: Any) -> None:
        evaluate_policy(
            trainer.algorithm.policy, lambda i: make_env("CartPole-v1"), episodes=2, seed=11, deterministic=False
        )


class GlobalNoise(Callback):
    """Draws from and reseeds every global generator there is."""

    def on_step(self, trainer: Any, report: Any) -> None:
        random.seed(random.random())
        np.random.seed(np.random.randint(1000))  # noqa: NPY002
        torch.manual_seed(int(torch.randint(1000, ())))


def callback(name: str) -> dict[str, Any]:
    return {"callbacks": [{"name": f"{__name__}:{name}"}]}


WATCHERS: dict[str, dict[str, Any]] = {
    "greedy evaluation": {"training": {"num_eval_episodes": 2, "eval_frequency": 64}},
    "stochastic evaluation": callback("StochasticEvaluation"),
    "global noise": callback("GlobalNoise"),
    "a checkpoint per step": {"training": {"checkpoint_frequency": 1}, "checkpoint": {"keep_last": 2}},
    "some checkpoints": {"training": {"checkpoint_frequency": 100}},
    "tensorboard": {"logging": {"tensorboard": True}},
    "trace": {"logging": {"trace": True, "log_frequency": 100, "info_keys": ["TimeLimit.truncated"]}},
    "progress in plain lines": {"logging": {"terminal": True}},
    "video": {"logging": {"video_frequency": 128}},
    "no checks": {"monitor": {"checks": "off"}},
    "all checks": {"monitor": {"checks": "full"}},
}


@pytest.mark.parametrize("watcher", WATCHERS)
def test_watching_changes_nothing(watcher: str, unwatched: str, tmp_path: Path):
    assert hash_of(tmp_path, **WATCHERS[watcher]) == unwatched


def test_another_seed_is_another_run(unwatched: str, tmp_path: Path):
    assert hash_of(tmp_path, seed=12) != unwatched


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_change_nothing(workers: int, unwatched: str, tmp_path: Path):
    assert hash_of(tmp_path, env={"vectorization": "async", "num_workers": workers}) == unwatched


def test_global_random_state_is_neither_read_nor_written(unwatched: str, tmp_path: Path):
    def states() -> tuple[Any, ...]:
        name, key, *position = np.random.get_state()  # noqa: NPY002
        return random.getstate(), name, key.tolist(), position, torch.get_rng_state().tolist()  # type: ignore[union-attr]

    before = states()
    try:
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            seeded = states()
            sections = {"training": {"num_eval_episodes": 1, "eval_frequency": 128}}
            assert hash_of(tmp_path, **sections) == unwatched
            assert states() == seeded
    finally:
        random.setstate(before[0])
        np.random.set_state((before[1], np.array(before[2], np.uint32), *before[3]))  # noqa: NPY002
        torch.set_rng_state(torch.tensor(before[4], dtype=torch.uint8))


# -- what surrounds a process -----------------------------------------------------------------------------------------


def hashes_of(folder: Path, *words: str, cores: int | None = None, **variables: str) -> dict[str, str]:
    """The hashes that a fresh interpreter gets, with these variables and this number of cores."""
    folder.mkdir(parents=True)
    command = [sys.executable, str(PROGRAM), str(folder / "runs"), *words]
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    usable = sorted(os.sched_getaffinity(0))[:cores]
    (folder / "runs").mkdir()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: os.sched_setaffinity(0, usable),
    )
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output.decode()
    hashes: dict[str, str] = json.loads((folder / "runs" / "hashes.json").read_text())
    return hashes


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One thread for everything, one core, the plainest surroundings."""
    plainest = {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return hashes_of(tmp_path_factory.mktemp("plain") / "run", cores=1, **plainest)


def test_surroundings_change_nothing(plain: dict[str, str], tmp_path: Path):
    """Order of hashes, locale, time zone, folder, and every core there is."""
    folder = tmp_path / "a folder" / "mit Ümläuten"
    others = {"PYTHONHASHSEED": "4242", "LC_ALL": "C.utf8", "TZ": "Asia/Kathmandu", "PYTHONUTF8": "1"}
    assert hashes_of(folder, **others) == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "random"},
        {"LC_ALL": "C.utf8"},
        {"LC_ALL": "tr_TR.UTF-8"},  # where it is not installed, Python falls back
        {"LC_NUMERIC": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
        {"TZ": "Asia/Kathmandu"},
        {"TZ": "America/St_Johns"},
        {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        {"OPENBLAS_NUM_THREADS": "3"},
        {"PYTHONOPTIMIZE": "2"},
        {"COLUMNS": "20", "TERM": "dumb", "NO_COLOR": "1"},
        {"HOME": "/nonexistent", "USER": "somebody"},
    ],
    ids=lambda variables: " ".join(f"{key}={value}" for key, value in variables.items()),
)
def test_each_variable_by_itself(variables: dict[str, str], plain: dict[str, str], tmp_path: Path):
    assert hashes_of(tmp_path / "run", **variables) == plain


def test_a_progress_bar_on_a_terminal_changes_nothing(plain: dict[str, str], tmp_path: Path):
    """In this process's image of a terminal: the bar is drawn, and the bits are the same."""
    shown = bytearray()
    control, terminal = pty.openpty()

    def read() -> None:
        try:
            while data := os.read(control, 4096):
                shown.extend(data)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    (tmp_path / "runs").mkdir()
    command = [sys.executable, str(PROGRAM), str(tmp_path / "runs"), "cartpole", "--terminal"]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "CI": "", "NO_COLOR": ""}
    process = subprocess.Popen(command, env=environ, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    code = process.wait(240)
    reader.join(10)
    os.close(control)
    assert code == 0, shown.decode(errors="replace")
    assert b"\x1b[" in shown, "nothing was drawn"
    hashes = json.loads((tmp_path / "runs" / "hashes.json").read_text())
    assert hashes == {"cartpole": plain["cartpole"]}


# -- threads ----------------------------------------------------------------------------------------------------------


def test_threads_of_torch_and_numpy_are_pinned_and_given_back():
    torch_before, blas_before = torch.get_num_threads(), blas_threads()
    assert blas_before is not None, "NumPy's BLAS is one that takes no orders here"
    try:
        torch.set_num_threads(2)
        set_blas_threads(3)
        with pinned_threads(1):
            assert (torch.get_num_threads(), blas_threads()) == (1, 1)
        assert (torch.get_num_threads(), blas_threads()) == (2, 3)
    finally:
        torch.set_num_threads(torch_before)
        set_blas_threads(blas_before)


def test_initial_weights_do_not_depend_on_the_threads_that_numpy_had():
    matrix = stream(0, "init").standard_normal((300, 300))
    before = blas_threads()
    assert before is not None
    found = set()
    try:
        for count in (1, 2, 4):
            set_blas_threads(count)
            with pinned_threads(1):
                found.add(np.linalg.qr(matrix)[0].tobytes())
    finally:
        set_blas_threads(before)
    assert len(found) == 1


def test_threads_are_recorded(tmp_path: Path):
    run = train(mapping("cartpole", tmp_path, training={"num_threads": 2, "total_timesteps": 64})).run_dir
    info = json.loads((run / "run.json").read_text())
    assert (info["threads"], info["hardware"]["blas_threads"]) == (2, 2)


# -- streams ----------------------------------------------------------------------------------------------------------


def test_neighbouring_seeds_share_no_stream():
    """With `seed + i` the second environment of seed s would be the first of seed s + 1."""
    names = ("init", "actions", "minibatch", "buffer", "env", "eval")
    seen: dict[bytes, tuple[Any, ...]] = {}
    for seed in range(20, 30):
        for name in names:
            for index in range(8):
                first = stream(seed, name, index).bytes(16)
                assert first not in seen, f"{(seed, name, index)} is {seen[first]}"
                seen[first] = (seed, name, index)


def test_neighbouring_seeds_share_no_reset_and_no_evaluation():
    resets = [reset_seed(seed, env, count) for seed in (7, 8) for env in range(16) for count in range(40)]
    episodes = [episode_seed(seed, episode) for seed in (7, 8) for episode in range(200)]
    assert len(set(resets + episodes)) == len(resets) + len(episodes)
    assert max(resets) < 2**31


def test_neighbouring_seeds_start_no_episode_alike():
    starts = []
    for seed in (7, 8, 9):
        env = make_vector_env(parse_config({"env_id": "CartPole-v1", "seed": seed}), num_envs=8)
        for _ in range(3):
            starts += [row.tobytes() for row in env.reset()[0]]
        env.close()
    assert len(set(starts)) == len(starts) == 72
