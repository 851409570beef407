"""Your own environments of several agents in JAX, by dotted name: in both lanes, with one sentence for each fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import eval_env_maker
from rl_training.assembly.lanes import lane_of
from rl_training.config.loading import parse_config
from rl_training.config.schema import EnvConfig
from rl_training.envs import make_env
from rl_training.jax.checks import check_team
from rl_training.jax.envs import find, find_team, make, make_team
from rl_training.jax.envs.base import box
from rl_training.testing import check_multi_agent
from rl_training.training.compiled import CompiledTrainer
from rl_training.training.evaluation import evaluate_policy
from rl_training.types import ConfigError, DiscreteSpec, EnvError


class Beam(NamedTuple):
    place: Any
    goal: Any


class Porters:
    """Porters carry a beam along a line: it moves where most of them push; each is paid for the way to the goal, and
    for pushing. The goal is drawn anew for each episode."""

    observation_space: Any = box(-np.inf, np.inf, (2,))
    state_space: Any = box(-np.inf, np.inf, (2,))
    action_space: Any = DiscreteSpec(3)
    max_episode_steps: int | None = 6

    def __init__(self, count: int = 3) -> None:
        self.agents: Any = tuple(f"porter_{i}" for i in range(count))

    def init(self, key: Any, n: int) -> Any:
        return Beam(jnp.zeros(n), jax.random.normal(key, (n,)))

    def critic_state(self, state: Any) -> Any:
        return jnp.stack([state.place, state.goal], axis=1)

    def obs(self, state: Any) -> Any:
        numbers = jnp.broadcast_to(jnp.arange(len(self.agents), dtype=jnp.float32), (len(state.goal), len(self.agents)))
        ways = jnp.broadcast_to((state.goal - state.place)[:, None], numbers.shape)
        return jnp.stack([ways, numbers], axis=2)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        place = state.place + (action - 1).mean(1)
        away = jnp.abs(state.goal - place)
        rewards = -away[:, None] - 0.01 * jnp.abs(action - 1)
        return Beam(place, state.goal), rewards, away < 0.1, jnp.zeros(len(place), bool)


NAME = f"{__name__}:Porters"


def config(**given: Any) -> Any:
    small = {"hidden_dims": [8]}
    return parse_config(
        {
            "algo": "mappo",
            "env_id": NAME,
            "backend": "jax",
            "env": {"num_envs": 2},
            "hparams": {"num_steps": 8, "num_epochs": 1, "num_minibatches": 2},
            "network": {"actor": small, "critic": small},
            "training": {"total_timesteps": 32, "eval_lane": "compiled", "num_eval_episodes": 4},
            **given,
        }
    )


def test_it_is_found_by_its_dotted_name() -> None:
    assert find_team(NAME) is not None
    assert find(NAME) is None, "it is no environment of a single agent"
    assert lane_of(config()) == "compiled"
    assert make_team(NAME, {"count": 2}).agents == ("porter_0", "porter_1")


def test_the_host_plays_the_episodes_of_the_compiled_lane() -> None:
    """The same seeds, states, actions and ends: returns and lengths of a policy agree in both forms."""
    trainer = build_trainer(config())
    assert isinstance(trainer, CompiledTrainer)
    assert trainer.train_step()["agent_steps"] == 3 * 16
    compiled = trainer.evaluate(episodes=4)
    host = evaluate_policy(trainer.algorithm.policy, eval_env_maker(config(), None), episodes=4, seed=0)
    np.testing.assert_allclose(host.returns, compiled.returns, rtol=1e-5)
    assert host.lengths.tolist() == compiled.lengths.tolist()


def test_the_host_form_passes_the_check_of_teams() -> None:
    check_multi_agent(NAME, EnvConfig(kwargs={"count": 2})).raise_for_errors()


@pytest.mark.parametrize(("limit", "length"), [(None, 6), (3, 3), (8, 8)])
def test_env_max_episode_steps_replaces_its_time_limit(limit: int | None, length: int) -> None:
    team: Any = make_team(NAME, None, limit)
    assert team.max_episode_steps == length
    env = make_env(NAME, EnvConfig(max_episode_steps=limit))
    env.reset(seed=1)
    steps, ended = 0, False
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.zeros(3))  # all push away from the goal, which is ahead
        steps, ended = steps + 1, terminated or truncated
    assert (steps, truncated) == (length, True)


def test_torch_algorithms_and_several_policies_play_it_on_the_host() -> None:
    env, training = {"num_envs": 2, "agents": {"policies": "separate"}}, {"total_timesteps": 32}
    metrics = build_trainer(config(backend="torch", env=env, training=training)).train_step()
    assert metrics["agent_steps"] == 3 * 16
    compiled = config(env={"agents": {"policies": "separate"}}, lane="compiled")
    with pytest.raises(ConfigError, match="compiled programs have one policy"):
        lane_of(compiled)


def test_an_unknown_argument_and_a_missing_picture_are_said() -> None:
    wrong = EnvConfig(kwargs={"cuont": 2})
    with pytest.raises(ConfigError, match="did you mean 'count'"):
        make_env(NAME, wrong)
    with pytest.raises(ConfigError, match="did you mean 'count'"):
        make_team(NAME, wrong.kwargs)
    with pytest.raises(EnvError, match=r"cannot render; give its class a method render\(state\)"):
        make_env(NAME, render_mode="rgb_array")


def stepped(**changes: Callable[[Any], Any]) -> Callable[..., Any]:
    """A step function with some of its results replaced."""

    def step(self: Porters, state: Any, action: Any, key: Any) -> Any:
        names = ("state", "rewards", "terminated", "truncated")
        results = dict(zip(names, Porters.step(self, state, action, key), strict=True))
        return tuple(changes.get(name, lambda x: x)(value) for name, value in results.items())

    return step


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a state without rows": (
        {"init": lambda self, key, n: Beam(jnp.zeros(n), jnp.zeros(()))},
        r"made a state\.goal of shape \(\) for n = 3",
    ),
    "one observation for all": (
        {"obs": lambda self, state: self.critic_state(state)},
        r"obs\(state\) must be floats of shape \(3, 2, 2\) for 3 environments, not float32\[3, 2\]",
    ),
    "a state for each agent": (
        {"critic_state": lambda self, state: self.obs(state)},
        r"critic_state\(state\) must be floats of shape \(3, 2\) for 3 environments, not float32\[3, 2, 2\]",
    ),
    "one reward for all": (
        {"step": stepped(rewards=lambda rewards: rewards[:, 0])},
        r"step: rewards must be floats of shape \(3, 2\) for 3 environments, not float32\[3\]",
    ),
    "an end for each agent": (
        {"step": stepped(terminated=lambda ends: jnp.stack([ends, ends], axis=1))},
        r"step: terminated must be bools of shape \(3,\) for 3 environments, not bool\[3, 2\]",
    ),
    "integers": ({"observation_space": DiscreteSpec(4)}, "observation_space must be a BoxSpec of float32"),
    "a state that is no vector": ({"state_space": box(0.0, 1.0, (2, 2))}, "state_space must be a vector"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(ConfigError, match=message):
        check_team(type("Wrong", (Porters,), changes)(2), "environment 'Wrong'")


@pytest.mark.parametrize("agents", [(), ("one", "one"), (0, 1)])
def test_agents_have_different_names(agents: tuple[Any, ...]) -> None:
    env = Porters()
    env.agents = agents
    with pytest.raises(ConfigError, match="agents must be different names, at least one"):
        check_team(env, "environment 'Porters'")


class Nameless(Porters):
    """Says what critics see, and not who the agents are."""

    def __init__(self) -> None:
        pass


class Stateless:
    """Several agents, and nothing for their critics: who they are is known only when it is made."""

    observation_space, action_space, max_episode_steps = Porters.observation_space, Porters.action_space, 6
    init, obs, step = Porters.init, Porters.obs, Porters.step

    def __init__(self) -> None:
        self.agents = ("one", "other")


@pytest.mark.parametrize("build", [make, make_env])
def test_agents_without_a_state_are_refused(build: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="has no state_space; an environment of several agents in JAX needs agents, "):
        build(f"{__name__}:Stateless")


@pytest.mark.parametrize("build", [make_team, make_env])
def test_what_is_missing_is_named(build: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="has no agents; an environment of several agents in JAX needs agents, "):
        build(f"{__name__}:Nameless")
