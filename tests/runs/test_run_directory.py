"""The content of a run directory, how it is found again, and that it contains no secrets."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import config_sha256, dump_yaml
from rl_training.config.schema import EnvConfig, PartConfig, TrainConfig
from rl_training.logging.logger import Logger
from rl_training.runs.directory import RunDir, metrics_sha256
from rl_training.types import ConfigError, RunError

FIELDS = (
    "id name algo env_id seed tags status started ended exit_code config_sha256 metrics_sha256 trust_seal "
    "group sweep parent versions hardware threads exact argv git"
)


@pytest.fixture
def cfg(tmp_path: Path) -> TrainConfig:
    return TrainConfig(output_dir=str(tmp_path / "runs"), seed=3)


@pytest.fixture
def run(cfg: TrainConfig) -> RunDir:
    return RunDir.create(cfg)


def make_named(output_dir: Path, *names: str) -> None:
    for name in names:
        (output_dir / name).mkdir(parents=True)
        (output_dir / name / "run.json").write_text('{"id": "x", "name": "given-' + name[-1] + '"}')


# -- writing ----------------------------------------------------------------------------------------------------------


def test_everything_known_at_the_start_is_there(cfg: TrainConfig) -> None:
    run = RunDir.create(cfg, source="algo: ppo  # mine\n", argv=["train", "ppo/cartpole"], parent="other:100")
    assert sorted(os.listdir(run.path)) == [
        "checkpoints", "configs", "debug", "git.diff", "logs", "plots", "run.json", "videos",
    ]  # fmt: skip
    assert (run.path / "configs" / "source.yaml").read_text() == "algo: ppo  # mine\n"
    assert (run.path / "configs" / "resolved.yaml").read_text() == dump_yaml(cfg)
    info = run.info()
    assert list(info) == FIELDS.split()
    assert info["id"] == run.path.name
    assert info["status"] == "running"
    assert info["ended"] is info["exit_code"] is info["metrics_sha256"] is info["group"] is info["sweep"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", info["started"])
    assert (info["parent"], info["argv"], info["threads"]) == ("other:100", ["train", "ppo/cartpole"], 1)
    assert info["config_sha256"] == config_sha256(cfg)
    assert [path.is_dir() for path in (run.logs, run.checkpoints, run.videos, run.plots, run.debug)] == [True] * 5


def test_without_a_source_the_resolved_config_is_the_source(run: RunDir) -> None:
    configs = run.path / "configs"
    assert (configs / "source.yaml").read_text() == (configs / "resolved.yaml").read_text()


def test_the_config_comes_back_equal(run: RunDir, cfg: TrainConfig) -> None:
    assert RunDir.open(run.path).config() == cfg


def test_the_path_stays_right_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir.create(TrainConfig())
    monkeypatch.chdir("/")
    assert run.info()["status"] == "running"
    assert run.path.parent == tmp_path / "runs"


def test_updates_and_the_end(run: RunDir) -> None:
    (run.logs / "metrics.jsonl").write_text('{"env_steps":1}\n')
    run.update_info(exact=True, group="g1")
    run.write_summary({"env_steps": 1, "eval/return_mean": float("nan"), "stop_reason": "done"})
    run.finish("stopped", exit_code=143)
    info = run.info()
    assert (info["exact"], info["group"], info["status"], info["exit_code"]) == (True, "g1", "stopped", 143)
    assert info["ended"] >= info["started"]
    assert info["metrics_sha256"] == hashlib.sha256(b'{"env_steps":1}\n').hexdigest()
    summary = json.loads((run.path / "metrics.json").read_text())
    assert summary == {"env_steps": 1, "eval/return_mean": None, "stop_reason": "done"}


UPDATE = """
import sys
from pathlib import Path
from rl_training.runs.directory import RunDir
for i in range(20):
    RunDir(Path(sys.argv[1])).update_info(**{f"{sys.argv[2]}_{i}": i})
"""


def test_updates_of_several_processes_are_all_kept(run: RunDir) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", UPDATE, str(run.path), name]) for name in "abc"]
    assert [process.wait() for process in processes] == [0, 0, 0]
    info = run.info()
    assert all(info[f"{name}_{i}"] == i for name in "abc" for i in range(20))
    assert not [name for name in os.listdir(run.path) if name.startswith(".tmp")]


def test_the_metrics_hash_leaves_the_clock_out(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    one.write_text('{"env_steps": 1, "time/fps": 5, "loss": 0.5}\n{"env_steps": 2, "system/ram": 1}\n')
    other.write_text('{"loss":0.5,"env_steps":1}\n{"env_steps":2,"time/x":null}\n{"cut": ')
    expected = hashlib.sha256(b'{"env_steps":1,"loss":0.5}\n{"env_steps":2}\n').hexdigest()
    assert metrics_sha256(one) == metrics_sha256(other) == expected
    other.write_text('{"loss":0.25,"env_steps":1}\n{"env_steps":2}\n')
    assert metrics_sha256(other) != expected
    other.write_bytes(b"\xff damaged\n[1]\n")
    assert metrics_sha256(other) == hashlib.sha256(b"\xff damaged\n[1]\n").hexdigest()
    assert metrics_sha256(tmp_path / "missing") == hashlib.sha256().hexdigest()


def test_a_full_disk_names_the_file_and_the_cure(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.system.atomic_io import fault_hook

    def full(operation: str, path: Path) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    before = run.info()
    with fault_hook(full), pytest.raises(RunError, match=r"cannot write run\.json in .*No space left.*free some space"):
        run.finish()
    assert run.info() == before


def test_tracking_ids_are_stable_and_unique(cfg: TrainConfig) -> None:
    one, other = RunDir.create(cfg), RunDir.create(cfg)
    assert one.tracking_id() == RunDir.open(one.path).tracking_id()
    assert one.tracking_id() != other.tracking_id()
    long = RunDir.create(replace(cfg, env_id="x" * 300))
    assert len(long.tracking_id()) <= 128


def test_the_lock_and_its_holder(run: RunDir) -> None:
    assert run.holder() is None
    with run.lock():
        holder = run.holder()
        assert holder is not None
        assert holder.pid == os.getpid()
        with pytest.raises(RunError, match=f"in use by process {os.getpid()}"), RunDir.open(run.path).lock():
            pass
    assert run.holder() is None


# -- finding ----------------------------------------------------------------------------------------------------------


def test_open_by_path_name_prefix_given_name_and_latest(tmp_path: Path) -> None:
    old, new, newest = (
        "ppo__A__seed0__20260101-000000",
        "ppo__B__seed0__20260102-000000-2",
        "a2c__C__seed0__20260102-000000-10",
    )
    make_named(tmp_path, old, new, newest)
    (tmp_path / "groups").mkdir()
    for name, expected in {
        str(tmp_path / old): old,
        old: old,
        "ppo__B": new,
        "a": newest,
        "latest": newest,
        "given-2": new,
    }.items():
        assert RunDir.open(name, tmp_path).path == tmp_path / expected


def test_a_folder_of_the_same_name_elsewhere_does_not_hide_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_named(tmp_path / "runs", "ppo__A__seed0__20260101-000000")
    (tmp_path / "ppo").mkdir()
    (tmp_path / "latest").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("ppo", "latest"):
        assert RunDir.open(name).path.name == "ppo__A__seed0__20260101-000000"
    with pytest.raises(RunError, match=r"'\./ppo/?' is not a run|'ppo' is not a run"):
        RunDir.open("./ppo/", tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ppo", r"'ppo' fits 2 runs in .*ppo__A.*, ppo__B.*type more of the name"),
        ("pqo__A__seed0__20260101-000000", r"did you mean 'ppo__A__seed0__20260101-000000'\?"),
        ("zzz", r"no run 'zzz' in .*; the latest is 'ppo__B__seed0__20260102-000000'"),
        ("{root}", r"holds 2 runs but is not a run itself; the latest is '.*ppo__B"),
        ("{root}/ppo__A__seed0__20260101-000000/logs", r"is inside a run, not the run; use '.*20260101-000000'"),
        ("{root}/ppo__A__seed0__20260101-000000/run.json", r"is inside a run"),
        ("{root}/plain", r"is not a run: it has no run\.json"),
        ("{root}/file", r"is a file, not a run directory"),
        ("{root}/ppo__A__seed0__20260101-00000", r"there is no such directory; did you mean 'ppo__A__seed0"),
        ("a" * 5000, r"no run 'aaaa"),
        ("nul\x00", r"no run 'nul"),
        ("~nobody-of-this-name/x", r"no run '~nobody"),
    ],
)
def test_what_is_no_run_gets_a_message_with_the_way_out(name: str, message: str, tmp_path: Path) -> None:
    make_named(tmp_path, "ppo__A__seed0__20260101-000000", "ppo__B__seed0__20260102-000000")
    (tmp_path / "ppo__A__seed0__20260101-000000" / "logs").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=message):
        RunDir.open(name.format(root=tmp_path), tmp_path)


def test_no_runs_at_all(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run 'latest': '.*' holds no runs"):
        RunDir.open("latest", tmp_path)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b" " * (2**23 + 10)], ids=range(6))
def test_a_damaged_run_json_is_a_run_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=r"run\.json"):
        RunDir.open(tmp_path).info()


def test_a_run_without_its_config(run: RunDir) -> None:
    (run.path / "configs" / "resolved.yaml").unlink()
    with pytest.raises(RunError, match=r"has no configs/resolved\.yaml"):
        run.config()


# -- secrets ----------------------------------------------------------------------------------------------------------

IN_ENVIRONMENT = {
    "HF_TOKEN": "hf-plant-01", "MY_SECRET": "plant two 02", "PGPASSWORD": "pl@nt:03/#", "SOME_API_KEY": "sk-plant-04",
    "DATABASE_URL": "postgres://user:plant-05@db/x",
}  # fmt: skip
ONLY_IN_CONFIG = {
    "password": "plant-06", "api_key": 'pl"ant\\07', "url": "https://me:plant-11@host/path",
    "nested": {"client_secret": "plänt-08", "tokens": ["plant-09", "p10"]},
}  # fmt: skip
PLANTED = [
    "hf-plant-01", "plant two 02", "pl@nt:03/#", "sk-plant-04", "plant-05", "plant-06", 'pl"ant\\07', 'pl\\"ant\\\\07',
    "plänt-08", "pl\\u00e4nt-08", "plant-09", "p10", "plant-11", "plant-12", "plant-13", "plant-14", "plant-15",
]  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """A config with secrets everywhere, in a repository whose changes hold secrets too."""
    for name, value in IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    commands = ["init -q", "add .", "-c user.name=A -c user.email=a@example.org commit -q -m x"]
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "settings.yaml").write_text("rate: 1\n")
    (repository / "client.py").write_text("rate = 1\n")
    for command in commands:
        subprocess.run(["git", *command.split()], cwd=repository, check=True)
    (repository / "settings.yaml").write_text("rate: 1\npassword: plant-12\nuser: hf-plant-01\n")
    (repository / "client.py").write_text("rate = 1\napi_key = 'plant-13'\ntoken = next(tokens)\n")
    monkeypatch.chdir(repository)
    kwargs: dict[str, Any] = {
        **ONLY_IN_CONFIG,
        "login": "hf-plant-01",
        "token": "plant two 02",
        "note": "use sk-plant-04 twice: sk-plant-04",
        "database": "postgres://user:plant-05@db/x",
        "max_tokens": 5,
        "tokenizer": "bert-base",
    }
    sink = PartConfig("my.module:Sink", {"password": "pl@nt:03/#"})
    cfg = TrainConfig(output_dir=str(tmp_path / "runs"), env=EnvConfig(kwargs=kwargs), tags=("sk-plant-04",))
    return replace(cfg, logging=replace(cfg.logging, sinks=(sink,)))


def test_no_secret_gets_into_a_run_directory(planted: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    source = dump_yaml(planted) + "# token: plant-14\n"
    argv = ["train", "--env.kwargs.password", "plant-06", "--x-token=plant-15", "--url", "https://a:plant-11@host"]
    with pytest.warns(UserWarning, match="to resume or evaluate this run, export ENV_KWARGS_PASSWORD"):
        run = RunDir.create(planted, source=source, argv=argv)
    logger = Logger(run.logs, redact=run.redactor.text)
    logger.message("could not log in with plant-06 at https://me:plant-11@host/path")
    logger.log_alert({"text": "bad key sk-plant-04"})
    logger.close()
    run.finish("failed", exit_code=1)
    texts = {path: path.read_text() for path in run.path.rglob("*") if path.is_file()}
    assert len(texts) >= 8
    leaks = [(path.name, secret) for path, text in texts.items() for secret in PLANTED if secret in text]
    assert leaks == []
    index = b"".join(path.read_bytes() for path in run.path.parent.glob("index.sqlite*"))
    assert run.path.name.encode() in index
    assert [secret for secret in PLANTED if secret.encode() in index] == []
    diff = (run.path / "git.diff").read_text()
    assert "+password: ${env:PASSWORD}" in diff
    assert "+api_key = '${env:API_KEY}'" in diff
    assert "+token = next(tokens)" in diff
    git = run.info()["git"]
    assert git["dirty"]
    assert git["diff_redacted"]
    assert git["diff_sha256"] == hashlib.sha256(diff.encode()).hexdigest()
    assert run.info()["argv"][2] == "${env:ENV_KWARGS_PASSWORD}"

    with pytest.raises(ConfigError, match=r"not set: ENV_KWARGS_API_KEY, ENV_KWARGS_NESTED_CLIENT_SECRET, "):
        RunDir.open(run.path).config()
    public = RunDir.open(run.path).config(secrets=False)
    assert public.env.kwargs["password"] == "${env:ENV_KWARGS_PASSWORD}"
    assert (public.env.kwargs["max_tokens"], public.env.kwargs["tokenizer"]) == (5, "bert-base")
    nested = ONLY_IN_CONFIG["nested"]
    assert isinstance(nested, dict)
    for name, value in {
        "PASSWORD": ONLY_IN_CONFIG["password"],
        "API_KEY": ONLY_IN_CONFIG["api_key"],
        "NESTED_CLIENT_SECRET": nested["client_secret"],
        "NESTED_TOKENS_0": nested["tokens"][0],
        "NESTED_TOKENS_1": nested["tokens"][1],
        "URL_USERINFO": "me:plant-11",
    }.items():
        monkeypatch.setenv(f"ENV_KWARGS_{name}", str(value))
    assert RunDir.open(run.path).config() == planted


def test_a_variable_that_equals_an_ordinary_word_changes_nothing(
    cfg: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "orthogonal")
    run = RunDir.create(cfg)
    assert run.config() == cfg
