"""Contestant: IPPO of this package on simple_spread, an ordinary run, without evaluation and checkpoints.

    python benchmarks/teams.py '{"env_id": "mpe2/simple_spread_v3", "num_envs": 8, ...}'   # the settings of a contest

Prints one line of JSON: CPU time per joint step after the warm-up, that of the environment stepped alone, the rest,
and the numbers of weights.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from joint_steps import alone
from laps import timed
from mpe2 import simple_spread_v3

from rl_training import train
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.envs.multi_agent.mpe import direct
from rl_training.training.contract import inspected


def config(settings: dict[str, Any], laps: Path) -> dict[str, Any]:
    """A run of these settings, timed."""
    names = "num_steps num_epochs num_minibatches learning_rate gamma gae_lambda clip_coef ent_coef vf_coef"
    hparams = {name: settings[name] for name in (*names.split(), "max_grad_norm")}
    layers = {"hidden_dims": settings["hidden_dims"], "activation": "relu"}
    return {
        "algo": "ippo",
        "env_id": settings["env_id"],
        "env": {"num_envs": settings["num_envs"], "agents": {"ids": "none", "state": "none"}},
        "hparams": {**hparams, **settings["hparams"]},
        "network": {"actor": layers, "critic": layers},
        **timed(settings, laps),
    }


def main() -> None:
    settings = json.loads(sys.argv[1])
    laps = Path(settings["scratch"]) / "laps.json"
    asked = config(settings, laps)
    run = train(asked).run_dir
    timed = json.loads(laps.read_text())
    env = alone(direct(simple_spread_v3.parallel_env()))
    print(json.dumps({**timed, **env.beside(timed), "run": str(run), "parameters": weights(asked)}))


def weights(asked: dict[str, Any]) -> int:
    """Numbers that are trained."""
    trainer = build_trainer(parse_config(asked))
    modules = inspected(trainer.algorithm).named_modules()
    parts = {id(p): p.numel() for _, module in modules for p in module.parameters()}
    trainer.close()
    return sum(parts.values())


if __name__ == "__main__":
    main()
