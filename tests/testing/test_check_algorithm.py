"""`check_algorithm` lets a sound algorithm pass and names what is wrong with each broken one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import BaseAlgorithm
from rl_training.hparams.base import supports_anything
from rl_training.hparams.ppo import SPEC
from rl_training.models import PolicyNetwork
from rl_training.numerics.returns import discounted_returns
from rl_training.registry import algorithms
from rl_training.testing import ConformanceError, check_algorithm, check_env
from rl_training.types import ConfigError, DiscreteSpec, UpdateResult

CARTPOLE = ["CartPole-v1"]
IDS = ["dotted name", "spec of one's own", "registered spec", "registered name"]


class Sound(BaseAlgorithm):
    """Policy gradient on minibatches in random order; made for Discrete actions."""

    @dataclass(frozen=True)
    class Hparams:
        num_steps: int = 16
        learning_rate: float = 1e-2

    @staticmethod
    def supports(observation_space: Any, action_space: Any) -> str | None:
        return None if isinstance(action_space, DiscreteSpec) else "Sound takes Discrete actions only"

    def setup(self) -> None:
        ctx = self.ctx
        policy = PolicyNetwork(ctx.observation_space, ctx.action_space, ctx.network.actor, ctx.streams("init"))
        self.networks["policy"] = policy
        self.optimizers["adam"] = torch.optim.Adam(policy.parameters(), lr=self.hparams.learning_rate)
        self.generators["order"] = ctx.streams("order")

    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return self.networks["policy"].get_action(obs, deterministic, rng)

    def update(self, batch: Any) -> Any:
        ends = batch["terminated"] | batch["truncated"]
        gains = discounted_returns(batch["rewards"], ends, gamma=0.99)
        obs, actions, gains = self.flat(batch, "obs", "actions", gains)
        for rows in torch.from_numpy(self.generators["order"].permutation(len(gains))).chunk(2):
            part = {name: value[rows] for name, value in obs.items()} if isinstance(obs, dict) else obs[rows]
            logprobs = self.networks["policy"].log_prob(part, actions[rows])
            loss = -(logprobs * (gains[rows] - gains.mean())).mean()
            self.optimizers["adam"].zero_grad()
            loss.backward()
            self.optimizers["adam"].step()
        return UpdateResult({"loss": loss.detach()})


def test_a_sound_algorithm_passes_and_says_what_it_refuses():
    report = check_algorithm(Sound)
    assert report.trained_on == ("CartPole-v1", "RLProbe/DictObs-v0", "RLProbe/MaskedArms-v0", "FrozenLake-v1")
    assert report.refused["Pendulum-v1"] == "Sound takes Discrete actions only"
    assert str(report).splitlines()[1] == "  refuses Pendulum-v1: Sound takes Discrete actions only"
    assert "Sound" not in algorithms


@pytest.mark.parametrize("algorithm", [f"{__name__}:Sound", replace(SPEC, name="my_ppo"), SPEC, "a2c"], ids=IDS)
def test_names_specs_and_classes_are_taken(algorithm: Any):
    assert check_algorithm(algorithm, environments=CARTPOLE).trained_on == ("CartPole-v1",)
    assert algorithms.get("ppo") is SPEC


def test_an_algorithm_without_declared_hyperparameters_passes():
    class Free(Sound):
        Hparams = dict

        def __init__(self, ctx: Any, hparams: Any) -> None:
            assert hparams == {"num_steps": 8, "pace": 3}
            super().__init__(ctx, Sound.Hparams())

    check_algorithm(Free, environments=CARTPOLE, hparams={"pace": 3})


# -- what is wrong, in words ------------------------------------------------------------------------------------------


class GlobalInit(Sound):
    def setup(self) -> None:
        super().setup()
        torch.nn.init.normal_(self.networks["policy"].head.output.weight)


class GlobalNoise(Sound):
    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return np.random.randint(0, 2, len(obs))  # noqa: NPY002


class GlobalOrder(Sound):
    def update(self, batch: Any) -> Any:
        torch.randperm(4)
        return super().update(batch)


class Remembers(Sound):
    calls = 0

    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        self.calls += 1
        return np.full(len(obs), self.calls % 2)


class CountsEvaluations(Sound):
    """Its greedy actions are plain; being asked for them changes what it explores."""

    greedy = 0

    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        self.greedy += deterministic
        return (rng.integers(2, size=len(obs)) if self.greedy else super().act(obs, rng)) * (not deterministic)


class Forgets(Sound):
    """Learns ever more slowly and does not save how far it is."""

    updates = 0

    def update(self, batch: Any) -> Any:
        self.updates += 1
        self.optimizers["adam"].param_groups[0]["lr"] = 1e-2 / self.updates
        return super().update(batch)


class LosesMoments(Sound):
    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any, /) -> None:
        pass


class RoundsItsState(Sound):
    pace = 1.25

    def state_dict(self) -> Any:
        return {**super().state_dict(), "pace": self.pace}

    def load_state_dict(self, state: Any, /) -> None:
        super().load_state_dict(state)
        self.pace = round(state["pace"], 1)


class Unsaveable(Sound):
    def state_dict(self) -> Any:
        return {**super().state_dict(), "seen": {1, 2}}


class NotLearning(Sound):
    def update(self, batch: Any) -> Any:
        return UpdateResult({})


class PlainMetrics(Sound):
    def update(self, batch: Any) -> Any:
        return {"loss": 1.0}


class NotANumber(Sound):
    def update(self, batch: Any) -> Any:
        return UpdateResult({**super().update(batch).metrics, "spread": float("nan")})


class WritesIntoBatch(Sound):
    def update(self, batch: Any) -> Any:
        batch["rewards"] *= 0.5
        return super().update(batch)


class WrongShape(Sound):
    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return super().act(obs, rng, deterministic=deterministic)[:, None]


class Floats(Sound):
    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return super().act(obs, rng, deterministic=deterministic).astype(np.float64)


class SameForEverySeed(Sound):
    def setup(self) -> None:
        super().setup()
        rng = np.random.default_rng(0)
        with torch.no_grad():
            for parameter in self.networks["policy"].parameters():
                parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))

    def update(self, batch: Any) -> Any:
        with torch.no_grad():
            for parameter in self.networks["policy"].parameters():
                parameter.mul_(0.9)
        return UpdateResult({})


class EmptyRefusal(Sound):
    @staticmethod
    def supports(observation_space: Any, action_space: Any) -> Any:
        return False


class DependsOnNeighbours(Sound):
    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return np.full(len(obs), int(len(obs) > 1)) if deterministic else super().act(obs, rng)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (GlobalInit, r"same seed differ after 3 updates, at 'policy/.*ctx.streams\(\"init\"\)"),
        (GlobalNoise, r"act\(\) draws from the global random state of numpy.random"),
        (GlobalOrder, r"update\(\) draws from the global random state of torch"),
        (Remembers, r"act\(deterministic=False\) gives other actions for the same observations"),
        (CountsEvaluations, r"an evaluation changed the training that followed it, at '"),
        (Forgets, r"saved and continued ends differently, at '.*not in state_dict\(\)"),
        (LosesMoments, r"saved and continued ends differently"),
        (RoundsItsState, r"is not what was loaded, at 'algorithm/pace' \(1.25 and 1.2\)"),
        (Unsaveable, r"state_dict\(\) cannot be saved: .*seen"),
        (NotLearning, r"5 updates changed nothing in policy.state_dict\(\)"),
        (PlainMetrics, r"update\(\) returned a dict; return UpdateResult"),
        (NotANumber, r"returned the metric 'spread': nan; metrics are finite"),
        (WritesIntoBatch, r"update\(\) writes into the batch, at 'rewards'"),
        (WrongShape, r"WrongShape.act returned actions of shape \(3, 1\) .* \(3,\) is needed"),
        (Floats, r"the actions of act\(\) are float64; the action space has int64"),
        (SameForEverySeed, r"another seed gives the same policy"),
        (EmptyRefusal, r"supports\(\) returned False; return None where the spaces fit"),
        (DependsOnNeighbours, r"the greedy action for an observation alone is 0.0, and 1.0 beside others"),
    ],
)
def test_what_is_wrong_is_named_with_its_cure(broken: type, message: str):
    with pytest.raises(ConformanceError, match=message) as caught:
        check_algorithm(broken, environments=CARTPOLE)
    assert isinstance(caught.value, AssertionError)


def test_spaces_that_are_claimed_must_work():
    class Claims(Sound):
        supports = staticmethod(supports_anything)

        def update(self, batch: Any) -> Any:
            if batch["actions"].dtype.kind != "i":
                raise TypeError("only whole numbers")
            return super().update(batch)

    message = r"on Pendulum-v1 \(Box actions\): update\(\) raised TypeError: only whole numbers. If .*, let supports"
    with pytest.raises(ConformanceError, match=message):
        check_algorithm(Claims, environments=["CartPole-v1", "Pendulum-v1"])


def test_a_mask_that_is_ignored_is_seen():
    class Unmasked(Sound):
        def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
            return np.argmin(obs["action_mask"], axis=1) if deterministic else super().act(obs, rng)

    with pytest.raises(ConformanceError, match=r"act\(\) took an action that obs\[\"action_mask\"\] forbids"):
        check_algorithm(Unmasked, environments=["RLProbe/MaskedArms-v0"])


def test_an_algorithm_that_refuses_everything_is_not_called_sound():
    with pytest.raises(ConformanceError, match=r"refuses every environment .*Pendulum-v1: Sound takes.*environments="):
        check_algorithm(Sound, environments=["Pendulum-v1"])


def test_names_that_do_not_exist_are_refused_as_anywhere():
    with pytest.raises(ConfigError, match="unknown algorithm 'pppo'; did you mean 'ppo'"):
        check_algorithm("pppo")
    with pytest.raises(ConformanceError, match="3 is not an algorithm"):
        check_algorithm(3)  # type: ignore[arg-type]


def test_check_env_is_here_too():
    assert check_env("CartPole-v1").ok
