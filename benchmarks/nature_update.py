"""What a whole PPO update of 256 images costs, beside a plain torch step of the same network in the same process.

    python benchmarks/nature_update.py                 # the Nature network, 256 rows, one thread
    python benchmarks/nature_update.py --encoder small --rows 64

Three things take turns, by the clock of the CPU: `ours`, all that PPO does for a minibatch (gather the rows, to float,
forward, loss, backward, gradient norm, clipping, Adam); `plain`, a torch module in channels_last format on bytes that
are gathered already (to float, forward, the same loss, backward, clipping, `torch.optim.Adam`, fused); and the product
of two matrices, whose best rate is the sgemm limit (convolutions may beat it where they have better kernels than
products). The goal is ours <= 1.1 × plain for Nature and 256 rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.ppo import PPO, Coefficients, PPOConfig, ppo_loss
from rl_training.algorithms.rollout import Rollout
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.models.backbones.build import width
from rl_training.models.networks import ActorCritic
from rl_training.numerics.images import PLANS
from rl_training.numerics.normalization import normalized
from rl_training.types import BoxSpec, DiscreteSpec

ACTIONS = 6
ROLLOUT_ROWS = 1024
COEFFICIENTS = Coefficients(clip_coef=0.1, ent_coef=0.01, vf_coef=1.0, clip_vf=None)
LEARNING_RATE = 2.5e-4


def build(encoder: str, minibatches: int) -> PPO:
    """PPO on stacks of four frames, as a run builds it."""
    network = {"shared": True, "actor": {"encoder": encoder, "hidden_dims": [], "activation": "relu"}}
    cfg = parse_config({"algo": "ppo", "env_id": "PongNoFrameskip-v4", "network": network})
    space = BoxSpec(np.zeros((4, 84, 84), np.uint8), np.full((4, 84, 84), 255, np.uint8), np.dtype(np.uint8))
    ctx = BuildContext(space, DiscreteSpec(ACTIONS), num_envs=8, network=cfg.network)
    return PPO(ctx, PPOConfig(learning_rate=LEARNING_RATE, num_minibatches=minibatches))


def random_rollout(rng: np.random.Generator) -> Rollout:
    """As many rows as eight environments give in 128 steps."""

    def numbers() -> Tensor:
        return torch.from_numpy(rng.standard_normal(ROLLOUT_ROWS).astype(np.float32))

    images = torch.from_numpy(rng.integers(0, 256, (ROLLOUT_ROWS, 4, 84, 84), np.uint8))
    actions = torch.from_numpy(rng.integers(0, ACTIONS, ROLLOUT_ROWS))
    return Rollout(images, actions, numbers() - 1.8, numbers(), numbers(), numbers())


class PlainNetwork(nn.Module):
    """The same layers as one would write them by hand."""

    def __init__(self, encoder: str, network: ActorCritic) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, side = 4, 84
        for plan in PLANS[encoder]:
            layers += [nn.Conv2d(channels, plan.filters, plan.kernel, plan.stride), nn.ReLU()]
            channels, side = plan.filters, (side - plan.kernel) // plan.stride + 1
        features = width(network.actor)
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side**2, features), nn.ReLU())
        self.policy, self.value = nn.Linear(features, ACTIONS), nn.Linear(features, 1)
        ours = sum(parameter.numel() for parameter in network.parameters())
        assert ours == sum(parameter.numel() for parameter in self.parameters()), "another network"

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = images.to(torch.float32, memory_format=torch.channels_last) / 255.0
        features = self.body(x)
        return self.policy(features), self.value(features).squeeze(1)


def plain_step(network: PlainNetwork, optimizer: torch.optim.Optimizer, rows: Rollout) -> None:
    """Forward, loss, backward, clipping, Adam."""
    assert isinstance(rows.obs, Tensor)
    logits, values = network(rows.obs)
    every = torch.log_softmax(logits, dim=1)
    losses = ppo_loss(
        {
            "logprobs": every.gather(1, rows.actions[:, None]).squeeze(1),
            "old_logprobs": rows.logprobs,
            "advantages": normalized(rows.advantages),
            "returns": rows.returns,
            "values": rows.values,
            "new_values": values,
            "entropy": -(every.exp() * every).sum(dim=1),
        },
        **COEFFICIENTS._asdict(),
    )
    optimizer.zero_grad()
    losses["loss"].backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
    optimizer.step()


def our_step(algorithm: PPO, rollout: Rollout, index: Tensor) -> None:
    """What `PPO.update` does for one minibatch."""
    losses = algorithm.gradient(rollout.rows(index), COEFFICIENTS)
    algorithm.apply_gradients(losses)
    algorithm.optimizer.zero_grad()


def megaflops(encoder: str, features: int) -> float:
    """Of forward and backward for one image; the first convolution needs no gradient of its input."""
    total, channels, side = 0.0, 4, 84
    for number, plan in enumerate(PLANS[encoder]):
        side = (side - plan.kernel) // plan.stride + 1
        total += (2 if number == 0 else 3) * 2 * plan.filters * side**2 * channels * plan.kernel**2
        channels = plan.filters
    return (total + 3 * 2 * (channels * side**2 * features + features * (ACTIONS + 1))) / 1e6


def cpu_seconds(function: Callable[[], Any], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - began) / calls


def measure(encoder: str, rows: int, repeats: int, calls: int) -> dict[str, Any]:
    """Medians over `repeats` turns of `calls` steps each."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    algorithm, rollout = build(encoder, ROLLOUT_ROWS // rows), random_rollout(rng)
    rollout = replace(rollout, obs=algorithm.network.arranged(rollout.obs))  # once per rollout, as in PPO.prepare
    network = PlainNetwork(encoder, algorithm.network)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-5, fused=True)
    index = torch.from_numpy(rng.permutation(ROLLOUT_ROWS)[:rows])
    gathered = rollout.rows(index)
    square = torch.from_numpy(rng.standard_normal((1024, 1024)).astype(np.float32))
    product = torch.empty_like(square)
    turns: dict[str, Callable[[], Any]] = {
        "ours": lambda: our_step(algorithm, rollout, index),
        "plain": lambda: plain_step(network, optimizer, gathered),
        "product": lambda: torch.mm(square, square, out=product),
    }
    for function in turns.values():
        cpu_seconds(function, 2)
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repeats):
        for name, function in turns.items():
            times[name].append(cpu_seconds(function, calls))
    medians = {name: statistics.median(values) for name, values in times.items()}
    fastest = min(times["product"])  # a limit is what was reached once
    flops = megaflops(encoder, width(algorithm.network.actor))
    limit = rows * flops * 1e6 / (2 * 1024**3 / fastest)
    return {
        "encoder": encoder,
        "rows": rows,
        "ours_ms": round(1e3 * medians["ours"], 2),
        "plain_ms": round(1e3 * medians["plain"], 2),
        "ours_to_plain": round(medians["ours"] / medians["plain"], 3),
        "sgemm_gflops": round(2 * 1024**3 / fastest / 1e9, 1),
        "megaflops_per_image": round(flops, 1),
        "ours_to_sgemm_limit": round(medians["ours"] / limit, 3),
        "plain_to_sgemm_limit": round(medians["plain"] / limit, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", choices=("nature", "small"), default="nature")
    parser.add_argument("--rows", type=int, default=256, help="images per update (default 256)")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each (default 9)")
    parser.add_argument("--calls", type=int, default=4, help="steps per turn (default 4)")
    given = parser.parse_args()
    print(json.dumps(measure(given.encoder, given.rows, given.repeats, given.calls), indent=1))


if __name__ == "__main__":
    main()
