"""What networks are shown in an update: rows that stand for themselves, or sequences where networks remember.

Losses are written over B rows, whatever stands behind a row. `features_of(backbone, obs)` gives the features of these
rows: of single observations by one pass, of `Steps` by following each sequence with the backbone's memory. `Encoded`
adds what a shared encoder made of the observations, so that nothing is encoded twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from rl_training.models.backbones.memory import MemoryCarry, Remembering
from rl_training.models.backbones.mlp import TensorObs
from rl_training.types import ACTION_MASK


@dataclass(frozen=True, slots=True)
class Steps:
    """N sequences, in the order of time: row t * N + n is step t of sequence n.

    K steps of burn-in move the memories and are not learnt from; T steps follow. The features are those of the T * N
    observations or, where `following` is given, of the observation that follows each of them: one step from the memory
    after the row, which at an episode's end is not the memory of the next row.
    """

    before: TensorObs
    """(K * N, ...), the burn-in."""
    obs: TensorObs
    """(T * N, ...)"""
    is_first: Tensor
    """(K + T, N), where episodes begin."""
    kept: Tensor | None = None
    """Rows among T * N that are transitions; None if all are."""
    carry: MemoryCarry | None = None
    """What was remembered before the first step; None starts from nothing."""
    following: TensorObs | None = None
    """(T * N, ...), the true next observations."""

    @property
    def num_sequences(self) -> int:
        return self.is_first.shape[1]

    def rows(self) -> TensorObs:
        """The observations that features are asked of, without the burn-in."""
        return taken(self.obs if self.following is None else self.following, self.kept)

    def encoded(self, encoder: Callable[[TensorObs], TensorObs]) -> Steps:
        """The same steps as an encoder shows them; no gradient reaches it through the burn-in."""
        with torch.no_grad():
            before = encoder(self.before) if len(next(iter(named(self.before).values()))) else self.before
        following = None if self.following is None else encoder(self.following)
        return replace(self, before=before, obs=encoder(self.obs), following=following)

    def features(self, backbone: nn.Module) -> Tensor:
        """Features (B, H) of the rows that are transitions."""
        if not isinstance(backbone, Remembering):
            return cast(Tensor, backbone(self.rows()))
        memory, num_sequences = backbone.memory, self.num_sequences
        burn_in = len(self.is_first) - len(next(iter(named(self.obs).values()))) // num_sequences
        carry = memory.initial_carry(num_sequences) if self.carry is None else self.carry
        if burn_in:
            with torch.no_grad():
                inputs = backbone.embed(self.before).unflatten(0, (burn_in, num_sequences))
                carry = memory.follow(inputs, carry, self.is_first[:burn_in])[1].last()
        inputs = backbone.embed(self.obs).unflatten(0, (-1, num_sequences))
        features, trace = memory.follow(inputs, carry, self.is_first[burn_in:])
        if self.following is None:
            return cast(Tensor, taken(features.flatten(0, 1), self.kept))
        kept = torch.arange(features[..., 0].numel(), device=features.device) if self.kept is None else self.kept
        goes_on = torch.zeros(len(kept), dtype=torch.bool, device=features.device)
        return memory.step(backbone.embed(self.rows()), trace.after(kept), goes_on)[0]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Observations together with what the encoder `by` made of them. Another encoder starts again from the raw ones."""

    by: nn.Module
    raw: TensorObs | Steps
    seen: TensorObs | Steps


Seen = TensorObs | Steps | Encoded
"""Observations in whichever form a network is shown them."""


def features_of(backbone: nn.Module, obs: Seen) -> Tensor:
    """Features (B, H) of rows that stand for themselves or belong to sequences."""
    if isinstance(obs, Encoded):
        obs = obs.seen
    return obs.features(backbone) if isinstance(obs, Steps) else cast(Tensor, backbone(obs))


def rows_of(obs: Seen) -> TensorObs:
    """The observations of the rows alone, for networks without memory."""
    if isinstance(obs, Encoded):
        obs = obs.seen
    return obs.rows() if isinstance(obs, Steps) else obs


def action_mask(obs: Seen) -> Tensor | None:
    """The reserved mask among Dict observations, if there is one."""
    if isinstance(obs, Encoded):
        obs = obs.raw
    if isinstance(obs, Steps):
        observations = obs.obs if obs.following is None else obs.following
        mask = observations.get(ACTION_MASK) if isinstance(observations, dict) else None
        return mask if mask is None or obs.kept is None else mask.index_select(0, obs.kept)
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def taken(obs: TensorObs, index: Tensor | None) -> TensorObs:
    """The rows at `index`; all of them for None."""
    if index is None:
        return obs
    if isinstance(obs, dict):
        return {name: value.index_select(0, index) for name, value in obs.items()}
    return obs.index_select(0, index)


def named(obs: TensorObs) -> dict[str, Tensor]:
    """Observations by name; a lone one is called obs."""
    return obs if isinstance(obs, dict) else {"obs": obs}
