"""A NaN, +Inf or -Inf put into every kind of tensor of a run, one at a time.

Each must stop the run in the update it appears in, under its own name, and no checkpoint may hold it. Every site is
tried with one of the three numbers; the slow tests try the other two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training.algorithms.a2c
import rl_training.algorithms.ppo
from rl_training.algorithms.base import BaseAlgorithm
from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.loading import parse_config
from rl_training.seeding import reset_seed
from rl_training.training.callbacks import Callback, CheckpointCallback, GuardCallback, clock_metrics
from rl_training.training.loop import Report
from rl_training.training.on_policy import OnPolicyTrainer
from rl_training.types import NonFiniteError, Progress, UpdateResult

# where the number passes through NumPy, NumPy warns before the guard looks
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NUM_STEPS, NUM_ENVS, SEED = 6, 2, 3
ROLLOUT = NUM_STEPS * NUM_ENVS
FAULTY_ENV, FAULTY_STEP = 1, 4
"""The environment and the step of the rollout at which something goes wrong."""
FAULTY_UPDATE = 3
BAD = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


def sites(names: str, places: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise by site and number; the numbers take turns in what is not slow."""
    params = []
    for turn, place in enumerate(places):
        given = place if isinstance(place, tuple) else (place,)
        for number, value in enumerate(BAD):
            marks = [] if number == turn % len(BAD) else [pytest.mark.slow]
            params.append(pytest.param(*given, value, marks=marks))
    return pytest.mark.parametrize((*names.split(), "value"), params)


class Room(gym.Env[Any, Any]):
    """Numbers of its own generator; episodes of five steps. One of the two gives a bad number at one step."""

    def __init__(self, space: str = "flat", actions: str = "discrete", where: str = "", value: str = "nan") -> None:
        number = gym.spaces.Box(-1, 1, (2,), np.float32)
        named = gym.spaces.Dict({"camera": gym.spaces.Box(0, 255, (3,), np.uint8), "position": number})
        self.observation_space = named if space == "named" else number
        self.action_space = gym.spaces.Discrete(2) if actions == "discrete" else gym.spaces.Box(-1, 1, (2,), np.float32)
        self.where, self.value = where, BAD[value]
        self.total = 0
        """Steps over all episodes."""
        self.faulty = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.faulty = self.faulty or seed == reset_seed(SEED, FAULTY_ENV, 0)
        self.length = 0
        return self.observe("reset"), {}

    def step(self, action: Any) -> Any:
        self.total += 1
        self.length += 1
        ended, even = self.length == 5, self.total % 2 == 0
        obs = self.observe("final_obs" if ended else "obs")
        return obs, self.spoil("rewards", self.np_random.normal()), ended and even, ended and not even, {}

    def observe(self, where: str) -> Any:
        position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        position[1] = self.spoil(where, position[1])
        if isinstance(self.observation_space, gym.spaces.Dict):
            return {"camera": np.zeros(3, np.uint8), "position": position}
        return position

    def spoil(self, where: str, number: float) -> float:
        start = (FAULTY_UPDATE - 1) * NUM_STEPS
        end = start + 3  # of an episode
        due = {"obs": start + FAULTY_STEP, "rewards": start + FAULTY_STEP + 1, "final_obs": end, "reset": end}
        due["last_obs"] = start + NUM_STEPS
        kind = "last_obs" if where == "obs" and self.where == "last_obs" else where
        return self.value if self.faulty and kind == self.where and self.total == due[kind] else number


class Inject(Callback):
    """Does something to the trainer when all is done for the update before the faulty one."""

    def __init__(self, injection: Callable[[Any], None]) -> None:
        self.injection = injection

    def on_step(self, trainer: Any, report: Any) -> None:
        if report.after.updates == FAULTY_UPDATE - 1:
            self.injection(trainer)


@dataclass(frozen=True)
class Case:
    """A small run: algorithm, spaces, normalisers."""

    algo: str = "ppo"
    space: str = "flat"
    actions: str = "discrete"
    normalize: bool = False
    hparams: tuple[tuple[str, Any], ...] = ()

    def build(self, **kwargs: Any) -> OnPolicyTrainer:
        sizes: dict[str, Any] = {"num_epochs": 2, "num_minibatches": 2} if self.algo == "ppo" else {}
        mapping = {
            "algo": self.algo,
            "env_id": f"{__name__}:Room",
            "seed": SEED,
            "env": {
                "num_envs": NUM_ENVS,
                "kwargs": {"space": self.space, "actions": self.actions, **kwargs},
                "normalize_obs": self.normalize,
                "normalize_reward": self.normalize,
            },
            "hparams": {"num_steps": NUM_STEPS, **sizes, **dict(self.hparams)},
            "network": {"actor": {"hidden_dims": [4]}, "critic": {"hidden_dims": [4]}},
        }
        return build_trainer(parse_config(mapping))

    @property
    def by_autograd(self) -> Case:
        """The same with gradients that torch computes, so that its hooks and its loss are part of it."""
        return replace(self, hparams=(*self.hparams, ("kernel", "reference"))) if self.algo == "ppo" else self


CASES = {
    "ppo": Case(),
    "ppo-dict": Case(space="named"),
    "ppo-box": Case(actions="box"),
    "a2c": Case("a2c"),
    "a2c-box": Case("a2c", actions="box"),
    "reinforce-dict": Case("reinforce", space="named"),
}
NORMALIZED = {
    "ppo": Case(normalize=True),
    "a2c-dict-box": Case("a2c", space="named", actions="box", normalize=True),
}


def nothing(trainer: Any) -> None:
    """No injection: the environment or the algorithm brings the fault along."""


@contextmanager
def stopped(
    trainer: OnPolicyTrainer, folder: Path, injection: Callable[[Any], None] = nothing
) -> Iterator[NonFiniteError]:
    """Run, with a checkpoint after every update, until the guard stops it; gives the error."""
    manager = CheckpointManager(folder, keep_last=100)
    callbacks = [
        GuardCallback(trainer.guard),
        CheckpointCallback(manager, trainer.guard, every=1, keep_best=False),
        Inject(injection),
    ]
    with pinned_threads(1):
        try:
            with pytest.raises(NonFiniteError) as caught:
                trainer.run((FAULTY_UPDATE + 3) * ROLLOUT, callbacks)
        finally:
            trainer.close()
    yield caught.value
    assert manager.steps() == [0, ROLLOUT, 2 * ROLLOUT], "one after each update before the faulty one"
    for step in manager.steps():
        assert_all_finite(manager.load(step).parts)


def assert_all_finite(state: Any) -> None:
    if isinstance(state, dict):
        for value in state.values():
            assert_all_finite(value)
    elif isinstance(state, np.ndarray | float):
        assert np.isfinite(state).all()


def assert_names(error: NonFiniteError, name: str, value: str) -> None:
    """The error is about this tensor, this number and the faulty update."""
    began = (FAULTY_UPDATE - 1) * ROLLOUT
    assert error.name == name
    assert str(error).startswith(
        f"{name} is {value.removeprefix('+')} in update {FAULTY_UPDATE}, which began at env step {began}: "
    )


def assert_in_faulty_update(error: NonFiniteError, name: str) -> None:
    """The same where the number found is another than the one put in: an Inf may have become a NaN meanwhile."""
    assert error.name == name
    assert f"in update {FAULTY_UPDATE}, which began" in str(error)


# -- what the environment gives ---------------------------------------------------------------------------------------

PLACES = {
    "obs": f"obs{{key}} at step {FAULTY_STEP} of environment {FAULTY_ENV}",
    "rewards": f"rewards at step {FAULTY_STEP} of environment {FAULTY_ENV}",
    "final_obs": f"final_obs{{key}} at step 2 of environment {FAULTY_ENV}",
    "reset": f"obs{{key}} at step 3 of environment {FAULTY_ENV}",
    "last_obs": f"last_obs{{key}} of environment {FAULTY_ENV}",
}


@sites("case where", itertools.product(CASES, PLACES))
def test_environment(case: str, where: str, value: str, tmp_path: Path):
    trainer = CASES[case].build(where=where, value=value)
    key = "/position" if CASES[case].space == "named" else ""
    with stopped(trainer, tmp_path) as error:
        assert_names(error, PLACES[where].format(key=key), value)
        assert "check_env" in str(error)


# -- what the policy gives --------------------------------------------------------------------------------------------


@sites("case", ["ppo-box", "a2c-box"])
def test_actions(case: str, value: str, tmp_path: Path):
    def spoil(trainer: Any) -> None:
        policy = trainer.algorithm.policy
        act, calls = policy.act, itertools.count()

        def changed(*args: Any, **kwargs: Any) -> Any:
            result = act(*args, **kwargs)
            if next(calls) == FAULTY_STEP:
                result.actions[FAULTY_ENV, 0] = BAD[value]
            return result

        policy.act = changed

    with stopped(CASES[case].build(), tmp_path, spoil) as error:
        assert_names(error, f"actions at step {FAULTY_STEP} of environment {FAULTY_ENV}", value)


@sites("", [()])
def test_extras(value: str, tmp_path: Path):
    """What a policy of one's own stores beside its actions."""
    trainer = CASES["a2c"].build()
    policy: Any = trainer.algorithm.policy
    act, calls = policy.act, itertools.count()

    def with_extras(*args: Any, **kwargs: Any) -> Any:
        result = act(*args, **kwargs)
        faulty = next(calls) == (FAULTY_UPDATE - 1) * NUM_STEPS + FAULTY_STEP
        result.extras = {"surprise": np.array([0.0, BAD[value] if faulty else 0.0], np.float32)}
        return result

    policy.act = with_extras
    with stopped(trainer, tmp_path) as error:
        assert_names(error, f"surprise at step {FAULTY_STEP} of environment {FAULTY_ENV}", value)


@sites("", [()])
def test_carry(value: str, tmp_path: Path):
    """The exploration noise that a policy carries from step to step."""

    def spoil(trainer: Any) -> None:
        trainer.collector.is_first[:] = False  # a first step would draw it anew
        trainer.collector.carry["age"][:] = 1
        trainer.collector.carry["draws"][FAULTY_ENV, 0] = BAD[value]

    case = Case(actions="box", hparams=(("use_sde", True), ("sde_sample_freq", 1000)))
    with stopped(case.build(), tmp_path, spoil) as error:
        assert_names(error, f"carry/draws at step 0 of environment {FAULTY_ENV}", value)


# -- what learning makes ----------------------------------------------------------------------------------------------

LAYERS = ("actor.layers.0", "critic.layers.0", "action_head.output", "value_head.output")
PARAMETERS = [
    *((case, f"{layer}.{kind}") for case in ("ppo", "a2c") for layer in LAYERS for kind in ("weight", "bias")),
    ("ppo-box", "actor.layers.0.bias"),
    ("ppo-box", "action_head.log_std"),
    ("a2c-box", "action_head.log_std"),
    ("reinforce-dict", "actor.layers.0.weight"),
    ("reinforce-dict", "value_head.output.bias"),
]


def parameter(trainer: Any, name: str) -> torch.nn.Parameter:
    return dict(trainer.algorithm.network.named_parameters())[name]  # type: ignore[no-any-return]


@sites("case name", PARAMETERS)
def test_parameter(case: str, name: str, value: str, tmp_path: Path):
    def spoil(trainer: Any) -> None:
        parameter(trainer, name).data.view(-1)[-1] = BAD[value]

    with stopped(CASES[case].build(), tmp_path, spoil) as error:
        assert_names(error, f"parameter {name}", value)


GRADIENTS = [
    ("ppo", "actor.layers.0.weight"),
    ("ppo-box", "action_head.log_std"),
    ("a2c", "value_head.output.bias"),
    ("a2c-box", "critic.layers.0.bias"),
    ("reinforce-dict", "action_head.output.weight"),
]


@sites("case name", GRADIENTS)
def test_gradient_stops_before_it_spoils_a_parameter(case: str, name: str, value: str, tmp_path: Path):
    def hook(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        gradient.view(-1)[0] = BAD[value]
        return gradient

    trainer: Any = CASES[case].by_autograd.build()
    with stopped(trainer, tmp_path, lambda trainer: parameter(trainer, name).register_hook(hook)) as error:
        assert_names(error, f"gradient of {name}", value)
    assert all(torch.isfinite(tensor).all() for tensor in trainer.algorithm.watched())


TERMS = [
    ("ppo", "policy_loss"),
    ("ppo", "entropy_loss"),
    ("ppo-dict", "value_loss"),
    ("ppo-box", "loss"),
    ("a2c", "policy_loss"),
    ("a2c-box", "value_loss"),
    ("reinforce-dict", "entropy_loss"),
]


@contextmanager
def bad_loss(case: str, term: str, value: str, *, gradient: bool) -> Iterator[Callable[[Any], None]]:
    """Injects a bad term of the loss, which passes its gradient on or not, and the sum of the terms with it."""
    is_ppo = CASES[case].algo == "ppo"
    module: Any = rl_training.algorithms.ppo if is_ppo else rl_training.algorithms.a2c
    name = "ppo_loss" if is_ppo else "policy_gradient_loss"
    loss = getattr(module, name)

    def spoilt(*args: Any, **kwargs: Any) -> Any:
        losses = loss(*args, **kwargs)
        bad = BAD[value] * losses[term].exp() if gradient else losses[term] + BAD[value]
        return {**losses, "loss": losses["loss"] + bad, term: bad}

    with pytest.MonkeyPatch.context() as patch:
        yield lambda trainer: patch.setattr(module, name, spoilt)


@sites("case term gradient", [(*term, gradient) for term in TERMS for gradient in (True, False)])
def test_loss(case: str, term: str, gradient: bool, value: str, tmp_path: Path):
    with (
        bad_loss(case, term, value, gradient=gradient) as spoil,
        stopped(CASES[case].by_autograd.build(), tmp_path, spoil) as error,
    ):
        assert_names(error, f"train/{term}", value)


@sites("case name", GRADIENTS[:2])
def test_gradient_of_the_fast_kernel(case: str, name: str, value: str, tmp_path: Path):
    trainer: Any = CASES[case].build()
    kernel = trainer.algorithm.kernel

    def spoilt(*args: Any) -> Any:
        losses = type(kernel).gradient(kernel, *args)
        parameter(trainer, name).grad.view(-1)[0] = BAD[value]
        return losses

    with stopped(trainer, tmp_path, lambda trainer: setattr(kernel, "gradient", spoilt)) as error:
        assert_names(error, f"gradient of {name}", value)
    assert all(torch.isfinite(tensor).all() for tensor in trainer.algorithm.watched())


@sites("case term", [term for term in TERMS if term[0].startswith("ppo")])
def test_loss_of_the_fast_kernel(case: str, term: str, value: str, tmp_path: Path):
    trainer: Any = CASES[case].build()
    kernel = trainer.algorithm.kernel

    def spoilt(*args: Any) -> Any:
        losses = type(kernel).gradient(kernel, *args)
        return {**losses, "loss": losses["loss"] + BAD[value], term: BAD[value]}

    with stopped(trainer, tmp_path, lambda trainer: setattr(kernel, "gradient", spoilt)) as error:
        assert_names(error, f"train/{term}", value)


MOMENTS = [("ppo", "actor.layers.0.bias"), ("ppo-box", "action_head.log_std"), ("a2c", "value_head.output.weight")]


@sites("case name moment", [(*place, moment) for place in MOMENTS for moment in ("mean", "square")])
def test_moment_of_the_optimiser(case: str, name: str, moment: str, value: str, tmp_path: Path):
    def spoil(trainer: Any) -> None:
        where, _ = trainer.algorithm.policy.parameters.slices[name]
        getattr(trainer.algorithm.optimizer, moment)[where][0] = BAD[value]

    with stopped(CASES[case].build(), tmp_path, spoil) as error:
        assert_in_faulty_update(error, f"optimizer/{moment}/{name}")


@sites("case statistic", itertools.product(NORMALIZED, ["mean", "deviations"]))
def test_statistic_of_observations(case: str, statistic: str, value: str, tmp_path: Path):
    key = "position" if NORMALIZED[case].space == "named" else "obs"

    def spoil(trainer: Any) -> None:
        normalizer = trainer.algorithm.policy.normalizer
        state = normalizer.state_dict()
        state[key][statistic][0] = BAD[value]
        normalizer.load_state_dict(state)

    with stopped(NORMALIZED[case].build(), tmp_path, spoil) as error:
        assert_in_faulty_update(error, f"normalizer/{key}/{statistic}")


@sites("case name", itertools.product(NORMALIZED, ["open_returns", "statistics/mean", "statistics/deviations"]))
def test_statistic_of_rewards(case: str, name: str, value: str, tmp_path: Path):
    def spoil(trainer: Any) -> None:
        normalizer = trainer.algorithm.reward_normalizer
        state = normalizer.state_dict()
        if name == "open_returns":
            state[name][FAULTY_ENV] = BAD[value]
        else:
            state["statistics"][name.split("/")[1]] = np.array(BAD[value])
        normalizer.load_state_dict(state)

    with stopped(NORMALIZED[case].build(), tmp_path, spoil) as error:
        assert_in_faulty_update(error, f"reward_normalizer/{name}")


# -- where nobody looks before each step ------------------------------------------------------------------------------


def as_on_a_gpu(trainer: Any) -> None:
    """The gradient's norm is read with the other metrics, after the update."""
    trainer.algorithm.check_every_step = False


@sites("case term", [("ppo", "policy_loss"), ("a2c-box", "value_loss"), ("reinforce-dict", "entropy_loss")])
def test_loss_read_after_the_update(case: str, term: str, value: str, tmp_path: Path):
    with bad_loss(case, term, value, gradient=True) as spoil:

        def inject(trainer: Any) -> None:
            as_on_a_gpu(trainer)
            spoil(trainer)

        with stopped(CASES[case].by_autograd.build(), tmp_path, inject) as error:
            assert error.name.startswith("train/")
            assert_in_faulty_update(error, error.name)
            assert "monitor.checks: full" in str(error)


@sites("case name", [("ppo", "critic.layers.0.weight"), ("a2c", "action_head.output.bias")])
def test_gradient_read_after_the_update(case: str, name: str, value: str, tmp_path: Path):
    def inject(trainer: Any) -> None:
        as_on_a_gpu(trainer)
        parameter(trainer, name).register_hook(lambda gradient: gradient + BAD[value])

    with stopped(CASES[case].by_autograd.build(), tmp_path, inject) as error:
        assert error.name.startswith("train/")
        assert_in_faulty_update(error, error.name)


# -- what is only saved or loaded -------------------------------------------------------------------------------------


@sites("name", ["collector/returns", "env/envs/1/reward", "env/envs/0/obs/position"])
def test_what_no_update_has_seen_yet_is_not_saved(name: str, value: str, tmp_path: Path):
    manager = CheckpointManager(tmp_path)
    trainer: Any = CASES["ppo-dict"].build()
    saver = CheckpointCallback(manager, trainer.guard, every=1, keep_best=False)
    with pinned_threads(1):
        trainer.run(ROLLOUT, [saver])
    logs = trainer.collector.env.envs
    if name == "collector/returns":
        trainer.collector.returns[0] = BAD[value]
    elif name == "env/envs/1/reward":
        logs[1]._reward = BAD[value]
    else:
        logs[0]._obs["position"][1] = BAD[value]
    with pytest.raises(NonFiniteError, match="No checkpoint is written with it") as caught:
        saver.save(trainer)
    trainer.close()
    assert caught.value.name == name
    assert manager.steps() == [0, ROLLOUT]
    assert_all_finite(manager.load_latest().parts)


def test_a_loaded_nan_is_refused_before_the_first_step():
    trainer = CASES["ppo"].build()
    state = trainer.state_dict()
    state["policy"]["network"]["value_head.output.bias"][0] = np.nan
    trainer.load_state_dict(state)
    with pytest.raises(NonFiniteError, match=r"parameter value_head.output.bias is nan at env step 0"):
        trainer.run(1, [GuardCallback(trainer.guard)])
    trainer.close()
    assert trainer.progress.env_steps == 0


# -- an algorithm of one's own ----------------------------------------------------------------------------------------


class Regression(BaseAlgorithm):
    """Learns nothing worth knowing; `fault` says what goes wrong in the faulty update."""

    fault, value = "", math.nan

    def setup(self) -> None:
        self.networks["net"] = torch.nn.Linear(2, 1)
        self.optimizers["adam"] = torch.optim.Adam(self.networks["net"].parameters())
        self.updates = 0

    def act(self, obs: Any, rng: np.random.Generator, *, deterministic: bool = False) -> Any:
        return rng.integers(2, size=len(obs))

    def update(self, batch: Any) -> UpdateResult:
        self.updates += 1
        net, adam = self.networks["net"], self.optimizers["adam"]
        loss = net(torch.as_tensor(batch["obs"])).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        fault = self.fault if self.updates == FAULTY_UPDATE else ""
        if fault == "parameter":
            net.bias.data[0] = self.value
        if fault == "moment":
            adam.state[net.bias]["exp_avg"][0] = self.value
        return UpdateResult({"loss": loss.detach() + (self.value if fault == "loss" else 0.0)})


@sites(
    "fault name", [("loss", "train/loss"), ("parameter", "net/bias"), ("moment", "optimizers/adam/net.bias/exp_avg")]
)
def test_algorithm_of_a_user(fault: str, name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Regression, "fault", fault)
    monkeypatch.setattr(Regression, "value", BAD[value])
    with stopped(Case(f"{__name__}:Regression").build(), tmp_path) as error:
        assert error.name == name
        when = "after" if fault == "moment" else "in"  # at the checkpoint, or right after the update
        assert f"{when} update {FAULTY_UPDATE}" in str(error)


# -- runs that run away -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target_kl", [None, 0.01])
def test_a_step_far_too_large_is_not_taken_for_an_early_stop(target_kl: float | None):
    trainer = Case(hparams=(("learning_rate", 1e30), ("max_grad_norm", None), ("target_kl", target_kl))).build()
    with pinned_threads(1), pytest.raises(NonFiniteError, match="in update 1,"):
        trainer.run(1000)
    trainer.close()


def test_a_reward_beyond_float32_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(BAD, "nan", 1e39)
    trainer = CASES["a2c"].build(where="rewards")
    with pinned_threads(1), pytest.raises(NonFiniteError, match="too large for its dtype") as caught:
        trainer.run(1000)
    trainer.close()
    assert caught.value.name == PLACES["rewards"]


def test_an_evaluation_without_a_number_is_never_the_best(tmp_path: Path):
    class Saver(CheckpointCallback):
        def save(self, trainer: Any, *, score: float | None = None, best: bool = False) -> None:
            saved.append((score, best))

    saved: list[tuple[float | None, bool]] = []
    trainer = CASES["ppo"].build()
    saver = Saver(CheckpointManager(tmp_path), trainer.guard, every=0, keep_best=True)
    for score in (math.nan, 1.0, math.inf, 0.5, 2.0):
        saver.on_step(trainer, Report(Progress(), Progress(env_steps=1), {"eval/return_mean": score}))
    trainer.close()
    assert saved == [(1.0, True), (2.0, True)]
    assert saver.best == 2.0


def test_the_guard_shows_its_time_with_the_other_clocks():
    trainer = CASES["ppo-box"].build()
    with pinned_threads(1):
        trainer.run(ROLLOUT, [GuardCallback(trainer.guard)])
    trainer.close()
    assert trainer.clock.seconds["guard"] == trainer.guard.seconds > 0.0
    assert clock_metrics(trainer)["time/guard_seconds"] == round(trainer.guard.seconds, 4)
