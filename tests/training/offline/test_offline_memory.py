"""Networks with memory on datasets: what needs a memory is imitated, runs resume exactly, and the rest refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline_runs import assert_same, offline

from rl_training import resume, train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.data.datasets.dataset import Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.envs import space_spec
from rl_training.envs.probes.memory import CueMemory
from rl_training.eval import evaluate

CUE = "RLProbe/CueMemory-v0"
MEMORY = {"hidden_dims": [16], "memory": {"type": "gru", "size": 16}}
REMEMBERING = {"actor": MEMORY, "critic": MEMORY}


def cue_dataset(folder: Path) -> Path:
    """Episodes of a player that answers with the cue, which lies eleven steps back, and does anything before."""
    env, rng, episodes = CueMemory(), np.random.default_rng(0), []
    for seed in range(300):
        obs, _ = env.reset(seed=seed)
        seen, actions, rewards, ended = [obs], [], [], False
        while not ended:
            actions.append(env.cue if obs[1] else int(rng.integers(2)))
            obs, reward, ended, _, _ = env.step(actions[-1])
            seen.append(obs)
            rewards.append(reward)
        last = np.arange(len(actions)) == len(actions) - 1
        episodes.append(Steps(np.array(seen), np.array(actions), np.array(rewards), last, last & ~last))
    spaces = space_spec(env.observation_space), space_spec(env.action_space)
    return write_native(joined(DatasetInfo(CUE, spaces), episodes), folder)


def cloned_return(memory: str, dataset: Path, output_dir: Path, seed: int, updates: int = 300, **hparams: Any) -> float:
    """Mean return of BC with a memory: 1 for the answer, 0.5 for a guess."""
    actor = {"hidden_dims": [32], "activation": "tanh", "memory": {"type": memory, "size": 32, "window": 12}}
    result = train(
        {"algo": "bc", "env_id": CUE, "seed": seed, "output_dir": str(output_dir), "dataset": {"path": str(dataset)}},
        network={"actor": actor},
        hparams=hparams,
        training={"total_updates": updates, "num_eval_episodes": 0},
    )
    return float(evaluate(result.run_dir, episodes=100)["return_mean"])


def test_a_memory_clones_what_depends_on_an_earlier_observation(tmp_path: Path) -> None:
    dataset = cue_dataset(tmp_path / "cue")
    assert cloned_return("gru", dataset, tmp_path, 0) == 1.0
    assert cloned_return("none", dataset, tmp_path, 0) <= 0.65


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("memory", ["gru", "lstm", "transformer"])
def test_every_memory_clones_the_answer(memory: str, seed: int, tmp_path: Path) -> None:
    dataset = cue_dataset(tmp_path / "cue")
    assert cloned_return(memory, dataset, tmp_path, seed, 600) == 1.0
    assert cloned_return(memory, dataset, tmp_path, seed, 600, sequence_length=14, burn_in=6) == 1.0


SHORT: dict[str, Any] = {"batch_size": 4, "sequence_length": 2, "burn_in": 1}


@pytest.mark.parametrize("algo", ["td3_bc", "awac"])
def test_actor_critics_learn_with_memory(algo: str, random_pendulum: Path, tmp_path: Path) -> None:
    training = {"total_updates": 4, "num_eval_episodes": 0}
    result = offline(algo, random_pendulum, tmp_path, network=REMEMBERING, hparams=SHORT, training=training)
    begun, learnt = (CheckpointManager(result.run_dir).load(step).parts["policy"]["network"] for step in (0, 4))
    moved = [name for name, value in learnt.items() if value.tobytes() != begun[name].tobytes()]
    assert any(".cell." in name for name in moved), moved


@pytest.mark.parametrize("algo", ["bc", "iql"])
def test_runs_with_memory_resume_exactly(algo: str, random_pendulum: Path, tmp_path: Path) -> None:
    training = {"total_updates": 264, "num_eval_episodes": 0, "checkpoint_frequency": 256}
    common: dict[str, Any] = {"network": REMEMBERING, "hparams": SHORT, "training": training}
    one = offline(algo, random_pendulum, tmp_path, **common)
    end = CheckpointManager(one.run_dir).load("latest").parts
    CheckpointManager(one.run_dir).rewind(256)
    record = one.run_dir / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "status": "stopped"}))
    resume(one.run_dir)
    again = CheckpointManager(one.run_dir).load("latest").parts
    for part in ("policy", "algorithm", "dataset", "progress"):
        assert_same(end[part], again[part], part)


def test_a_run_with_memory_goes_on_in_an_environment(random_pendulum: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {"network": REMEMBERING, "hparams": SHORT}
    training: dict[str, Any] = {"total_updates": 4, "num_eval_episodes": 0}
    first = offline("iql", random_pendulum, tmp_path, training=training, **common)
    online = {"total_timesteps": 32, "total_updates": None, "num_eval_episodes": 0}
    dataset = {"path": str(random_pendulum), "online_share": 0.5}
    cfg = {"algo": "iql", "env_id": "Pendulum-v1", "output_dir": str(tmp_path), "dataset": dataset}
    one = train({**cfg, "training": online, **common}, init_from=str(first.run_dir))
    assert one.metrics["env_steps"] == 32
    assert one.metrics["train/critic_loss"] > 0.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algo", "cql"], "'cql' learns from single transitions, so its networks have no memory"),
        (["--algo", "rebrac"], "'rebrac' learns from single transitions, so its networks have no memory"),
        (["--algo", "bc", "--backend", "jax"], "which with backend: jax only ppo and reinforce learn to use"),
        (["--algo", "bc", "--hparams.burn-in", "2000"], "the dataset has 1000 rows: lower hparams.sequence_length"),
        (["--algo", "bc", "--hparams.batch-size", "8"], "is less than one sequence"),
    ],
)
def test_refusals(flags: list[str], message: str, random_pendulum: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["train", *flags, "--dataset", str(random_pendulum), "--network.actor.memory.type", "gru"]
    assert main([*words, "--output-dir", str(tmp_path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
