"""BaseAgent and AgentTrainer: agents of one page find the known answers, save, load and go on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rl_training.algorithms.agent import BaseAgent
from rl_training.data import ReplayBuffer
from rl_training.envs import PROBES, make_env, space_spec
from rl_training.models import PolicyNetwork, ValueFunction
from rl_training.numerics.returns import discounted_returns
from rl_training.training.agent_trainer import AgentTrainer
from rl_training.types import Batch, ConfigError, Metrics, SpaceSpec

ARMS, CHAIN = "RLProbe/ObsTimesAction-v0", "RLProbe/StaySwitch-v0"


class SmallDQN(BaseAgent):
    """Q-learning with a replay buffer and a target network."""

    def __init__(self, observation_space: SpaceSpec, action_space: Any, *, seed: int = 0) -> None:
        super().__init__(observation_space, action_space, seed=seed)
        self.q = ValueFunction(observation_space, action_space, rng=np.random.default_rng(seed), tau=0.05)
        self.networks["q"] = self.q
        self.optimizers["adam"] = torch.optim.Adam(self.q.online.parameters(), lr=3e-3)

    def select_action(self, obs: Any, training: bool = True) -> int:
        if training and self.rng.random() < 0.5:
            return int(self.rng.integers(self.action_space.n))
        with torch.no_grad():
            return int(self.q.online(torch.as_tensor(obs)[None]).argmax())

    def update(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            next_values = self.q.state_values(batch["next_obs"], target=True)
        alive = torch.as_tensor(~batch["terminated"])
        targets = torch.as_tensor(batch["rewards"]) + 0.9 * alive * next_values
        loss = F.mse_loss(self.q.action_values(batch["obs"], torch.as_tensor(batch["actions"])), targets)
        self.optimizers["adam"].zero_grad()
        loss.backward()
        self.optimizers["adam"].step()
        self.q.update_target()
        return {"loss": loss.item()}


class SmallReinforce(BaseAgent):
    """The policy gradient of whole episodes."""

    def __init__(self, observation_space: SpaceSpec, action_space: Any, *, seed: int = 0) -> None:
        super().__init__(observation_space, action_space, seed=seed)
        self.policy = PolicyNetwork(observation_space, action_space, rng=np.random.default_rng(seed))
        self.networks["policy"] = self.policy
        self.optimizers["adam"] = torch.optim.Adam(self.policy.parameters(), lr=1e-2)
        self.episodes_begun = 0

    def reset(self) -> None:
        self.episodes_begun += 1

    def select_action(self, obs: Any, training: bool = True) -> Any:
        return self.policy.get_action(np.asarray(obs)[None], not training, self.rng)[0]

    def update(self, batch: Batch) -> Metrics:
        ends = batch["terminated"] | batch["truncated"]
        returns = torch.as_tensor(discounted_returns(batch["rewards"], ends, gamma=0.9))[:, 0]
        obs, actions = torch.as_tensor(batch["obs"])[:, 0], torch.as_tensor(batch["actions"])[:, 0]
        loss = -(self.policy.log_prob(obs, actions) * returns).mean()
        self.optimizers["adam"].zero_grad()
        loss.backward()
        self.optimizers["adam"].step()
        return {"loss": loss.item()}


def made(kind: type[Any], env_id: str, seed: int = 0) -> Any:
    env = make_env(env_id)
    return kind(space_spec(env.observation_space), space_spec(env.action_space), seed=seed)


def dqn_trainer(seed: int = 0, env_id: str = CHAIN) -> AgentTrainer:
    agent = made(SmallDQN, env_id, seed)
    shape = agent.observation_space.shape
    replay = ReplayBuffer(2000, shape, (), action_dtype=np.int64, rng=np.random.default_rng(seed))
    return AgentTrainer(agent, env_id, replay=replay, batch_size=32, seed=seed)


def test_a_small_dqn_finds_the_known_values():
    trainer = dqn_trainer()
    history = trainer.train(60)
    assert len(history) == 60
    assert {row["length"] for row in history} == {32}
    for obs, values in PROBES[CHAIN].q_values:
        found = trainer.agent.q.online(torch.as_tensor(obs)[None])[0].tolist()
        assert found == pytest.approx(values, abs=0.5)


def test_a_small_reinforce_finds_the_best_actions_and_its_return():
    agent = made(SmallReinforce, ARMS)
    trainer = AgentTrainer(agent, ARMS)
    trainer.train(400)
    assert trainer.progress.episodes == trainer.progress.updates == 400
    assert agent.episodes_begun == 400
    for obs, action in PROBES[ARMS].best_actions:
        assert agent.select_action(obs, training=False) == action
    result = trainer.evaluate(num_episodes=20)
    assert result.returns.tolist() == [PROBES[ARMS].best_return] * 20


def test_a_saved_agent_acts_the_same(tmp_path: Path):
    agent = made(SmallReinforce, ARMS)
    AgentTrainer(agent, ARMS).train(50)
    agent.save(tmp_path / "agent")
    other = made(SmallReinforce, ARMS, seed=7)
    other.load(tmp_path / "agent")
    rows = np.random.default_rng(1).uniform(-1, 1, (50, 1)).astype(np.float32)
    assert [agent.select_action(row) for row in rows] == [other.select_action(row) for row in rows]
    assert {path.suffix for path in (tmp_path / "agent").rglob("*") if path.is_file()} <= {"", ".json", ".safetensors"}


def test_training_goes_on_from_a_checkpoint_as_if_uninterrupted(tmp_path: Path):
    whole = dqn_trainer()
    rows = whole.train(4)
    first = dqn_trainer()
    first.train(2)
    folder = first.save_checkpoint(tmp_path)
    assert folder.name == "step_000000000064"
    second = dqn_trainer(seed=0)
    second.load_checkpoint(tmp_path)
    assert second.train(2) == rows[2:]
    for name, value in whole.agent.q.state_dict().items():
        assert torch.equal(value, second.agent.q.state_dict()[name]), name


def test_evaluation_does_not_move_the_training():
    plain, watched = dqn_trainer(), dqn_trainer()
    plain.train(3)
    watched.train(2)
    watched.evaluate(2)
    watched.train(1)
    weights = [trainer.agent.q.online.state_dict() for trainer in (plain, watched)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_an_environment_that_is_already_built_is_refused():
    with pytest.raises(ConfigError, match="a function that makes one"):
        AgentTrainer(made(SmallDQN, ARMS), gym.make(ARMS))  # type: ignore[arg-type]
