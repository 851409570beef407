"""Contestant: updates of SheepRL's `dreamer_v3_5` (DreamerV3 as published in Nature) on one batch, in its environment.

    python benchmarks/dreamer_sheeprl.py '{"preset": "dreamer_v3_5_1M", "updates": 5}'

Its own configuration, networks, losses and optimiser, on a vector of 24 numbers with 6 actions; a sequence has one step
of context before its 64. Sampling from replay is left out, two first updates do not count.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import process_time
from typing import Any

import gymnasium
import hydra
import numpy as np
import torch
from lightning.fabric import Fabric
from omegaconf import OmegaConf
from sheeprl.algos.dreamer_v3_5.agent import build_agent
from sheeprl.algos.dreamer_v3_5.dreamer_v3_5 import Moments, train, update_target_critic
from sheeprl.utils.utils import dotdict

OBS, ACTIONS, B, T = 24, 6, 16, 64


def configured(preset: str) -> Any:
    """The library's configuration, for vectors."""
    changed = [f"algo={preset}", "algo.cnn_keys.encoder=[]", "algo.mlp_keys.encoder=[state]", "fabric.accelerator=cpu"]
    with hydra.initialize_config_module("sheeprl.configs", version_base="1.3"):
        config = hydra.compose("config", overrides=["exp=dreamer_v3_5_dmc_walker_walk", *changed])
    return dotdict(OmegaConf.to_container(config, resolve=True, throw_on_missing=False))


def batch(config: Any) -> dict[str, torch.Tensor]:
    """Sequences, time first, with the step of context."""
    rng = np.random.default_rng(0)
    model, rows = config.algo.world_model, T + config.algo.replay_context
    zeros = np.zeros((rows, B, 1), np.float32)
    columns = {
        "state": rng.standard_normal((rows, B, OBS)),
        "actions": rng.uniform(-1, 1, (rows, B, ACTIONS)),
        "rewards": rng.standard_normal((rows, B, 1)),
        "terminated": zeros,
        "truncated": zeros,
        "is_first": zeros,
        "deter": np.zeros((rows, B, model.recurrent_model.recurrent_state_size)),
    }
    tensors = {name: torch.as_tensor(column, dtype=torch.float32) for name, column in columns.items()}
    return {**tensors, "stoch": torch.zeros(rows, B, model.stochastic_size, dtype=torch.uint8)}


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    config, fabric = configured(settings["preset"]), Fabric(accelerator="cpu", devices=1)
    space = gymnasium.spaces.Dict({"state": gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)})
    world_model, actor, critic, slow_critic, _ = build_agent(fabric, (ACTIONS,), True, config, space)
    networks = (world_model, actor, critic)
    parameters = [parameter for network in networks for parameter in network.parameters()]
    optimizer = hydra.utils.instantiate(config.algo.optimizer, params=parameters, _convert_="all")
    optimizer = fabric.setup_optimizers(optimizer)
    moving = config.algo.actor.moments
    moments = Moments(moving.decay, moving.max, moving.percentile.low, moving.percentile.high)
    rows, times = batch(config), []
    for _ in range(settings["updates"] + 2):
        began = process_time()
        train(fabric, config, *networks, slow_critic, optimizer, moments, dict(rows), None, (ACTIONS,))
        update_target_critic(critic, slow_critic, config.algo.critic.tau)
        times.append(process_time() - began)
    count = sum(parameter.numel() for parameter in parameters)
    print(json.dumps({"ms_per_update": 1e3 * median(times[2:]), "parameters": count}))


if __name__ == "__main__":
    main()
