"""The policy of a finished run, loaded: predict, dream, write it as a file. What `rl_training.load` returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn, eval_env_maker, need_env_fn
from rl_training.assembly.lanes import check_supported
from rl_training.assembly.saved.exporting import FORMATS, ExportReport, Playing, export_policy, files_of
from rl_training.checkpointing.manager import Checkpoint, CheckpointManager
from rl_training.checkpointing.seal import Seal, SealCheck, fitting
from rl_training.config.networks import critic_only_keys
from rl_training.config.schema import TrainConfig
from rl_training.envs import make_env, space_spec
from rl_training.envs.observations import as_actions, as_batch
from rl_training.envs.watch import EnvWatch
from rl_training.guards import Guard
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import Spaces, check_spaces, describe, read_spaces
from rl_training.system.offspring import Offspring
from rl_training.trust.consent import current, scope
from rl_training.types import REWARD, Array, ConfigError, DictSpec, Dream, JointSpec, Obs, Policy
from rl_training.version import __version__


@runtime_checkable
class DreamingPolicy(Policy, Protocol):
    """A policy with a world model."""

    def dream(
        self, obs: Obs, actions: Array, rng: np.random.Generator, samples: int = 16, context: int | None = None
    ) -> Dream: ...


class SavedPolicy:
    """A trained policy that takes raw observations, one or a batch, and gives actions the environment understands."""

    def __init__(self, policy: Policy, cfg: TrainConfig, checkpoint: Checkpoint, spaces: Spaces) -> None:
        self.policy = policy
        self.config = cfg
        self.env_steps = checkpoint.step
        self.checkpoint = checkpoint.path
        self.observation_space, self.action_space = spaces
        self._unseen = critic_only_keys(self.observation_space, cfg.network)
        self._rng = np.random.default_rng(cfg.seed)
        self._carry = policy.initial_carry(1)
        self._is_first = np.ones(1, bool)
        self._consent = current()
        """What the config may import where it is used later."""

    def __repr__(self) -> str:
        cfg = self.config
        return (
            f"SavedPolicy({cfg.algo} on {cfg.env_id}, step {self.env_steps:,}, checkpoint {self.checkpoint.name}, "
            f"observations {describe(self.observation_space)}, actions {describe(self.action_space)})"
        )

    def predict(self, obs: Any, deterministic: bool = True, reward: Any = None) -> Array:
        """The action for one observation, or actions for a batch of them (an extra first axis).

        A policy with memory remembers between calls, row by row; call `reset` when an episode starts. A batch of
        another size starts anew. Observations that only critics see may be left out: they change no action.
        `reward` is what the last action of each row was rewarded with, for a policy that aims at a return (dt).
        ObservationError where an observation is not of the space that the policy was trained on.
        """
        rows, single = as_batch(obs, self.observation_space, self._unseen)
        count = len(next(iter(rows.values())) if isinstance(rows, dict) else rows)
        if len(self._is_first) != count:
            self._carry, self._is_first = self.policy.initial_carry(count), np.ones(count, bool)
        if reward is not None and REWARD in self._carry:
            self._carry[REWARD] = np.broadcast_to(np.asarray(reward, np.float32), (count,)).copy()
        result = self.policy.act(rows, self._carry, self._is_first, self._rng, deterministic=deterministic)
        self._carry, self._is_first = result.carry, np.zeros(count, bool)
        return result.env_actions[0] if single else result.env_actions

    def dream(self, obs: Any, actions: Any, *, samples: int = 16, context: int | None = None) -> Dream:
        """What the world model of the run foresees: `obs` are C observations from the start of an episode, `actions`
        those between them and those that follow, C - 1 + K of them, as the environment takes them.

        The model sees the first `context` observations, by default all, and imagines the rest; where more are given,
        `Dream.true` has them for a comparison.
        """
        policy = self.policy
        if not isinstance(policy, DreamingPolicy):
            raise ConfigError(
                f"a run of '{self.config.algo}' has no world model with a latent state; take dreamer, planet, or "
                "dynamics with rssm, stochastic or deterministic"
            )
        rows, single = as_batch(obs, self.observation_space)
        if single:
            raise ConfigError("dream takes a sequence of observations; give one as obs[None]")
        count = len(next(iter(rows.values())) if isinstance(rows, dict) else rows)
        if context is not None and not 1 <= context <= count:
            raise ConfigError(f"context must be between 1 and the {count} observations that are given, not {context}")
        if samples < 1:
            raise ConfigError(f"samples must be at least 1, not {samples}")
        assert not isinstance(self.action_space, DictSpec), "refused by every world model"
        led = as_actions(actions, self.action_space)
        return policy.dream(rows, led, np.random.default_rng(self.config.seed), samples, context)

    def export(
        self, kind: str, path: str | Path | None = None, *, episodes: int | None = None, env_fn: EnvFn | None = None
    ) -> Any:
        """The greedy policy as a file or, without `path`, as a function.

        With `path`, a folder or a file, the formats are those of `rl export-policy`; what is written is checked by
        playing `episodes` episodes (default: as many as evaluations have) and described by an `ExportReport`.
        Without, a run with backend: jax gives a pure function of a batch of raw observations: "jax" is jitted and can
        be part of a larger compiled program, "numpy" is plain NumPy; see `jax.policy.Exported`.
        """
        if path is not None:
            return self.write(kind, path, episodes=episodes, env_fn=env_fn)
        if self.config.backend != "jax":
            raise ConfigError(
                "export is for runs with backend: jax where no path is given; a torch policy acts by `predict`, and "
                "export(kind, path) writes a file"
            )
        exported: Any = self.policy.export(kind)  # type: ignore[attr-defined]
        return exported

    def write(
        self, kind: str, path: str | Path, *, episodes: int | None = None, env_fn: EnvFn | None = None
    ) -> ExportReport:
        """Write the policy as a file that others can run, checked by playing; see `export`."""
        if kind not in FORMATS:
            raise ConfigError(f"a policy is written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not '{kind}'")
        cfg = self.config
        if isinstance(self.observation_space, JointSpec):
            raise ConfigError("a policy of several agents is not exported: a file holds the policy of one; use predict")
        files = files_of(self.policy, cfg.algo, kind, self.description())
        playing = Playing(eval_env_maker(cfg, env_fn), episodes or cfg.training.num_eval_episodes or 10, cfg.seed)
        with scope(self._consent):
            return export_policy(self.policy, files, self.action_space, Path(path), playing)

    def description(self) -> dict[str, str]:
        """What an exported file says about itself."""
        cfg = self.config
        reached = {name: str(count) for name, count in self.position().items()}
        return {"algo": cfg.algo, "env_id": str(cfg.env_id), **reached, "rl_training": __version__}

    def position(self) -> dict[str, int]:
        """How far its checkpoint is: in env steps, or in updates where the run is offline."""
        if self.config.training.total_updates is None:
            return {"env_steps": self.env_steps}
        return {"env_steps": 0, "updates": self.env_steps}

    def reset(self, rows: Array | None = None) -> None:
        """A new episode starts: forget the last one. `rows` marks those of a batch, by a mask or by numbers."""
        self._is_first[slice(None) if rows is None else rows] = True


@dataclass(frozen=True)
class Which:
    """The policy that is asked for: of which run and checkpoint, and what its owner agrees to."""

    run: str | Path
    checkpoint: str | int = "latest"
    env_fn: EnvFn | None = None
    output_dir: str | Path = "runs"
    allow_changed_config: bool = False
    trust_plugins: bool = False

    def load(self) -> SavedPolicy:
        """The policy by itself; no environment is built."""
        directory = RunDir.open(self.run, self.output_dir)
        with directory.to_run(trust_plugins=self.trust_plugins, env_given=self.env_fn is not None) as cfg:
            return self._policy(directory, cfg)

    @contextmanager
    def at_work(self, task: str) -> Iterator[tuple[RunDir, SavedPolicy]]:
        """The policy where it is about to act in its environment, for `task`: threads pinned, environments watched."""
        directory = RunDir.open(self.run, self.output_dir)
        need_env_fn(directory.path, directory.config(secrets=False), self.env_fn, task)
        to_run = directory.to_run(trust_plugins=self.trust_plugins, env_given=self.env_fn is not None)
        with to_run as cfg, Offspring(), EnvWatch(), pinned_threads(cfg.training.num_threads, cfg.backend):
            yield directory, self._policy(directory, cfg)

    def _policy(self, directory: RunDir, cfg: TrainConfig) -> SavedPolicy:
        sealing = SealCheck(Seal.of(directory), self.allow_changed_config)
        manager = CheckpointManager(directory.path, sealing=sealing)
        saved = manager.load(parse_checkpoint(self.checkpoint), parts={"policy"})
        check_supported(cfg)
        spec, hparams = resolve_algorithm(cfg)
        spaces = spaces_of(directory, cfg, self.env_fn)
        algorithm = build_algorithm(cfg, spec, hparams, *spaces, Guard())
        with fitting(f"the policy of step {saved.step}"):
            algorithm.policy.load_state_dict(saved.parts["policy"])
        return SavedPolicy(algorithm.policy, cfg, saved, spaces)


def spaces_of(run: RunDir, cfg: TrainConfig, env_fn: EnvFn | None) -> Spaces:
    """The spaces a run was trained on: as recorded, else as its environment has them."""
    recorded = read_spaces(run.path)
    if recorded is not None and env_fn is None:
        return recorded
    need_env_fn(run.path, cfg, env_fn, "load")
    env = make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed, training=False)
    try:
        found = space_spec(env.observation_space), space_spec(env.action_space)
    finally:
        env.close()
    if recorded is not None:
        check_spaces(run.path, recorded, found)
    return found


def parse_checkpoint(name: str | int) -> str | int:
    """ "latest", "best" or a step number."""
    if isinstance(name, int) or name in ("latest", "best"):
        return name
    if name.isdigit():
        return int(name)
    raise ConfigError(f"checkpoint must be latest, best or a step number, not '{name}'")
