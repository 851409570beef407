"""Using a trained run: load its policy, predict, evaluate, record a video. For notebooks and `rl eval` alike."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.assembly.environments import EnvFn, eval_env_maker
from rl_training.assembly.multi_agent.matches import opponent_of, player_of
from rl_training.assembly.saved.exporting import ExportReport
from rl_training.assembly.saved.policy import SavedPolicy, Which, parse_checkpoint
from rl_training.assembly.saved.recording import recorded, with_references
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.replay_rows import replay_dataset
from rl_training.envs import space_spec
from rl_training.runs.directory import RunDir
from rl_training.runs.spaces import Spaces, check_spaces
from rl_training.training.evaluation import evaluate_policy, stack_obs
from rl_training.training.league.matches import Games, play_match
from rl_training.training.league.person import Ask, Tell, games_of_a_person
from rl_training.training.offline.recording import Amount, Behaviour
from rl_training.types import ConfigError, Dream, Policy

__all__ = [
    "SavedPolicy",
    "dream_of_an_episode",
    "evaluate",
    "evaluate_policy",
    "export",
    "load",
    "play",
    "record",
    "record_replay",
]

GREEDY = Behaviour()
"""Acting without noise."""


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
    return Which(run, checkpoint, env_fn, output_dir, allow_changed_config, trust_plugins).load()


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
    which = Which(run, checkpoint, env_fn, output_dir, allow_changed_config, trust_plugins)
    with which.at_work("evaluate") as (directory, saved):
        cfg = saved.config
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
        **saved.position(),
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
    which = Which(run, checkpoint, env_fn, output_dir, allow_changed_config, trust_plugins)
    with which.at_work("play") as (_, saved):
        env = eval_env_maker(saved.config, env_fn)(0)
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
    which = Which(run, checkpoint, env_fn, output_dir, allow_changed_config, trust_plugins)
    with which.at_work("export") as (directory, saved):
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
        return recorded(TrainConfig(algo="random", env_id=random_env), None, amount, how, seed or 0, 0, {})
    which = Which(run, checkpoint, output_dir=output_dir, trust_plugins=trust_plugins)
    with which.at_work("record") as (directory, saved):
        cfg, facts = saved.config, {"run": directory.path.name, **saved.position()}
        return recorded(cfg, saved.policy, amount, how, cfg.seed if seed is None else seed, reference_episodes, facts)


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
    which = Which(run, checkpoint, output_dir=output_dir, trust_plugins=trust_plugins)
    with which.at_work("record") as (_, saved):
        make, seed = eval_env_maker(saved.config, None), saved.config.seed
        return replace(data, info=with_references(data.info, saved.policy, make, reference_episodes, seed))


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
    which = Which(run, checkpoint, env_fn, output_dir, allow_changed_config, trust_plugins)
    with which.at_work("dream") as (_, saved):
        env = eval_env_maker(saved.config, env_fn)(0)
        try:
            obs, _ = env.reset(seed=saved.config.seed if seed is None else seed)
            seen, actions, ended = [obs], [], False
            while not ended and len(seen) < context + steps:
                actions.append(saved.predict(obs))
                obs, _, terminated, truncated, _ = env.step(actions[-1])
                seen.append(obs)
                ended = bool(terminated or truncated)
        finally:
            env.close()
        if len(seen) <= context:
            raise ConfigError(
                f"the episode ended after {len(actions)} steps, before the model was on its own: give a context of "
                f"less than {len(seen)} observations, not {context}"
            )
        return saved.dream(stack_obs(seen), np.stack(actions), samples=samples, context=context), saved.env_steps
