"""Runs whose environment is a function and whose callbacks are objects: recorded, named, and asked for again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rl_training
from rl_training.cli import main
from rl_training.experiments.keeping.verify import ReproducibilityChecker
from rl_training.runs.names import env_fn_id, env_fn_of
from rl_training.training.callbacks import Callback
from rl_training.types import ConfigError, EnvError, RunError

SHORT = {
    "seed": 3,
    "num_envs": 2,
    "total_timesteps": 64,
    "hparams": {"num_steps": 16},
    "network.actor.hidden_dims": [8],
    "network.critic.hidden_dims": [8],
    "training.num_eval_episodes": 1,
    "logging": {"terminal": False, "tensorboard": False},
}


class Corridor(gym.Env[Any, Any]):
    """Ten steps to the right."""

    observation_space: Any = spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.observation_space.low, {}

    def step(self, action: Any) -> Any:
        self.place += 1
        return np.full_like(self.observation_space.low, self.place / 10), float(action), False, self.place >= 10, {}


class Wide(Corridor):
    """Other observations."""

    observation_space: Any = spaces.Box(0.0, 1.0, (5,), np.float32)


class Choices(Corridor):
    """Other actions."""

    action_space: Any = spaces.Discrete(3)


class Count(Callback):
    """Steps it has seen; part of the checkpoint."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, trainer: Any, report: Any) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.steps = state["steps"]


def make_corridor() -> Corridor:
    return Corridor()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return rl_training.train({}, Corridor, output_dir=str(folder), **SHORT).run_dir


def test_names_of_functions() -> None:
    def local() -> Corridor:
        return Corridor()

    assert env_fn_id(Corridor) == "env_fn(Corridor)"
    assert env_fn_id(make_corridor) == "env_fn(make_corridor)"
    assert env_fn_id(local) == "env_fn(local)"
    assert env_fn_id(partial(make_corridor)) == "env_fn(make_corridor)"
    assert env_fn_id(lambda: Corridor()) == "env_fn"
    assert [env_fn_of(name) for name in ("env_fn(a.b)", "env_fn", "CartPole-v1", "env_fn:X")] == [
        "a.b",
        "env_fn",
        None,
        None,
    ]


def test_the_run_is_recorded_under_the_function(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.name.startswith("ppo__Corridor__seed3__")
    assert json.loads((run / "run.json").read_text())["env_id"] == "env_fn(Corridor)"
    assert "CartPole" not in (run / "configs" / "resolved.yaml").read_text()
    assert main(["list", "--output-dir", str(run.parent)]) == 0
    assert main(["show", str(run)]) == 0
    assert capsys.readouterr().out.count("env_fn(Corridor)") == 2


@pytest.mark.parametrize("verb", ["evaluate", "resume"])
def test_what_needs_the_environment_asks_for_it(run: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=rf"function 'Corridor'.*rl_training\.{verb}\('.*', env_fn=\.\.\.\)$"):
        getattr(rl_training, verb)(run)
    assert main(["eval" if verb == "evaluate" else verb, str(run)]) == 2
    assert f"rl_training.{verb}(" in capsys.readouterr().err


def test_verify_and_a_copied_config_ask_for_it_too(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="function 'Corridor'"):
        ReproducibilityChecker().verify_experiment(run)
    with pytest.raises(ConfigError, match="function 'Corridor'"):
        ReproducibilityChecker().verify_resume(run)
    assert ReproducibilityChecker().verify_experiment(run, env_fn=Corridor).reproduced
    assert main(["train", str(run / "configs" / "resolved.yaml"), "--output-dir", str(run.parent)]) == 2
    assert "was made by the function 'Corridor'" in capsys.readouterr().err


def test_predicting_needs_no_environment(run: Path) -> None:
    policy = rl_training.load(run)
    assert policy.predict(np.zeros(3)) in (0, 1)
    assert repr(policy) == (
        "SavedPolicy(ppo on env_fn(Corridor), step 64, checkpoint step_000000000064, "
        "observations Box(3,) float32, actions Discrete(2))"
    )
    assert rl_training.load(run, env_fn=Corridor).predict(np.zeros(3)) == policy.predict(np.zeros(3))
    (run / "configs" / "spaces.json").rename(run / "configs" / "kept.json")
    try:
        with pytest.raises(ConfigError, match=r"rl_training\.load\("):
            rl_training.load(run)
    finally:
        (run / "configs" / "kept.json").rename(run / "configs" / "spaces.json")


def test_with_the_function_it_is_evaluated_and_resumed(tmp_path: Path) -> None:
    run = rl_training.train({}, make_corridor, output_dir=str(tmp_path), **SHORT).run_dir
    assert rl_training.evaluate(run, episodes=2, env_fn=make_corridor)["lengths"] == [10, 10]
    assert rl_training.resume(run, env_fn=make_corridor, total_timesteps=96).metrics["env_steps"] == 96


@pytest.mark.parametrize(("other", "space"), [(Wide, "observation"), (Choices, "action")])
def test_an_environment_of_other_spaces_is_refused(run: Path, other: type, space: str) -> None:
    before = (run / "run.json").read_text()
    for use in (
        lambda: rl_training.evaluate(run, env_fn=other, episodes=1),
        lambda: rl_training.load(run, env_fn=other),
        lambda: rl_training.resume(run, env_fn=other, total_timesteps=128),
    ):
        with pytest.raises(EnvError, match=f"the environment has the {space} space .* was trained on"):
            use()
    assert json.loads((run / "run.json").read_text()).get("total_timesteps") is None
    assert before == (run / "run.json").read_text()


def test_callback_objects_are_recorded_and_missed(tmp_path: Path) -> None:
    count = Count()
    result = rl_training.train({}, callbacks=[count], output_dir=str(tmp_path), **SHORT)
    assert count.steps == 2
    assert json.loads((result.run_dir / "run.json").read_text())["callbacks"] == [f"{__name__}.Count"]
    again = Count()
    rl_training.resume(result.run_dir, callbacks=[again], total_timesteps=96)  # warnings are errors here
    assert again.steps == 3, "it went on from its saved state"
    with pytest.warns(UserWarning, match=r"had callback objects that are not given again \(.*Count\)") as caught:
        rl_training.resume(result.run_dir, total_timesteps=128)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([Count], r"Count is a class; give an object: callbacks=\[Count\(\)\]"),
        (Count(), "expected a list"),
        ([3], "has no on_start"),
    ],
)
def test_callbacks_that_are_refused(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        rl_training.train({}, callbacks=given, output_dir=str(tmp_path), **SHORT)
    assert not list(tmp_path.iterdir())


def test_a_function_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="env_fn is a Corridor; give a function or class"):
        rl_training.train({}, Corridor(), output_dir=str(tmp_path), **SHORT)  # type: ignore[arg-type]


def test_a_damaged_record_of_spaces_is_a_typed_error(tmp_path: Path) -> None:
    run = rl_training.train({}, Corridor, output_dir=str(tmp_path), **SHORT).run_dir
    for text in ("", "[]", '{"observation": {"type": "box", "shape": [1e9]}}', '{"observation": 3, "action": 4}'):
        (run / "configs" / "spaces.json").write_text(text)
        with pytest.raises(RunError, match="does not describe spaces"):
            rl_training.load(run)
