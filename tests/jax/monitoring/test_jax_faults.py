"""Non-finite values in a compiled run are named; compiled programs are stored and reused; nothing else is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.assembly.lanes import check_supported
from rl_training.config.loading import load_config, parse_config
from rl_training.jax.programs import disk_cache as executables
from rl_training.jax.programs.disk_cache import Program
from rl_training.jax.runtime import cache_folder
from rl_training.types import BoxSpec, ConfigError, DiscreteSpec, NonFiniteError

FLOAT = np.dtype(np.float32)


class State(NamedTuple):
    time: Any
    broken: Any
    """What is wrong at the fifth step of an episode: 0 nothing, 1 the observation, 2 the reward."""


class Broken:
    """An environment with reward 1 in each of six steps, unless one of its functions is broken."""

    observation_space = BoxSpec(np.full(1, -9.0, np.float32), np.full(1, 9.0, np.float32), FLOAT)
    action_space = DiscreteSpec(2)
    max_episode_steps = None

    def init(self, key: Any, n: int) -> State:
        return State(jnp.zeros(n), jnp.zeros(n))

    def obs(self, state: State) -> Any:
        return jnp.where((state.time == 4.0) & (state.broken == 1.0), jnp.nan, state.time / 10.0)[:, None]

    def step(self, state: State, action: Any, key: Any) -> Any:
        rewards = jnp.where((state.time == 4.0) & (state.broken == 2.0), -jnp.inf, 1.0)
        ended = state.time == 5.0
        return State(state.time + 1.0, state.broken), rewards, ended, jnp.zeros_like(ended)


def trainer_of(algo: str, broken: list[float], learning_rate: float = 1e-3, checks: str = "cheap") -> Any:
    """Two environments that are `broken` in their first episode."""
    hparams = {"num_steps": 8} if algo == "reinforce" else {"learning_starts": 1}
    cfg = {
        "algo": algo,
        "backend": "jax",
        "lane": "compiled",
        "env_id": f"{__name__}:Broken",
        "env": {"num_envs": 2},
        "hparams": {**hparams, "learning_rate": learning_rate},
        "network": {"actor": {"hidden_dims": [4]}, "critic": {"hidden_dims": [4]}},
        "buffer": {"size": 1000} if algo == "dqn" else {},
        "monitor": {"checks": checks},
    }
    trainer: Any = build_trainer(parse_config(cfg))
    loop = trainer.position.loop
    trainer.position.loop = loop._replace(env=loop.env._replace(broken=np.array(broken, np.float32)))
    return trainer


@pytest.mark.parametrize(
    ("algo", "broken", "message"),
    [
        ("reinforce", [0, 1], "obs at step 4 of environment 1 is nan in update 1, which began at env step 0: the env"),
        ("reinforce", [2, 0], "rewards at step 4 of environment 0 is -inf in update 1"),
        ("reinforce", [1, 2], "obs at step 4 of environment 0 is nan in update 1"),
        ("dqn", [0, 2], "rewards at step 4 of environment 1 is -inf in update 1"),
    ],
)
def test_a_bad_number_is_named_with_its_step_and_environment(algo: str, broken: list[float], message: str) -> None:
    with pytest.raises(NonFiniteError, match=f"^{message}"):
        trainer_of(algo, broken).train_step()


def test_without_checks_nobody_looks() -> None:
    assert not np.isfinite(trainer_of("reinforce", [0, 2], checks="off").train_step()["train/loss"])


def test_a_parameter_that_overflows_is_named_with_its_update() -> None:
    """The first update sees finite losses and leaves infinite parameters."""
    trainer = trainer_of("reinforce", [0, 0], learning_rate=3e38)
    with pytest.raises(NonFiniteError, match=r"^parameter \S+ is -?(inf|nan) in update 1, which began at env step 0"):
        trainer.train_step()


# -- devices ----------------------------------------------------------------------------------------------------------


def test_a_missing_device_is_replaced_with_a_warning_or_refused() -> None:
    cfg = load_config("ppo/cartpole", {"backend": "jax", "device": "cuda"})
    with pytest.warns(UserWarning, match="device 'cuda' is not available here: running on the CPU"):
        check_supported(cfg)
    with pytest.raises(ConfigError, match="device 'cuda' is not available here; drop strict_device"):
        check_supported(replace(cfg, strict_device=True))


# -- compiled programs on disk ----------------------------------------------------------------------------------------


def programs() -> set[Path]:
    return set(cache_folder().glob("*.program"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


def twice(x: Any) -> Any:
    return 2.0 * x


def test_a_program_is_compiled_once_and_then_loaded(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert float(Program(twice, "a test")(np.float32(3.0))) == 6.0
    (file,) = programs()
    assert file.parent == own_cache
    monkeypatch.setattr(executables, "compile_and_save", None)
    assert float(Program(twice, "a test")(np.float32(4.0))) == 8.0, "loaded, since it could not have been compiled"


def test_a_change_in_any_python_file_of_the_package_asks_for_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(rl_training.__file__).parent == executables.PACKAGE
    monkeypatch.setattr(executables, "PACKAGE", tmp_path)
    files = [tmp_path / name for name in ("top.py", "folder/inner.py", "folder/in/a/folder/deep.py")]
    seen = {executables.surroundings.__wrapped__()}
    for text in ("x = 1", "x = 123"):
        for file in files:  # each is new at first, and changed afterwards
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            seen.add(executables.surroundings.__wrapped__())
    assert len(seen) == 1 + 2 * len(files)
    (tmp_path / "folder" / "README.md").write_text("prose")
    assert executables.surroundings.__wrapped__() in seen


@pytest.mark.parametrize("state", ["new", "kept", "damaged"])
def test_a_program_is_prepared_beside_other_work(own_cache: Path, state: str) -> None:
    if state != "new":
        Program(twice, "a test")(np.float32(3.0))
    if state == "damaged":
        (file,) = programs()
        file.write_bytes(file.read_bytes()[:-1])
    program = Program(twice, "a test")
    program.prepare(jax.ShapeDtypeStruct((), np.float32))
    began = program.pending
    assert began is not None
    program.prepare(jax.ShapeDtypeStruct((), np.float32))
    assert program.pending is began, "prepared once"
    assert float(program(np.float32(3.0))) == 6.0
    assert (began.result() is None) == (state == "damaged"), "a damaged one is compiled at its first call"
    assert len(programs()) == 1


@pytest.mark.parametrize("change", ["description", "shapes", "flags", "settings"])
def test_another_question_is_another_program(own_cache: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    Program(twice, "a test")(np.float32(3.0))
    if change == "flags":
        monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"] + " --xla_cpu_enable_fast_math=true")
    if change == "settings":
        jax.config.update("jax_disable_most_optimizations", False)
    value: Any = np.ones(2, np.float32) if change == "shapes" else np.float32(3.0)
    Program(twice, "another" if change == "description" else "a test")(value)
    assert len(programs()) == 2


def test_a_damaged_program_is_compiled_anew(own_cache: Path) -> None:
    Program(twice, "a test")(np.float32(3.0))
    (file,) = programs()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert float(Program(twice, "a test")(np.float32(3.0))) == 6.0
    assert file.read_bytes() != content


def test_nothing_is_loaded_from_a_folder_that_others_can_write_to(own_cache: Path) -> None:
    own_cache.chmod(0o777)
    assert float(Program(twice, "a test")(np.float32(3.0))) == 6.0
    assert not programs()


def test_only_programs_of_the_package_s_own_parts_are_kept() -> None:
    before = programs()
    trainer_of("reinforce", [0, 0]).train_step()
    assert programs() == before
