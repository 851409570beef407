"""VDN and QMIX: numbers worked out by hand, monotonic mixing, and agents that are gone count for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.multi_agent.batches import all_transition_rows
from rl_training.algorithms.multi_agent.value_mixing import mixing_loss
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.config.loading import parse_config
from rl_training.models.mixers import MonotonicMixer, SumMixer


def config(algo: str, memory: str = "none", **agents: Any) -> dict[str, Any]:
    sequences = {"sequence_length": 3, "burn_in": 1} if memory != "none" else {}
    return {
        "algo": algo,
        "env_id": "RLTeam/Leaving-v0",
        "env": {"num_envs": 4, "agents": {"reward": "team_sum", **agents}},
        "hparams": {"learning_starts": 8, "batch_size": 12, "updates_per_step": 0.25, "gamma": 0.9, **sequences},
        "network": {"critic": {"hidden_dims": [16], "memory": memory}},
        "training": {"num_eval_episodes": 0},
    }


def built(cfg: dict[str, Any], steps: int = 1) -> Any:
    with pinned_threads(1):
        trainer = build_trainer(parse_config(cfg))
        for _ in range(steps):
            metrics = trainer.train_step()
        trainer.close()
    assert np.isfinite(float(metrics["train/loss"]))
    return trainer


def test_the_loss_counts_teams_that_acted() -> None:
    totals, targets = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([0.0, 4.0, 0.0])
    loss, error = mixing_loss(totals, targets, torch.tensor([1.0, 1.0, 0.0]))
    assert (float(loss), float(error)) == (0.5 * (1 + 4) / 2, 1.5)


@pytest.mark.parametrize("size", [4, 54])
def test_the_mixer_starts_near_the_sum(size: int) -> None:
    """Also where the state is long: a mixer that multiplies its agents' values makes targets run away."""
    mixer = MonotonicMixer(3, size, 32, 64, np.random.default_rng(0))
    values, state = torch.zeros(200, 3, requires_grad=True), torch.randn(200, size)
    totals = mixer(values, state)
    totals.sum().backward()
    assert values.grad is not None
    assert abs(float(values.grad.mean()) - 1.0) < 0.1
    assert float(totals.detach().std()) < 0.3


def test_mixers_grow_with_every_agent() -> None:
    mixer = MonotonicMixer(3, 4, 8, 16, np.random.default_rng(0))
    values, state = torch.randn(50, 3, requires_grad=True), torch.randn(50, 4)
    mixer(values, state).sum().backward()
    assert values.grad is not None
    assert (values.grad >= 0).all()
    assert (values.grad > 0).any()
    assert SumMixer()(torch.tensor([[1.0, 2.0, 4.0]]), None).tolist() == [7.0]


@pytest.mark.parametrize("algo", ["vdn", "qmix"])
def test_targets_are_those_of_the_team(algo: str) -> None:
    """The team's reward once, the mixture of those that go on, and nothing behind the end of the last agent."""
    trainer = built(config(algo))
    algorithm, view = trainer.algorithm.members["agents"].algorithm, trainer.algorithm.views["agents"]
    batch = all_transition_rows(view, trainer.buffer.sample(40))
    with torch.no_grad():
        rows = algorithm.prepare(batch)
        team = algorithm.team(batch, rows)
        targets = algorithm.targets_of(rows, team)
        lagging = algorithm.targets["values"].network
        for i in range(40):
            own = slice(3 * i, 3 * i + 3)
            left = batch["next_obs"]["obs"][own, 0]
            online = algorithm.q({k: v[own] for k, v in rows.next_obs.items()}).squeeze(2)
            values = lagging.q({k: v[own] for k, v in rows.next_obs.items()}).squeeze(2)
            best = values.gather(1, online.argmax(1, keepdim=True)).squeeze(1)
            there = torch.as_tensor((left > 0) & batch["next_valid"][own]).float()
            state = algorithm.state({k: v[own] for k, v in rows.next_obs.items()})
            total = float(lagging.mixer((best * there)[None], state))
            is_over = not batch["next_valid"][own].any()
            expected = batch["rewards"][own][0] + (0.0 if is_over else 0.9 * total)
            assert float(targets[i]) == pytest.approx(expected, abs=1e-5)
    assert set(np.unique(batch["rewards"].reshape(-1, 3).std(axis=1))) == {0.0}


@pytest.mark.parametrize("algo", ["vdn", "qmix"])
def test_a_team_that_was_cut_off_goes_on(algo: str) -> None:
    """A time limit is no end: the values of the agents that it cut off are those of their last observations."""
    cfg = config(algo)
    cfg["env"]["max_episode_steps"] = 2
    trainer = built(cfg)
    algorithm = trainer.algorithm.members["agents"].algorithm
    batch = all_transition_rows(trainer.algorithm.views["agents"], trainer.buffer.sample(40))
    with torch.no_grad():
        rows = algorithm.prepare(batch)
        team = algorithm.team(batch, rows)
        targets = algorithm.targets_of(rows, team)
        lagging, chosen = algorithm.targets["values"].network, algorithm.q(rows.next_obs).squeeze(2).argmax(1)
        best = lagging.q(rows.next_obs).squeeze(2).gather(1, chosen[:, None]).view(-1, 3)
        counted = torch.as_tensor(batch["next_valid"] | batch["truncated"]).view(-1, 3)
        totals = lagging.mixer(best * counted, algorithm.state(rows.next_obs))
    assert not team.terminated.any()
    cut = batch["truncated"].reshape(-1, 3).any(1)
    assert cut.any()
    assert (totals[cut].abs() > 1e-3).all(), "agents that were cut off have values"
    np.testing.assert_allclose(targets, batch["rewards"].reshape(-1, 3)[:, 0] + 0.9 * totals.numpy(), rtol=1e-5)


@pytest.mark.parametrize("algo", ["vdn", "qmix"])
def test_memory_keeps_teams_together(algo: str) -> None:
    """Along sequences the rows of a team stay side by side: values of the last step are those of single transitions."""
    trainer = built(config(algo, "gru"), 2)
    algorithm, view = trainer.algorithm.members["agents"].algorithm, trainer.algorithm.views["agents"]
    joint = trainer.buffer.sample(5)
    batch = trainer.algorithm.rows("agents", joint)
    with torch.no_grad():
        rows = algorithm.prepare(batch)
        team = algorithm.team(batch, rows)
    assert team.there.shape == (5 * 3, 3)
    alive = joint["obs"]["agents:alive"][:, 1:].swapaxes(0, 1).reshape(-1, 3)
    np.testing.assert_array_equal(team.there.numpy(), alive)
    rewards = joint["next_obs"]["agents:reward"][:, 1:].sum(axis=2).T.reshape(-1)
    np.testing.assert_allclose(team.rewards.numpy(), rewards)
    assert view.count == 3
