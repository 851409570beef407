"""Several agents as one environment: what each sees and gets, who is gone, how episodes end, and what is refused."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import team_cases

from rl_training.config.multi_agent.agents import AgentsConfig
from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.envs import list_envs, make_env, make_vector_env, space_spec
from rl_training.envs.multi_agent.build import make_joint
from rl_training.envs.multi_agent.joint import JointEnv
from rl_training.envs.multi_agent.mpe import DirectMPE, direct
from rl_training.envs.multi_agent.simultaneous import as_simultaneous
from rl_training.envs.probes.teams import Leaving
from rl_training.types import ConfigError, EnvError, JointSpec

MARKS = ("alive", "first", "ended", "reward")


def agents(**options: Any) -> EnvConfig:
    return EnvConfig(agents=AgentsConfig(**options))


def marks(obs: dict[str, np.ndarray], policy: str = "agents") -> list[list[float]]:
    return [obs[f"{policy}:{mark}"].tolist() for mark in MARKS]


def test_agents_leave_one_after_the_other() -> None:
    """Agent i takes i + 1 steps and earns i + 1 for each action 1."""
    env = JointEnv(Leaving())
    obs, _ = env.reset(seed=0)
    assert marks(obs) == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    obs, reward, terminated, truncated, info = env.step(np.ones(3))
    assert marks(obs) == [[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 2, 3]]
    assert (reward, terminated, truncated, info) == (2.0, False, False, {})
    assert obs["agents/obs"].tolist() == [[0], [1], [2]], "the last observation of the agent that ends is there"
    obs, reward, *_ = env.step(np.array([1.0, 0.0, 1.0]))
    assert marks(obs) == [[0, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 3]]
    assert obs["agents/obs"].tolist() == [[0], [0], [1]], "who is gone has zeros"
    obs, reward, terminated, truncated, info = env.step(np.ones(3))
    assert marks(obs) == [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 3]]
    assert (reward, terminated, truncated) == (1.0, True, False)
    each = {"agent_return/agent_0": 1.0, "agent_return/agent_1": 2.0, "agent_return/agent_2": 9.0}
    assert info == {"team_return": 12.0, "policy_return/agents": 4.0, **each}


def test_a_time_limit_truncates_those_that_are_left() -> None:
    env = JointEnv(Leaving(), max_episode_steps=2)
    env.reset(seed=0)
    env.step(np.ones(3))
    obs, _, terminated, truncated, info = env.step(np.ones(3))
    assert obs["agents:ended"].tolist() == [0, 1, 2]
    assert (terminated, truncated, info["team_return"]) == (False, True, 1 + 4 + 6)


def test_the_score_may_be_that_of_one_policy() -> None:
    policies = {"first": ("agent_0",), "rest": ("agent_[12]",)}
    env = JointEnv(Leaving(), AgentsConfig(policies=policies, score="rest"))
    env.reset(seed=0)
    assert env.step(np.ones(3))[1] == 2.5


@pytest.mark.parametrize("place", ["observation", "info"])
def test_masks_come_from_observations_or_infos(place: Any) -> None:
    env = JointEnv(team_cases.Masked(place), AgentsConfig(masks=place))
    obs, _ = env.reset(seed=0)
    assert obs["agents/action_mask"].tolist() == [[0, 1]] * 3
    obs, *_ = env.step(np.ones(3))
    assert obs["agents/action_mask"].tolist() == [[1, 1], [0, 1], [0, 1]], "agents that are gone may do anything"


@pytest.mark.parametrize("place", ["observation", "info"])
def test_agents_that_are_cut_off_keep_their_masks(place: Any) -> None:
    """Their last observations are valued by the best action that was possible there."""
    env = JointEnv(team_cases.Masked(place), AgentsConfig(masks=place), max_episode_steps=1)
    env.reset(seed=0)
    obs, *_ = env.step(np.ones(3))
    assert obs["agents:ended"].tolist() == [1, 2, 2]
    assert obs["agents/action_mask"].tolist() == [[1, 1], [0, 1], [0, 1]]


def test_different_spaces_by_policy() -> None:
    env = make_env("mpe2/simple_tag_v3", agents(policies={"hunters": ("adversary_*",), "prey": ("agent_*",)}))
    spec = space_spec(env.observation_space)
    assert isinstance(spec, JointSpec)
    shapes = {name: (played.agents, played.observation_space.shape) for name, played in spec.policies.items()}  # type: ignore[union-attr]
    hunters = ("adversary_0", "adversary_1", "adversary_2")
    assert shapes == {"hunters": (hunters, (16,)), "prey": (("agent_0",), (14,))}
    assert spec.spaces["critic_state"].shape == (3 * 16 + 14,)
    obs, _ = env.reset(seed=1)
    assert obs["critic_state"].tolist() == [*obs["hunters/obs"].reshape(-1), *obs["prey/obs"].reshape(-1)]


@pytest.mark.parametrize("name", ["simple_spread_v3", "simple_tag_v3", "simple_reference_v3", "simple_world_comm_v3"])
@pytest.mark.parametrize("continuous", [False, True])
def test_mpe_stepped_directly_is_its_parallel_form(name: str, continuous: bool) -> None:
    import importlib

    make = importlib.import_module(f"mpe2.{name}").parallel_env
    fast, slow = direct(make(continuous_actions=continuous)), make(continuous_actions=continuous)
    assert isinstance(fast, DirectMPE)
    rng = np.random.default_rng(0)
    for seed in range(2):
        one, two = fast.reset(seed=seed)[0], slow.reset(seed=seed)[0]
        for _ in range(30):
            for agent in two:
                np.testing.assert_array_equal(one[agent], two[agent])
            np.testing.assert_array_equal(fast.state(), slow.state())
            assert list(fast.agents) == list(slow.agents)
            if not slow.agents:
                break
            for agent in slow.agents:
                slow.action_space(agent).seed(int(rng.integers(1000)))
            actions = {agent: slow.action_space(agent).sample() for agent in slow.agents}
            results, expected = fast.step(dict(actions)), slow.step(dict(actions))
            one, two = results[0], expected[0]
            assert results[1:4] == expected[1:4]


def test_an_environment_that_takes_turns_is_converted_where_that_is_safe() -> None:
    from pettingzoo.classic.rps.rps import env as rps

    env = make_joint(rps(max_cycles=3), name="rps")
    obs, _ = env.reset(seed=0)
    assert obs["agents:alive"].tolist() == [1, 1]
    _, _, _, truncated, _ = env.step(np.array([0.0, 1.0]))
    assert not truncated


def test_a_game_is_no_team() -> None:
    from pettingzoo.classic.tictactoe.tictactoe import env as tictactoe

    with pytest.raises(EnvError, match=r"'tictactoe' takes turns .* act at the same time"):
        make_joint(tictactoe(), name="tictactoe")
    assert not isinstance(make_env("pettingzoo/classic/tictactoe_v3").unwrapped, JointEnv), "it is played from a seat"


def test_level_based_foraging_is_a_team() -> None:
    env = make_env("Foraging-8x8-2p-3f-v3", EnvConfig(max_episode_steps=7))
    obs, _ = env.reset(seed=3)
    assert obs["agents/obs"].shape == (2, 15)
    steps, truncated = 0, False
    while not truncated:
        obs, _, terminated, truncated, _ = env.step(np.zeros(2))
        assert not terminated
        steps += 1
    assert steps == 7
    assert obs["agents:ended"].tolist() == [2, 2]


def test_sync_and_workers_give_the_same_rows() -> None:
    configs = [EnvConfig(num_envs=3, vectorization=kind, num_workers=2) for kind in ("sync", "async")]  # type: ignore[arg-type]
    pairs = [make_vector_env(TrainConfig(algo="ippo", env_id="RLTeam/Leaving-v0", env=cfg)) for cfg in configs]
    try:
        first = [env.reset()[0] for env in pairs]
        for _ in range(5):
            results = [env.step(np.ones((3, 3))) for env in pairs]
            for one, two in zip(results[0][:4], results[1][:4], strict=True):
                if isinstance(one, dict):
                    assert all((one[key] == two[key]).all() for key in one)
                else:
                    np.testing.assert_array_equal(one, two)
        assert first[0].keys() == first[1].keys()
    finally:
        for env in pairs:
            env.close()


def test_names_are_listed() -> None:
    found = {listing.name: listing.ids for listing in list_envs()}
    assert {"mpe2/simple_spread_v3", "pettingzoo/sisl/pursuit_v5", "RLTeam/TwoStepGame-v0"} <= set(
        found["several agents"]
    )
    assert "Foraging-8x8-2p-3f-v3" in found["level-based foraging"]
    assert len(found["level-based foraging"]) < 20


REFUSED = {
    "mpe2/simple_tag_v3": (agents(), "cannot play adversary_0 and agent_0 .* Box\\(16,\\) float32 and Box\\(14,\\)"),
    "mpe2/simple_spread_v3": (agents(policies={"some": ("agent_0",)}), "agent 'agent_1' .* is in none of some"),
    "mpe2/simple_reference_v3": (agents(policies={"a": ("agent_*",), "b": ("agent_1",)}), "'agent_1' .* is in a and b"),
    "mpe2/simple_v3": (agents(policies={"a": ("agent_*",), "b": ("x*",)}), "no agent .* matches x\\* of 'b'"),
    "mpe2/simple_crypto_v3": (agents(policies="separate", score="eva"), "score 'eva' is none of the policies"),
    "Foraging-8x8-2p-3f-v3": (agents(state="env"), "has none; take concat"),
    "pettingzoo/mpe/simple_spread_v3": (agents(), "mpe is a package of its own now: mpe2/"),
    "mpe2/simple_spred_v3": (agents(), "did you mean 'simple_spread_v3'"),
    "RLTeam/Leaving-v0": (EnvConfig(frame_stack=2), "env.frame_stack is for environments of a single agent"),
    "pettingzoo/sisl/pursuit_v5": (EnvConfig(kwargs={"n_evader": 3}), "failed while it was built: .*'n_evader'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_sentence(name: str) -> None:
    cfg, words = REFUSED[name]
    with pytest.raises((ConfigError, EnvError), match=words) as caught:
        make_env(name, cfg)
    assert "\n" not in str(caught.value)


class Forgetful(Leaving):
    """Forgets the infos at the reset, or truncation in steps."""

    def __init__(self, resets: bool) -> None:
        super().__init__()
        self.resets = resets

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, infos = super().reset(seed, options)
        return obs if self.resets else (obs, infos)

    def step(self, actions: dict[str, Any]) -> Any:
        return super().step(actions)[:4]


class AtOnceByTurns(Leaving):
    """The AEC interface without its base class, of agents that could act at the same time."""

    metadata: ClassVar[dict[str, Any]] = {"is_parallelizable": True}

    def last(self, observe: bool = True) -> None: ...


def test_methods_that_give_something_else_are_named() -> None:
    with pytest.raises(EnvError, match=r"^reset\(\) of environment 'Forgetful' gave a dict; it must give"):
        JointEnv(Forgetful(True)).reset(seed=0)
    env = JointEnv(Forgetful(False))
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"^step\(\) of environment 'Forgetful' gave a tuple of 4; it must give"):
        env.step(np.ones(3))
    with pytest.raises(EnvError, match=r"'own' has PettingZoo's AEC interface without its base class AECEnv"):
        as_simultaneous(AtOnceByTurns(), "own")


ODD = {
    "numbers": r"possible_agents of environment 'Odd' must be different strings, not \[0, 1, 2\]",
    "nobody": r"'Odd' has no agents after reset\(\)",
    "stranger": r"'Odd' has agents \['guest'\] beside possible_agents",
    "larger": r"'Odd' gave an observation of agent_0 that is not in its observation_space Box.*: shape \(2,\)",
    "smaller": r"'Odd' gave an observation of agent_0 that is not in its observation_space Box.*: .*0",
    "nothing": r"'Odd' gave no observation of agent_0: reset\(\) must observe everybody in agents, and step\(\)",
    "state": r"state\(\) of environment 'Odd' gave 2 numbers; its state_space has 3",
}


@pytest.mark.parametrize("fault", ODD)
def test_what_an_environment_gives_is_looked_at(fault: str) -> None:
    with pytest.raises(EnvError, match=ODD[fault]) as caught:
        JointEnv(team_cases.Odd(fault)).reset(seed=0)
    assert "\n" not in str(caught.value)


def test_an_end_without_an_observation_is_named() -> None:
    env = JointEnv(team_cases.Forgets())
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"'Forgets' gave no observation of agent_0: .* the agents that it ends among"):
        env.step(np.ones(3))


def test_who_comes_back_begins_a_life() -> None:
    """What an earlier life remembered is not its own."""
    env = JointEnv(team_cases.ComesBack())
    env.reset(seed=0)
    marks = []
    for _ in range(3):
        obs, *_ = env.step(np.ones(3))
        marks.append((obs["agents:alive"][0], obs["agents:first"][0]))
    assert (1, 1) in marks


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policies": {}}, "names no policy"),
        ({"policies": {"a/b": ("x",)}}, "'a/b' is no name"),
        ({"policies": {"a": ("x",)}, "score": "b"}, "score 'b' is none of the policies"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AgentsConfig(**options)
