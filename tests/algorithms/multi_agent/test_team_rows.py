"""What a policy of a team sees and learns from: its own agents' rows, their lives, and nothing of anybody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import team_cases

import rl_training
from rl_training.algorithms.multi_agent.batches import rollout_rows, transition_rows
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.numerics.returns import gae
from rl_training.types import CRITIC_STATE

assert team_cases.Alone
SMALL = {"hidden_dims": [16]}


def config(algo: str, env_id: str = "RLTeam/Leaving-v0", **sections: Any) -> dict[str, Any]:
    replay = {"learning_starts": 8, "batch_size": 16, "updates_per_step": 0.5}
    hparams = replay if algo in ("dqn", "vdn", "qmix") else {"num_steps": 12}
    base = {
        "algo": algo,
        "env_id": env_id,
        "env": {"num_envs": 4},
        "hparams": hparams,
        "network": {"actor": SMALL, "critic": SMALL},
        "training": {"num_eval_episodes": 0, "total_timesteps": 96, "checkpoint_frequency": 48},
    }
    return {**base, **sections}


def trained(cfg: dict[str, Any], steps: int = 1) -> Any:
    with pinned_threads(1):
        trainer = build_trainer(parse_config(cfg))
        for _ in range(steps):
            trainer.train_step()
        trainer.close()
    return trainer


# -- acting -----------------------------------------------------------------------------------------------------------


def joint_obs(policy: Any, count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    obs = {}
    for key, leaf in policy.joint.spaces.items():
        values = rng.standard_normal((count, *leaf.shape))
        obs[key] = values.astype(leaf.dtype) if ":" not in key else np.ones((count, *leaf.shape), leaf.dtype)
    return obs


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("algo", ["mappo", "qmix"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_policy_sees_only_the_observation_of_its_agent(algo: str, memory: str, deterministic: bool) -> None:
    """Changing the rows of the others and the state changes no bit of an agent's actions, over three steps."""
    network = {"actor": {**SMALL, "memory": memory}, "critic": {**SMALL, "memory": memory}}
    env = {"num_envs": 4, "agents": {"reward": "team_mean"}}
    sequences = {"sequence_length": 4} if memory != "none" else {}
    cfg = config(algo, "mpe2/simple_spread_v3", env=env, network=network)
    policy = trained({**cfg, "hparams": {**cfg["hparams"], **sequences}}).algorithm.policy
    taken = []
    for others in (1, 2):
        rng, carry, actions = np.random.default_rng(7), policy.initial_carry(5), []
        for step in range(3):
            obs, changed = joint_obs(policy, 5, 10 + step), joint_obs(policy, 5, 100 * others + step)
            obs["agents/obs"][:, [0, 2]] = changed["agents/obs"][:, [0, 2]]
            obs[CRITIC_STATE] = changed[CRITIC_STATE]
            result = policy.act(obs, carry, np.full(5, step == 0), rng, deterministic=deterministic)
            carry = result.carry
            actions.append(result.env_actions[:, 1])
        taken.append(np.array(actions))
    np.testing.assert_array_equal(taken[0], taken[1])


def test_permuting_agents_without_ids_permutes_their_actions() -> None:
    cfg = config("ippo", "mpe2/simple_spread_v3", env={"num_envs": 4, "agents": {"ids": "none"}})
    policy = trained(cfg).algorithm.policy
    obs, order = joint_obs(policy, 50, 0), [2, 0, 1]
    permuted = {**obs, "agents/obs": obs["agents/obs"][:, order]}
    results = [
        policy.act(each, {}, np.zeros(50, bool), np.random.default_rng(0), deterministic=True).env_actions
        for each in (obs, permuted)
    ]
    np.testing.assert_array_equal(results[0][:, order], results[1])
    assert len(np.unique(results[0])) > 1
    with_ids = trained(config("ippo", "mpe2/simple_spread_v3", hparams={"num_steps": 12, "learning_rate": 0.1}), 3)
    same = {**obs, "agents/obs": np.repeat(obs["agents/obs"][:, :1], 3, axis=1)}
    actions = with_ids.algorithm.policy.act(same, {}, np.zeros(50, bool), np.random.default_rng(0), deterministic=True)
    assert (actions.env_actions[:, 0] != actions.env_actions[:, 2]).any(), "ids tell equal observations apart"


# -- learning ---------------------------------------------------------------------------------------------------------


def collected(num_steps: int, **agents: Any) -> Any:
    """A rollout of `Leaving` whose agents always choose action 1, as its trainer's algorithm gets it."""
    cfg = config("ippo", env={"num_envs": 2, "agents": agents}, hparams={"num_steps": num_steps})
    trainer = build_trainer(parse_config(cfg))
    for member in trainer.algorithm.members.values():
        output = member.algorithm.network.action_head.output
        output.weight.data.zero_()
        output.bias.data[:] = output.bias.data.new_tensor([-1e6, 1e6])
    trainer.collector.collect(num_steps, trainer.buffer)
    return trainer, trainer.buffer.as_batch()


def test_lives_of_different_lengths_have_the_returns_of_a_reference() -> None:
    """Seven steps: two episodes of three and the first step of a third. Agent i earns i + 1 in each of i + 1 steps."""
    trainer, batch = collected(7)
    rows = rollout_rows(trainer.algorithm.views["agents"], batch)
    lives = {0: [0, 3, 6], 1: [0, 1, 3, 4, 6], 2: list(range(7))}
    for agent, alive in lives.items():
        for env in range(2):
            row = env * 3 + agent
            assert np.flatnonzero(rows["valid"][:, row]).tolist() == alive
            assert rows["rewards"][rows["valid"][:, row], row].tolist() == [agent + 1.0] * len(alive)
            ends = [t for t in alive if t % 3 == agent]
            assert np.flatnonzero(rows["terminated"][:, row]).tolist() == ends
            assert np.flatnonzero(rows["is_first"][:, row] & rows["valid"][:, row]).tolist() == [0, 3, 6]
    assert not rows["truncated"].any()
    index = np.flatnonzero(rows["terminated"].reshape(-1))
    np.testing.assert_array_equal(rows["final_index"], index)
    assert (rows["final_obs"]["obs"] == 0).all(), "no steps are left at the end of a life"
    np.testing.assert_array_equal(rows["final_obs"]["agent_id"], index % 6 % 3)

    gamma, values = 0.9, np.full(rows["rewards"].shape, 0.5, np.float32)
    following = np.full_like(values, 0.5)
    ends = rows["terminated"] | rows["truncated"]
    _, returns = gae(
        rows["rewards"], values, following, rows["terminated"], ends, gamma=gamma, gae_lambda=1.0, valid=rows["valid"]
    )
    for row in range(6):
        agent, expected = row % 3, {}
        for t in reversed([t for t in range(7) if rows["valid"][t, row]]):
            if t % 3 == agent:  # the last step of a life
                future = 0.0
            else:
                future = 0.5 if t == 6 else expected[t + 1]
            expected[t] = agent + 1.0 + gamma * future
        found = {t: returns[t, row] for t in expected}
        assert found == pytest.approx(expected)


def test_truncated_lives_keep_their_last_observation() -> None:
    cfg = config("ippo", env={"num_envs": 2, "max_episode_steps": 2}, hparams={"num_steps": 4})
    trainer = build_trainer(parse_config(cfg))
    trainer.collector.collect(4, trainer.buffer)
    rows = rollout_rows(trainer.algorithm.views["agents"], trainer.buffer.as_batch())
    assert rows["truncated"].sum() == 4, "agent 2, twice in each of two environments"
    last = rows["final_obs"]["obs"][rows["final_obs"]["agent_id"] == 2]
    assert last[:, 0].tolist() == [1.0] * 4, "one of its steps is left when the time is up"
    trainer.close()


def test_team_rewards_are_those_of_the_team() -> None:
    for reward, first in (("team_mean", 2.0), ("team_sum", 6.0)):
        trainer, batch = collected(3, reward=reward)
        rewards = rollout_rows(trainer.algorithm.views["agents"], batch)["rewards"]
        assert rewards[0].tolist() == [first] * 6
        assert rewards[2, 2] == first / 2, "who is gone earns nothing"
    patterns = {"early": ["agent_[01]"], "late": ["agent_2"]}
    trainer, batch = collected(3, reward="team_sum", teams=patterns)
    assert rollout_rows(trainer.algorithm.views["agents"], batch)["rewards"][0, :3].tolist() == [3.0, 3.0, 3.0]
    trainer, batch = collected(3, reward="team_mean", policies=patterns)
    assert rollout_rows(trainer.algorithm.views["early"], batch)["rewards"][0].tolist() == [1.5] * 4
    assert rollout_rows(trainer.algorithm.views["late"], batch)["rewards"][0].tolist() == [3.0] * 2


def test_rows_of_replay_are_those_of_agents_that_are_there() -> None:
    trainer = trained(config("dqn"), 1)
    batch = trainer.buffer.sample(64)
    rows = transition_rows(trainer.algorithm.views["agents"], batch)
    assert len(rows["rewards"]) == int(batch["obs"]["agents:alive"].sum()) < 64 * 3
    assert (rows["obs"]["obs"] > 0).all(), "an agent that is there has steps left"
    assert (rows["terminated"] == (rows["next_obs"]["obs"][:, 0] == 0)).all()


SIDES = {"early": ["agent_0"], "late": ["agent_[12]"]}
GRU = {"network": {"actor": {"memory": "gru", **SMALL}, "critic": {"memory": "gru", **SMALL}}}
IN_SEQUENCES = {"learning_starts": 8, "batch_size": 4, "sequence_length": 4, "burn_in": 4, "updates_per_step": 0.5}


@pytest.mark.parametrize(
    ("algo", "sections"),
    [
        ("ippo", {}),
        ("ippo", GRU),
        ("mappo", {}),
        ("reinforce", {}),
        ("dqn", {"hparams": {"learning_starts": 8, "batch_size": 2}}),
        ("dqn", {"hparams": IN_SEQUENCES, **GRU}),
    ],
)
def test_a_policy_whose_agents_are_gone_waits(algo: str, sections: dict[str, Any]) -> None:
    env = {"num_envs": 2, "agents": {"policies": SIDES}}
    trainer = build_trainer(parse_config(config(algo, "team_cases:LeavesEarly", env=env, **sections)))
    metrics = trainer.train_step(12)
    assert "train/early/loss" in metrics or algo == "dqn"
    before = {name: network_of(trainer, name) for name in SIDES}
    metrics = trainer.train_step(12)
    assert any(name.startswith("train/late/") for name in metrics)
    assert all(np.isfinite(float(value)) for name, value in metrics.items() if name.startswith("train/"))
    if algo != "dqn":  # a rollout in which the early agent is never there
        assert not any(name.startswith("train/early/") for name in metrics)
        assert network_of(trainer, "early") == before["early"]
    assert network_of(trainer, "late") != before["late"]
    trainer.close()


def network_of(trainer: Any, policy: str) -> list[float]:
    parameters = trainer.algorithm.policy.members[policy].network.parameters()
    return [float(value) for tensor in parameters for value in tensor.detach().reshape(-1)]


def test_pieces_of_a_rollout_in_which_an_agent_is_gone_are_left_out() -> None:
    """Agent 0 is there in the first of fifty steps: with pieces of two, in one of ten."""
    hparams = {"num_steps": 20, "sequence_length": 2, "num_minibatches": 15}
    trainer = trained(config("ippo", "team_cases:LeavesEarly", hparams=hparams, env={"num_envs": 1}, **GRU))
    rows = trainer.algorithm.rows("agents", trainer.buffer.as_batch())
    rollout = trainer.algorithm.members["agents"].algorithm.prepare(rows)
    assert len(rollout) == 10 + 10 + 1
    assert len(rollout.learnt().returns) == 20 + 20 + 1
    for value in trainer.algorithm.watched():
        assert np.isfinite(np.asarray(value)).all()


def test_env_steps_are_joint_steps_and_agents_are_counted_beside_them() -> None:
    trainer = trained(config("ippo", hparams={"num_steps": 3}))
    assert trainer.progress.env_steps == 4 * 3
    assert trainer.collector.agent_steps == 4 * (3 + 2 + 1)


# -- a team of one is an agent ----------------------------------------------------------------------------------------


def weights(run: Path) -> dict[str, np.ndarray]:
    from rl_training.checkpointing.manager import CheckpointManager
    from rl_training.checkpointing.state_tree import flatten

    state = CheckpointManager(run).load("latest", parts={"policy"}).parts["policy"]
    network = state.get("pole", state.get("agents", state))["network"]
    return flatten(network).arrays


@pytest.mark.parametrize("overlap", [False, True])
def test_a_team_of_one_learns_as_a_single_agent_does(tmp_path: Path, overlap: bool) -> None:
    """IPPO without normalised values in an environment of one agent is PPO in CartPole, bit for bit."""
    env, hparams = {"num_envs": 4, "normalize_obs": True, "overlap": overlap}, {"num_steps": 16}
    names = {"ppo": "CartPole-v1", "ippo": "team_cases:Alone"}
    limit = {"ppo": {}, "ippo": {"max_episode_steps": 500}}
    runs = {}
    for algo, env_id in names.items():
        own = {"normalize_value": False} if algo == "ippo" else {}
        cfg = config(algo, env_id, env={**env, **limit[algo]}, hparams={**hparams, **own})
        runs[algo] = rl_training.train({**cfg, "output_dir": str(tmp_path)}).run_dir
    one, two = weights(runs["ppo"]), weights(runs["ippo"])
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)
