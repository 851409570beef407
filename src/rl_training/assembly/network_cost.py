"""What the networks of a run cost: arithmetic per row and per update, memory of carries and of images.

Arithmetic is counted, not timed: `update` runs on a small batch of zeros while torch's counter adds up the products of
matrices and the convolutions, forward and backward, and the count is scaled to the size of a real batch. So it covers
whatever an algorithm does (epochs, target networks, delayed actors) without a formula for each. One multiplication with
its addition is two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from rl_training.algorithms.off_policy import OffPolicyAlgorithm
from rl_training.algorithms.on_policy import OnPolicyAlgorithm
from rl_training.algorithms.policies import NetworkPolicy
from rl_training.algorithms.world_models.mbpo import MBPO
from rl_training.algorithms.world_models.pets import PETS
from rl_training.data.storage import Tree, allocate, layout
from rl_training.models.networks import parameter_count
from rl_training.runs.spaces import Spaces
from rl_training.types import ACTION_MASK, Algorithm, Batch, BoxSpec, Policy, SpaceSpec, UpdateResult

Learn = Callable[[Batch], UpdateResult]
"""`update` of an algorithm."""
FITTING_A_MODEL: tuple[type[object], ...] = (MBPO, PETS)
"""Algorithms whose updates also fit a model, on more than a batch of transitions."""
MEGA = 1e6
SHORT_ROLLOUT = 2
"""Steps of the rollout that is counted where no network has memory: each row costs the same."""
LONGEST_SEQUENCE = 16
"""Steps of the rollout that is counted with memory and without `sequence_length`."""
REPLAY_UPDATES = 6
"""Updates from replay that are averaged: actors that learn at every second or third update are counted as such."""
REPLAY_ROWS = 4
"""Transitions, or sequences, of the batch from replay that is counted."""


def network_cost(algorithm: Algorithm, spaces: Spaces, num_envs: int, num_steps: int) -> dict[str, float | int]:
    """Trained numbers, MFLOP of acting on one observation and of one update, and bytes of carries where there are any.

    Empty for algorithms of your own, whose updates may need more than a batch, and for those that fit a model besides.

    The algorithm has learnt from zeros afterwards: throw it away.
    """
    if isinstance(algorithm, FITTING_A_MODEL) or not isinstance(algorithm, OnPolicyAlgorithm | OffPolicyAlgorithm):
        return {}
    learn, policy = algorithm.update, algorithm.policy
    assert isinstance(policy, NetworkPolicy), "the package's own algorithms act with networks"
    acting = acting_flops(policy, policy.acting_modules(), spaces, num_envs)
    if isinstance(algorithm, OnPolicyAlgorithm):
        update = rollout_flops(algorithm, learn, spaces, num_envs, num_steps)
    else:
        update = replay_flops(algorithm, learn, spaces)
    carry = sum(int(value.nbytes) for value in policy.initial_carry(num_envs).values())
    return {
        "parameters": parameter_count(module for _, module in algorithm.named_modules()),
        "forward_mflop": rounded(acting / MEGA),
        "update_mflop": rounded(update / MEGA),
        **({"carry_bytes": carry} if carry else {}),
    }


def acting_flops(policy: Policy, parts: Iterable[nn.Module], spaces: Spaces, num_envs: int) -> float:
    """Operations of choosing one action, without exploration."""
    obs, begins = zeros((num_envs,), spaces[0]), np.ones(num_envs, np.bool_)
    carry, rng = policy.initial_carry(num_envs), np.random.default_rng(0)
    counted = counted_flops(lambda: policy.act(obs, carry, begins, rng, deterministic=True))
    if counted:
        return counted / num_envs
    # small networks act in NumPy, which torch does not count: every weight is used once
    modules = (module for part in parts for module in part.modules())
    return 2.0 * sum(module.weight.numel() for module in modules if isinstance(module, nn.Linear))


def rollout_flops(algorithm: OnPolicyAlgorithm, learn: Learn, spaces: Spaces, num_envs: int, num_steps: int) -> float:
    """Operations of one update from a rollout of `num_steps`: values and log-probabilities, then every epoch."""
    length = min(num_steps, SHORT_ROLLOUT)
    if algorithm.network.memories:
        length = algorithm.hp.sequence_length or min(num_steps, LONGEST_SEQUENCE)
    batch = rollout_of_zeros(spaces, length, num_envs)
    carry, begins = algorithm.policy.initial_carry(num_envs), np.ones(num_envs, np.bool_)
    batch["initial_carry"] = carry
    acted = algorithm.policy.act(batch["last_obs"], carry, begins, np.random.default_rng(0))
    batch.update({name: np.zeros((length, *value.shape), value.dtype) for name, value in acted.extras.items()})
    with algorithm.reference_gradients():
        return counted_flops(lambda: learn(batch)) * num_steps / length


def replay_flops(algorithm: OffPolicyAlgorithm, learn: Learn, spaces: Spaces) -> float:
    """Operations of one update from replay, the mean of several."""
    sequences = algorithm.sequences
    steps = () if sequences is None else (sequences.length,)
    batch = transitions_of_zeros(spaces, (REPLAY_ROWS, *steps))
    if sequences is not None and sequences.carry:
        batch["carry"] = {
            name: np.zeros((REPLAY_ROWS, *shape), dtype) for name, (shape, dtype) in sequences.carry.items()
        }
    with algorithm.reference_gradients():
        total = counted_flops(lambda: [learn(batch) for _ in range(REPLAY_UPDATES)])
    return total / REPLAY_UPDATES * algorithm.schedule.batch_size / (REPLAY_ROWS * algorithm.updates_per_learn)


def counted_flops(call: Callable[[], Any]) -> float:
    """Operations in matrix products and convolutions of torch while `call` runs."""
    with FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops())


def rollout_of_zeros(spaces: Spaces, num_steps: int, num_envs: int) -> Batch:
    """A rollout (T, N, ...) of one unfinished episode per environment, as a RolloutBuffer gives it."""
    lead = (num_steps, num_envs)
    no = np.zeros(lead, np.bool_)
    is_first = no.copy()
    is_first[0] = True
    return {
        "obs": zeros(lead, spaces[0]),
        "actions": zeros(lead, spaces[1]),
        "rewards": np.zeros(lead, np.float32),
        "terminated": no,
        "truncated": no,
        "valid": ~no,
        "is_first": is_first,
        "last_obs": zeros((num_envs,), spaces[0]),
        "final_obs": zeros((0,), spaces[0]),
        "final_index": np.zeros(0, np.int64),
    }


def transitions_of_zeros(spaces: Spaces, lead: tuple[int, ...]) -> Batch:
    """Transitions (B, ...) or sequences (B, L, ...) as a replay buffer samples them."""
    no = np.zeros(lead, np.bool_)
    actions = zeros(lead, spaces[1])
    return {
        "obs": zeros(lead, spaces[0]),
        "actions": np.asarray(actions, np.float32) if isinstance(spaces[1], BoxSpec) else actions,
        "rewards": np.zeros(lead, np.float32),
        "next_obs": zeros(lead, spaces[0]),
        "terminated": no,
        "truncated": no,
        "valid": ~no,
        "is_first": no,
        "returns_to_go": np.zeros(lead, np.float32),
    }


def zeros(lead: tuple[int, ...], space: SpaceSpec) -> Tree:
    """Zeros of a space; where there is a mask of actions, it allows all of them."""
    tree = allocate(lead, *layout(space))
    if isinstance(tree, dict) and ACTION_MASK in tree:
        tree[ACTION_MASK] = np.ones_like(tree[ACTION_MASK])
    return tree


def rounded(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")
