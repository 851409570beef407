"""Untrusted configs that name code in every spelling the loader takes, and run directories that hold them."""

from __future__ import annotations

import json
from pathlib import Path

from rl_training.config.loading import read_yaml
from rl_training.runs.directory import SUBFOLDERS, public_sha256

EVIL = """
from pathlib import Path

Path("{marker}").write_text("imported")


def __getattr__(name):
    raise AttributeError(name)


def anything(*args, **kwargs):
    Path("{marker}").write_text("called")


Env = Algo = Opt = Wrapper = Net = Buffer = Callback = Sink = rule = JaxEnv = anything
"""

SPELLINGS = {
    "env_id": 'env_id: "evil_part:Env"',
    "environment as a text": 'environment: "evil_part:Env"',
    "environment.name nested": 'environment: {name: "evil_part:Env"}',
    "environment.name dotted": 'environment.name: "evil_part:Env"',
    "env-id with a dash": 'env-id: "evil_part:Env"',
    "experiment.env_id": 'experiment: {env_id: "evil_part:Env"}',
    "experiment.env-id dotted": 'experiment.env-id: "evil_part:Env"',
    "gymnasium id with a module": 'env_id: "evil_part:Env-v0"',
    "a program of the standard library": 'environment: "subprocess:Popen"\nenv: {kwargs: {args: [touch, MARKER]}}',
    "the same in version 0": 'version: 0\nenv_id: "subprocess:Popen"\nenv.kwargs: {args: [touch, MARKER]}',
    "algo": 'algo: "evil_part:Algo"',
    "algorithm.name nested": 'algorithm: {name: "evil_part:Algo"}',
    "algorithm.name dotted": 'algorithm.name: "evil_part:Algo"',
    "free hyperparameters": 'algo: "evil_part:Algo"\nhparams: {optimizer: "evil_part:Opt"}',
    "plugins": "plugins: [evil_part]",
    "experiment.plugins": "experiment: {plugins: [evil_part]}",
    "experiment.plugins dotted": "experiment.plugins: [evil_part]",
    "a plugin and a plain name": "plugins: [evil_part]\nalgo: mine",
    "wrappers as a list of texts": 'env: {wrappers: ["evil_part:Wrapper"]}',
    "wrappers as a text": 'env: {wrappers: "evil_part:Wrapper"}',
    "wrappers dotted": 'env.wrappers: [{name: "evil_part:Wrapper"}]',
    "a wrapper for training only": 'env: {wrappers: [{name: "evil_part:Wrapper", train_only: true}]}',
    "environment.wrapper": 'environment: {name: CartPole-v1, wrapper: "evil_part:Wrapper"}',
    "actor network": 'network: {actor: {type: "evil_part:Net"}}',
    "critic network dotted": 'network.critic.type: "evil_part:Net"',
    "network of jax": 'backend: jax\nlane: host\nnetwork: {actor: {type: "evil_part:Net"}}',
    "compiled environment of jax": 'backend: jax\nenv_id: "evil_part:JaxEnv"',
    "optimiser": 'hparams: {optimizer: {type: "evil_part:Opt"}}',
    "optimiser of algorithm": 'algorithm: {name: sac, optimizer: {type: "evil_part:Opt"}}',
    "optimiser dotted": 'hparams.optimizer.type: "evil_part:Opt"',
    "optimiser of jax": 'backend: jax\nhparams: {optimizer: {type: "evil_part:Opt"}}',
    "an optimiser of torch that is not built in": 'hparams: {optimizer: {type: "torch.optim:SGD"}}',
    "code in an argument of an optimiser": 'hparams: {optimizer: {type: adamw, kwargs: {foreach: "evil_part:m"}}}',
    "buffer": 'algo: dqn\nbuffer: {type: "evil_part:Buffer"}',
    "buffer dotted": 'buffer.type: "evil_part:Buffer"',
    "callbacks as texts": 'callbacks: ["evil_part:Callback"]',
    "callbacks as mappings": 'callbacks: [{name: "evil_part:Callback", kwargs: {x: 1}}]',
    "sinks": 'logging: {sinks: ["evil_part:Sink"]}',
    "sinks dotted, one text": 'logging.sinks: "evil_part:Sink"',
    "a built-in sink into another file": "logging: {sinks: [{name: jsonl, kwargs: {path: MARKER}}]}",
    "a sink of ours, relative": "logging: {sinks: [{name: tensorboard, kwargs: {log_dir: marker}}]}",
    "alert rule": 'monitor: {rules: [{name: "evil_part:rule"}]}',
    "alert command": "monitor: {command: [touch, MARKER]}",
    "experiment.monitor.command": "experiment: {monitor: {command: [touch, MARKER]}}",
    "alert command dotted": "monitor.command: [touch, MARKER]",
    "alert address": 'monitor: {url: "http://127.0.0.1:9/alert"}',
    "alert address of the environment": 'monitor: {url: "${env:HOME}"}',
    "module behind a module of ours": 'env_id: "rl_training.monitoring.alert_hooks:subprocess"',
    "function behind a module of ours": 'env: {wrappers: ["rl_training.envs.suites:importlib"]}',
    "our own code that is no such part": 'callbacks: ["rl_training.experiments.keeping.cleanup:ExperimentCleaner"]',
    "code in an argument of a built-in environment": 'env_id: FrozenLake-v1\nenv: {kwargs: {map_name: "evil_part:m"}}',
    "a file in an argument": 'env_id: FrozenLake-v1\nenv: {kwargs: {desc: ["/etc/passwd"]}}',
    "a secret in an argument": 'env: {kwargs: {render_mode: "${env:HOME}"}}',
    "a secret in the name": 'name: "${env:HOME}"',
    "another W&B account": "logging: {wandb: {enabled: true, entity: somebody}}",
    "a secret for a tracker": 'logging: {wandb: {project: "${env:HOME}"}}',
}
"""Configs that are refused without the user's consent. MARKER is the file that shows that something ran."""

INVALID = {
    "base": "base: evil.yaml",
    "experiment.base": "experiment: {base: evil.yaml}",
    "a list of bases": "base: [ppo/cartpole, evil.yaml]",
    "an unknown optimiser": 'hparams: {optimizer: "evil_part:Opt"}',
    "a device": 'device: "evil_part:x"',
    "a sweep": 'base_config: evil.yaml\nsweep: {env_id: ["evil_part:Env"]}',
}
"""Texts that are not the config of a run."""


def write_run(folder: Path, config: str, **info: object) -> Path:
    """A forged run directory; `config` is its resolved.yaml."""
    run = folder / "ppo__CartPole-v1__seed0__20260101-000000"
    for name in SUBFOLDERS:
        (run / name).mkdir(parents=True)
    file = run / "configs" / "resolved.yaml"
    file.write_text(config)
    (run / "logs" / "metrics.jsonl").write_text('{"env_steps": 64}\n')
    (run / "metrics.json").write_text("{}")
    record = {
        "id": run.name,
        "name": None,
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "seed": 0,
        "tags": [],
        "status": "finished",
        "started": "2026-01-01T00:00:00.000+00:00",
        "ended": "2026-01-01T00:00:01.000+00:00",
        "exit_code": 0,
        "hardware": {"host": "theirs"},
        "config_sha256": public_sha256(read_yaml(file)),
        "trust_seal": "0" * 64,
        **info,
    }
    (run / "run.json").write_text(json.dumps(record))
    return run
