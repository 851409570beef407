"""Offline to online: what comes along, what batches are made of, what is refused, and exact resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline_runs import SMALL, TINY, assert_same, offline
from sampling import sampled

from rl_training import load, resume, train
from rl_training.assembly.build import build_trainer
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.loading import parse_config
from rl_training.experiments.keeping.bundle import reached
from rl_training.runs.directory import RunDir
from rl_training.training.offline.online import OnlineTrainer

ONLINE = ("td3_bc", "iql", "cql", "rebrac", "awac")
STEPS: dict[str, Any] = {"total_timesteps": 512, "total_updates": None, "num_eval_episodes": 1}
STEPS["checkpoint_frequency"] = 256


def config(algo: str, dataset: Path, output_dir: Path, **sections: Any) -> dict[str, Any]:
    return {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "output_dir": str(output_dir),
        "dataset": {"path": str(dataset), "online_share": 0.5},
        "env": {"normalize_obs": True},
        "hparams": {"batch_size": 16, **TINY[algo]},
        "network": SMALL,
        "training": STEPS,
        **sections,
    }


def pretrained(algo: str, dataset: Path, output_dir: Path, **fields: Any) -> Any:
    fields = {"hparams": {"batch_size": 16, **TINY[algo]}, "env": {"normalize_obs": True}, **fields}
    return offline(algo, dataset, output_dir, training={"total_updates": 64, "num_eval_episodes": 0}, **fields)


@pytest.fixture(scope="module")
def small_iql(random_pendulum: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short offline run that no test changes."""
    run: Path = pretrained("iql", random_pendulum, tmp_path_factory.mktemp("runs"), name="first").run_dir
    return run


@pytest.mark.parametrize("algo", sampled(ONLINE, ("td3_bc", "cql")))
def test_networks_optimisers_and_normaliser_come_along(algo: str, random_pendulum: Path, tmp_path: Path) -> None:
    first = pretrained(algo, random_pendulum, tmp_path)
    cfg = config(algo, random_pendulum, tmp_path, seed=1)
    one = train(cfg, init_from=str(first.run_dir))
    assert (one.metrics["env_steps"], one.metrics["updates"]) == (512, 512)
    assert "eval/score" in one.metrics
    info = json.loads((one.run_dir / "run.json").read_text())
    assert info["parent"] == str(first.run_dir)
    assert "axis" not in info
    saved, begun = (CheckpointManager(run.run_dir).load(step).parts for run, step in ((first, 64), (one, 0)))
    assert_same(saved["policy"], begun["policy"], "policy")
    for name in ("networks", "targets", "optimizer", "updates"):
        assert_same(saved["algorithm"][name], begun["algorithm"][name], name)
    end = CheckpointManager(one.run_dir).load("latest").parts
    assert_same(saved["policy"]["normalizer"], end["policy"]["normalizer"], "normaliser")  # frozen

    other = train({**cfg, "output_dir": str(tmp_path / "other")}, init_from=str(first.run_dir))
    CheckpointManager(other.run_dir).rewind(256)
    record = other.run_dir / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "status": "stopped"}))
    resume(other.run_dir)
    again = CheckpointManager(other.run_dir).load("latest").parts
    for part in ("policy", "algorithm", "dataset", "progress"):
        assert_same(end[part], again[part], part)
    rows = [parts["buffer"]["rows"].arrays() for parts in (end, again)]
    assert_same(rows[0], rows[1], "buffer")


def test_the_policy_alone(random_pendulum: Path, tmp_path: Path) -> None:
    first = pretrained("td3_bc", random_pendulum, tmp_path)
    one = train(
        config("td3_bc", random_pendulum, tmp_path, seed=1), init_from=str(first.run_dir), init_policy_only=True
    )
    saved, begun = (CheckpointManager(run.run_dir).load(step).parts for run, step in ((first, 64), (one, 0)))
    assert_same(saved["policy"], begun["policy"], "policy")
    assert begun["algorithm"]["updates"] == 0
    weights = [parts["algorithm"]["networks"]["critics"]["output.weight"] for parts in (saved, begun)]
    assert not np.array_equal(*weights)


def test_half_of_each_batch_is_from_the_dataset(random_pendulum: Path, tmp_path: Path) -> None:
    cfg = parse_config(config("iql", random_pendulum, tmp_path))
    trainer = build_trainer(cfg)
    assert isinstance(trainer, OnlineTrainer)
    try:
        trainer.train_step(8)
        known = {row.tobytes() for row in np.asarray(trainer.replay.data.columns()["obs"])}
        batch = trainer.buffer.sample(16)
        assert sum(row.tobytes() in known for row in batch["obs"]) == 8
        assert trainer.progress.env_steps == trainer.progress.updates == 8 * cfg.env.num_envs
    finally:
        trainer.close()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["bc/pendulum", "--total-timesteps", "100"], "only imitates a dataset"),
        (["dt/pendulum", "--total-timesteps", "100"], "only imitates a dataset"),
        (["td3_bc/pendulum", "--total-timesteps", "100"], "whose critics do not fit 'td3_bc'"),
        (["iql/pendulum", "--total-timesteps", "100", "--total-updates", "7"], "counts env steps"),
        (["iql/pendulum", "--total-timesteps", "100", "--env.overlap", "true"], "env.overlap cannot be used"),
        (["iql/pendulum", "--total-timesteps", "9", "--backend", "jax", "--lane", "compiled"], "use lane: host"),
        (["iql/pendulum", "--total-timesteps", "9", "--training.eval-lane", "compiled"], "that steps an environment"),
        (["iql/pendulum", "--init-policy-only"], "is for offline algorithms that go on in an environment"),
        (["iql/pendulum", "--total-timesteps", "9", "--env.normalize-obs", "false"], "set env.normalize_obs: true"),
        (["iql/pendulum", "--total-timesteps", "9"], "network.actor.hidden_dims was [32, 32] and is [64, 64]"),
        (["iql/pendulum", "--total-timesteps", "9", "--backend", "jax"], "backend was 'torch' and is 'jax'"),
    ],
)
def test_refusals(
    flags: list[str], message: str, random_pendulum: Path, small_iql: Path, tmp_path: Path, capsys: Any
) -> None:
    words = ["train", *flags, "--dataset", str(random_pendulum), "--init-from", str(small_iql)]
    assert main([*words, "--output-dir", str(tmp_path / "new")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


def test_from_the_command_line(random_pendulum: Path, small_iql: Path, tmp_path: Path, capsys: Any) -> None:
    flags = ["--init-from", str(small_iql), "--dataset", str(random_pendulum), "--total-timesteps", "256"]
    small = ["--network.actor.hidden-dims", "[32,32]", "--network.critic.hidden-dims", "[32,32]"]
    extra = ["--training.num-eval-episodes", "0", "--hparams.batch-size", "16", "--output-dir", str(tmp_path), "--json"]
    capsys.readouterr()
    assert main(["train", "iql/pendulum", *flags, *small, *extra]) == 0
    found = json.loads(capsys.readouterr().out)
    run = Path(found["run"])
    resolved = (run / "configs" / "resolved.yaml").read_text()
    assert "online_share: 0.5" in resolved
    assert json.loads((run / "metrics.json").read_text())["env_steps"] == 256


def test_an_offline_run_goes_on_with_its_own_config(random_pendulum: Path, small_iql: Path, capsys: Any) -> None:
    flags = ["--init-from", "first", "--total-timesteps", "64", "--output-dir", str(small_iql.parent)]
    capsys.readouterr()
    assert main(["train", *flags, "--json"]) == 0
    run = RunDir.open(json.loads(capsys.readouterr().out)["run"])
    own, cfg = (each.config() for each in (RunDir.open(small_iql), run))
    assert (cfg.algo, cfg.network, cfg.hparams, cfg.env) == (own.algo, own.network, own.hparams, own.env)
    assert (cfg.dataset.path, cfg.dataset.online_share, cfg.name) == (str(random_pendulum), 0.5, None)
    saved, begun = (CheckpointManager(path).load(step).parts for path, step in ((small_iql, 64), (run.path, 0)))
    assert_same(saved["policy"], begun["policy"], "policy")


def test_what_is_said_of_an_exported_policy_counts_updates(small_iql: Path) -> None:
    said = load(small_iql).description()
    assert (said["env_steps"], said["updates"]) == ("0", "64")
    assert reached(said) == "64 updates from a dataset"


def test_a_config_that_names_code_is_not_taken_from_a_run(small_iql: Path, tmp_path: Path, capsys: Any) -> None:
    copy = shutil.copytree(small_iql, tmp_path / small_iql.name)
    config = copy / "configs" / "resolved.yaml"
    config.write_text(config.read_text().replace("env_id: Pendulum-v1", "env_id: some.module:Env"))
    assert main(["train", "--init-from", str(copy), "--total-timesteps", "9"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "names code or files (" in said
    assert "some.module:Env" in said
