"""Memory in DQN, SAC and TD3: what networks see of sampled sequences, compared with what they see when acting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.sequences import priorities_of, steps_of
from rl_training.assembly.build import build_trainer
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.models.backbones.build import build_backbone
from rl_training.models.observed import Steps, features_of
from rl_training.types import Array, Batch, BoxSpec, ConfigError, DiscreteSpec

OBS = BoxSpec(np.full(2, -1, np.float32), np.ones(2, np.float32), np.dtype(np.float32))
MEMORIES = ("gru", "lstm", "transformer")
N, BURN_IN, LENGTH = 3, 2, 5


def backbone_config(kind: str) -> BackboneConfig:
    return BackboneConfig(hidden_dims=(6,), memory=MemoryConfig(kind, size=8, window=4))  # type: ignore[arg-type]


def sequences(seed: int = 0) -> Batch:
    """Sequences (N, K + T, ...): the first begins with an episode, the second ends one, the third has a reset row."""
    rng = np.random.default_rng(seed)
    total = BURN_IN + LENGTH
    obs = rng.standard_normal((N, total + 1, 2)).astype(np.float32)
    next_obs = obs[:, 1:].copy()
    is_first, terminated, valid = (np.zeros((N, total), bool) for _ in range(3))
    valid[:] = True
    is_first[0, 0] = True
    terminated[1, 3], is_first[1, 4] = True, True
    next_obs[1, 3] = rng.standard_normal(2)  # the final observation, not the first of the next episode
    valid[2, 3], is_first[2, 4] = False, True
    return {
        "obs": obs[:, :-1],
        "next_obs": next_obs,
        "actions": rng.integers(0, 2, (N, total)),
        "rewards": rng.standard_normal((N, total)).astype(np.float32),
        "terminated": terminated,
        "truncated": np.zeros_like(terminated),
        "is_first": is_first,
        "valid": valid,
    }


def steps(batch: Batch, burn_in: int = BURN_IN) -> tuple[Steps, dict[str, Array]]:
    return steps_of(batch, burn_in, torch.device("cpu"), torch.from_numpy)


@pytest.mark.parametrize("kind", MEMORIES)
def test_rows_of_sequences_have_the_features_of_one_step_after_the_other(kind: str) -> None:
    backbone: Any = build_backbone(OBS, backbone_config(kind), np.random.default_rng(0))
    batch = sequences()
    rows, _ = steps(batch)
    with torch.no_grad():
        now, later = features_of(backbone, replace(rows, following=None)), features_of(backbone, rows)
        carry, expected, following = backbone.memory.initial_carry(N), [], []
        for t in range(BURN_IN + LENGTH):
            first = torch.from_numpy(batch["is_first"][:, t])
            features, carry = backbone.memory.step(
                backbone.embed(torch.from_numpy(batch["obs"][:, t].copy())), carry, first
            )
            after = backbone.embed(torch.from_numpy(batch["next_obs"][:, t].copy()))
            expected.append(features)
            following.append(backbone.memory.step(after, carry, torch.zeros(N, dtype=torch.bool))[0])
    kept = torch.from_numpy(batch["valid"][:, BURN_IN:].T.reshape(-1))
    assert len(now) == N * LENGTH - 1
    torch.testing.assert_close(now, torch.cat(expected[BURN_IN:])[kept], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(later, torch.cat(following[BURN_IN:])[kept], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", MEMORIES)
def test_no_gradient_flows_into_the_burn_in(kind: str) -> None:
    backbone = build_backbone(OBS, backbone_config(kind), np.random.default_rng(0))
    rows, _ = steps(sequences())
    assert isinstance(rows.before, torch.Tensor)
    assert isinstance(rows.obs, torch.Tensor)
    rows = replace(rows, following=None, before=rows.before.requires_grad_(), obs=rows.obs.requires_grad_())
    features_of(backbone, rows).sum().backward()
    assert isinstance(rows.before, torch.Tensor)
    assert isinstance(rows.obs, torch.Tensor)
    assert rows.before.grad is None
    assert rows.obs.grad is not None


def test_columns_are_those_of_the_transitions_behind_the_burn_in() -> None:
    batch = {**sequences(), "weights": np.float32([1.0, 2.0, 3.0])}
    rows, flat = steps(batch)
    valid = batch["valid"][:, BURN_IN:].T.reshape(-1)
    for name in ("actions", "rewards", "terminated"):
        assert np.array_equal(flat[name], batch[name][:, BURN_IN:].T.reshape(-1)[valid])
    assert np.array_equal(flat["weights"], np.tile(np.float32([1, 2, 3]), LENGTH)[valid])
    assert rows.num_sequences == N


def test_the_priority_of_a_sequence_is_between_its_largest_and_its_mean_error() -> None:
    rows, _ = steps(sequences())
    errors = np.float32([[1, 2, 3], [3, 0, 5], [0, 0, 0], [0, 0, 0], [0, 2, 0]])
    kept = errors.reshape(-1) if rows.kept is None else errors.reshape(-1)[rows.kept.numpy()]
    means = [4 / 5, 4 / 5, 3 / 4]  # the third sequence has a row less: that with the error 5
    np.testing.assert_allclose(priorities_of(rows, kept, 0.9), [0.9 * 3 + 0.08, 0.9 * 2 + 0.08, 0.9 * 3 + 0.075])
    np.testing.assert_allclose(priorities_of(rows, kept, 0.0), means, rtol=1e-6)


def test_targets_do_not_depend_on_the_burn_in_where_an_episode_begins_behind_it() -> None:
    cfg = NetworkConfig(critic=backbone_config("gru"))
    dqn = DQN(BuildContext(OBS, DiscreteSpec(2), network=cfg), DQNConfig(burn_in=BURN_IN, sequence_length=LENGTH))
    batch = sequences()
    batch["is_first"][:, BURN_IN] = True
    other = {**batch, "obs": batch["obs"].copy()}
    other["obs"][:, :BURN_IN] = np.nan
    assert torch.equal(dqn.targets_of(dqn.prepare(batch)), dqn.targets_of(dqn.prepare(other)))


def test_targets_over_several_steps_go_on_from_the_row_where_their_rewards_end() -> None:
    def dqn(n_step: int) -> DQN:
        context = BuildContext(OBS, DiscreteSpec(2), network=NetworkConfig(critic=backbone_config("gru")))
        return DQN(context, DQNConfig(gamma=0.5, n_step=n_step, burn_in=BURN_IN, sequence_length=LENGTH))

    batch = sequences()
    batch["rewards"] = np.arange(1, 1 + N * (BURN_IN + LENGTH), dtype=np.float32).reshape(N, -1)
    batch["terminated"] = np.zeros_like(batch["terminated"])
    batch["terminated"][0, BURN_IN + 1] = True
    batch["is_first"] = np.zeros_like(batch["is_first"])
    batch["is_first"][0, BURN_IN + 2] = batch["is_first"][1, BURN_IN + 3] = True  # a termination and a truncation
    several, one = dqn(3), dqn(1)
    rows = several.prepare(batch)
    lone = one.prepare({**batch, "rewards": 0 * batch["rewards"], "terminated": 0 * batch["terminated"]})
    later = one.targets_of(lone).squeeze(1) / 0.5  # the values of every row's next observation
    valid = batch["valid"][:, BURN_IN:].T  # (T, N)
    places = {(int(t), int(n)): number for number, (t, n) in enumerate(np.argwhere(valid))}
    ends = {(1, 0), (2, 1)} | {(int(t) - 1, int(n)) for t, n in np.argwhere(~valid)}
    targets = several.targets_of(rows).squeeze(1)
    for (t, n), number in places.items():
        total, discount, end = 0.0, 1.0, t
        for end in range(t, min(t + 3, LENGTH)):
            total += discount * float(batch["rewards"][n, BURN_IN + end])
            discount *= 0.5
            if (end, n) in ends:
                break
        alive = 0.0 if (end, n) == (1, 0) else 1.0
        expected = total + alive * discount * float(later[places[end, n]])
        assert float(targets[number]) == pytest.approx(expected, rel=1e-5), (t, n)


def trainer(**given: Any) -> Any:
    """A run of a recurrent DQN on CueMemory that is still acting at random."""
    network = {"hidden_dims": [4], "memory": {"type": "gru", "size": 4}}
    hparams = {"sequence_length": 4, "burn_in": 1, "batch_size": 16, "learning_starts": 40, **given.pop("hparams", {})}
    config = {
        "algo": "dqn",
        "env_id": "RLProbe/CueMemory-v0",
        "env": {"num_envs": 2},
        "hparams": hparams,
        "network": {"actor": network, "critic": network},
        "buffer": {"size": 200},
    }
    return build_trainer(parse_config({**config, **given}))


def test_what_is_stored_is_what_was_remembered_from_the_first_random_action_on() -> None:
    run = trainer(hparams={"stored_state": True, "learning_starts": 1000})
    run.train_step(30)
    policy, ring = run.algorithm.policy, run.buffer.carry["hidden"]
    carry, ends = policy.initial_carry(2), np.ones(2, bool)
    for t in range(30):
        here = slice(2 * t, 2 * t + 2)
        np.testing.assert_array_equal(ring[here], carry["hidden"])
        carry = policy.act(run.buffer.obs[here], carry, ends, np.random.default_rng(0)).carry
        ends = run.buffer.terminated[here] | run.buffer.truncated[here]
    assert ring[2:60].any()
    run.close()


def test_a_stored_state_lets_a_sequence_go_on_where_it_was_cut() -> None:
    run = trainer(hparams={"stored_state": True, "learning_starts": 1000})
    run.train_step(40)
    rows = run.algorithm.prepare(run.buffer.sample(8))
    backbone = run.algorithm.q.backbone
    assert rows.obs.carry["hidden"].shape == (8, 4)
    with torch.no_grad():
        seen = features_of(backbone, rows.obs)
        from_nothing = features_of(backbone, replace(rows.obs, carry=None))
    assert len(seen) == 8 * 4
    assert not torch.equal(seen, from_nothing), "most sequences begin within an episode"
    run.close()


def test_batches_hold_as_many_transitions_as_without_memory() -> None:
    run = trainer()
    run.train_step(30)
    batch = run.buffer.sample(run.schedule.batch_size)
    assert batch["rewards"].shape == (16 // 4, 1 + 4)
    assert run.buffer.memory_bytes == 200 * (2 * 8 + 8 + 7), "nothing is stored of a memory that starts from nothing"
    run.close()
    stored = trainer(hparams={"stored_state": True})
    assert stored.buffer.memory_bytes == 200 * (2 * 8 + 8 + 7 + 4 * 4)
    stored.close()


HER_KEYS = {"env_id": "RLProbe/BitFlip-v0", "buffer": {"type": "her", "size": 200}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "n-step": ({"hparams": {"n_step": 5}}, r"n_step 5 is more than the hparams\.sequence_length 4"),
    "n-step of an actor-critic": (
        {"algo": "sac", "env_id": "Pendulum-v1", "hparams": {"n_step": 3}},
        r"actor-critics with memory learn from one-step targets along sequences; set hparams\.n_step: 1",
    ),
    "batch": ({"hparams": {"batch_size": 3}}, r"batch_size 3 is less than one sequence of hparams\.sequence_length 4"),
    "her": (HER_KEYS, "hindsight replay relabels transitions, networks with memory learn from sequences"),
    "small buffer": ({"buffer": {"size": 8}}, r"holds no sequence of 5 steps of 2 environments: raise buffer\.size"),
    "crossq": ({"algo": "crossq", "env_id": "Pendulum-v1"}, "crossq has no networks with memory"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_combine_with_memory_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**given)
