"""One algorithm on one environment: how its runs are built, and how problems are reported."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from rl_training.registry import import_plugins
from rl_training.testing.states import difference, global_random_state, snapshot
from rl_training.types import Array, Batch, CheckpointError, JointSpec, Obs, RLTrainingError, StateDict, UpdateResult

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig
    from rl_training.hparams.base import AlgorithmSpec
    from rl_training.training.host import HostTrainer
    from rl_training.training.offline.trainer import OfflineTrainer

    StepTrainer = HostTrainer | OfflineTrainer

ENVIRONMENTS = {
    "CartPole-v1": "Box observations, Discrete actions",
    "Pendulum-v1": "Box actions",
    "RLProbe/MultiDiscrete-v0": "MultiDiscrete actions",
    "RLProbe/MultiBinary-v0": "MultiBinary actions",
    "RLProbe/DictObs-v0": "Dict observations",
    "RLProbe/MaskedArms-v0": "an action mask",
    "FrozenLake-v1": "Discrete observations",
}
"""Environments that `check_algorithm` trains on, and what each of them tests."""

SEED = 3
NUM_ENVS = 3
NUM_STEPS = 8
"""Steps per environment and rollout, where the hyperparameters have that field."""


SMALL_ROLLOUT = {"num_steps": NUM_STEPS, "num_minibatches": 4}
SMALL_REPLAY = {"learning_starts": 8, "batch_size": 8, "updates_per_step": 0.5}
REPLAY_SIZE = 200
DATASET_STEPS = 120
"""Steps of random actions that an offline algorithm learns from."""


class ConformanceError(RLTrainingError, AssertionError):
    """A part does not do what the rest of the package relies on; the message says what, and how to fix it."""


@dataclass(frozen=True)
class Subject:
    """What is checked: an algorithm, an environment, and how runs of the two are built."""

    algo: str
    env_id: str
    spec: AlgorithmSpec
    mapping: Mapping[str, Any]
    folder: Path
    """Where datasets for offline algorithms are written."""

    @classmethod
    def find(
        cls, algo: str, env_id: str, hparams: Mapping[str, Any], config: Mapping[str, Any], folder: Path
    ) -> Subject:
        from rl_training.assembly.algorithm import resolve_algorithm
        from rl_training.config.aliases import merged
        from rl_training.config.loading import parse_config

        base = {"algo": algo, "env_id": env_id, "env": {"num_envs": NUM_ENVS}, "hparams": dict(hparams)}
        base["lane"] = "host"  # where every update can be looked at
        mapping = merged(base, dict(config))
        cfg = parse_config(mapping)
        import_plugins(cfg.plugins)
        spec, _ = resolve_algorithm(cfg)
        small = SMALL_REPLAY if spec.kind in ("off_policy", "offline") else SMALL_ROLLOUT
        known = {"num_steps", *SMALL_REPLAY}
        if spec.hparams is not dict:
            known = {item.name for item in dataclasses.fields(spec.hparams)}
        small = {name: value for name, value in small.items() if name in known}
        mapping = merged({"hparams": small}, mapping)
        if spec.kind == "off_policy":
            mapping = merged({"buffer": {"size": REPLAY_SIZE}}, mapping)
        if spec.kind == "offline":
            mapping = merged({"dataset": {"path": str(folder / env_id.replace("/", "-"))}}, mapping)
        return cls(algo, env_id, spec, mapping, folder)

    @property
    def name(self) -> str:
        return f"algorithm '{self.algo}' on {self.env_id}"

    def config(self, seed: int = SEED) -> TrainConfig:
        from rl_training.config.aliases import merged
        from rl_training.config.loading import parse_config

        return parse_config(merged(dict(self.mapping), {"seed": seed}))

    def refusal(self) -> str | None:
        """The sentence with which the algorithm refuses this environment, None where it accepts it."""
        from rl_training.envs import make_env, space_spec

        cfg = self.config()
        env = make_env(self.env_id, cfg.env)
        observation_space, action_space = space_spec(env.observation_space), space_spec(env.action_space)
        env.close()
        pairs = [(observation_space, action_space)]
        if isinstance(observation_space, JointSpec):
            pairs = [(played.observation_space, played.action_space) for played in observation_space.policies.values()]
        answers = (self.spec.supports(*pair) for pair in pairs)
        refusal = next((answer for answer in answers if answer is not None), None)
        if refusal is not None and not (isinstance(refusal, str) and refusal.strip()):
            raise ConformanceError(
                f"{self.name}: supports() returned {refusal!r}; return None where the spaces fit, and otherwise the "
                "sentence that the user reads"
            )
        return refusal

    @contextmanager
    def trainer(self, seed: int = SEED) -> Iterator[tuple[StepTrainer, Watched]]:
        """A trainer that has not started, and its algorithm, wrapped so that each call is checked."""
        from rl_training.assembly.build import build_host
        from rl_training.assembly.lanes import check_supported
        from rl_training.assembly.offline import build_offline

        cfg = self.config(seed)
        trainer: StepTrainer
        with self.attempt("building it"):
            check_supported(cfg)
            if self.spec.kind == "offline":
                self.record_dataset(Path(cast(str, cfg.dataset.path)))
                trainer = build_offline(cfg, wrap=lambda algorithm: Watched(algorithm, self))
            else:
                trainer = build_host(cfg, wrap=lambda algorithm: Watched(algorithm, self))
        try:
            yield trainer, cast(Watched, trainer.algorithm)
        finally:
            trainer.close()

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Report errors of the algorithm together with the environment they happened on."""
        try:
            yield
        except ConformanceError:
            raise
        except Exception as error:
            special = f" ({ENVIRONMENTS[self.env_id]})" if self.env_id in ENVIRONMENTS else ""
            raise ConformanceError(
                f"{self.name}{special}: {what} raised {type(error).__name__}: {error}. "
                "If it is not made for such spaces, let supports(observation_space, action_space) say so"
            ) from error

    def record_dataset(self, path: Path) -> None:
        """Record random actions, unless that was done before."""
        from rl_training.data.datasets.native import write_native
        from rl_training.eval import record
        from rl_training.training.offline.recording import Amount

        if not path.exists():
            write_native(record(None, Amount(steps=DATASET_STEPS), random_env=self.env_id), path)

    def observations(self, trainer: StepTrainer) -> Obs:
        """Observations that the trainer has seen, (NUM_ENVS, ...)."""
        from rl_training.training.collector import Collector
        from rl_training.training.offline.trainer import OfflineTrainer

        if isinstance(trainer, OfflineTrainer):
            return trainer.replay.data.obs_of(np.arange(NUM_ENVS))
        collector = trainer.collector
        assert isinstance(collector, Collector), "the checks step environments in this process"
        assert collector.obs is not None
        return collector.obs

    def learn(self, trainer: StepTrainer, updates: int) -> None:
        with self.attempt("training"):
            for _ in range(updates):
                trainer.train_step(NUM_STEPS)  # also of one that learns from replay: short blocks show the same

    @contextmanager
    def untouched(self, what: str) -> Iterator[None]:
        """Fail if a global random generator is used inside."""
        before = global_random_state()
        yield
        after = global_random_state()
        if moved := [name for name, state in before.items() if after[name] != state]:
            self.fail(
                f"{what} draws from the global random state of {' and '.join(moved)}, which is in no checkpoint and "
                "which every other part moves; draw from the generator act() is given, or from one of ctx.streams"
            )

    def snapshot(self, state: StateDict) -> StateDict:
        try:
            return snapshot(state)
        except CheckpointError as error:
            self.fail(f"state_dict() cannot be saved: {error}")

    def fail(self, text: str) -> NoReturn:
        raise ConformanceError(f"{self.name}: {text}")


@dataclass
class Watched:
    """An algorithm whose calls are checked as they happen."""

    algorithm: Any
    subject: Subject
    rewarded: bool = False
    """Whether any reward was not 0, so that there was something to learn."""

    @property
    def policy(self) -> Any:
        return self.algorithm.policy

    def update(self, batch: Batch) -> UpdateResult:
        given = copy.deepcopy(batch)
        with self.subject.attempt("update()"), self.subject.untouched("update()"):
            result = self.algorithm.update(batch)
        self.rewarded |= bool(given["rewards"].any())
        if not isinstance(result, UpdateResult):
            self.subject.fail(f'update() returned a {type(result).__name__}; return UpdateResult({{"loss": loss}})')
        for name, value in result.metrics.items():
            if not isinstance(name, str) or np.size(_plain(value)) != 1 or not np.isfinite(_plain(value)).all():
                self.subject.fail(
                    f"update() returned the metric {name!r}: {value!r}; metrics are finite single numbers (leave out "
                    "what has no value)"
                )
        if place := difference(given, batch):
            self.subject.fail(f"update() writes into the batch, at {place}; observe() is given it afterwards, so copy")
        return result

    def observe(self, batch: Batch) -> None:
        with self.subject.attempt("observe()"), self.subject.untouched("observe()"):
            self.algorithm.observe(batch)

    def state_dict(self) -> StateDict:
        state: StateDict = self.algorithm.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        self.algorithm.load_state_dict(state)


def _plain(value: Any) -> Array:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, np.float64)
