"""Teams in the compiled lane: what is counted, what an episode is, exact resume, evaluation, rewards of teams."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import parse_config
from rl_training.jax.algorithms.multi_agent.rewards import sharing_rewards
from rl_training.jax.training.driver import rows_like
from rl_training.training.collector import Episode
from rl_training.training.compiled import CompiledTrainer, of_teams
from rl_training.training.evaluation import evaluate_policy

SMALL = {"hidden_dims": [8]}


def trainer_of(algo: str = "mappo", env_id: str = "mpe2/simple_spread_v3", **given: Any) -> CompiledTrainer:
    config = {
        "algo": algo,
        "env_id": env_id,
        "backend": "jax",
        "lane": "compiled",
        "env": {"num_envs": 2, "agents": {"reward": "team_mean"}, "max_episode_steps": 4},
        "hparams": {"num_steps": 8, "num_epochs": 1, "num_minibatches": 2},
        "network": {"actor": SMALL, "critic": SMALL},
        "training": {"total_timesteps": 64, "eval_lane": "compiled", "num_eval_episodes": 3},
        **given,
    }
    trainer = build_trainer(parse_config(config))
    assert isinstance(trainer, CompiledTrainer)
    return trainer


@pytest.fixture(scope="module")
def trained() -> tuple[CompiledTrainer, dict[str, Any], dict[str, Any]]:
    """A trainer after two rollouts, its state after the first, and the metrics of the second."""
    trainer = trainer_of()
    trainer.train_step()
    half = trainer.state_dict()
    return trainer, half, trainer.train_step()


def test_env_steps_are_joint_and_agent_steps_are_beside_them(trained: Any) -> None:
    trainer, _, metrics = trained
    assert trainer.progress.env_steps == 2 * 8 * 2, "rollouts of eight steps of two environments"
    assert metrics["agent_steps"] == 3 * trainer.progress.env_steps
    assert metrics["rollout/episodes"] == 4
    assert metrics["rollout/length_mean"] == 4.0
    assert metrics["rollout/team_return"] == pytest.approx(3 * metrics["rollout/return_mean"])


def test_episodes_have_the_own_rewards_of_every_agent(trained: Any) -> None:
    """Agents learn from the mean of the team; what they earn themselves is what is logged."""
    episode = trained[0].episodes[0]
    own = [episode.info[f"agent_return/agent_{i}"] for i in range(3)]
    assert episode.episode_return == pytest.approx(np.mean(own))
    assert episode.info["team_return"] == pytest.approx(sum(own))
    assert episode.length == 4
    assert not episode.terminated


def leaves(state: dict[str, Any], skipped: str = "progress") -> dict[str, Any]:
    parts = {name: part for name, part in state.items() if name != skipped}
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(parts)}


def test_a_team_goes_on_exactly_where_it_was_saved(trained: Any) -> None:
    trainer, half, metrics = trained
    resumed = trainer_of()
    resumed.load_state_dict(half)
    again = resumed.train_step()
    assert {k: v for k, v in again.items() if "/" in k} == {k: v for k, v in metrics.items() if "/" in k}
    expected = leaves(trainer.state_dict())
    assert any("value_scale" in name for name in expected), "the scale of the values is saved with the policy"
    for name, leaf in leaves(resumed.state_dict()).items():
        np.testing.assert_array_equal(leaf, expected[name], err_msg=name)


def test_a_compiled_evaluation_has_the_convention_of_the_host(trained: Any) -> None:
    """Returns are means over the agents; the host plays mpe2 from other first places, with the same policy."""
    trainer = trained[0]
    compiled = trainer.evaluate(episodes=5)
    assert compiled.judged["team_return"].tolist() == (3 * compiled.returns).tolist()
    assert compiled.lengths.tolist() == [4] * 5
    cfg = parse_config({"algo": "mappo", "env_id": "mpe2/simple_spread_v3", "env": {"max_episode_steps": 4}})
    host = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=5, seed=0)
    assert abs(host.returns.mean() - compiled.returns.mean()) < 4.0
    assert host.lengths.tolist() == [4] * 5


def test_rows_of_one_environment_are_one_episode() -> None:
    rows = [Episode(2, 1.0, 5, True), Episode(3, 3.0, 5, True), Episode(0, -1.0, 7, False), Episode(1, 0.0, 7, False)]
    first, second = of_teams(rows, ["left", "right"])
    assert first == Episode(1, 2.0, 5, True, {"team_return": 4.0, "agent_return/left": 1.0, "agent_return/right": 3.0})
    assert (second.env_index, second.episode_return, second.length, second.terminated) == (0, -0.5, 7, False)


def test_a_reset_is_for_all_agents_of_an_environment() -> None:
    ends = jnp.array([True, True, True, False, False, False])
    assert rows_like(ends, jnp.zeros((2, 5))).tolist() == [[True], [False]]
    assert rows_like(ends, jnp.zeros(6)).tolist() == ends.tolist()


def test_rewards_are_shared_within_each_environment() -> None:
    learner = trainer_of().agent.functions._replace(learn=lambda state, batch, env_steps, key: (batch["rewards"], {}))
    own = jnp.array([[1.0, 2.0, 3.0, 10.0, 20.0, 60.0]])
    matrix = np.full((3, 3), 1 / 3)
    shared, _ = sharing_rewards(learner, matrix).learn(None, {"rewards": own}, 0, None)
    np.testing.assert_allclose(shared, [[2.0] * 3 + [30.0] * 3], rtol=1e-6)
    assert sharing_rewards(learner, None) is learner
