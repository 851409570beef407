"""Whole runs with overlapped collection: how they end, go on, fail, and what they leave behind."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from overlap_cases import CASES, OFTEN, hashes, mapping, state_hash, trainer
from sampling import sampled

from rl_training import Callback
from rl_training.algorithms.ppo import PPO
from rl_training.assembly.cost import plan
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.envs.workers.pool import EnvWorkerError
from rl_training.hparams.base import AlgorithmSpec
from rl_training.registry import algorithms
from rl_training.runs.directory import metrics_sha256
from rl_training.trainer import resume, train
from rl_training.types import CheckpointError, ConfigError, NonFiniteError

ROLLOUT = 16
"""Env steps of a rollout: 8 steps of 2 environments."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """However a run ends: no thread and no process of it."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "collector"] == []
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert [child.cmdline() for child in left if "forkserver" not in " ".join(child.cmdline())] == []


class Counted(CartPoleEnv):
    """Counts the steps of all its instances."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return super().step(action)


def counted() -> Any:
    return gym.wrappers.TimeLimit(Counted(), 20)


def run(folder: Path, case: str, steps: int, env_fn: Any = None, callbacks: Any = (), **sections: Any) -> Any:
    training = {"total_timesteps": steps, "checkpoint_frequency": 1, **sections.pop("training", {})}
    cfg = mapping(case, training={"num_eval_episodes": 0, **training}, output_dir=str(folder), **sections)
    return train(cfg, env_fn, callbacks=callbacks)


def outcome(path: Path) -> dict[str, str]:
    parts = CheckpointManager(path).load_latest().parts
    logs = {name: (path / "logs" / name).read_text() for name in ("episodes.jsonl", "evals.jsonl")}
    found = {name: state_hash(state) for name, state in parts.items() if name != "logs"}
    return {
        **found,
        "metrics": metrics_sha256(path / "logs" / "metrics.jsonl"),
        **{k: repr(v) for k, v in logs.items()},
    }


class StopAt(Callback):
    """Ends a run as a signal does, or as a decision of its own, after a number of train steps."""

    def __init__(self, steps: int, *, interrupted: bool = True) -> None:
        self.left, self.interrupted = steps, interrupted

    def on_step(self, trainer: Any, report: Any) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.request_stop("asked to", interrupted=self.interrupted)


# -- the end of a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "steps", "training"),
    [
        ("ppo", 5 * ROLLOUT, {}),
        ("ppo", 5 * ROLLOUT - 3, {}),
        ("ppo", 1, {}),
        ("ppo", 10**6, {"total_episodes": 9}),
        ("dqn", 600, {}),
        ("dqn", 601, {}),
        ("dqn", 100, {}),
        ("dqn", 10**6, {"total_episodes": 30}),
    ],
)
def test_the_last_steps_are_learnt_from_and_none_is_collected_in_vain(
    tmp_path: Path, case: str, steps: int, training: dict[str, Any]
) -> None:
    """Every step of the environments is counted, and as many as without overlap where their number decides."""
    Counted.steps = 0
    result = run(tmp_path, case, steps, counted, training=training, hparams={"n_step": 1} if case == "dqn" else {})
    assert result.metrics["env_steps"] == Counted.steps
    parts = CheckpointManager(result.run_dir).load_latest().parts
    assert parts["ahead"] == {}
    if case == "dqn":
        assert parts["buffer"]["rows"].stop == Counted.steps
        assert result.metrics["env_steps"] <= steps + 1
    else:
        assert result.metrics["updates"] == result.metrics["env_steps"] // ROLLOUT
    if training:
        assert result.metrics["episodes"] >= training["total_episodes"]
    else:
        plain = run(tmp_path / "plain", case, steps, counted, env={"overlap": False})
        assert plain.metrics["env_steps"] == result.metrics["env_steps"]
        assert plain.metrics["updates"] == result.metrics["updates"]


@pytest.mark.parametrize(("case", "block"), [("ppo", ROLLOUT), ("dqn", 256)])
def test_a_run_that_decides_to_end_keeps_one_rollout_for_an_extension(tmp_path: Path, case: str, block: int) -> None:
    """A reached goal ends the run after this train step; the next rollout was collected beside it and is not counted.
    A larger budget goes on with it, as if the run had not stopped."""
    Counted.steps = 0
    ended = run(tmp_path, case, 10 * block, counted, [StopAt(3, interrupted=False)])
    assert (ended.stop_reason, ended.metrics["env_steps"], Counted.steps) == ("asked to", 3 * block, 4 * block)
    assert CheckpointManager(ended.run_dir).load_latest().parts["ahead"]["env_steps"] == block
    with pytest.warns(UserWarning, match="callback objects that are not given again"):
        longer = resume(ended.run_dir, total_timesteps=6 * block, env_fn=counted)
    assert longer.metrics["env_steps"] == 6 * block
    whole = run(tmp_path / "whole", case, 6 * block, counted)
    assert outcome(longer.run_dir)["policy"] == outcome(whole.run_dir)["policy"]


def test_a_finished_run_is_extended(tmp_path: Path) -> None:
    """Nothing is collected ahead at the end of a budget: an extension starts with the policy as it is."""
    ended = run(tmp_path, "ppo", 3 * ROLLOUT)
    longer = resume(ended.run_dir, total_timesteps=6 * ROLLOUT)
    assert (longer.metrics["env_steps"], longer.metrics["updates"]) == (6 * ROLLOUT, 6)


# -- going on ---------------------------------------------------------------------------------------------------------

RESUMED = {
    **{case: {} for case in CASES},
    "ppo-workers": {"env": {"vectorization": "async", "num_workers": 2}},
    "dqn-workers": {"env": {"vectorization": "async", "num_workers": 2}},
}


@pytest.mark.parametrize("name", sampled(RESUMED, OFTEN))
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, name: str) -> None:
    """Stopped twice, once before learning from the second rollout, once later; evaluated on the way."""
    case = name.removesuffix("-workers")
    off_policy = CASES[case]["algo"] in ("dqn", "sac", "td3", "crossq")
    steps = 5 * 256 if off_policy else 5 * ROLLOUT
    sections = {**RESUMED[name], "training": {"num_eval_episodes": 1, "eval_frequency": steps // 2}}
    if case == "random":
        steps, sections["training"] = 5 * 256, {}
    whole = run(tmp_path / "whole", case, steps, **sections)
    stopped = run(tmp_path / "parts", case, steps, callbacks=[StopAt(1)], **sections)
    assert CheckpointManager(stopped.run_dir).load_latest().parts["ahead"] != {}
    for left in (2, 100):
        resume(stopped.run_dir, callbacks=[StopAt(left)])
    assert outcome(stopped.run_dir) == outcome(whole.run_dir)


class Restarting(CartPoleEnv):
    """Cannot be resumed exactly."""

    resume_strategy = "restart"


@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_environments_that_start_anew_end_the_episodes_behind_what_was_collected(case: str) -> None:
    """The collected steps continue the episodes that the learner knows, so these end only when they are learnt from."""

    def make() -> Any:
        return gym.wrappers.TimeLimit(Restarting(), 2000)

    before, after = trainer(case, make), trainer(case, make)
    before.train_step()
    after.load_state_dict(before.state_dict())
    assert not after.exact
    assert after.collector.is_first.all()
    normalizer = after.algorithm.reward_normalizer
    assert np.array_equal(normalizer.open_returns, before.algorithm.reward_normalizer.open_returns)
    assert normalizer.open_returns.any()
    rows = after.buffer.state_dict()["rows"].stop if case == "dqn" else 0
    pending = after.ahead.pending
    after.train_step()
    assert not normalizer.open_returns.any()
    if case == "dqn":  # a row that is no transition marks the gap behind the block
        assert after.buffer.state_dict()["rows"].stop == rows + pending.stats.env_steps + after.collector.num_envs
        assert after.buffer.skipped.sum() == after.collector.num_envs
    before.close()
    after.close()


def test_changing_it_between_runs_is_refused(tmp_path: Path) -> None:
    stopped = run(tmp_path, "ppo", 6 * ROLLOUT, callbacks=[StopAt(2)]).run_dir
    resolved = stopped / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("overlap: true", "overlap: false"))
    with pytest.raises((CheckpointError, ConfigError), match=r"env\.overlap was True and is False"):
        resume(stopped, callbacks=[StopAt(9)])
    with pytest.raises(CheckpointError, match="collected ahead and not learnt from yet"):
        resume(stopped, callbacks=[StopAt(9)], allow_changed_config=True)


def test_switching_it_on_in_a_run_begins_to_collect_ahead(tmp_path: Path) -> None:
    stopped = run(tmp_path, "ppo", 6 * ROLLOUT, callbacks=[StopAt(2)], env={"overlap": False}).run_dir
    resolved = stopped / "configs" / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("overlap: false", "overlap: true"))
    result = resume(stopped, callbacks=[StopAt(9)], allow_changed_config=True)
    assert result.metrics["env_steps"] == 6 * ROLLOUT


# -- faults -----------------------------------------------------------------------------------------------------------


class Faulty(CartPoleEnv):
    """Fails in its 30th step, in the way that `fault` says."""

    def __init__(self, fault: str = "raise") -> None:
        super().__init__()
        self.fault, self.steps = fault, 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps == 30 and self.fault == "raise":
            raise RuntimeError("the simulator broke")
        if self.steps == 30 and self.fault == "exit":
            psutil.Process().kill()
        if self.steps == 30 and self.fault in ("obs", "reward"):
            obs, reward = (obs * np.nan, reward) if self.fault == "obs" else (obs, np.nan)
        return obs, reward, terminated, truncated, info


def faulty(folder: Path, case: str, fault: str, **env: Any) -> None:
    run(folder, case, 1000, env_id=f"{__name__}:Faulty", env={"kwargs": {"fault": fault}, **env})


@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_an_error_of_an_environment_ends_the_run_as_it_is(tmp_path: Path, case: str) -> None:
    with pytest.raises(RuntimeError, match="the simulator broke"):
        faulty(tmp_path, case, "raise")


@pytest.mark.parametrize("case", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_a_worker_that_dies_is_named(tmp_path: Path, case: str) -> None:
    with pytest.raises(EnvWorkerError, match="environment"):
        faulty(tmp_path, case, "exit", vectorization="async", num_workers=2)


@pytest.mark.parametrize("case", ["ppo", "dqn"])
@pytest.mark.parametrize(("fault", "name"), [("obs", "obs"), ("reward", "rewards")])
def test_nan_from_an_environment_is_named_before_anything_is_learnt_from_it(
    tmp_path: Path, case: str, fault: str, name: str
) -> None:
    with pytest.raises(NonFiniteError, match=r"is nan in update \d+.* the environment or a wrapper gave it") as caught:
        faulty(tmp_path, case, fault)
    assert caught.value.name.removeprefix("next_").startswith(name)


class Broken(PPO):
    """Fails in its third update."""

    calls = 0

    def update(self, batch: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise ValueError("the learner broke")
        return super().update(batch)


def test_an_error_of_the_learner_ends_the_collecting_too(tmp_path: Path) -> None:
    """Also where a rollout would take for ever."""
    spec = algorithms.get("ppo")
    algorithms.add("broken-ppo", AlgorithmSpec("broken-ppo", "on_policy", spec.hparams, build=f"{__name__}:Broken"))
    with pytest.raises(ValueError, match="the learner broke"):
        run(tmp_path, "ppo", 10**6, algo="broken-ppo")


def test_nan_in_the_learner_is_named(tmp_path: Path) -> None:
    class Spoil(Callback):
        def on_step(self, trainer: Any, report: Any) -> None:
            if report.after.updates == 2:
                next(iter(trainer.algorithm.optimizer.tensors()))[0] = np.nan

    with pytest.raises(NonFiniteError, match="optimizer"):
        run(tmp_path, "ppo", 1000, callbacks=[Spoil()])


def test_both_sides_fail() -> None:
    """The learner's error is raised, whichever came first; the other one is told with it."""
    built = trainer("ppo", lambda: gym.wrappers.TimeLimit(Faulty("raise"), 500), hparams={"num_steps": 25})
    thread = built.ahead.thread

    def failing(update: Any) -> Any:
        def run(batch: Any) -> Any:
            while thread._results.empty():
                pass
            raise ValueError("the learner broke")

        return run

    built.wrap_update(failing)
    with pytest.raises(ValueError, match="the learner broke") as caught:
        built.train_step()
    assert caught.value.__notes__ == ["meanwhile collecting had failed, too: RuntimeError: the simulator broke"]
    built.close()


# -- what a user sees -------------------------------------------------------------------------------------------------


def test_the_plan_counts_the_second_rollout_and_the_acting_policy() -> None:
    plans = {
        (case, overlap): plan(parse_config(mapping(case, env={"overlap": overlap})))
        for case in ("ppo", "dqn")
        for overlap in (False, True)
    }
    ppo = plans["ppo", True]["buffer_bytes"] - plans["ppo", False]["buffer_bytes"]
    assert ppo >= ROLLOUT * (4 * 4 + 8) + 4 * plans["ppo", True]["parameters"]
    assert plans["dqn", True]["buffer_bytes"] - plans["dqn", False]["buffer_bytes"] >= 256 * 2 * 4 * 4
    for case in ("ppo", "dqn"):
        assert plans[case, True]["disk_bytes"] > plans[case, False]["disk_bytes"]


def test_rows_have_the_episodes_and_counts_of_what_was_learnt(tmp_path: Path) -> None:
    """Counts of a row are those of the log of episodes up to it."""
    result = run(tmp_path, "ppo", 20 * ROLLOUT)
    rows = metrics_rows(result.run_dir / "logs" / "metrics.jsonl")
    episodes = metrics_rows(result.run_dir / "logs" / "episodes.jsonl")
    assert [row["env_steps"] for row in rows] == [ROLLOUT * (k + 1) for k in range(20)]
    for row in rows:
        assert row["episodes"] == sum(episode["env_steps"] <= row["env_steps"] for episode in episodes)
        of_this = [episode["return"] for episode in episodes if episode["env_steps"] == row["env_steps"]]
        assert row.get("rollout/return_mean") == (np.mean(of_this) if of_this else None)
    assert {"time/waiting_seconds", "time/learning_seconds"} <= rows[-1].keys()


def metrics_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_state_can_be_loaded_again_and_again() -> None:
    built = trainer("ppo")
    built.train_step()
    state = {name: part.state_dict() for name, part in built.parts().items()}
    expected = hashes(built)
    for _ in range(3):
        built.ahead.load_state_dict(state["ahead"])
        assert hashes(built)["ahead"] == expected["ahead"]
    built.close()
