"""Observations for critics only: no bit of an action depends on them, critics use them, the impossible is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rl_training
from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td3 import TD3
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, EncoderConfig, NetworkConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.networks import as_tensors
from rl_training.testing import check_algorithm
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

CUE = "RLProbe/HiddenCue-v0"
ON_POLICY = ("ppo", "a2c", "reinforce")
CONTINUOUS = ("sac", "td3", "ddpg", "crossq")
FILTERED = {"name": "gymnasium.wrappers:FilterObservation", "kwargs": {"filter_keys": ["obs"]}}


class Greedy(nn.Module):
    """A network of a user's own that reads whatever it is shown."""

    def __init__(self, observation_space: Any, config: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.keys = tuple(observation_space.spaces)
        self.out_features = 8
        self.linear = nn.Linear(len(self.keys), 8)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        assert tuple(obs) == self.keys
        return torch.tanh(self.linear(torch.cat(list(obs.values()), dim=1)))


def config(algo: str, memory: str = "none", **network: Any) -> dict[str, Any]:
    part = {"hidden_dims": [16], "memory": {"type": memory, "size": 8, "window": 4}}
    replay = {"learning_starts": 16, "batch_size": 16}
    sequences = {} if memory == "none" else {"sequence_length": 4}
    return {
        "algo": algo,
        "env_id": CUE,
        "env": {"num_envs": 4, "normalize_obs": True, "kwargs": {"continuous": algo in CONTINUOUS}},
        "hparams": {**({"num_steps": 16} if algo in ON_POLICY else replay), **sequences},
        "network": {"actor": part, "critic": part, "critic_only": ["cue"], **network},
        "training": {"total_timesteps": 64, "num_eval_episodes": 2},
    }


def trained(cfg: dict[str, Any], steps: int) -> Any:
    with pinned_threads(1):
        trainer = build_trainer(parse_config(cfg))
        try:
            while trainer.progress.env_steps < steps:
                trainer.train_step()
        finally:
            trainer.close()
    return trainer


def actions(policy: Any, cues: Any, deterministic: bool, steps: int = 3) -> np.ndarray:
    """Actions of several steps in which the cue is given and everything else is always the same."""
    rng, obs_rng, count = np.random.default_rng(3), np.random.default_rng(4), 5
    carry, taken = policy.initial_carry(count), []
    for step in range(steps):
        obs = {"obs": obs_rng.standard_normal((count, 1)).astype("f"), "cue": np.full((count, 1), cues[step], "f")}
        result = policy.act(obs, carry, np.full(count, step == 0), rng, deterministic=deterministic)
        carry = result.carry
        taken.append(result.env_actions)
    return np.stack(taken)


def is_blind(policy: Any) -> bool:
    """Whether actions, greedy and sampled, are the same to the last bit whatever the cue is."""
    return all(
        actions(policy, (1.0, 1.0, 1.0), greedy).tobytes() == actions(policy, (-7.0, 3.0, 0.1), greedy).tobytes()
        for greedy in (True, False)
    )


CASES = [
    *((algo, "none") for algo in (*ON_POLICY, *CONTINUOUS)),
    *(("ppo", memory) for memory in ("gru", "transformer")),
    *((algo, "lstm") for algo in ("a2c", "sac", "td3")),
]


@pytest.mark.parametrize(("algo", "memory"), CASES)
def test_no_bit_of_an_action_depends_on_what_only_critics_see(algo: str, memory: str) -> None:
    assert is_blind(trained(config(algo, memory), 64).algorithm.policy)


def test_without_the_option_actions_do_depend_on_it() -> None:
    assert not is_blind(trained(config("ppo", critic_only=[]), 64).algorithm.policy)
    assert not is_blind(trained(config("sac", critic_only=[]), 64).algorithm.policy)


def test_the_reserved_key_is_always_for_critics_only() -> None:
    cfg = config("ppo", critic_only=[])
    cfg["env"]["kwargs"] = {"key": "critic_state"}
    network = trained(cfg, 64).algorithm.network
    assert (tuple(network.actor.leaves), tuple(network.critic.leaves)) == (("obs",), ("critic_state", "obs"))


def test_a_network_of_your_own_is_not_shown_it_either() -> None:
    own = {"type": "test_critic_only:Greedy"}
    assert is_blind(trained(config("ppo", actor=own), 64).algorithm.policy)
    assert is_blind(trained(config("sac", actor=own), 64).algorithm.policy)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_critic_that_sees_the_cue_has_a_tenth_of_the_value_error_and_the_actor_stays_at_chance(seed: int) -> None:
    """True values are cue + P(match); who does not see the cue can at best predict their mean."""

    def error(**env: Any) -> float:
        cfg = config("ppo", critic_only=[] if env else ["cue"])
        cfg["env"] |= {"num_envs": 16, "normalize_obs": False, **env}
        cfg["hparams"] = {"num_steps": 16, "learning_rate": {"type": "linear", "start": 1e-2, "end": 0.0}}
        cfg["training"]["total_timesteps"] = 8_000
        network = trained({**cfg, "seed": seed}, 8_000).algorithm.network
        rows = {"obs": np.zeros((2, 1), "f"), "cue": np.array([[-1.0], [1.0]], "f")}
        obs = as_tensors({"obs": rows["obs"]} if env else rows)
        with torch.no_grad():
            values = network.values(obs).numpy()
            chosen = torch.softmax(network.action_head(network.actor(obs)).mean, 1).numpy()
        matches = chosen[[0, 1], [0, 1]]  # P(action 0 | cue -1) and P(action 1 | cue 1)
        assert matches.sum() == pytest.approx(1.0, abs=1e-6), "the actor sees no difference: chance, 0.5 on average"
        return float(np.abs(values - (rows["cue"][:, 0] + matches)).mean())

    unseen = error(wrappers=[FILTERED])
    assert unseen > 0.6
    assert error() < 0.1 * unseen


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_runs_resume_bit_by_bit_and_predict_needs_no_privileged_observation(algo: str, tmp_path: Path) -> None:
    given = config(algo)
    sections = {name: given[name] for name in ("env", "network")}
    check_algorithm(algo, environments=[CUE], hparams=given["hparams"], config=sections)
    result = rl_training.train(parse_config({**given, "output_dir": str(tmp_path)}))
    policy = rl_training.load(result.run_dir)
    seen, unseen = {"obs": np.zeros(1, "f"), "cue": np.ones(1, "f")}, {"obs": np.zeros(1, "f")}
    np.testing.assert_array_equal(policy.predict(seen), policy.predict(unseen))
    batch = {"obs": np.zeros((3, 1), "f")}
    assert len(policy.predict(batch)) == 3
    with pytest.raises(rl_training.types.ObservationError, match="with the keys cue, obs, got cue"):
        policy.predict({"cue": np.ones(1, "f")})
    assert len(rl_training.evaluate(result.run_dir, episodes=3)["returns"]) == 3


# -- images -----------------------------------------------------------------------------------------------------------

IMAGE = BoxSpec(np.zeros((3, 12, 12), np.uint8), np.full((3, 12, 12), 255, np.uint8), np.dtype(np.uint8))
SPEED = BoxSpec(np.full(2, -1, "f"), np.ones(2, "f"), np.dtype("f"))
ONE = BoxSpec(np.float32([-1.0]), np.float32([1.0]), np.dtype("f"))
SPACE = DictSpec({"camera": IMAGE, "speed": SPEED, "map": IMAGE, "action_mask": ONE, "place": DiscreteSpec(3)})


def observation(seed: int, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    pictures = {name: rng.integers(0, 256, (4, *IMAGE.shape), np.uint8) for name in ("camera", "map")}
    rest = {"speed": rng.standard_normal((4, 2)).astype("f"), "place": rng.integers(0, 3, 4)}
    return {**pictures, **rest, **changes}


@pytest.mark.parametrize("hidden", [("map",), ("camera", "map"), ("speed", "place"), ("map", "speed")])
@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_images_for_critics_have_convolutions_of_their_own(algo: str, hidden: tuple[str, ...]) -> None:
    space = DictSpec({name: leaf for name, leaf in SPACE.spaces.items() if name != "action_mask"})
    critic = BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig(features=8))
    network = NetworkConfig(BackboneConfig(hidden_dims=(8,)), critic, critic_only=hidden)
    ctx = BuildContext(space, ONE, network=network)
    algorithm: Any = SAC(ctx, SACConfig()) if algo == "sac" else TD3(ctx, TD3Config())
    ends = np.zeros(4, bool)
    batch = {"obs": observation(0), "next_obs": observation(1), "actions": np.zeros((4, 1), "f")}
    batch |= {"rewards": np.ones(4, "f"), "terminated": ends, "truncated": ends}
    for _ in range(2):
        algorithm.update(batch)

    def act(obs: Any) -> np.ndarray:
        return algorithm.policy.act(obs, {}, np.ones(4, bool), np.random.default_rng(0)).actions

    obs, other = observation(2), observation(3)
    hidden_changed = {**obs, **{name: other[name] for name in hidden}}
    rest_changed = {**other, **{name: obs[name] for name in hidden}}
    assert act(obs).tobytes() == act(hidden_changed).tobytes()
    assert act(obs).tobytes() != act(rest_changed).tobytes()
    without = {name: value for name, value in obs.items() if name not in hidden}
    assert act(obs).tobytes() == act(without).tobytes()
    with torch.no_grad():
        values = [algorithm.critics(as_tensors(rows), torch.zeros(4, 1)) for rows in (obs, hidden_changed)]
    assert not torch.equal(*values)


# -- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": (
        {"critic_only": ["queue"]},
        r"no observation is called 'queue', did you mean 'cue'\? \(obs, cue\)|'queue'",
    ),
    "all": ({"critic_only": ["obs", "cue"]}, "leaves the actor nothing to see: it names all of cue, obs"),
    "shared": ({"shared": True}, "network.shared makes actor and critic one network, which cannot hide cue"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(case: str) -> None:
    network, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as refusal:
        build_trainer(parse_config(config("ppo", **network)))
    assert "\n" not in str(refusal.value)


def test_observations_without_keys_and_algorithms_without_an_actor_are_refused() -> None:
    with pytest.raises(ConfigError, match="names keys of a Dict observation, and this observation has no keys"):
        build_trainer(parse_config({**config("ppo"), "env_id": "CartPole-v1", "env": {}}))
    dqn = {**config("dqn"), "env": {"num_envs": 4}}
    with pytest.raises(ConfigError, match=r"dqn acts with the network that values the actions.*\(cue\)"):
        build_trainer(parse_config(dqn))
    dqn["env"]["kwargs"], dqn["network"] = {"key": "critic_state"}, {}
    with pytest.raises(ConfigError, match=r"dqn acts with the network.*\(critic_state\)"):
        build_trainer(parse_config(dqn))
