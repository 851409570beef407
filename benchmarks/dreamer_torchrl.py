"""Contestant: updates of TorchRL's DreamerV3 recipe on one batch, in its environment.

    python benchmarks/dreamer_torchrl.py '{"updates": 5}'

The recipe is the one that the wheel of TorchRL carries in `sota-implementations/dreamer_v3`: its networks, losses and
optimiser, with the settings of its walker-walk preset (24 numbers, 6 actions, size1m). The wheel leaves out the file
with those settings, so they stand here; on a CPU the recipe computes eagerly in float32. Sampling from replay is left
out, two first updates do not count.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
import torchrl
import torchrl.modules.models.model_based
from omegaconf import OmegaConf
from tensordict import TensorDict

OBS, ACTIONS, B, T = 24, 6, 16, 64
SETTINGS = {
    "env": {
        "backend": "dm_control", "name": "walker", "task": "walk", "seed": 0, "use_seed": True,
        "max_episode_steps": 1000, "vector_key": "observation", "pixels_key": None,
    },
    "collector": {"num_envs": 16},
    "replay_buffer": {"batch_size": B, "seq_len": T},
    "networks": {
        "rnn_hidden_dim": 512, "num_categoricals": 32, "num_classes": 4, "hidden_dim": 64, "num_blocks": 8,
        "decoder_event_dims": [1, 14, 9], "encoder_layers": 3, "decoder_layers": 3, "dynamics_layers": 1,
        "prior_layers": 2, "posterior_layers": 1, "reward_layers": 1, "actor_layers": 3, "value_layers": 3,
        "num_reward_bins": 255, "num_value_bins": 255, "recurrent_model": "block_gru", "unimix": 0.01,
        "norm_eps": 1e-4, "policy_min_std": 0.1, "policy_max_std": 1.0,
    },
    "optimization": {
        "compile": "auto", "compile_train_step": None, "compile_rssm": None, "cudagraph_train_step": None,
        "compile_train_step_mode": "default", "rssm_scan_unroll": 8, "mixed_precision": True, "imagination_horizon": 15,
        "use_reinforce": True, "free_bits": 1.0, "dynamic_loss_weight": 1.0, "representation_loss_weight": 0.1,
        "continuation_horizon": 333.0, "gamma": 1.0, "lmbda": 0.95, "return_normalization_rate": 0.01,
        "return_normalization_min_scale": 1.0, "slow_critic_regularization": 1.0, "slow_critic_tau": 0.02,
        "replay_value_loss_weight": 0.3, "lr": 4e-5, "adaptive_grad_clip": 0.3, "optimizer_eps": 1e-20,
        "warmup_steps": 1000,
    },
}  # fmt: skip


def recipe() -> Any:
    """The module `train` of the recipe. It imports the models from a module that the wheel has under another name."""
    sys.modules["torchrl.modules.models.model_based_v3"] = torchrl.modules.models.model_based
    sys.path.insert(0, str(Path(torchrl.__file__).parents[1] / "sota-implementations" / "dreamer_v3"))
    import train

    return train


def batch() -> TensorDict:
    """Transitions (B, T) as the replay of the recipe gives them."""
    generator = torch.Generator().manual_seed(0)
    zeros = torch.zeros(B, T, 1)
    following = {
        "observation": torch.randn(B, T, OBS, generator=generator),
        "reward": torch.randn(B, T, 1, generator=generator),
        "done": zeros.bool(),
        "terminated": zeros.bool(),
    }
    columns = {
        "state": torch.zeros(B, T, 32 * 4),
        "belief": torch.zeros(B, T, 512),
        "action": 2 * torch.rand(B, T, ACTIONS, generator=generator) - 1,
        "is_init": zeros.bool(),
        "next": following,
    }
    return TensorDict(columns, [B, T])


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    train, config, device = recipe(), OmegaConf.create(SETTINGS), torch.device("cpu")
    learner = train._build_learner(config, device, OBS, ACTIONS)
    update, rows, times = train._make_learner_update(config, device, learner), batch(), []
    for _ in range(settings["updates"] + 2):
        began = process_time()
        update.step(None, rows.clone())
        times.append(process_time() - began)
    count = sum(parameter.numel() for group in learner.optimizer.param_groups for parameter in group["params"])
    print(json.dumps({"ms_per_update": 1e3 * median(times[2:]), "parameters": count}))


if __name__ == "__main__":
    main()
