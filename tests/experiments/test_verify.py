"""A run that is trained again comes out the same, for every algorithm; what was changed in one is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from group_cases import tiny

import rl_training
from rl_training.checkpointing import CheckpointManager
from rl_training.cli import main
from rl_training.config import builtin_spec
from rl_training.experiments.verify import ReproducibilityChecker, VerifyReport
from rl_training.registry import algorithms
from rl_training.runs import RunDir, metrics_sha256
from rl_training.types import RunError


def short(folder: Path, algo: str, **fields: Any) -> dict[str, Any]:
    """A run of 96 env steps with a checkpoint at every block."""
    on_policy = {"num_steps": 16}
    replay = {"learning_starts": 16, "batch_size": 8, "updates_per_step": 0.25}
    return {
        **tiny(folder),
        "algo": algo,
        "env_id": "CartPole-v1" if algo in ("dqn", "ppo", "pqn") else "Pendulum-v1",
        "hparams": replay if builtin_spec(algo).kind == "off_policy" else on_policy,
        "training": {
            "total_timesteps": 96,
            "eval_frequency": 64,
            "num_eval_episodes": 1,
            "checkpoint_frequency": 32,
        },
        **({"buffer": {"size": 64}} if builtin_spec(algo).kind == "off_policy" else {}),
        **fields,
    }


def verify(run: Path, **options: Any) -> VerifyReport:
    return ReproducibilityChecker().verify_experiment(run, **options)


@pytest.fixture
def quickly_compiled() -> Iterator[None]:
    """What runs for a moment is compiled without optimisation, which takes half of the time."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


CASES = [(algo, "torch" if builtin_spec(algo).build is not None else "jax") for algo in algorithms.names()]


@pytest.mark.parametrize(("algo", "backend"), [*CASES, ("ppo", "jax"), ("sac", "jax")])
def test_every_algorithm_comes_out_the_same_again_and_one_bit_is_noticed(
    algo: str, backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if backend == "jax":
        request.getfixturevalue("quickly_compiled")
    run = rl_training.train(short(tmp_path, algo, backend=backend)).run_dir
    report = verify(run)
    assert report.reproduced, report.differences
    assert report.env_steps >= 96
    assert report.rows == len((run / "logs" / "metrics.jsonl").read_text().splitlines())
    assert report.checkpoints == len(CheckpointManager(run).steps()) >= 2
    assert {path.name for path in tmp_path.iterdir()} == {"index.sqlite", run.name}
    value = change_a_metric(run, "eval/return_mean")
    weights = sorted(run.glob("checkpoints/step_*/policy.safetensors"))
    if weights:
        change_one_bit(weights[-1])
    differences = {difference.kind: difference for difference in verify(run).differences}
    assert set(differences) == {"log", "metric"} | ({"file", "tensor"} if weights else set())
    assert (differences["metric"].what, differences["metric"].again) == ("eval/return_mean", value)
    assert bool(weights) == (algo not in ("random", "constant"))


def change_one_bit(file: Path) -> None:
    """The lowest of the next to last number."""
    data = bytearray(file.read_bytes())
    data[-8] ^= 1
    file.write_bytes(data)


def change_a_metric(run: Path, name: str) -> float:
    """Another last bit in the first row that has it; returns what it was."""
    log = run / "logs" / "metrics.jsonl"
    rows = log.read_text().splitlines()
    number = next(number for number, row in enumerate(rows) if f'"{name}"' in row)
    value: float = json.loads(rows[number])[name]
    other = float(np.nextafter(value, 2 * value))
    rows[number] = rows[number].replace(f'"{name}":{value}', f'"{name}":{other}')
    assert json.loads(rows[number])[name] == other
    log.write_text("".join(f"{row}\n" for row in rows))
    return value


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rl_training.train(short(tmp_path_factory.mktemp("verify"), "ppo")).run_dir


@pytest.fixture
def run(trained_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_once, tmp_path / trained_once.name))


def test_only_some_steps(run: Path) -> None:
    report = verify(run, steps=40)
    assert (report.reproduced, report.env_steps, report.rows, report.checkpoints) == (True, 64, 2, 2)


def test_one_bit_in_a_checkpoint(run: Path) -> None:
    file = run / "checkpoints" / "step_000000000064" / "policy.safetensors"
    change_one_bit(file)
    report = verify(run)
    named, tensor = report.differences
    assert (named.kind, named.env_steps) == ("file", 64)
    assert "policy.safetensors: checksum differs" in named.what
    assert (tensor.kind, tensor.env_steps) == ("tensor", 64)
    assert tensor.what.startswith("policy/")
    assert tensor.what.endswith("and 0 more of 1 values") or "[" in tensor.what
    assert tensor.stored != tensor.again


def test_one_bit_in_a_checkpoint_whose_checksums_were_made_to_fit(run: Path) -> None:
    """Saved anew with another weight: only training again can tell."""
    manager = CheckpointManager(run, keep_last=100)
    checkpoint = manager.load(64)

    def first_array(node: dict[str, Any], path: str) -> tuple[str, Any]:
        for key, value in node.items():
            if isinstance(value, dict) and value:
                return first_array(value, f"{path}/{key}")
            if isinstance(value, np.ndarray) and value.size:
                return f"{path}/{key}", value
        raise AssertionError

    path, array = first_array(checkpoint.parts["policy"], "policy")
    changed = array.view(np.uint8).reshape(-1)
    changed[0] ^= 1
    manager.save(checkpoint.parts, step=64)
    (difference,) = verify(run).differences
    place = [0] * array.ndim
    assert difference.what == f"{path}{place} and 0 more of {array.size} values"
    assert (difference.kind, difference.env_steps) == ("tensor", 64)


def test_one_bit_in_a_metric(run: Path) -> None:
    value = change_a_metric(run, "train/value_loss")
    hashed, metric = verify(run).differences
    assert (hashed.kind, hashed.what) == ("log", "logs/metrics.jsonl was changed after the end")
    assert (metric.kind, metric.env_steps, metric.what) == ("metric", 32, "train/value_loss")
    assert (metric.stored, metric.again) == (np.nextafter(value, 2 * value), value)
    RunDir(run).update_info(metrics_sha256=metrics_sha256(run / "logs" / "metrics.jsonl"))
    assert [difference.kind for difference in verify(run).differences] == ["metric"]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_row_that_was_taken_away(run: Path, keep: int) -> None:
    log = run / "logs" / "metrics.jsonl"
    rows = log.read_text().splitlines()
    log.write_text("".join(f"{row}\n" for i, row in enumerate(rows) if i != keep))
    kinds = [(difference.kind, difference.what) for difference in verify(run).differences]
    assert kinds[0][0] == "log"
    assert kinds[1] == ("metric", "env_steps") if keep == 1 else len(kinds) == 2


def test_a_changed_config_is_caught_by_its_hash(run: Path) -> None:
    config = run / "configs" / "resolved.yaml"
    config.write_text(config.read_text().replace("gamma: 0.99", "gamma: 0.98"))
    report = verify(run)
    assert [(d.kind, d.what) for d in report.differences] == [
        ("config", "configs/resolved.yaml was changed after the start")
    ]
    assert report.rows == 0  # what would be trained is not what was trained


def test_other_code_is_noticed(run: Path) -> None:
    """As if the loss had been another one when the run was made: everything from the first update on."""
    RunDir(run).update_info(versions={"torch": "0.1"})
    log = run / "logs" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({**row, "train/loss": 2 * row["train/loss"]}) + "\n" for row in rows))
    report = verify(run)
    metric = report.differences[1]
    assert (metric.env_steps, metric.what, metric.stored) == (32, "train/loss", 2 * metric.again)
    assert "torch 0.1 -> " in report.notes[0]


def test_stopped_extended_and_warm_started_runs(tmp_path: Path) -> None:
    class Stops(rl_training.Callback):
        def on_step(self, trainer: Any, report: Any) -> None:
            if trainer.progress.env_steps == 64 and not (tmp_path / "was here").exists():
                (tmp_path / "was here").touch()
                trainer.request_stop("SIGTERM", interrupted=True)

    rl_training.register_callback("stops_at_64")(Stops)
    stopped = rl_training.train(short(tmp_path, "ppo", callbacks=["stops_at_64"])).run_dir
    assert RunDir(stopped).info()["status"] == "stopped"
    report = verify(stopped)
    assert (report.reproduced, report.env_steps) == (True, 64)
    rl_training.resume(stopped)
    assert verify(stopped).env_steps == 96
    rl_training.resume(stopped, total_timesteps=160)
    report = verify(stopped)
    assert (report.reproduced, report.env_steps) == (True, 96)
    assert report.notes == ["the run was extended after 96 env steps; only those are compared"]
    warm = rl_training.train(short(tmp_path, "ppo", seed=5), init_from=f"{stopped}:128").run_dir
    assert verify(warm).reproduced


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_stopped_half_way_and_resumed_equals_straight_through(algo: str, tmp_path: Path) -> None:
    run = rl_training.train(short(tmp_path, algo)).run_dir
    report = ReproducibilityChecker().verify_resume(run)
    assert report.reproduced, report.differences
    assert report.env_steps >= 96


def test_an_algorithm_that_forgets_something_fails_the_resume_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own generator is not in its state, so a resumed run draws other numbers."""
    from rl_training.types import UpdateResult

    class Forgetful(rl_training.BaseAlgorithm):
        def __init__(self, ctx: Any, hparams: Any) -> None:
            super().__init__(ctx, hparams)
            self.rng = np.random.default_rng(0)
            self.space = ctx.action_space

        def act(self, obs: Any, rng: Any, deterministic: bool = False) -> Any:
            return np.zeros(len(obs), self.space.dtype)

        def update(self, batch: Any) -> UpdateResult:
            return UpdateResult({"drawn": float(self.rng.random())})

    monkeypatch.setattr(algorithms, "_entries", dict(algorithms._entries))  # the name is forgotten after this
    rl_training.register_algorithm("forgetful")(Forgetful)
    run = rl_training.train({**tiny(tmp_path), "algo": "forgetful", "hparams": {"num_steps": 16}}).run_dir
    assert verify(run).reproduced
    report = ReproducibilityChecker().verify_resume(run)
    assert [(d.kind, d.what, d.env_steps) for d in report.differences] == [("metric", "train/drawn", 96)]


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), "--steps=32"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["reproduced", "  compared   32 env steps, 1 rows of metrics, 1 checkpoints"]
    assert main(["verify", str(run), "--resume-check", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["reproduced"], result["resume_check"], result["differences"]) == (True, True, [])
    config = run / "configs" / "resolved.yaml"
    config.write_text(config.read_text().replace("gamma: 0.99", "gamma: 0.98"))
    assert main(["verify", str(run)]) == 3
    assert "differs    config: configs/resolved.yaml was changed" in capsys.readouterr().out
    assert main(["verify", "nothing"]) == 2


def test_a_run_with_nothing_in_it(tmp_path: Path) -> None:
    from rl_training.config_loading import parse_config

    run = RunDir.create(parse_config(tiny(tmp_path)))
    with pytest.raises(RunError, match="nothing to verify"):
        verify(run.path)
