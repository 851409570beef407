"""Using a trained run: load its policy, predict, evaluate, record a video. For notebooks and `rl eval` alike."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rl_training.algorithms.random import RandomAgent
from rl_training.assembly.algorithm import build_algorithm, resolve_algorithm
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn, eval_env_maker, need_env_fn
from rl_training.assembly.exporting import FORMATS, ExportReport, Playing, export_policy, files_of
from rl_training.assembly.lanes import check_supported
from rl_training.assembly.multi_agent.matches import opponent_of, player_of
from rl_training.build_context import BuildContext
from rl_training.checkpointing.manager import Checkpoint, CheckpointManager
from rl_training.checkpointing.seal import Seal, SealCheck, fitting
from rl_training.config.networks import critic_only_keys
from rl_training.config.resolution import config_to_mapping
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.dataset import Dataset, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.replay_rows import replay_dataset
from rl_training.envs import make_env, space_spec
from rl_training.envs.observations import as_batch
from rl_training.envs.watch import EnvWatch
from rl_training.guards import Guard
from rl_training.hparams.random import RandomConfig
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import Spaces, check_spaces, describe, read_spaces
from rl_training.system.offspring import Offspring
from rl_training.training.evaluation import EnvMaker, evaluate_policy, stack_obs
from rl_training.training.league.matches import Games, play_match
from rl_training.training.league.person import Ask, Tell, games_of_a_person
from rl_training.training.offline.recording import Amount, Behaviour, record_episodes
from rl_training.trust.consent import current, scope
from rl_training.types import REWARD, Array, ConfigError, DictSpec, Dream, JointSpec, Obs, Policy
from rl_training.version import __version__

GREEDY = Behaviour()
"""Acting without noise."""


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
            raise ConfigError(f"a run of '{self.config.algo}' has no world model; take dreamer, planet or dynamics")
        rows, single = as_batch(obs, self.observation_space)
        if single:
            raise ConfigError("dream takes a sequence of observations; give one as obs[None]")
        rng = np.random.default_rng(self.config.seed)
        return policy.dream(rows, np.asarray(actions), rng, samples, context)

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
        return {
            "algo": cfg.algo,
            "env_id": str(cfg.env_id),
            "env_steps": str(self.env_steps),
            "rl_training": __version__,
        }

    def reset(self, rows: Array | None = None) -> None:
        """A new episode starts: forget the last one. `rows` marks those of a batch, by a mask or by numbers."""
        self._is_first[slice(None) if rows is None else rows] = True


def load(
    run: str | Path,
    checkpoint: str | int = "latest",
    *,
    env_fn: EnvFn | None = None,
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    trust_plugins: bool = False,
) -> SavedPolicy:
    """The policy of a run: `load("runs/ppo__CartPole-v1__...").predict(obs)`.

    `run` is a path, or a name inside `output_dir`. The environment is not built: the run has a record of its spaces.
    `env_fn` is checked against it, and asked where a run of version 0.1 has none. A checkpoint of another run, or a
    config that was edited since it was saved, is refused unless `allow_changed_config`. `trust_plugins` agrees to the
    code that a run which was not made here asks for.
    """
    directory = RunDir.open(run, output_dir)
    with directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None) as cfg:
        return _load(directory, cfg, checkpoint, env_fn, allow_changed_config)


def _load(
    directory: RunDir, cfg: TrainConfig, checkpoint: str | int, env_fn: EnvFn | None, allow_changed_config: bool
) -> SavedPolicy:
    sealing = SealCheck(Seal.of(directory), allow_changed_config)
    saved = CheckpointManager(directory.path, sealing=sealing).load(parse_checkpoint(checkpoint), parts={"policy"})
    check_supported(cfg)
    spec, hparams = resolve_algorithm(cfg)
    spaces = spaces_of(directory, cfg, env_fn)
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


def evaluate(
    run: str | Path,
    *,
    checkpoint: str | int = "latest",
    episodes: int = 100,
    seed: int | None = None,
    stochastic: bool = False,
    num_envs: int | None = None,
    video: str | Path | None = None,
    window: bool = False,
    opponent: str | None = None,
    env_fn: EnvFn | None = None,
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    trust_plugins: bool = False,
) -> dict[str, Any]:
    """Play `episodes` episodes with the policy of a run; returns the record that `rl eval --json` prints.

    `run` is a path, or a name inside `output_dir`; `video` the folder that a film of one episode is written to, or the
    file itself where it ends in .mp4; with `window` the episodes are shown on the screen, one after the other.
    `opponent` is for games: a rule or another run, played from every seat in turn, and the record has wins, draws and
    losses. `allow_changed_config` and `trust_plugins` are those of `load`.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, not {episodes}")
    if window and video is not None:
        raise ConfigError("an environment draws either into a window or into a video; give one of them")
    directory = RunDir.open(run, output_dir)
    need_env_fn(directory.path, directory.config(secrets=False), env_fn, "evaluate")
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None)
    with to_run as cfg, Offspring(), EnvWatch(), pinned_threads(cfg.training.num_threads, cfg.backend):
        saved = _load(directory, cfg, checkpoint, env_fn, allow_changed_config)
        make = eval_env_maker(cfg, env_fn, render=video is not None, window=window)

        def checked(index: int) -> Any:
            env = make(index)
            spaces = saved.observation_space, saved.action_space
            check_spaces(directory.path, spaces, (space_spec(env.observation_space), space_spec(env.action_space)))
            return env

        seed = cfg.seed if seed is None else seed
        games = Games(episodes, seed, not stochastic, 1 if window else num_envs, video is not None)
        match: dict[str, Any] = {}
        if opponent is None:
            result = evaluate_policy(saved.policy, checked, **asdict(games))
        else:
            spaces = saved.observation_space, saved.action_space
            against = opponent_of(opponent, spaces, partial(_policy_of, output_dir, trust_plugins))
            result, match = play_match(saved.policy, checked, against, games, cfg.env_id)
    record: dict[str, Any] = {
        "run": str(directory.path),
        "checkpoint": str(checkpoint),
        **reached(cfg, saved.env_steps),
        "seed": seed,
        "deterministic": not stochastic,
        "episodes": episodes,
        **result.metrics(),
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        **match,
    }
    if video is not None:
        from rl_training.logging.video import write_video

        path = Path(video)
        path = path if path.suffix == ".mp4" else path / f"eval_step_{saved.env_steps:012d}.mp4"
        record["video"] = str(write_video(path, result.frames, fps=result.fps))
    return record


def _policy_of(output_dir: str | Path, trust_plugins: bool, run: str) -> tuple[Policy, Spaces]:
    """The policy of another run, and its spaces."""
    saved = load(run, output_dir=output_dir, trust_plugins=trust_plugins)
    return saved.policy, (saved.observation_space, saved.action_space)


def play(
    run: str | Path,
    ask: Ask,
    tell: Tell,
    *,
    checkpoint: str | int = "latest",
    seat: str | None = None,
    games: int = 1,
    seed: int = 0,
    stochastic: bool = False,
    env_fn: EnvFn | None = None,
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    trust_plugins: bool = False,
) -> list[float]:
    """A person plays against the policy of a run, which has all other seats: `play(run, input, print)`.

    Returns the person's scores, 1, 0.5 or 0, of the games that were played to their end.
    """
    directory = RunDir.open(run, output_dir)
    need_env_fn(directory.path, directory.config(secrets=False), env_fn, "play")
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None)
    with to_run as cfg, pinned_threads(cfg.training.num_threads, cfg.backend):
        saved = _load(directory, cfg, checkpoint, env_fn, allow_changed_config)
        env = eval_env_maker(cfg, env_fn)(0)
        try:
            return games_of_a_person(env, player_of(saved.policy, greedy=not stochastic), seat, games, seed, ask, tell)
        finally:
            env.close()


def export(
    run: str | Path,
    kind: str,
    path: str | Path | None = None,
    *,
    checkpoint: str | int = "latest",
    episodes: int | None = None,
    env_fn: EnvFn | None = None,
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    trust_plugins: bool = False,
) -> ExportReport:
    """Write the policy of a run as a file that others can run, by default into `<run>/export/`; onnx, numpy, torch.

    The file is kept only if it does what the policy does in `episodes` episodes; see docs/export.md.
    """
    directory = RunDir.open(run, output_dir)
    need_env_fn(directory.path, directory.config(secrets=False), env_fn, "export")
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None)
    with to_run as cfg, Offspring(), EnvWatch(), pinned_threads(cfg.training.num_threads, cfg.backend):
        saved = _load(directory, cfg, checkpoint, env_fn, allow_changed_config)
        return saved.write(kind, path or directory.path / "export", episodes=episodes, env_fn=env_fn)


def record(
    run: str | Path | None,
    amount: Amount,
    *,
    checkpoint: str | int = "latest",
    how: Behaviour = GREEDY,
    random_env: str | None = None,
    seed: int | None = None,
    reference_episodes: int = 100,
    output_dir: str | Path = "runs",
    trust_plugins: bool = False,
) -> Dataset:
    """Play with the policy of a run and keep every transition, as a dataset.

    Without a `run`, uniformly random actions are recorded in environment `random_env`. Reference scores are the mean
    returns of `reference_episodes` fresh episodes of the random policy (0) and of the run's greedy one (100).
    """
    if run is None:
        if random_env is None:
            raise ConfigError("name a run, or an environment for random actions")
        return _recorded(TrainConfig(algo="random", env_id=random_env), None, amount, how, seed or 0, 0, {})
    directory = RunDir.open(run, output_dir)
    need_env_fn(directory.path, directory.config(secrets=False), None, "record")
    with (
        directory.to_run(trust_plugins=trust_plugins, env_given=False) as cfg,
        Offspring(),
        EnvWatch(),
        pinned_threads(cfg.training.num_threads, cfg.backend),
    ):
        saved = _load(directory, cfg, checkpoint, None, False)
        policy = {"run": directory.path.name, **reached(cfg, saved.env_steps)}
        return _recorded(cfg, saved.policy, amount, how, cfg.seed if seed is None else seed, reference_episodes, policy)


def _recorded(
    cfg: TrainConfig,
    policy: Policy | None,
    amount: Amount,
    how: Behaviour,
    seed: int,
    references: int,
    facts: dict[str, Any],
) -> Dataset:
    """Record with a policy, or with random actions where it is None."""
    make = eval_env_maker(cfg, None)
    env = make(0)
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    env.close()
    if isinstance(spaces[1], DictSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has a Dict action space, which no dataset holds")
    if isinstance(spaces[0], JointSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has several agents; a dataset holds the episodes of one")
    chance = RandomAgent(BuildContext(*spaces), RandomConfig())
    acting: Policy = chance if policy is None else policy
    info = DatasetInfo(
        cfg.env_id,
        spaces,
        "env",
        env=config_to_mapping(cfg)["env"],
        policy={**facts, "algo": cfg.algo, "how": "random" if policy is None else how.text()},
        seed=seed,
    )
    if policy is not None and references:
        info = with_references(info, policy, make, references, seed)
    return joined(info, list(record_episodes(acting, make, spaces[1], amount, seed, how)))


def reached(cfg: TrainConfig, step: int) -> dict[str, int]:
    """How far a checkpoint is: in env steps, or in updates where the run is offline."""
    return {"env_steps": step} if cfg.training.total_updates is None else {"env_steps": 0, "updates": step}


def with_references(info: DatasetInfo, policy: Policy, make: EnvMaker, episodes: int, seed: int) -> DatasetInfo:
    """The record of a dataset with the returns that count as 0 and as 100."""
    chance = RandomAgent(BuildContext(*info.spaces), RandomConfig())
    low, high = (
        float(evaluate_policy(each, make, episodes=episodes, seed=seed).returns.mean()) for each in (chance, policy)
    )
    said = f"mean returns of {episodes} evaluation episodes, random (min) and this run's greedy policy (max)"
    return replace(info, ref_min=low, ref_max=high, reference=said)


def record_replay(
    run: str | Path,
    *,
    checkpoint: str | int = "latest",
    reference_episodes: int = 100,
    output_dir: str | Path = "runs",
    trust_plugins: bool = False,
) -> Dataset:
    """The replay rows of a run's checkpoint as a dataset. Only its reference scores, as those of `record`, need the
    environment: with 0 episodes nothing is played."""
    directory = RunDir.open(run, output_dir)
    data = replay_dataset(directory, parse_checkpoint(checkpoint))
    if not reference_episodes:
        return data
    need_env_fn(directory.path, directory.config(secrets=False), None, "record")
    with (
        directory.to_run(trust_plugins=trust_plugins, env_given=False) as cfg,
        Offspring(),
        EnvWatch(),
        pinned_threads(cfg.training.num_threads, cfg.backend),
    ):
        saved = _load(directory, cfg, checkpoint, None, False)
        make = eval_env_maker(cfg, None)
        return replace(data, info=with_references(data.info, saved.policy, make, reference_episodes, cfg.seed))


def parse_checkpoint(name: str | int) -> str | int:
    """ "latest", "best" or a step number."""
    if isinstance(name, int) or name in ("latest", "best"):
        return name
    if name.isdigit():
        return int(name)
    raise ConfigError(f"checkpoint must be latest, best or a step number, not '{name}'")


def dream_of_an_episode(
    run: str | Path,
    *,
    checkpoint: str | int = "latest",
    context: int = 5,
    steps: int = 15,
    samples: int = 16,
    seed: int | None = None,
    env_fn: EnvFn | None = None,
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    trust_plugins: bool = False,
) -> tuple[Dream, int]:
    """Play the first `context` + `steps` observations of an episode with the policy of a run, and let its world model
    foresee what follows the first `context`; also returns the env steps of the checkpoint."""
    directory = RunDir.open(run, output_dir)
    need_env_fn(directory.path, directory.config(secrets=False), env_fn, "dream")
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None)
    with to_run as cfg, Offspring(), EnvWatch(), pinned_threads(cfg.training.num_threads, cfg.backend):
        saved = _load(directory, cfg, checkpoint, env_fn, allow_changed_config)
        env = eval_env_maker(cfg, env_fn)(0)
        try:
            obs, _ = env.reset(seed=cfg.seed if seed is None else seed)
            seen, actions, ended = [obs], [], False
            while not ended and len(seen) < context + steps:
                actions.append(saved.predict(obs))
                obs, _, terminated, truncated, _ = env.step(actions[-1])
                seen.append(obs)
                ended = bool(terminated or truncated)
        finally:
            env.close()
        return saved.dream(stack_obs(seen), np.stack(actions), samples=samples, context=context), saved.env_steps
