"""A run that is trained again comes out the same, for every algorithm; what was changed in one is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from group_cases import tiny
from sampling import sampled

import rl_training
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.schema import builtin_spec
from rl_training.experiments.keeping.verify import ReproducibilityChecker, VerifyReport
from rl_training.registry import algorithms
from rl_training.runs.directory import RunDir, metrics_sha256
from rl_training.types import RunError

TEAM = {"env": {"num_envs": 2, "agents": {"reward": "team_mean"}}}
"""For algorithms that need several agents."""
NARROW = {"network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}}
WORLD_MODELS = ("dreamer", "planet", "dynamics", "pets", "mbpo")
"""They have networks of other kinds."""


def short(folder: Path, algo: str, **fields: Any) -> dict[str, Any]:
    """A run of 96 env steps with a checkpoint at every block."""
    on_policy = {"num_steps": 16}
    # in JAX agents end together
    team_id = "RLTeam/TwoStepGame-v0" if builtin_spec(algo).build is None else "RLTeam/Leaving-v0"
    replay: dict[str, Any] = {"learning_starts": 16, "batch_size": 8, "updates_per_step": 0.25}
    if algo in ("dreamer", "planet", "dynamics"):
        widths = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 2, "units": 8, "layers": 1, "depth": 1, "bins": 5}
        replay = {"learning_starts": 16, "batch_size": 2, "sequence_length": 4, "train_ratio": 2, "size": "custom"}
        replay["custom"] = widths
    if algo in ("planet", "pets"):
        replay |= {"candidates": 4, "elites": 2, "iterations": 1, "plan_horizon": 3}
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
        **({"env_id": team_id, **TEAM} if builtin_spec(algo).whole_teams else {}),
        **(NARROW if algo not in WORLD_MODELS else {}),
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


ONLINE = [algo for algo in algorithms.names() if builtin_spec(algo).kind != "offline"]
"""Offline runs are verified in tests/training/offline/test_offline.py."""
CASES = [(algo, "torch" if builtin_spec(algo).build is not None else "jax") for algo in ONLINE]
CASES += [("ppo", "jax"), ("sac", "jax"), ("dreamer", "jax")]
OFTEN = [*((algo, "torch") for algo in ("random", "ppo", "sac", "dreamer", "ippo")), ("ppo", "jax")]


@pytest.mark.parametrize(("algo", "backend"), sampled(CASES, OFTEN))
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
    size = CheckpointManager(run).load(32).parts["logs"]["files"]["metrics.jsonl"]
    where = f"it differs first between bytes 0 and {size}"
    assert (hashed.kind, hashed.what) == ("log", f"logs/metrics.jsonl is not what the checkpoints cover: {where}")
    assert (metric.kind, metric.env_steps, metric.what) == ("metric", 32, "train/value_loss")
    assert (metric.stored, metric.again) == (np.nextafter(value, 2 * value), value)
    forget_checksums_of_logs(run)
    hashed, _ = verify(run).differences
    assert hashed.what == "logs/metrics.jsonl was changed after the end"
    RunDir(run).update_info(metrics_sha256=metrics_sha256(run / "logs" / "metrics.jsonl"))
    assert [difference.kind for difference in verify(run).differences] == ["metric"]


def forget_checksums_of_logs(run: Path) -> None:
    """Checkpoints as 0.1.0 wrote them."""
    manager = CheckpointManager(run, keep_last=100)
    for step in manager.steps():
        checkpoint = manager.load(step)
        del checkpoint.parts["logs"]["sha256"]
        manager.save(checkpoint.parts, step=step)


def test_damage_in_any_log_is_placed_between_two_checkpoints(run: Path) -> None:
    """Cut rows, another digit, a lost file: between which bytes it begins, and the first row that cannot be read."""
    sizes = {
        step: CheckpointManager(run).load(step).parts["logs"]["files"]["metrics.jsonl"]
        for step in CheckpointManager(run).steps()
    }
    log = run / "logs" / "metrics.jsonl"
    data = bytearray(log.read_bytes())
    data[sizes[64] + 1] ^= 1
    log.write_bytes(data)
    (what,) = (d.what for d in verify(run).differences if d.kind == "log")
    assert what.endswith(f"between bytes {sizes[64]} and {sizes[96]}; row 3 cannot be read")
    data[sizes[64] + 1] ^= 1
    log.write_bytes(data)
    assert verify(run).reproduced
    (run / "logs" / "evals.jsonl").unlink()
    differences = {difference.kind: difference.what for difference in verify(run).differences}
    assert set(differences) == {"log", "evaluation"}
    assert "logs/evals.jsonl is not what the checkpoints cover" in differences["log"]


def test_logs_that_were_damaged_at_a_resume_are_reported(run: Path) -> None:
    log = run / "logs" / "episodes.jsonl"
    log.write_bytes(b"?" + log.read_bytes()[1:])
    with pytest.warns(UserWarning, match="are not what the checkpoint covers"):
        rl_training.resume(run, total_timesteps=128)
    (difference,) = verify(run).differences
    assert (difference.kind, difference.env_steps) == ("log", 96)
    assert "logs were damaged when the run was resumed: episodes.jsonl differs" in difference.what


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
    changed = "configs/resolved.yaml was changed after the start"
    assert [(d.kind, d.what) for d in report.differences] == [
        ("config", f"{changed}: hparams.gamma was 0.99 and is 0.98")
    ]
    assert report.rows == 0  # what would be trained is not what was trained
    forget_checksums_of_logs(run)  # and seals
    (difference,) = verify(run).differences
    assert (difference.what, difference.stored) == (changed, RunDir(run).info()["config_sha256"])


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


@pytest.mark.usefixtures("registrations")
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
    assert (report.reproduced, report.env_steps, report.notes) == (True, 160, [])
    warm = rl_training.train(short(tmp_path, "ppo", seed=5), init_from=f"{stopped}:128").run_dir
    assert verify(warm).reproduced


class StopsAt(rl_training.Callback):
    """Ends a run at each of `STOPS` once, as a signal would."""

    STOPS: ClassVar[list[int]] = []

    def on_step(self, trainer: Any, report: Any) -> None:
        if not report.final and self.STOPS and trainer.progress.env_steps >= self.STOPS[0]:
            self.STOPS.pop(0)
            trainer.request_stop("SIGTERM", interrupted=True)


MANY = "raised, lowered and raised"
LINEAR = {"type": "linear", "start": 1e-3, "end": 0.0}
BUDGETS: dict[str, list[tuple[int | None, int]]] = {
    "lowered after a stop": [(64, 256), (None, 96)],
    "lowered below where it stopped": [(64, 256), (None, 48)],
    MANY: [(64, 96), (128, 256), (None, 160), (None, 48), (None, 192)],
    "lowered below, then raised": [(64, 256), (None, 48), (None, 128)],
}
"""Calls of train and resume: where a signal stops them, and with which budget they are made."""


@pytest.mark.parametrize(
    ("lane", "lives"),
    [*(("torch", lives) for lives in BUDGETS.values()), *((lane, BUDGETS[MANY]) for lane in ("host", "compiled"))],
    ids=[*BUDGETS, "host lane", "compiled lane"],
)
def test_changed_budgets_are_changed_at_the_same_steps_again(
    tmp_path: Path, lane: str, lives: list[tuple[int | None, int]], request: pytest.FixtureRequest
) -> None:
    """Schedules follow the budget that was in force, and the last evaluation of each is where it was."""
    backend = {} if lane == "torch" else {"backend": "jax", "lane": lane}
    if lane != "torch":
        request.getfixturevalue("quickly_compiled")
    training = {"total_timesteps": lives[0][1], "eval_frequency": 0, "num_eval_episodes": 1, "checkpoint_frequency": 32}
    mapping = short(tmp_path, "ppo", training=training, callbacks=[f"{__name__}:StopsAt"], **backend)
    mapping["hparams"] = {"num_steps": 16, "learning_rate": LINEAR}
    run = None
    for stop, total in lives:
        StopsAt.STOPS[:] = [] if stop is None else [stop]
        run = (
            rl_training.train(mapping).run_dir
            if run is None
            else rl_training.resume(run, total_timesteps=total).run_dir
        )
    assert run is not None
    rows = (run / "logs" / "metrics.jsonl").read_text()
    report = verify(run)
    assert report.reproduced, (report.differences, RunDir(run).info()["budgets"])
    assert (report.rows, report.notes) == (len(rows.splitlines()), [])
    assert rows.count("eval/return_mean") >= 1
    assert report.env_steps == CheckpointManager(run).steps()[-1]


def test_a_run_that_goes_on_after_it_had_decided_to_end(tmp_path: Path) -> None:
    """The same budget again counts as a new one: only asked for it does a solved run go on."""
    training = {
        "total_timesteps": 96,
        "eval_frequency": 32,
        "num_eval_episodes": 1,
        "stop_at_return": 1,
        "stop_episodes": 1,
    }
    run = rl_training.train(short(tmp_path, "ppo", training=training)).run_dir
    assert RunDir(run).info()["budgets"] == [{"env_steps": 0, "total_timesteps": 96}]
    rl_training.resume(run, total_timesteps=96)
    assert RunDir(run).info()["budgets"][1:] == [{"env_steps": 32, "total_timesteps": 96}]
    report = verify(run)
    assert (report.reproduced, report.env_steps) == (True, 64), report.differences


def test_budgets_that_the_first_version_did_not_record(run: Path) -> None:
    info = RunDir(run).info()
    (run / "run.json").write_text(json.dumps({name: value for name, value in info.items() if name != "budgets"}))
    assert verify(run).notes == []
    RunDir(run).update_info(total_timesteps=64)
    report = verify(run)
    assert (report.reproduced, report.env_steps) == (True, 96)
    assert "did not record when" in report.notes[0]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_stopped_half_way_and_resumed_equals_straight_through(algo: str, tmp_path: Path) -> None:
    run = rl_training.train(short(tmp_path, algo)).run_dir
    report = ReproducibilityChecker().verify_resume(run)
    assert report.reproduced, report.differences
    assert report.env_steps >= 96


@pytest.mark.usefixtures("registrations")
def test_an_algorithm_that_forgets_something_fails_the_resume_check(tmp_path: Path) -> None:
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
    from rl_training.config.loading import parse_config

    run = RunDir.create(parse_config(tiny(tmp_path)))
    with pytest.raises(RunError, match="nothing to verify"):
        verify(run.path)
