"""Runs of several agents: two policies in one run and one checkpoint, exact resume, logs, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rl_training
from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.state_tree import flatten
from rl_training.cli import main
from rl_training.config.loading import parse_config
from rl_training.envs import make_env
from rl_training.eval import record
from rl_training.system.json_lines import read_rows
from rl_training.training.offline.recording import Amount
from rl_training.types import ConfigError

SIDES = {"policies": {"early": ["agent_[01]"], "late": ["agent_2"]}}
SMALL = {"hidden_dims": [8]}


def config(algo: str, folder: Path | str = "runs", agents: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    replay = {"learning_starts": 8, "batch_size": 8, "updates_per_step": 0.5}
    return {
        "algo": algo,
        "env_id": "RLTeam/Leaving-v0",
        "output_dir": str(folder),
        "env": {"num_envs": 3, "agents": agents or {}},
        "hparams": replay if algo in ("vdn", "qmix", "dqn") else {"num_steps": 8},
        "network": {"actor": SMALL, "critic": SMALL},
        "training": {
            "total_timesteps": 768,
            "checkpoint_frequency": 256,
            "num_eval_episodes": 2,
        },
        "logging": {"terminal": False, "tensorboard": False},
        **more,
    }


def state(run: Path) -> dict[str, Any]:
    parts = CheckpointManager(run).load("latest").parts
    found = {}
    for name in ("policy", "algorithm", "collector", "env", "progress"):
        flat = flatten(parts[name])
        found[name] = ({key: value.tobytes() for key, value in flat.arrays.items()}, flat.scalars)
    return found


def test_two_policies_in_one_run_and_one_checkpoint(tmp_path: Path) -> None:
    own = {"late": {"algo": "mappo", "hparams": {"learning_rate": 1e-5, "num_steps": 8}}}
    result = rl_training.train(config("ippo", tmp_path, SIDES, policies=own))
    saved = CheckpointManager(result.run_dir).load("latest").parts
    assert list(saved["policy"]) == list(saved["algorithm"]) == ["early", "late"]
    early, late = (saved["policy"][name]["network"] for name in ("early", "late"))
    assert early["critic.layers.0.weight"].shape == (8, 1 + 2), "its own steps, and a number"
    assert late["critic.layers.0.weight"].shape == (8, 3), "the state; a single agent has no number"
    rows = list(read_rows(result.run_dir / "logs" / "metrics.jsonl"))
    rates = {name: rows[-1][f"train/{name}/learning_rate"] for name in ("early", "late")}
    assert rates == {"early": 3e-4, "late": 1e-5}
    policy = rl_training.load(result.run_dir)
    again = rl_training.evaluate(result.run_dir, episodes=3)
    assert policy.policy.members.keys() == {"early", "late"}
    assert {"team_return", "early/return_mean", "late/return_mean"} <= again.keys()
    assert again["team_return"] == pytest.approx(3 * again["return_mean"])


@pytest.mark.parametrize(
    ("algo", "agents"),
    [("ippo", SIDES), ("mappo", {}), ("qmix", {"reward": "team_mean"}), ("dqn", {}), ("vdn", {"reward": "team_sum"})],
)
def test_resume_is_exact(tmp_path: Path, algo: str, agents: dict[str, Any]) -> None:
    """A run that was stopped in the middle of lives goes on as if it had not been, to the last bit."""
    whole = rl_training.train(config(algo, tmp_path / "whole", agents))
    part = rl_training.train(config(algo, tmp_path / "part", agents), pause_at=400)
    assert part.exit_code == 75
    resumed = rl_training.resume(part.run_dir)
    assert state(whole.run_dir) == state(resumed.run_dir)
    logs = [(run.run_dir / "logs" / "episodes.jsonl").read_text() for run in (whole, resumed)]
    assert logs[0] == logs[1]


def test_logs_know_agents_policies_and_teams(tmp_path: Path) -> None:
    run = rl_training.train(config("ippo", tmp_path, {**SIDES, "score": "late"})).run_dir
    episodes = [json.loads(line) for line in (run / "logs" / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 3 * 85, "256 joint steps of each environment, three to an episode"
    for row in episodes:
        own = [row[f"agent_return/agent_{i}"] for i in range(3)]
        assert row["team_return"] == sum(own)
        assert row["policy_return/early"] == np.mean(own[:2])
        assert row["return"] == own[2]
    metrics = list(read_rows(run / "logs" / "metrics.jsonl"))
    names = {"rollout/team_return", "rollout/early/return_mean", "rollout/late/return_mean", "eval/late/return_mean"}
    assert names <= {name for row in metrics for name in row}
    assert metrics[-1]["env_steps"] == 768
    assert metrics[-1]["agent_steps"] == 3 * (85 * 6 + 3), "six to an episode, and three agents began another"
    summary = json.loads((run / "metrics.json").read_text())
    assert summary["agent_steps"] == metrics[-1]["agent_steps"]


@pytest.mark.parametrize(
    ("algo", "other", "names"),
    [("ippo", "ppo", ["num_steps"]), ("dqn", "dqn", []), ("qmix", "dqn", ["batch_size", "learning_starts"])],
)
def test_another_algorithm_follows_the_rhythm_of_the_run(algo: str, other: str, names: list[str]) -> None:
    agents = {**SIDES, "reward": "team_mean"}
    own = {"late": {"algo": other, "hparams": {"learning_rate": 1e-5}}}
    trainer = build_trainer(parse_config(config(algo, agents=agents, policies=own)))
    members = trainer.algorithm.members
    learnt = [member.algorithm.hp for member in members.values()]
    assert learnt[1].learning_rate == 1e-5
    assert all(getattr(learnt[0], name) == getattr(learnt[1], name) for name in names)
    trainer.close()


REFUSED = {
    "a policy that plays nobody": (config("ippo", policies={"late": {}}), "'late' plays no agent"),
    "rollouts and replay": (
        config("ippo", agents=SIDES, policies={"late": {"algo": "dqn"}}),
        "policies.late: 'dqn' is off-policy and the run's 'ippo' on-policy",
    ),
    "rollouts of other lengths": (
        config("ippo", agents=SIDES, policies={"late": {"hparams": {"num_steps": 4}}}),
        "policies.late.hparams.num_steps 4 differs from the run's 8",
    ),
    "replay at another rhythm": (
        config("dqn", agents=SIDES, policies={"late": {"hparams": {"batch_size": 4}}}),
        "policies.late learns at another rhythm than 'early'",
    ),
    "an unknown hyperparameter": (
        config("ippo", agents=SIDES, policies={"late": {"hparams": {"clip_coeff": 4}}}),
        "^policies.late: .*clip_coeff.*did you mean 'clip_coef'",
    ),
    "an unknown algorithm": (
        config("ippo", agents=SIDES, policies={"late": {"algo": "mapo"}}),
        "^policies.late: unknown algorithm 'mapo'; did you mean 'mappo'",
    ),
    "no state": (config("mappo", agents={"state": "none"}), "learns with the state of all agents"),
    "no state to mix by": (config("qmix", agents={"state": "none", "reward": "team_mean"}), "learns with the state"),
    "own rewards": (config("qmix"), "'qmix' learns one value for a team; set env.agents.reward"),
    "two teams": (
        config("vdn", agents={"reward": "team_mean", "teams": SIDES["policies"]}),
        "they must be in one team",
    ),
    "several steps": (config("dqn", hparams={"n_step": 3}), "set hparams.n_step: 1"),
    "a single agent": (
        config("ippo", agents={"ids": "none"}, env_id="CartPole-v1"),
        "are for several agents, and environment 'CartPole-v1' has one",
    ),
    "a team of none": (config("qmix", env_id="CartPole-v1"), "'qmix' is for several agents"),
    "actions that do not fit": (config("qmix", env_id="mpe2/simple_spread_v3"), "does not fit the agents of policy"),
}
REFUSED["actions that do not fit"][0]["env"] = {
    "kwargs": {"continuous_actions": True},
    "agents": {"reward": "team_mean"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_learn_is_refused_in_one_sentence(case: str) -> None:
    cfg, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words) as caught:
        build_trainer(parse_config(cfg))
    assert "\n" not in str(caught.value)


def test_a_saved_team_plays_joint_observations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = config("mappo", tmp_path, SIDES)
    run = rl_training.train(cfg).run_dir
    saved = rl_training.load(run)
    env = make_env(saved.config.env_id, saved.config.env)
    obs, _ = env.reset(seed=0)
    obs, *_ = env.step(saved.predict(obs))
    assert saved.predict(obs).shape == (3,)
    with pytest.raises(ConfigError, match="a policy of several agents is not exported"):
        saved.export("onnx", tmp_path / "x.onnx")
    with pytest.raises(ConfigError, match="has several agents; a dataset holds the episodes of one"):
        record(run, Amount(episodes=1))
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "early: agent_0, agent_1" in shown
    assert "eval/late/return_mean" in shown
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert re.search(r"team return .*\nearly .*\nlate ", capsys.readouterr().out)


def test_shards_and_teams_are_refused() -> None:
    cfg = config("ppo")
    cfg["training"] = {**cfg["training"], "shards": 2}
    cfg["env"]["num_envs"] = 4
    with pytest.raises(ConfigError, match="shards"):
        build_trainer(parse_config(cfg))
