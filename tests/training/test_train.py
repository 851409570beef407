"""Whole runs as a user starts them: what is left on disk, resume, evaluation, warm start, callbacks, stops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
import rl_training.types
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import load_config, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.runs.directory import metrics_sha256
from rl_training.seeding import episode_seed
from rl_training.trainer import resume, train, train_ppo
from rl_training.training.callbacks import Callback
from rl_training.types import ConfigError, NonFiniteError, RunError


def config(tmp_path: Path, **given: Any) -> TrainConfig:
    mapping: dict[str, Any] = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "seed": 5,
        "output_dir": str(tmp_path / "runs"),
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 32},
        "training": {
            "total_timesteps": 512,
            "eval_frequency": 128,
            "num_eval_episodes": 2,
            "checkpoint_frequency": 192,
        },
        "logging": {"terminal": False, "tensorboard": False},
    }
    for section, values in given.items():
        mapping[section] = {**mapping[section], **values} if isinstance(mapping.get(section), dict) else values
    return parse_config(mapping)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_leaves_everything_the_directory_promises(tmp_path: Path):
    result = train(config(tmp_path, logging={"tensorboard": True}), argv=["rl", "train"])
    run = result.run_dir
    assert run.name.startswith("ppo__CartPole-v1__seed5__")
    for name in ("configs/source.yaml", "configs/resolved.yaml", "run.json", "metrics.json", "logs/metrics.jsonl",
                 "logs/episodes.jsonl", "logs/evals.jsonl", "logs/train.log", "checkpoints/latest"):  # fmt: skip
        assert (run / name).is_file(), name
    assert list((run / "logs" / "tensorboard").iterdir())
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["exit_code"], info["exact"]) == ("finished", 0, True)
    assert info["metrics_sha256"] == metrics_sha256(run / "logs" / "metrics.jsonl")
    assert result.checkpoint_path == run / "checkpoints" / "step_000000000512"
    assert result.checkpoint_path.is_dir()
    assert result.metrics["global_step"] == 512
    metrics = rows(run / "logs" / "metrics.jsonl")
    assert [row["env_steps"] for row in metrics] == list(range(64, 513, 64))
    assert [row["env_steps"] for row in metrics if "eval/return_mean" in row] == [128, 256, 384, 512]
    assert {"train/loss", "train/approx_kl", "train/grad_norm", "train/explained_variance"} <= metrics[0].keys()
    assert all(len(row["returns"]) == 2 for row in rows(run / "logs" / "evals.jsonl"))
    episodes = rows(run / "logs" / "episodes.jsonl")
    assert sum(row["length"] for row in episodes) <= 512
    assert all(row["return"] == row["length"] for row in episodes), "CartPole pays 1 per step"
    assert load_config(run / "configs" / "resolved.yaml") == config(tmp_path, logging={"tensorboard": True})


def test_same_config_same_bits_and_another_seed_others(tmp_path: Path):
    def policy(seed: int) -> dict[str, Any]:
        result = train(config(tmp_path, seed=seed))
        return CheckpointManager(result.run_dir).load("latest", parts={"policy"}).parts["policy"]["network"]

    first, second, other = policy(1), policy(1), policy(2)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_an_extended_run_equals_the_longer_one(tmp_path: Path):
    """Nothing in this config depends on the total, so 256 steps and then 256 more are 512 steps."""
    whole = train(config(tmp_path))
    half = train(config(tmp_path, training={"total_timesteps": 256}))
    extended = resume(half.run_dir, total_timesteps=512)
    assert extended.run_dir == half.run_dir
    states = [CheckpointManager(r.run_dir).load_latest().parts for r in (whole, extended)]
    for name in ("policy", "algorithm", "collector", "env"):
        assert_same(states[0][name], states[1][name], name)
    hashes = {metrics_sha256(r.run_dir / "logs" / "metrics.jsonl") for r in (whole, extended)}
    assert len(hashes) == 1


def assert_same(a: Any, b: Any, path: str) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, err_msg=path)
    else:
        assert a == b, path


class StopAt(Callback):
    """Asks the trainer to stop, as a signal would, once `steps` env steps are done."""

    def __init__(self, steps: int, interrupted: bool = True) -> None:
        self.steps = steps
        self.interrupted = interrupted

    def on_step(self, trainer: Any, report: Any) -> None:
        if report.after.env_steps >= self.steps and report.before.env_steps < self.steps:
            trainer.request_stop("test", interrupted=self.interrupted)


class Counter(Callback):
    """Counts the steps it saw; the count is part of a resume."""

    seen: list[int] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, trainer: Any, report: Any) -> None:
        self.count += 1
        Counter.seen.append(self.count)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_an_interrupted_run_resumes_to_the_same_bits_with_its_callbacks(tmp_path: Path):
    Counter.seen.clear()
    counter = [{"name": f"{__name__}:Counter"}]
    straight = train(config(tmp_path, callbacks=counter))
    stopping = [*counter, {"name": f"{__name__}:StopAt", "kwargs": {"steps": 200}}]
    stopped = train(config(tmp_path, callbacks=stopping))
    assert json.loads((stopped.run_dir / "run.json").read_text())["status"] == "stopped"
    assert stopped.metrics["env_steps"] == 256
    resumed = resume(stopped.run_dir)
    assert Counter.seen == [*range(1, 9), *range(1, 9)]
    states = [CheckpointManager(r.run_dir).load_latest().parts for r in (straight, resumed)]
    for name in ("policy", "algorithm", "collector", "env"):
        assert_same(states[0][name], states[1][name], name)
    assert metrics_sha256(straight.run_dir / "logs/metrics.jsonl") == metrics_sha256(
        resumed.run_dir / "logs/metrics.jsonl"
    )


def test_evaluation_logging_and_checkpoints_do_not_change_the_training(tmp_path: Path):
    variants = [
        {},
        {"training": {"num_eval_episodes": 0}},
        {"training": {"eval_frequency": 64, "num_eval_episodes": 3, "checkpoint_frequency": 64}},
        {"logging": {"tensorboard": True, "log_frequency": 200, "trace": True}},
        {"monitor": {"checks": "full"}},
        {"monitor": {"checks": "off"}},
    ]
    networks = []
    for variant in variants:
        result = train(config(tmp_path, **variant))
        networks.append(CheckpointManager(result.run_dir).load("latest", parts={"policy"}).parts["policy"])
    for other in networks[1:]:
        assert_same(networks[0], other, "policy")


def test_sync_and_workers_train_to_the_same_bits(tmp_path: Path):
    policies = []
    for options in ({}, {"vectorization": "async", "num_workers": 2}):
        result = train(config(tmp_path, env={"num_envs": 4, **options}))
        policies.append(CheckpointManager(result.run_dir).load("latest", parts={"policy"}).parts["policy"])
    assert_same(policies[0], policies[1], "policy")


def test_stop_at_return_and_total_episodes(tmp_path: Path):
    solved = train(config(tmp_path, training={"stop_at_return": 1.0}))
    assert solved.metrics["env_steps"] == 128
    assert solved.stop_reason.startswith("solved")
    assert solved.exit_code == 0
    evaluation = rows(solved.run_dir / "logs" / "evals.jsonl")[-1]
    assert len(evaluation["returns"]) == 100
    assert evaluation["returns"] == rl_training.evaluate(solved.run_dir, episodes=100)["returns"]
    few = train(config(tmp_path, training={"total_episodes": 3}))
    assert 3 <= few.metrics["episodes"] < 10


class Lucky(gym.Wrapper[Any, Any, Any, Any]):
    """Pays 100 for the two episodes that an evaluation begins with, and nothing for the rest."""

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        super().__init__(env)
        self.lucky = [episode_seed(seed, k) for k in range(2)]
        self.pay = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.pay = 100.0 if seed in self.lucky else 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, _, _, _, info = super().step(action)
        return obs, self.pay, True, False, info


def test_a_few_lucky_episodes_end_no_run(tmp_path: Path):
    env = {"wrappers": [{"name": f"{__name__}:Lucky", "kwargs": {"seed": 5}}]}
    goal = {"stop_at_return": 50.0, "total_timesteps": 256}
    on = train(config(tmp_path, env=env, training=goal))
    assert on.metrics["env_steps"] == 256
    assert on.metrics["eval/return_mean"] == 2.0  # of a hundred
    off = train(config(tmp_path, env=env, training={**goal, "stop_episodes": 2}))
    assert (off.metrics["env_steps"], off.metrics["eval/return_mean"]) == (128, 100.0)
    assert off.stop_reason == "solved: evaluation return 100.0 over 2 episodes >= 50"


def test_user_stop_is_evaluated_at_the_end(tmp_path: Path):
    stop = [{"name": f"{__name__}:StopAt", "kwargs": {"steps": 64, "interrupted": False}}]
    result = train(config(tmp_path, callbacks=stop))
    assert result.metrics["env_steps"] == 64
    assert "eval/return_mean" in result.metrics


def test_warm_start_takes_the_policy_and_records_its_parent(tmp_path: Path):
    parent = train(config(tmp_path))
    child = train(config(tmp_path, hparams={"learning_rate": 0.0}), init_from=str(parent.run_dir))
    states = [CheckpointManager(r.run_dir).load("latest", parts={"policy"}).parts["policy"] for r in (parent, child)]
    assert_same(states[0], states[1], "policy")
    assert json.loads((child.run_dir / "run.json").read_text())["parent"] == str(parent.run_dir)
    early = train(config(tmp_path, hparams={"learning_rate": 0.0}), init_from=f"{parent.run_dir}:384")
    step = CheckpointManager(parent.run_dir).load(384, parts={"policy"}).parts["policy"]
    assert_same(step, CheckpointManager(early.run_dir).load("latest", parts={"policy"}).parts["policy"], "policy")
    with pytest.raises(ConfigError, match=r"has other networks: network\.actor\.hidden_dims"):
        train(config(tmp_path, network={"actor": {"hidden_dims": [8]}}), init_from=str(parent.run_dir))


def test_python_api(tmp_path: Path):
    result = rl_training.train(config(tmp_path))
    policy = rl_training.load(result.run_dir)
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    action = policy.predict(obs)
    assert env.action_space.contains(action)
    batch = policy.predict(np.stack([obs, obs]))
    assert batch.tolist() == [action, action]
    scores = rl_training.evaluate(result.run_dir, episodes=5)
    again = rl_training.evaluate(result.run_dir, episodes=5, num_envs=2)
    assert scores["returns"] == again["returns"], "episode k does not depend on the number of environments"
    stochastic = [rl_training.evaluate(result.run_dir, episodes=4, stochastic=True, num_envs=n) for n in (1, 3)]
    assert stochastic[0]["returns"] == stochastic[1]["returns"]
    assert {"run", "checkpoint", "env_steps", "seed", "deterministic", "episodes", "return_mean", "return_std",
            "return_iqm", "length_mean", "returns", "lengths"} <= scores.keys()  # fmt: skip


def test_train_ppo_with_sizes_by_hand(tmp_path: Path):
    cfg = TrainConfig(algo="ppo", env_id="CartPole-v1", seed=1, output_dir=str(tmp_path))
    cfg = replace(
        cfg, logging=replace(cfg.logging, terminal=False), training=replace(cfg.training, num_eval_episodes=0)
    )
    result = train_ppo(cfg, total_timesteps=128, num_envs=2, num_steps=16)
    assert result.metrics["global_step"] == 128
    assert result.checkpoint_path.exists()


class Broken(gym.Env[Any, Any]):
    """CartPole-like spaces; gives NaN after a while."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, where: str = "obs", after: int = 40) -> None:
        self.where, self.after, self.steps = where, after, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        bad = self.steps >= self.after
        obs = np.full(2, np.nan if bad and self.where == "obs" else 0.0, np.float32)
        return obs, float("inf") if bad and self.where == "rewards" else 0.0, self.steps % 10 == 0, False, {}


@pytest.mark.parametrize("where", ["obs", "rewards"])
def test_nan_from_an_environment_stops_the_run_and_is_never_saved(tmp_path: Path, where: str):
    cfg = config(tmp_path, env_id=f"{__name__}:Broken", env={"num_envs": 1, "kwargs": {"where": where}})
    with pytest.raises(NonFiniteError, match=where):
        train(cfg)
    (run,) = (tmp_path / "runs").glob("ppo*")
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["exit_code"]) == ("failed", 1)
    policy = CheckpointManager(run).load_latest().parts["policy"]
    assert all(np.isfinite(value).all() for value in policy["network"].values())


def test_nan_in_the_update_names_the_loss(tmp_path: Path):
    cfg = config(tmp_path, hparams={"learning_rate": 1e30, "max_grad_norm": None})
    with pytest.raises(NonFiniteError, match="train/"):
        train(cfg)


def test_missing_device_warns_once_or_refuses(tmp_path: Path):
    cfg = config(tmp_path, device="cuda", training={"total_timesteps": 64, "num_eval_episodes": 0})
    with pytest.warns(UserWarning, match="cuda") as caught:
        train(cfg)
    assert len(caught) == 1
    with pytest.raises(ConfigError, match="strict_device"):
        train(replace(cfg, strict_device=True))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"env_id": "NoSuchEnv-v1"}, rl_training.types.RLTrainingError, "NoSuchEnv"),
        ({"env_id": "CartPole-v0"}, rl_training.types.RLTrainingError, "CartPole-v1"),
        ({"algo": "no_such_module:Thing", "hparams": {}}, ConfigError, "no_such_module"),
        ({"lane": "compiled"}, ConfigError, "needs backend: jax"),
        ({"plugins": ["no_such_plugin"]}, ConfigError, "no_such_plugin"),
        ({"callbacks": [{"name": "builtins:dict"}]}, ConfigError, "on_start"),
        ({"network": {"actor": {"type": "lmp"}}}, ConfigError, "mlp"),
    ],
)
def test_what_cannot_run_is_refused_before_a_directory_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        train(config(tmp_path, **given))
    assert not list(tmp_path.glob("runs/*")), "nothing is left behind"


def test_a_directory_that_is_no_run(tmp_path: Path):
    with pytest.raises(RunError, match="no run"):
        resume(tmp_path)


def test_trace_writes_every_transition(tmp_path: Path):
    cfg = config(tmp_path, logging={"trace": True}, training={"total_timesteps": 64, "num_eval_episodes": 0})
    run = train(cfg).run_dir
    trace = rows(run / "logs" / "trace.jsonl")
    assert len(trace) == 64
    assert trace[0].keys() == {"env", "obs", "action", "reward", "next_obs", "terminated", "truncated"}


def test_log_frequency_thins_the_rows_and_keeps_every_episode(tmp_path: Path):
    dense, thin = (train(config(tmp_path, logging={"log_frequency": every})).run_dir for every in (0, 256))
    thin_rows = rows(thin / "logs" / "metrics.jsonl")
    assert [row["env_steps"] for row in thin_rows] == [128, 256, 384, 512], "evaluations force a row"
    assert rows(dense / "logs" / "episodes.jsonl") == rows(thin / "logs" / "episodes.jsonl")


def test_an_environment_that_draws_nothing_ends_no_training(tmp_path: Path):
    """One warning in place of videos, and the run goes on."""
    sections = {"logging": {"video_frequency": 128}, "training": {"num_eval_episodes": 0}}
    cfg = config(tmp_path, env_id="RLProbe/DictObs-v0", **sections)
    with pytest.warns(UserWarning, match="no more videos of episodes.*takes no 'render_mode'") as warned:
        result = train(cfg)
    assert len(warned) == 1
    assert json.loads((result.run_dir / "run.json").read_text())["status"] == "finished"
    assert not list((result.run_dir / "videos").iterdir())


def test_video_callback(tmp_path: Path):
    cfg = config(tmp_path, logging={"video_frequency": 256}, training={"num_eval_episodes": 0})
    run = train(cfg).run_dir
    assert sorted(path.name for path in (run / "videos").iterdir()) == [
        "step_000000000256.mp4",
        "step_000000000512.mp4",
    ]
